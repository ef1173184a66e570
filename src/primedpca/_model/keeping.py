"""What a fitted estimator can be kept as: a file, or scikit-learn's own PCA."""

from __future__ import annotations

import os
from copy import copy
from typing import Any

import numpy as np

__all__ = ["Keeping"]


class Keeping:
    """The estimator's methods ``save`` and ``to_sklearn``."""

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model to one safetensors file; :func:`primedpca.load` reads it.

        Parameters
        ----------
        path : path
            By custom ``something.safetensors``.  It is there whole or not at all.  Parameters
            that belong to a machine are not kept: ``engine``, ``checkpoint``, ``device`` and
            ``max_memory``.
        overwrite : bool
            Whether a file that is there already may be replaced.
        """
        from primedpca._io.model_file import save

        save(self, path, overwrite)  # type: ignore[arg-type]

    def to_sklearn(self) -> Any:
        """The same model as scikit-learn's PCA, for those who do not have primedpca.

        Returns
        -------
        sklearn.decomposition.PCA
            Or, where columns were scaled, a Pipeline of a StandardScaler and a PCA.  It holds
            copies, and transforms as this model does, up to rounding; certificates stay behind.
        """
        from sklearn.decomposition import PCA
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        model: Any = self
        pca = PCA(model.n_components_, whiten=model.whiten)
        for name in (
            *("components_", "explained_variance_", "explained_variance_ratio_"),
            *("singular_values_", "mean_", "n_components_", "n_samples_", "noise_variance_"),
            *("n_features_in_", "feature_names_in_"),
        ):
            if hasattr(model, name):
                setattr(pca, name, copy(getattr(model, name)))
        if model.scale_ is None:
            return pca
        scaler = StandardScaler()
        scaler.mean_, scaler.scale_ = model.mean_.copy(), model.scale_.copy()
        scaler.var_, scaler.n_samples_seen_ = model.scale_**2, model.n_samples_
        scaler.n_features_in_ = model.n_features_in_
        pca.mean_ = np.zeros_like(model.mean_)
        if hasattr(model, "feature_names_in_"):
            scaler.feature_names_in_ = pca.feature_names_in_
            del pca.feature_names_in_
        return make_pipeline(scaler, pca)
