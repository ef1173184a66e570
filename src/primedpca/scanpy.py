"""PCA of single-cell data with the signature, defaults and results of ``scanpy.pp.pca``."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from primedpca._core.arrays import is_sparse
from primedpca._operator.operator import Centred
from primedpca._operator.scaling import in_unit_of_data
from primedpca.estimator import PrimedPCA
from primedpca.interop import selected_matrix, selected_variables
from primedpca.result import Certificate
from primedpca.sklearn import PCA, TruncatedSVD
from primedpca.sources import as_source
from primedpca.sources.files.hdf5 import is_anndata

__all__ = ["pca"]

#: Default number of components, where cells and genes allow it.
MOST_COMPONENTS = 50


def pca(
    data: Any,
    n_comps: int | None = None,
    *,
    layer: str | None = None,
    zero_center: bool = True,
    svd_solver: str | None = None,
    chunked: bool = False,
    chunk_size: int | None = None,
    random_state: Any = 0,
    return_info: bool = False,
    mask_var: Any = "auto",
    use_highly_variable: bool | None = None,
    dtype: Any = "float32",
    key_added: str | None = None,
    copy: bool = False,
) -> Any:
    """Compute the PCA of cells; the same call as ``scanpy.pp.pca``, with a certificate.

    Parameters
    ----------
    data : anndata.AnnData, ndarray or sparse matrix of shape (n_obs, n_vars)
        An AnnData may be backed: its file is then read block by block.
    n_comps : int or None, default=None
        Number of components; ``None`` is 50, or one less than the smaller dimension if that is
        at most 50.
    layer : str or None, default=None
        Layer to use instead of ``X``.
    zero_center : bool, default=True
        Whether to centre; ``False`` computes a truncated SVD.
    svd_solver : str or None, default=None
        As in :class:`primedpca.sklearn.PCA`, or without centring
        :class:`primedpca.sklearn.TruncatedSVD`.  ``None`` is ``"arpack"``, and without centring
        ``"randomized"``.  A solver that the class does not have is replaced by these, with a
        warning.
    chunked : bool, default=False
        Read blocks of rows in turn, to the tolerance pi/1024, instead of the whole matrix.  This
        always centres and ignores ``svd_solver``.
    chunk_size : int or None, default=None
        Accepted.  The size of blocks is chosen by the format of the data.
    random_state : int, RandomState or None, default=0
        Seed of all random draws.
    return_info : bool, default=False
        For arrays: whether to return components and variances as well.
    mask_var : str, array of bool of shape (n_vars,), "auto" or None, default="auto"
        Variables to use, or the column of ``var`` that selects them.  ``"auto"`` is
        ``"highly_variable"`` if there is such a column, and otherwise all.
    use_highly_variable : bool or None, default=None
        Deprecated, as in scanpy.  Use ``mask_var``.
    dtype : dtype, default="float32"
        Type of the scores.
    key_added : str or None, default=None
        Key in ``obsm``, ``varm`` and ``uns`` that replaces ``"X_pca"``, ``"PCs"`` and ``"pca"``.
    copy : bool, default=False
        Whether to return a copy of an AnnData instead of changing it.

    Returns
    -------
    None, anndata.AnnData, ndarray or tuple
        Of an AnnData: ``None``, or the changed copy.  It has scores in ``obsm["X_pca"]``,
        components in ``varm["PCs"]``, and in ``uns["pca"]`` the entries ``params``,
        ``variance``, ``variance_ratio`` and, beyond scanpy's, ``certificate``: a dict of
        ``angle_bounds`` in radians, ``variance_bounds`` (unless ``zero_center`` is False),
        ``kind`` and ``failure_probability``.
        Of an array: the scores, with ``return_info`` a tuple of scores, components, explained
        variance ratios and explained variances.

    Examples
    --------
    >>> import anndata, numpy as np
    >>> import primedpca.scanpy
    >>> counts = np.random.default_rng(0).poisson(2.0, (30, 12)).astype("float32")
    >>> adata = anndata.AnnData(counts)
    >>> primedpca.scanpy.pca(adata)
    >>> adata.obsm["X_pca"].shape, adata.obsm["X_pca"].dtype
    ((30, 11), dtype('float32'))
    >>> adata.uns["pca"]["certificate"]["kind"]
    'exact'
    """
    if use_highly_variable is not None:
        mask_var = _deprecated(mask_var, use_highly_variable)
    if is_anndata(data):
        adata = data.copy() if copy else data
        named, mask = selected_variables(adata, mask_var)
        x = selected_matrix(adata, layer, mask)
    else:
        named, mask, x = None, *_columns(data, layer, mask_var)
    k = _default_count(x.shape) if n_comps is None else n_comps
    model, found, parts = _fitted(x, k, zero_center, svd_solver, chunked, random_state)
    scores = np.asarray(found).astype(dtype, copy=False)
    if not is_anndata(data):
        return (scores, *parts) if return_info else scores
    params = {
        "zero_center": zero_center,
        "use_highly_variable": isinstance(named, str) and named == "highly_variable",
        "mask_var": named,
    } | ({} if layer is None else {"layer": layer})
    loadings = model.components_.T
    if mask is not None:  # scanpy has a row for every variable, of zeros for those left out
        loadings = np.zeros((adata.n_vars, model.components_.shape[0]))
        loadings[mask] = model.components_.T
    adata.obsm[key_added or "X_pca"] = scores
    adata.varm[key_added or "PCs"] = loadings
    adata.uns[key_added or "pca"] = {
        "params": params,
        "variance": parts[2],
        "variance_ratio": parts[1],
        "certificate": _numbers(model.certificate_, chunked or zero_center),
    }
    return adata if copy else None


def _deprecated(mask_var: Any, use_highly_variable: bool) -> str | None:
    """Return the mask for the deprecated argument, with scanpy's warning and error."""
    hint = (
        'Use_highly_variable=True can be called through mask_var="highly_variable". '
        "Use_highly_variable=False can be called through mask_var=None"
    )
    words = "Argument `use_highly_variable` is deprecated, consider using the mask argument."
    warnings.warn(f"{words} {hint}", FutureWarning, stacklevel=3)
    if not (isinstance(mask_var, str) and mask_var == "auto"):
        raise ValueError(f"These arguments are incompatible. {hint}")
    return "highly_variable" if use_highly_variable else None


