"""Kinds of data: one file per kind, and :func:`as_source`, which finds the right one.

To add a kind of data, write a class with the members of :class:`primedpca.protocols.DataSource`
(``BlockSource`` has most of them) and add a line to the registry.  Sources import only
``protocols``, ``result`` and ``_core``.
"""

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from primedpca._core.arrays import (
    check_python_numbers,
    describe,
    has_kernels,
    is_dense,
    is_sparse,
    is_torch_array,
)
from primedpca.protocols import DataSource, check_blocks
from primedpca.sources.base import BlockSource, check_entries
from primedpca.sources.column_choice import check_name, place_of
from primedpca.sources.files.hdf5 import HDF5Source, h5ad_source, is_anndata, masked_in
from primedpca.sources.files.images import ImageFolder
from primedpca.sources.files.numpy_files import memmap_source
from primedpca.sources.files.paths import check_options, path_source
from primedpca.sources.files.video import VideoFrames
from primedpca.sources.files.zarr_store import ZarrSource
from primedpca.sources.memory import iterables
from primedpca.sources.memory.dask_array import DaskSource, is_dask
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.memory.frames import frame_source, is_frame
from primedpca.sources.memory.sparse import SparseSource
from primedpca.sources.memory.xarray_fields import Fields, is_xarray
from primedpca.sources.selected import Selected
from primedpca.sources.wrappers.adapted import Adapted
from primedpca.sources.wrappers.mapped import Mapped, in_rows
from primedpca.sources.wrappers.on_device import device_matrix_source, is_device_matrix

if TYPE_CHECKING:
    from primedpca.sources.wrappers.activations import Activations

__all__ = ["Activations", "BlockSource", "Fields", "ImageFolder", "Mapped", "RankRows"]
__all__ += ["VideoFrames", "as_source"]

