"""Results in the form of other libraries: AnnData as scanpy fills it, and xarray."""

from typing import Any

import numpy as np

from primedpca.estimator import PrimedPCA
from primedpca.protocols import DataSource
from primedpca.sources import as_source
from primedpca.sources.files.hdf5 import is_anndata
from primedpca.sources.memory.frames import aligned_rows
from primedpca.sources.memory.xarray_fields import Fields, is_xarray
from primedpca.sources.selected import Selected

__all__ = ["pca_anndata", "to_xarray"]


def pca_anndata(
    adata: Any,
    n_components: Any = 50,
    *,
    layer: str | None = None,
    mask_var: Any = "auto",
    key_added: str | None = None,
    **options: Any,
) -> PrimedPCA:
    """Compute the PCA of an AnnData and store it where scanpy stores its own.

    Fills ``obsm["X_pca"]`` with the scores, ``varm["PCs"]`` with the components (zero for
    excluded variables) and ``uns["pca"]`` with ``variance``, ``variance_ratio`` and ``params``,
    so that functions that follow ``scanpy.pp.pca`` can be called next.  With a certificate,
    ``uns["pca"]`` also has ``angle_bounds`` in radians.

    Parameters
    ----------
    adata : anndata.AnnData
        In memory or backed.  A backed ``X`` is read block by block from its file; the results
        stay in memory until ``adata`` is written.
    n_components : int, float or None, default=50
        As in :class:`~primedpca.PrimedPCA`.
    layer : str, optional
        Layer to use instead of ``X``.
    mask_var : str, array of bool of shape (n_vars,), "auto" or None, default="auto"
        Variables to use (a Series goes by name), or the column of ``var`` that selects them.
        ``"auto"`` uses ``"highly_variable"`` if there is such a column, as scanpy does, and
        ``None`` uses all.
    key_added : str, optional
        Key in ``obsm``, ``varm`` and ``uns`` that replaces the three above.
    **options
        Other parameters of :class:`~primedpca.PrimedPCA`.

    Returns
    -------
    PrimedPCA
        The fitted model, with its ``certificate_``.

    Examples
    --------
    >>> import anndata, numpy as np
    >>> from primedpca.interop import pca_anndata
    >>> X = np.random.default_rng(0).poisson(2.0, (40, 12)).astype("float32")
    >>> adata = anndata.AnnData(X)
    >>> pca = pca_anndata(adata, 3, random_state=0)
    >>> adata.obsm["X_pca"].shape, adata.varm["PCs"].shape
    ((40, 3), (12, 3))
    """
    if not is_anndata(adata):
        raise TypeError(f"`adata` must be an anndata.AnnData, got {type(adata).__name__}.")
    if layer is not None and layer not in adata.layers:
        known = ", ".join(map(repr, adata.layers)) or "none"
        raise ValueError(f"`layer`={layer!r} not found. Layers of `adata`: {known}.")
    named, mask = selected_variables(adata, mask_var)
    source: DataSource = selected_matrix(adata, layer, mask)
    pca: PrimedPCA = PrimedPCA(n_components, **options).fit(source)
    # scanpy expects a row for every variable, also for those that the mask excludes.
    loadings = np.zeros((adata.n_vars, pca.n_components_), pca.components_.dtype)
    loadings[slice(None) if mask is None else mask] = pca.components_.T
    highly = isinstance(named, str) and named == "highly_variable"
    params = {"zero_center": pca.center_, "use_highly_variable": highly, "mask_var": named}
    if layer is not None:
        params["layer"] = layer
    variance, ratio = pca.explained_variance_, pca.explained_variance_ratio_
    about = {"params": params, "variance": variance, "variance_ratio": ratio}
    if pca.angle_bounds_ is not None:
        about["angle_bounds"] = pca.angle_bounds_
    # An array, also where `sklearn.set_config` asks for data frames, whose rows have other names.
    adata.obsm[key_added or "X_pca"] = np.asarray(pca.transform(source))
    adata.varm[key_added or "PCs"] = loadings
    adata.uns[key_added or "pca"] = about
    return pca