def _columns(data: Any, layer: str | None, mask_var: Any) -> tuple[np.ndarray | None, Any]:
    """Return the mask, and the selected columns of an array."""
    if layer is not None:
        raise ValueError(f"`layer`={layer!r} needs an AnnData, got {type(data).__name__}.")
    if mask_var is None or (isinstance(mask_var, str) and mask_var == "auto"):
        return None, data
    mask = np.asarray(mask_var)
    if mask.dtype != bool or mask.shape != (data.shape[1],):
        words = f"got {mask.dtype} of shape {mask.shape}"
        raise ValueError(f"`mask_var` must be {data.shape[1]} bools for an array, {words}.")
    return mask, data[:, mask]


def _default_count(shape: tuple[int, int]) -> int:
    least = min(shape)
    return least - 1 if least <= MOST_COMPONENTS else MOST_COMPONENTS


def _fitted(
    x: Any, k: int, zero_center: bool, svd_solver: str | None, chunked: bool, random_state: Any
) -> tuple[Any, np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return a fitted model, the scores, and components with their variance ratios and variances.

    Without centring, the variances are those of the scores, as scanpy's.
    """
    array = x if not hasattr(x, "traits") else x.traits.array
    if chunked or array is None or not (isinstance(array, np.ndarray) or is_sparse(array)):
        source = as_source(x)
        model = PrimedPCA(k, center=chunked or zero_center, random_state=random_state)
        scores = np.asarray(model.fit_transform(source))
        if not model.center_:
            data, variances = Centred(source), scores.var(axis=0, dtype=np.float64)
            total = float(in_unit_of_data(data, np.float64(data.total)))  # divided by n - 1
            ratios = scores.var(axis=0, dtype=np.float64, ddof=1) / (total or 1.0)
            kind = scores.dtype
            return model, scores, (model.components_, ratios.astype(kind), variances.astype(kind))
        return model, scores, _parts(model)
    if zero_center:
        solvers = {"arpack", "covariance_eigh"}
        solvers |= set() if is_sparse(array) else {"auto", "full", "randomized"}
        solver = _solver(svd_solver, "arpack", solvers)
        model = PCA(k, svd_solver=solver, random_state=random_state)
    else:
        solver = _solver(svd_solver, "randomized", {"arpack", "randomized"})
        model = TruncatedSVD(k, algorithm=solver, random_state=random_state)
    scores = np.asarray(model.fit_transform(array))
    return model, scores, _parts(model)


def _parts(model: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return model.components_, model.explained_variance_ratio_, model.explained_variance_


def _solver(asked: str | None, default: str, known: set[str]) -> str:
    """Return the solver, or the default with a warning, as scanpy does."""
    if asked is None or asked in known:
        return asked or default
    words = f"Ignoring svd_solver={asked!r} and using {default!r}"
    warnings.warn(f"{words}. Supported here: {', '.join(sorted(known))}.", stacklevel=4)
    return default


def _numbers(proof: Certificate | None, centred: bool) -> dict[str, Any]:
    """Return a certificate as arrays, numbers and text, which an ``.h5ad`` file can hold.

    Without centring it bounds second moments, which are not the variances of the scores.
    """
    if proof is None:
        return {}
    found = {
        "kind": proof.kind,
        "failure_probability": float(proof.failure_probability),
        "angle_bounds": proof.angle_bounds,
    }
    return found | ({"variance_bounds": proof.eigenvalue_bounds} if centred else {})
