"""Scores of new rows, and rows from scores: the estimator's methods that use a fitted model."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from sklearn.base import TransformerMixin

from primedpca._core.arrays import is_dense, namespace, to_numpy
from primedpca._core.orthonormal import orthonormalise
from primedpca._io.lazy_scores import Seen, lazy_scores
from primedpca._io.score_file import check_path, write_scores_file
from primedpca._model.attributes import deviations, write_scores
from primedpca._model.gaussian import Model
from primedpca._operator.operator import Centred
from primedpca.sources.memory.dask_array import is_dask

__all__ = ["Projecting"]


class Projecting(TransformerMixin, ABC):
    """``transform`` and ``inverse_transform``."""

    components_: np.ndarray
    explained_variance_: np.ndarray
    mean_: np.ndarray
    scale_: np.ndarray | None
    n_components_: int
    noise_variance_: float
    whiten: bool
    missing: str

    def transform(self, X: Any, out: Any = None) -> Any:  # noqa: N803
        """Scores: the rows of ``X`` in the coordinates of the components.

        Parameters
        ----------
        X : data of shape (n_samples, n_features)
        out : ndarray of shape (n_samples, n_components_) or path, optional
            Where to write the scores: an array, or the name of a new ``.npy`` file, which is
            written block by block, so that the scores need not fit into memory, and is there
            whole or not at all.

        Returns
        -------
        array of shape (n_samples, n_components_)
            Of the library of ``X``; NumPy for sparse data and frames; ``out`` if that is an
            array, and a read-only memory map if it is a path.  Of a Dask array a Dask array,
            which is not computed yet.
        """
        if out is None and is_dask(X):
            self._check_fitted()
            self._source(X, reset=False)  # looks at names and numbers of columns
            weights = self.components_ / self._stretch()
            return lazy_scores(X, Seen(weights, self.mean_, self.scale_, self.missing))
        path = check_path(out) if isinstance(out, (str, os.PathLike)) else None
        data = self._seen(X)
        weights = self.components_ / self._stretch()
        vectors = data.like.asarray(weights.T)
        if path is not None:
            return write_scores_file(path, data, vectors)
        scores = data.forward(vectors)
        data.check_finite(scores)
        if not is_dense(X) or isinstance(X, np.ndarray):  # anything but a tensor
            scores = to_numpy(scores)
        return scores if out is None else write_scores(out, scores)

    def fit_transform(self, X: Any, y: Any = None, *, out: Any = None, **fit_params: Any) -> Any:  # noqa: N803
        """Fit, then the scores of the same rows: see :meth:`fit` and :meth:`transform`.

        Parameters
        ----------
        X : data of shape (n_samples, n_features)
        y : ignored
        out : ndarray of shape (n_samples, n_components_) or path, optional
        **fit_params
            Of :meth:`fit`, such as ``sample_weight``.

        Returns
        -------
        array of shape (n_samples, n_components_)
        """
        if isinstance(out, (str, os.PathLike)):
            check_path(out)  # before the fit
        return self.fit(X, y, **fit_params).transform(X, out=out)  # type: ignore[attr-defined]

    def inverse_transform(self, X: Any) -> Any:  # noqa: N803
        """Rows in the space of the data, from scores.

        Parameters
        ----------
        X : array of shape (n_samples, n_components_)

        Returns
        -------
        array of shape (n_samples, n_features)
            Of the library and on the device of ``X``.
        """
        self._check_fitted()
        scores = X if is_dense(X) else np.asarray(X)
        if len(scores.shape) != 2 or scores.shape[1] != self.n_components_:
            raise ValueError(
                f"`X` must have shape (n_samples, n_components_={self.n_components_}), got "
                f"{tuple(scores.shape)}."
            )
        weights = self.components_ * self._stretch()
        back = weights if self.scale_ is None else weights * self.scale_
        xp = namespace(scores)
        where = {"device": scores.device} if hasattr(scores, "device") and xp is not np else {}
        return scores @ xp.asarray(back, **where) + xp.asarray(self.mean_, **where)

    def _stretch(self) -> Any:
        """What whitening divides the scores by."""
        kind = self.components_.dtype
        return deviations(self.explained_variance_, kind)[:, None] if self.whiten else kind.type(1)

    def _model(self) -> Model:
        self._check_fitted()
        return Model(
            # Orthonormal in float64: small distances from the span hang on it.
            orthonormalise(self.components_.T.astype(np.float64, order="C"))[0].T,
            self.explained_variance_.astype(np.float64),
            self.noise_variance_,
            self.scale_,
        )

    def _seen(self, X: Any) -> Centred:  # noqa: N803
        """New rows as the fitted model sees them."""
        self._check_fitted()
        source = self._source(X, reset=False)
        own = source if source.traits.shared is None else source.traits.shared.own
        return Centred.given(own, self.mean_, self.scale_, self.missing)

    @abstractmethod
    def _check_fitted(self) -> None:
        """Refuse a model that was not fitted."""

    @abstractmethod
    def _source(self, X: Any, reset: bool) -> Any:  # noqa: N803
        """``X`` as a source, its columns learnt (``reset``) or compared with those learnt."""
