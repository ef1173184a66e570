"""What the data is: one file per kind of data, and :func:`as_source` to find the right one.

Add a kind of data: write a class with the members of
:class:`primedpca.protocols.DataSource` (``BlockSource`` gives most of them) and add a line to
the registry.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from primedpca.arrays import describe, is_dense, is_sparse, work_dtype
from primedpca.protocols import DataSource
from primedpca.sources.base import BlockSource
from primedpca.sources.blocks import is_iterable_of_blocks, iterated
from primedpca.sources.dense import DenseSource
from primedpca.sources.fields import Fields, is_xarray
from primedpca.sources.frames import frame_source, is_frame
from primedpca.sources.h5ad import anndata_source, h5ad_source, is_anndata, is_h5ad
from primedpca.sources.images import ImageFolder, is_images
from primedpca.sources.mapped import Mapped
from primedpca.sources.plink import Genotypes, is_plink
from primedpca.sources.raw_file import memmap_source
from primedpca.sources.sparse_files import (
    is_matrix_market,
    is_sparse_npz,
    matrix_market,
    sparse_npz,
)
from primedpca.sources.torch_data import is_torch_data, torch_source
from primedpca.sources.video import VideoFrames, is_video

__all__ = ["BlockSource", "as_source"]

KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _sparse_source(x: Any) -> DataSource:
    from primedpca.sources.sparse import SparseSource

    return SparseSource(x)


def _is_file_backed(x: Any) -> bool:
    """Whether ``x`` is what stands in a file: a private map ("c") may have been written to."""
    if not isinstance(x, np.memmap) or x.ndim != 2:
        return False
    return getattr(x, "filename", None) is not None and x.mode != "c"


#: Who reads what: the first whose test says yes.  First what is named by a path.
REGISTRY: list[tuple[Callable[[Any], bool], Callable[..., DataSource]]] = [
    (is_images, ImageFolder),
    (is_video, VideoFrames),
    (is_sparse_npz, sparse_npz),
    (is_matrix_market, matrix_market),
    (is_h5ad, h5ad_source),
    (is_plink, Genotypes),
    (_is_file_backed, memmap_source),
    (is_sparse, _sparse_source),
    (is_frame, frame_source),
    (is_anndata, anndata_source),
    (is_xarray, Fields),
    (is_torch_data, torch_source),
    (is_dense, DenseSource),
    (is_iterable_of_blocks, iterated),
]


def as_source(x: Any, *, map: Any = None, **options: Any) -> DataSource:
    """The data ``x`` as a source of blocks.

    Parameters
    ----------
    x : array, sparse matrix, data frame, path, DataSource or nested list
        NumPy arrays (any layout, any real dtype, memory-mapped), SciPy sparse matrices and
        arrays, PyTorch tensors and CuPy arrays, pandas and polars frames, AnnData, xarray's
        DataArray, PyTorch datasets and data loaders, any object that gives 2-d blocks of rows
        whenever it is iterated over; the path of a folder of images of one size (or a pattern
        such as ``"photographs/*.jpg"``), of a video, of an ``.h5ad`` file (or a matrix in it,
        ``"cells.h5ad::layers/counts"``), of SciPy's sparse ``.npz``, of a Matrix Market ``.mtx``
        or ``.mtx.gz``, of a PLINK ``.bed``.
    map : callable, optional
        Applied to every block of rows as it is read; see :class:`primedpca.sources.mapped.Mapped`
        and the ready ones in :mod:`primedpca.sources.maps`.
    **options
        Of the kind of data, such as ``standardise=True`` for genotypes, ``sample="time"`` for a
        DataArray or ``shrink=2`` for images.

    Returns
    -------
    DataSource
        Nothing is copied, except for frames of mixed columns and for sparse formats other
        than CSR and CSC.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import as_source
    >>> as_source(np.ones((5, 3)))
    DenseSource(numpy, 5 x 3, float64)
    """
    source = _find(x, options)
    return source if map is None else Mapped(source, map)


def _find(x: Any, options: dict[str, Any]) -> DataSource:
    if isinstance(x, DataSource):
        return _make(lambda x: x, x, options)
    if isinstance(x, (list, tuple)):
        x = np.asarray(x)
    if isinstance(x, (str, bytes, os.PathLike)) or np.isscalar(x) or x is None:
        for recognises, make in REGISTRY:
            if isinstance(x, (str, os.PathLike)) and recognises(x):
                return _make(make, x, options)
        raise TypeError(
            f"`X`={x!r} is no data that can be read; pass an array, a sparse matrix, a frame, a "
            "folder of images or a video. Load other files first, for example with "
            "np.load(path, mmap_mode='r')."
        )
    if not any(test(x) for test, _ in REGISTRY):
        if not hasattr(x, "__array__"):
            raise TypeError(
                f"`X` is a {describe(x)}, which no source reads; convert it with numpy.asarray."
            )
        x = np.asarray(x)
    make = next(make for test, make in REGISTRY if test(x))
    if make in (memmap_source, _sparse_source, DenseSource) and not hasattr(x, "indptr"):
        _check_dense(x)
    source = _make(make, x, options)
    if 0 in source.shape:
        what = "sample" if source.shape[0] == 0 else "feature"
        raise ValueError(
            f"Found array with 0 {what}(s) (shape={source.shape}) while a minimum of 1 is "
            "required: `X` is empty."
        )
    return source


def _make(make: Callable[..., DataSource], x: Any, options: dict[str, Any]) -> DataSource:
    """The source, or an error that names the option which this kind of data does not have."""
    known = inspect.signature(make).parameters
    unknown = [name for name in options if name not in known or known[name].kind != KEYWORD]
    if unknown:
        there = ", ".join(name for name, one in known.items() if one.kind == KEYWORD) or "none"
        raise TypeError(f"`{unknown[0]}` is no option of {describe(x)}; its options are: {there}.")
    return make(x, **options)


def _check_dense(x: Any) -> None:
    if getattr(x, "layout", None) is not None and "sparse" in str(x.layout):
        raise TypeError(
            "`X` is a sparse torch tensor, which is not read; pass a scipy.sparse matrix or "
            "X.to_dense()."
        )
    if np.ma.is_masked(x):
        raise TypeError(
            "`X` is a masked array, whose hidden entries would be read; pass "
            "X.astype(float).filled(numpy.nan) and `missing`='mean'."
        )
    if len(x.shape) != 2:
        raise ValueError(
            f"`X` must have two dimensions, (n_samples, n_features); got shape {tuple(x.shape)}. "
            "Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one sample."
        )
    work_dtype(x.dtype)