#: Modules that are imported on first use.  Rows on ranks need the engine that connects the ranks,
#: and engines import sources.
_HOMES = {
    "Activations": "primedpca.sources.wrappers.activations",
    "RankRows": "primedpca.engines.torch.rank_rows",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def _is_file_backed(x: Any) -> bool:
    """Whether ``x`` equals its file: a copy-on-write map ("c") may have been changed."""
    if not isinstance(x, np.memmap) or x.ndim != 2:
        return False
    return getattr(x, "filename", None) is not None and x.mode != "c"


def _anndata_source(
    x: Any,
    *,
    follow_links: bool = False,
    label_column: str | None = None,
    mask_var: str | None = None,
) -> Any:
    """The ``X`` of an AnnData object: in memory, or from its file if it is backed."""
    options = {"label_column": label_column, "mask_var": mask_var}
    for argument, name in options.items():
        check_name(name, argument)
    if getattr(x, "isbacked", False):  # `adata.raw` has no such attribute
        if x.is_view:
            raise ValueError("`X` is a view of a backed AnnData; pass X.to_memory().")
        return h5ad_source(x.filename, follow_links=follow_links, **options)
    if x.X is None:
        raise ValueError("`X` is an AnnData without a matrix X; pass one of its layers.")
    source: Any = as_source(x.X)
    source.row_names = np.asarray(x.obs_names, dtype=object)
    source.feature_names = np.asarray(x.var_names, dtype=object)
    if label_column is not None:
        source.labels, source.headings = _column_of(x, "obs", label_column), ("name", label_column)
    if mask_var is None:
        return source
    return Selected(source, masked_in(_column_of(x, "var", mask_var), "`X`", mask_var))


def _column_of(x: Any, frame: str, name: str) -> np.ndarray:
    """A column of ``obs`` or ``var``, with None where a value is missing."""
    if not hasattr(x, frame):
        raise ValueError(f"`X` is the raw part of an AnnData, without {frame}. Pass X.to_adata().")
    table = getattr(x, frame)
    if name not in table.columns:
        known = ", ".join(map(repr, table.columns[:20])) or "none"
        raise ValueError(f"`X` has no `{frame}[{name!r}]`; columns of `{frame}`: {known}.")
    column, absent = table[name], table[name].isna()
    if absent.any():
        return np.array(column.astype(object).where(~absent, None), dtype=object)
    values: np.ndarray = column.to_numpy(bool if column.dtype == "boolean" else None)
    return values


def _is_array_of(library: str, x: Any) -> bool:
    """Imports nothing: anyone who has such an array has imported the library."""
    kind = type(x)  # not `x` itself: a dataset of a closed file raises when asked
    known = hasattr(kind, "shape") and hasattr(kind, "chunks")
    return known and kind.__module__.split(".")[0] == library


#: Test of an object and what makes a source of it; the first test that says yes counts.  Paths
#: have a table of their own, in `sources.files.paths`.
REGISTRY: list[tuple[Callable[[Any], bool], Callable[..., DataSource]]] = [
    (_is_file_backed, memmap_source),
    (is_sparse, SparseSource),
    (is_dask, DaskSource),
    (is_frame, frame_source),
    (partial(_is_array_of, "h5py"), HDF5Source),
    (partial(_is_array_of, "zarr"), ZarrSource),
    (is_anndata, _anndata_source),
    (is_xarray, Fields),
    (is_device_matrix, device_matrix_source),
    (iterables.is_torch_data, iterables.torch_source),
    (is_dense, DenseSource),
    (iterables.is_iterable_of_blocks, iterables.iterated),
]


def as_source(
    x: Any, *, map: Callable[[Any], Any] | None = None, columns: Any = None, **options: Any
) -> DataSource:
    """Return the data ``x`` as a source of blocks.

    Parameters
    ----------
    x : array, sparse matrix, data frame, path, DataSource or nested list
        NumPy arrays (any layout, any real dtype, memory-mapped), SciPy sparse matrices and
        arrays, PyTorch tensors and CuPy arrays (dense or sparse), Dask arrays, pandas, polars and
        narwhals frames, Arrow tables, h5py datasets, Zarr arrays, AnnData, xarray's DataArray,
        PyTorch datasets and data loaders, any object that yields 2-d blocks of rows whenever it is
        iterated over; the path
        of a file (`.npy`, `.npz` dense or sparse, HDF5, Zarr, Parquet, Arrow, CSV, Excel, `.h5ad`,
        Matrix Market, PLINK `.bed`, raw binary, a video) or of a folder of tables or of images of
        one size (or a pattern such as ``"photographs/*.jpg"``).  ``"file.h5::name"`` is one array
        of several.
    map : callable, optional
        Function applied to every block of rows as it is read; :mod:`primedpca.sources.maps` has
        ready-made ones.  A model that was fitted to mapped rows takes mapped rows:
        ``pca.transform(as_source(new, map=map))``.  Ready-made maps that divide by totals take
        the totals of whole rows, of which ``columns`` or ``mask_var`` are chosen afterwards; what
        ``exclude``, ``id_column`` and ``label_column`` name is not part of a row.  A function of
        your own is given the chosen columns.
    columns : sequence of str, optional
        Columns of a table or data frame to read, in this order; by default all.
    **options
        Options of the kind of data: ``shape``, ``dtype``, ``offset`` and ``order`` for raw
        binary, ``id_column``, ``label_column``, ``exclude`` and ``numeric_only`` for tables and
        data frames, ``header``, ``decimal``, ``thousands``, ``strip``, ``na_values`` and
        ``skip_rows`` for CSV and Excel, ``delimiter``, ``encoding``, ``comment`` and
        ``skip_bad_lines`` for CSV, ``sheet`` for Excel, ``label_column`` and ``mask_var`` (columns
        of ``obs`` and ``var``) for `.h5ad` and AnnData, ``strict`` for chunked stores,
        ``follow_links`` for HDF5, `.h5ad` and Zarr, whose links to other files are refused
        otherwise, ``cache`` and ``verify`` for `.npz`, ``shrink`` for images, ``standardise`` for
        genotypes, ``sample``, ``mask`` and ``weights`` for a DataArray.

    Returns
    -------
    DataSource
        Nothing is copied, except for frames of mixed columns and for sparse formats other
        than CSR and CSC.  Files are read in blocks, in every pass.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import as_source
    >>> as_source(np.ones((5, 3)))
    DenseSource(numpy, 5 x 3, float64)
    """
    plain = columns is None and not options
    if plain and isinstance(x, BlockSource):
        source: DataSource = x
        if type(x).__module__.partition(".")[0] != __package__.partition(".")[0]:
            check_blocks(x)
    elif plain and type(x) is np.ndarray and x.size and x.ndim == 2 and x.dtype.kind in "biuf":
        source = DenseSource(x)  # the commonest kind, without asking all others
    elif getattr(map, "whole_rows", False):
        return _mapped_whole(x, map, columns, options)
    else:
        source = _found_source(x, columns, options)
    return source if map is None else Mapped(source, map)


def _mapped_whole(x: Any, map: Any, columns: Any, options: dict[str, Any]) -> DataSource:
    """The chosen columns of mapped rows: a map that divides by totals needs those of whole rows.

    Columns that the options of a table or data frame say are not data are not in the totals.
    """
    if columns is not None and (is_frame(x) or isinstance(x, (str, os.PathLike))):
        whole: Any = _found_source(x, None, dict(options))
        known = list(getattr(whole, "column_names", None) or ())
        if len(known) == whole.shape[1]:
            one = isinstance(columns, str) or not hasattr(columns, "__iter__")
            index = place_of([columns] if one else [*columns], known, options)
            return _chosen(Mapped(whole, map), index)
    source: Any = _found_source(x, columns, options)
    if isinstance(source, Selected):
        return _chosen(Mapped(source.source, map), source.index)
    return Mapped(source, map)


def _chosen(mapped: Mapped, index: np.ndarray) -> Selected:
    """Columns of mapped rows; data in memory that lie by columns may have them in any order."""
    if mapped.axis == 1 and (np.diff(index) <= 0).any() and mapped.source.traits.array is not None:
        mapped = Mapped(in_rows(mapped.source, mapped.function), mapped.function)
    return Selected(mapped, index)


def _found_source(x: Any, columns: Any, options: dict[str, Any]) -> DataSource:
    if isinstance(x, (str, os.PathLike)):
        if columns is not None:
            options = {"columns": columns} | options
        return path_source(x, **options)
    if columns is not None:
        if not is_frame(x):
            words = "data frames in memory and files, not"
            raise TypeError(f"`columns` is for {words} {describe(x)}. Select them before.")
        options = {"columns": columns} | options
    # A nested tensor cannot be asked for the members of a source.
    if not is_torch_array(x) and isinstance(x, DataSource):
        check_options(lambda x: x, describe(x), options)
        check_blocks(x)
        return x if hasattr(x, "traits") else Adapted(x)
    if isinstance(x, (list, tuple)) or (type(x) is np.ndarray and x.dtype.kind == "O"):
        x = _python_numbers(x)
    if isinstance(x, bytes) or np.isscalar(x) or x is None:
        raise TypeError(f"Unsupported data: `X`={x!r}. Pass an array, a data frame or a path.")
    if hasattr(type(x), "require_group"):  # of h5py or Zarr
        raise TypeError(f"`X` is a {describe(x)}, a group of arrays. Pass one of them: X['name'].")
    make = next((make for test, make in REGISTRY if test(x)), None)
    if make is None:
        if not hasattr(x, "__array__"):
            remedy = "Pass an array, a data frame or a path."
            raise TypeError(f"Unsupported type for `X`: {describe(x)}. {remedy}")
        x, make = np.asarray(x), DenseSource
    if make is DenseSource and not has_kernels(x):
        x = _by_numpy(x)
    if make in (memmap_source, DenseSource):
        check_entries(x)
    check_options(make, describe(x), options)
    source = make(x, **options)
    if 0 in source.shape:
        what = "sample" if source.shape[0] == 0 else "feature"
        raise ValueError(
            f"Found array with 0 {what}(s) (shape={source.shape}) while a minimum of 1 is "
            "required: `X` is empty."
        )
    return source


def _python_numbers(x: Any) -> np.ndarray:
    """Convert a list or an array of objects to numbers, as scikit-learn does in a fit."""
    check_python_numbers(x, "`X`")
    try:
        found = np.asarray(x)
        return found.astype(np.float64) if found.dtype.kind == "O" else found
    except (TypeError, ValueError) as error:
        words = "holds something other than numbers in rows of equal length"
        reason = str(error).rstrip(".")
        raise type(error)(f"`X` {words}: {reason}. Correct it.") from error


def _by_numpy(x: Any) -> np.ndarray:
    """Convert an array of another library of the array API standard, such as array-api-strict."""
    try:
        return np.asarray(x)
    except (TypeError, RuntimeError, BufferError) as error:  # on a device that NumPy cannot read
        words = f"cannot be converted by numpy.asarray: {str(error).rstrip('.')}"
        remedy = "Pass an array of NumPy, SciPy or PyTorch."
        raise TypeError(f"`X`, {describe(x)}, {words}. {remedy}") from error
