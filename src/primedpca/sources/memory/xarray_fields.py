"""xarray's DataArray: fields over labelled dimensions, one of which counts the samples."""

from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np

from primedpca._core.arrays import as_real, dtype_name, work_dtype
from primedpca.protocols import Block
from primedpca.sources import base
from primedpca.sources.base import BlockSource, cut_evenly, read_only
from primedpca.sources.memory.frames import labels_along

#: Names of the latitude, in lower case.
LATITUDES = ("lat", "latitude", "nav_lat")


class Fields(BlockSource):
    """A DataArray as rows: one dimension counts the samples, the others are flattened.

    Parameters
    ----------
    field : xarray.DataArray
        In memory, or lazy (opened from a file, or chunked): blocks of samples are then loaded
        as they are needed.
    sample : str, optional
        The dimension that counts the samples; by default the first.
    mask : array of bool or False, optional
        Grid points that are data, over the other dimensions; ``False`` takes all.  By default
        points that are NaN in every sample, as land is in ocean data, are left out.  Pass the
        ``mask`` of an earlier source to read new samples of the same grid.
    weights : "cos_lat" or array, optional
        Area weights over the other dimensions, or the cosine of the latitude, in degrees: each
        point is multiplied by the square root of its weight.

    Attributes
    ----------
    mask : xarray.DataArray of bool
        Whether each grid point is data.
    scale : ndarray of shape (d,) or None
        Reciprocal square roots of the weights, which a model keeps as ``scale_``.
    row_names : ndarray of shape (n,) or None
        The coordinate of the samples.
    feature_names : ndarray of shape (d,) or None
        The coordinate of the other dimension, if there is one and it is text.
    layout : str
        The other dimensions in order, each with its size, the ends of its coordinate and, if that
        neither rises nor falls, a checksum of its order, and a checksum of the points that are
        left out.  A model refuses fields on another grid.
    """

    library = "numpy"

    def __init__(
        self, field: Any, *, sample: Any = None, mask: Any = None, weights: Any = None
    ) -> None:
        if field.ndim == 0:
            raise ValueError("`X` is a DataArray without dimensions; it needs one for the samples.")
        sample = field.dims[0] if sample is None else sample
        if sample not in field.dims:
            known = ", ".join(map(str, field.dims))
            raise ValueError(f"`sample`={sample!r} is not a dimension of `X`, which has {known}.")
        work_dtype(field.dtype)
        self.field, self.sample_dim = field.transpose(sample, ...), sample
        self.headings = str(sample), "label"
        points = int(np.prod(self.field.shape[1:], dtype=object))
        self.dtype, self._kept = np.dtype(field.dtype), None
        row = points * self.dtype.itemsize
        self.blocks = cut_evenly(field.sizes[sample], max(1, base.READ_BYTES // max(row, 1)))
        self.shape = field.sizes[sample], points
        kept = self._seen() if mask is None else self._on_grid(mask, "mask", bool)
        if mask is not False and not kept.all():
            if not kept.any():
                raise ValueError(
                    "`X` is NaN everywhere." if mask is None else "`mask` keeps nothing."
                )
            self._kept = np.flatnonzero(kept)
            self.shape = field.sizes[sample], self._kept.size
        self.layout = self._layout()
        if weights is not None:
            self.scale = 1 / np.sqrt(self._flat_weights(weights))

    def _layout(self) -> str:
        """Dimensions, sizes and ends of coordinates; to five digits, so that float32 agrees."""
        parts = []
        for dim, size in zip(self.field.dims[1:], self.field.shape[1:], strict=True):
            part = f"{size} {dim}"
            if dim in self.field.coords and size:
                ends = self.field.coords[dim].values[[0, -1]]
                words = [f"{end:.5g}" if ends.dtype.kind in "iuf" else str(end) for end in ends]
                part += " ({} to {}{})".format(*words, self._order(dim))
            parts.append(part)
        if self._kept is not None:
            parts.append(
                f"{self._kept.size} points {crc32(self._kept.astype('<i8').tobytes()):08x}"
            )
        return ", ".join(parts)

    def _order(self, dim: Any) -> str:
        """Checksum of a coordinate that neither rises nor falls, whose ends say too little."""
        values = np.asarray(self.field.coords[dim].values)
        numbers = values.dtype.kind in "iufmM"
        order = np.argsort(values if numbers else values.astype(str), kind="stable")
        if self.feature_names is not None or set(np.diff(order)) in ({1}, {-1}, set()):
            return ""
        # The order alone of numbers, which float32 rounds.
        words = order.tolist() if numbers else values.astype(str).tolist()
        return f", order {crc32(repr(words).encode()):08x}"

    def _seen(self) -> np.ndarray:
        """Whether each grid point has a value in some sample, ``(points,)``."""
        absent = np.zeros(self.shape[1], bool)
        if self.dtype.kind == "f" and self.shape[0]:
            absent = np.isnan(self.rows(slice(0, 1))[0])
        for i in range(len(self.blocks)):
            if not absent.any():
                break
            points = np.flatnonzero(absent)
            absent[points] = np.isnan(self.read(i)[:, points]).all(axis=0)
        return ~absent

    def _on_grid(self, given: Any, name: str, kind: type) -> np.ndarray:
        """Values for all grid points, flattened."""
        import xarray as xr

        one = self.field.isel({self.sample_dim: 0}, drop=True)
        if given is False:
            return np.ones(one.size, bool)
        if labels_along(given, 0) is not None:  # of pandas
            named = xr.DataArray(given)
            given = named if set(named.dims) <= set(one.dims) else given
        if isinstance(given, xr.DataArray):
            if extra := set(given.dims) - set(one.dims):
                raise ValueError(
                    f"`{name}` has the dimension {min(map(str, extra))!r}; `X` has not."
                )
            given = _at_points(given, one, name)
            given = given.broadcast_like(one).transpose(*one.dims).values
        values = as_real(given, name)
        if values.shape != one.shape:
            shapes = f"shape {values.shape}, but a field of `X` has {one.shape}"
            raise ValueError(f"`{name}` has {shapes}. Give one value for each grid point.")
        return values.ravel().astype(kind)

    def _flat_weights(self, weights: Any) -> np.ndarray:
        """Weights of the points that are data, ``(d,)``, checked."""
        if isinstance(weights, str):
            weights = self._cosines(weights)
        values = self._on_grid(weights, "weights", float)
        values = values if self._kept is None else values[self._kept]
        if not (np.isfinite(values) & (values > 0)).all():
            raise ValueError("`weights` must be finite and positive; leave out points by `mask`.")
        return values

    def _cosines(self, name: str) -> Any:
        """Cosine of the latitude of each point."""
        if name != "cos_lat":
            raise ValueError(f"`weights`={name!r} must be 'cos_lat' or an array.")
        known = (one for one in self.field.coords if str(one).lower() in LATITUDES)
        latitude = next(known, None)
        if latitude is None:
            words = f"a coordinate called {' or '.join(LATITUDES)}"
            raise ValueError(f"`weights`='cos_lat' needs {words}. Pass the weights as an array.")
        return np.cos(np.deg2rad(self.field.coords[latitude]))

    @property
    def mask(self) -> Any:
        """Whether each grid point is data, with the coordinates of the field."""
        kept = np.ones(int(np.prod(self.field.shape[1:], dtype=object)), bool)
        if self._kept is not None:
            kept[:] = False
            kept[self._kept] = True
        dims = self.field.dims[1:]
        return self._labelled(kept.reshape(self.field.shape[1:]), dims, dims)

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
        names = names if self._kept is None else names[self._kept]
        return names if names.dtype.kind in "UT" else None

    def read(self, i: int) -> Block:
        """Samples of the block; a view where memory has them in this order."""
        return self.rows(slice(*self.blocks[i]))

    def rows(self, index: Any) -> Block:
        """Samples by number."""
        values = self.field.isel({self.sample_dim: index}).values
        values = values.reshape(values.shape[0], -1)
        return read_only(values if self._kept is None else values[:, self._kept])

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
            With the dimensions and coordinates of the data, and NaN at points that are not data.
        """
        values = np.asarray(components)
        if values.ndim not in (1, 2) or values.shape[-1] != self.shape[1]:
            d = self.shape[1]
            raise ValueError(f"`components` has shape {values.shape}, but a field has {d} entries.")
        dims, leading = self.field.dims[1:], values.shape[:-1]
        if self._kept is not None:
            points = int(np.prod(self.field.shape[1:], dtype=object))
            whole = np.full((*leading, points), np.nan, np.result_type(values, np.float32))
            whole[..., self._kept] = values
            values = whole
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


def _at_points(given: Any, one: Any, name: str) -> Any:
    """Values at the coordinates of a field, which they must have."""
    for dim in set(given.dims) & given.indexes.keys() & one.indexes.keys():
        index = one.indexes[dim]
        absent = ~index.isin(given.indexes[dim])
        if absent.any():
            raise ValueError(
                f"`{name}` has no value at {dim}={index[absent][0]}, which `X` has. Give values at "
                f"the coordinates of `X`, or an array of shape {one.shape}."
            )
        if not given.indexes[dim].equals(index):
            given = given.reindex({dim: index})
    return given


def is_xarray(x: Any) -> bool:
    """Whether ``x`` is a DataArray; a Dataset is refused by name."""
    if type(x).__module__.split(".")[0] != "xarray":
        return False
    if hasattr(x, "data_vars"):
        names = ", ".join(map(str, x.data_vars))
        words = f"pick one of its arrays ({names}), or join them with X.to_dataarray()."
        raise TypeError(f"`X` is an xarray.Dataset; {words}")
    return hasattr(x, "isel") and hasattr(x, "values")