def selected_variables(adata: Any, mask_var: Any) -> tuple[Any, np.ndarray | None]:
    """Return the mask as it is recorded in ``params``, and as an array ``(n_vars,)``."""
    if isinstance(mask_var, str) and mask_var == "auto":
        mask_var = "highly_variable" if "highly_variable" in adata.var else None
    if mask_var is None:
        return None, None
    if isinstance(mask_var, str) and mask_var not in adata.var:
        known = ", ".join(map(repr, adata.var.columns)) or "none"
        raise ValueError(f"`mask_var`={mask_var!r} not found. Columns of `adata.var`: {known}.")
    named = isinstance(mask_var, str)
    mask = adata.var[mask_var] if named else mask_var
    mask = np.asarray(aligned_rows(mask, lambda: adata.var_names, "mask_var"))
    if mask.dtype != bool or mask.shape != (adata.n_vars,):
        raise ValueError(f"`mask_var` must be {adata.n_vars} bools, got {mask.dtype} {mask.shape}.")
    return (mask_var if named else mask), mask


def selected_matrix(adata: Any, layer: str | None, mask: np.ndarray | None) -> Any:
    """Return the selected columns of the matrix as a source, without a copy where possible."""
    names = np.asarray(adata.var_names, dtype=object)
    if adata.isbacked and layer is None:  # layers are always in memory
        source: Any = as_source(adata)
        return source if mask is None else Selected(source, np.flatnonzero(mask))
    x: Any = adata.X if layer is None else adata.layers[layer]
    if x is None:
        raise ValueError("`adata` has no X. Select one of its layers with `layer`.")
    source = as_source(x if mask is None else x[:, mask])
    source.feature_names = names if mask is None else names[mask]
    return source


def to_xarray(pca: PrimedPCA, field: Any, *, sample: Any = None) -> Any:
    """Return a model that was fitted to fields, with their scores, as an xarray.Dataset.

    Parameters
    ----------
    pca : PrimedPCA
        Fitted to these fields, or to others on the same grid.
    field : xarray.DataArray, or the source that :func:`~primedpca.as_source` returns for one
    sample : str, optional
        Dimension that counts the samples, default=the first.

    Returns
    -------
    xarray.Dataset
        ``components`` over ``component`` and the dimensions of a field, ``mean_field`` over those
        of a field, ``scores`` over samples and ``component``, and over ``component``
        ``explained_variance``, ``explained_variance_ratio`` and, with a certificate,
        ``angle_bound`` in radians.  The coordinate ``component`` counts from 1.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from primedpca import PrimedPCA
    >>> from primedpca.interop import to_xarray
    >>> rain = xr.DataArray(
    ...     np.random.default_rng(0).gamma(2.0, size=(30, 4, 5)),
    ...     dims=("year", "lat", "lon"),
    ...     coords={"year": np.arange(1990, 2020)},
    ... )
    >>> found = to_xarray(PrimedPCA(2).fit(rain), rain)
    >>> found.components.dims, found.scores.dims
    (('component', 'lat', 'lon'), ('year', 'component'))
    >>> found.scores.sel(year=1999, component=1).shape
    ()
    """
    if not isinstance(field, Fields) and not is_xarray(field):
        raise TypeError(f"`field` must be an xarray.DataArray, got {type(field).__name__}.")
    source = field if isinstance(field, Fields) else Fields(field, sample=sample)
    along = source.sample_dim
    if sample not in (None, along):
        raise ValueError(f"`sample`={sample!r}, but samples of this source are along {along!r}.")
    import xarray as xr

    kept = {
        "components": source.unstack(pca.components_),
        "mean_field": source.unstack(pca.mean_),
        "scores": source.label(pca.transform(source)),
        "explained_variance": ("component", pca.explained_variance_),
        "explained_variance_ratio": ("component", pca.explained_variance_ratio_),
    }
    if pca.angle_bounds_ is not None:
        kept["angle_bound"] = ("component", pca.angle_bounds_, {"units": "rad"})
    return xr.Dataset(kept).assign_coords(component=np.arange(1, pca.n_components_ + 1))
