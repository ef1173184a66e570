"""xarray's DataArray: fields over labelled dimensions, one of which counts the samples."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, work_dtype
from primedpca.protocols import Block
from primedpca.sources import base
from primedpca.sources.base import BlockSource, cut_evenly, read_only


class Fields(BlockSource):
    """A DataArray as rows: one dimension counts the samples, the others are flattened.

    Parameters
    ----------
    field : xarray.DataArray
        In memory, or lazy (opened from a file, or chunked): blocks of samples are then loaded
        as they are needed.
    sample : str, optional
        The dimension that counts the samples; by default the first.

    Attributes
    ----------
    row_names : ndarray of shape (n,) or None
        The coordinate of the samples.
    feature_names : ndarray of shape (d,) or None
        The coordinate of the other dimension, if there is one and it is text.
    """

    library = "numpy"

    def __init__(self, field: Any, *, sample: Any = None) -> None:
        if field.ndim == 0:
            raise ValueError("`X` is a DataArray without dimensions; it needs one for the samples.")
        sample = field.dims[0] if sample is None else sample
        if sample not in field.dims:
            known = ", ".join(map(str, field.dims))
            raise ValueError(f"`sample`={sample!r} is not a dimension of `X`, which has {known}.")
        work_dtype(field.dtype)
        self.field, self.sample_dim = field.transpose(sample, ...), sample
        self.shape = (field.sizes[sample], int(np.prod(self.field.shape[1:], dtype=object)))
        self.dtype = np.dtype(field.dtype)
        row = self.shape[1] * self.dtype.itemsize
        self.blocks = cut_evenly(self.shape[0], max(1, base.READ_BYTES // max(row, 1)))

    @cached_property
    def row_names(self) -> np.ndarray | None:
        """Coordinate of the samples, of shape (n,)."""
        if self.sample_dim not in self.field.coords:
            return None
        return np.asarray(self.field.coords[self.sample_dim].values)

    @cached_property
    def feature_names(self) -> np.ndarray | None:
        """Coordinate of the features, of shape (d,), if it is text."""
        others = self.field.dims[1:]
        if len(others) != 1 or others[0] not in self.field.coords:
            return None
        names = np.asarray(self.field.coords[others[0]].values)
        return names if names.dtype.kind in "UT" else None

    def read(self, i: int) -> Block:
        """Samples of the block; a view where memory has them in this order."""
        return self.rows(slice(*self.blocks[i]))

    def rows(self, index: Any) -> Block:
        """Samples by number."""
        values = self.field.isel({self.sample_dim: index}).values
        return read_only(values.reshape(values.shape[0], -1))

    def unstack(self, components: Any, dim: str = "component") -> Any:
        """Components as fields again.

        Parameters
        ----------
        components : array of shape (k, d) or (d,)
            Such as ``components_`` or ``mean_`` of a fitted model.
        dim : str
            Name of the dimension that counts them.

        Returns
        -------
        xarray.DataArray
            With the dimensions and coordinates of the data.
        """
        values = np.asarray(components)
        if values.ndim not in (1, 2) or values.shape[-1] != self.shape[1]:
            d = self.shape[1]
            raise ValueError(f"`components` has shape {values.shape}, but a field has {d} entries.")
        dims, leading = self.field.dims[1:], values.shape[:-1]
        values = values.reshape(*leading, *self.field.shape[1:])
        return self._labelled(values, (*([dim] if leading else []), *dims), dims)

    def label(self, scores: Any, dim: str = "component") -> Any:
        """Scores with the coordinates of the samples.

        Parameters
        ----------
        scores : array of shape (n, k)
            Such as a fitted model's ``transform`` gives.
        dim : str
            Name of the dimension that counts the components.

        Returns
        -------
        xarray.DataArray
            Of dimensions ``(sample, component)``.
        """
        values = np.asarray(scores)
        if values.ndim != 2 or values.shape[0] != self.shape[0]:
            n = self.shape[0]
            raise ValueError(f"`scores` has shape {values.shape}, but there are {n} samples.")
        return self._labelled(values, (self.sample_dim, dim), (self.sample_dim,))

    def _labelled(self, values: np.ndarray, dims: tuple[Any, ...], own: tuple[Any, ...]) -> Any:
        """Values with the coordinates of those dimensions, ``own``, that are the data's."""
        import xarray as xr

        coordinates = self.field.coords.items()
        kept = {name: one for name, one in coordinates if set(one.dims) <= set(own)}
        return xr.DataArray(values, dims=dims, coords=kept)

    def __repr__(self) -> str:
        n = self.shape[0]
        inside = " x ".join(f"{size} {dim}" for dim, size in list(self.field.sizes.items())[1:])
        return f"Fields({n} {self.sample_dim}, {inside or '1'}, {dtype_name(self.dtype)})"


def is_xarray(x: Any) -> bool:
    """Whether ``x`` is a DataArray; a Dataset is refused by name."""
    if type(x).__module__.split(".")[0] != "xarray":
        return False
    if hasattr(x, "data_vars"):
        names = ", ".join(map(str, x.data_vars))
        words = f"pick one of its arrays ({names}), or join them with X.to_dataarray()."
        raise TypeError(f"`X` is an xarray.Dataset; {words}")
    return hasattr(x, "isel") and hasattr(x, "values")
