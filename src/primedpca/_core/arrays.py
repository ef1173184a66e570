"""Array libraries: the library an array belongs to, types to compute in, conversions."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_cupy_array,
    is_numpy_array,
    is_torch_array,
)

from primedpca._core.host_copies import copied_here

__all__ = [
    "EXACT",
    "Array",
    "Block",
    "InexactError",
    "Like",
    "as_real",
    "check_extended",
    "check_held",
    "check_python_numbers",
    "check_whole_numbers",
    "describe",
    "device",
    "dtype_name",
    "has_kernels",
    "is_cupy_array",
    "is_dense",
    "is_dense_block",
    "is_device_sparse",
    "is_numpy_array",
    "is_sparse",
    "is_sparse_tensor",
    "is_torch_array",
    "like_block",
    "namespace",
    "subtract_outer",
    "to_numpy",
    "whole_difference",
    "wide_dot",
    "work_dtype",
]

#: An array of any library that follows the array API standard.  Not a Protocol: branches for one
#: library use members that only its arrays have (``astype``, ``detach``, ``flags``).
Array: TypeAlias = Any
#: Dense rows (or columns) of any array library, or a SciPy sparse array.
Block: TypeAlias = Any

#: Whole numbers up to this one are exact in float64.
EXACT = 2.0**53
_FLOAT32 = {"bool", "uint8", "int8", "uint16", "int16", "float16", "bfloat16", "float32"}
_FLOAT64 = {"uint32", "int32", "uint64", "int64", "float64", "longdouble", "float96", "float128"}
_EXTENDED = {"longdouble", "float96", "float128"}
_NUMPY = array_namespace(np.empty(0))


@dataclass(frozen=True)
class Like:
    """Library, device and type of the arrays that are multiplied with the data."""

    xp: Any
    device: Any
    dtype: Any
    n_features: int

    def asarray(self, values: Any) -> Array:
        """``values`` as an array of this library, device and dtype."""
        return self.xp.asarray(values, dtype=self.dtype, device=self.device)


def is_sparse(x: Any) -> bool:
    """Whether ``x`` is sparse: SciPy's (which is not imported to find out), or on a GPU."""
    kind: Any = type(x)
    return _is_sparse_kind(kind)


@cache  # asked of every block several times, so that small fits would notice
def _is_sparse_kind(kind: Any) -> bool:
    if getattr(kind, "is_sparse_block", False):  # of `_core.device_sparse`
        return True
    kinds = kind.__mro__  # AnnData has classes of its own for views, which are SciPy's below
    return any(k.__module__.startswith("scipy.sparse") for k in kinds) and hasattr(kind, "nnz")


def is_device_sparse(x: Any) -> bool:
    """Whether ``x`` is a sparse block of ``_core.device_sparse``."""
    return getattr(type(x), "is_sparse_block", False)


def is_dense(x: Any) -> bool:
    """Whether ``x`` is a dense array of NumPy, PyTorch, CuPy or another array library."""
    if type(x) is np.ndarray:
        return True
    try:
        array_namespace(x)
    except TypeError:
        return False
    return not is_sparse(x)


def has_kernels(x: Any) -> bool:
    """Whether ``x`` is an array of a library in which products are computed."""
    return bool(is_numpy_array(x) or is_torch_array(x) or is_cupy_array(x))


def is_sparse_tensor(x: Any) -> bool:
    """Whether ``x`` is a sparse tensor of PyTorch."""
    return is_torch_array(x) and "sparse" in str(x.layout)


def is_dense_block(x: Any) -> bool:
    """Whether ``x`` is a dense array of which products are those of arrays, computed at once."""
    # Products of numpy.matrix have other shapes.
    return has_kernels(x) and not (isinstance(x, np.matrix) or is_sparse_tensor(x))


def namespace(x: Array) -> Any:
    """The array API namespace of ``x``; of a sparse block, that of its entries."""
    if type(x) is np.ndarray or isinstance(x, np.generic):
        return _NUMPY
    if is_sparse(x):
        return array_namespace(x.data) if is_device_sparse(x) else _NUMPY
    return array_namespace(x)


@cache
def dtype_name(dtype: Any) -> str:
    """``"float32"`` for ``np.dtype("f4")``, ``torch.float32`` and their like."""
    return dtype.name if isinstance(dtype, np.dtype) else str(dtype).rsplit(".", 1)[-1]


def describe(x: Any) -> str:
    """Short description of ``x`` for an error message."""
    kind = type(x)
    name = f"{kind.__module__.split('.')[0]}.{kind.__qualname__}"
    try:
        shape = tuple(x.shape) if hasattr(getattr(x, "shape", None), "__iter__") else (None,)
        # Lazy tables have expressions in the place of numbers.
        known = all(isinstance(size, Integral) for size in shape)
        return f"{name} of shape {shape}" if known else name
    except RuntimeError:  # from h5py, for a file that was closed
        return name


def work_dtype(dtype: Any) -> str:
    """The type to compute in: float32 for types that float32 holds exactly, else float64.

    Raises
    ------
    ValueError
        For complex numbers.
    TypeError
        For text, dates and objects.
    """
    name = dtype_name(dtype)
    if name in _FLOAT32:
        return "float32"
    if name in _FLOAT64:
        return "float64"
    if name.startswith("complex"):
        raise ValueError(
            f"Complex data not supported: `X` has dtype {name}. Pass X.real and X.imag side by "
            "side, or one of them."
        )
    raise TypeError(
        f"`X` has dtype {name}, which does not hold real numbers. Convert it to float32 or float64."
    )


def like_block(block: Any, n_features: int, float64: bool = False) -> Like:
    """Library, device and type of arrays that are multiplied with ``block``."""
    name = "float64" if float64 else work_dtype(block.dtype)
    if type(block) is np.ndarray:
        return Like(_NUMPY, "cpu", np.dtype(name), n_features)
    xp = namespace(block)
    dtype = xp.empty(0, dtype=getattr(xp, name)).dtype
    if is_sparse(block):
        return Like(xp, block.device if is_device_sparse(block) else None, dtype, n_features)
    return Like(xp, device(block), dtype, n_features)


#: Bytes from which a copy from a GPU goes through page-locked memory.
LARGE_COPY = 2**22


def to_numpy(x: Array) -> np.ndarray:
    """``x`` in host memory."""
    if type(x) is np.ndarray:
        return x
    if is_torch_array(x):
        # NumPy has no bfloat16; float32 holds all its numbers.
        x = x.detach().float() if dtype_name(x.dtype) == "bfloat16" else x.detach()
        large = x.is_cuda and x.nbytes > LARGE_COPY
        return copied_here(x, dtype_name(x.dtype)) if large else np.asarray(x.cpu())
    return np.asarray(x.get() if is_cupy_array(x) else x)


def check_held(x: Any, name: str) -> None:
    """Refuse tensors of PyTorch that have a shape but hold no numbers."""
    kind = type(x).__name__
    if kind == "FakeTensor" or str(getattr(x, "device", "")) == "meta":
        where = f"is a {kind}" if kind == "FakeTensor" else "is a tensor on the device 'meta'"
        words = "which holds a shape but no numbers. Create it on 'cpu' or 'cuda'."
        raise ValueError(f"{name} {where}, {words}")


def as_real(values: Any, name: str) -> np.ndarray:
    """Return real numbers given by the user as a new array in float64.

    A cast alone would drop imaginary parts and read masked entries.

    Parameters
    ----------
    values : array-like
    name : str
        Name of the values in messages, such as ``"sample_weight"``.
    """
    if is_sparse(values):
        raise ValueError(f"`{name}` is a sparse matrix. Pass it as a dense array: `toarray()`.")
    if np.ma.is_masked(values):
        raise ValueError(f"`{name}` has masked entries. Fill them, or leave them out.")
    check_held(values, f"`{name}`")
    found = to_numpy(values)
    if found.dtype.kind == "c":
        raise ValueError(f"`{name}` holds complex numbers. Pass real numbers.")
    if found.dtype.kind in "mM":  # NumPy casts them to counts of their unit
        raise ValueError(f"`{name}` holds dates or durations. Pass real numbers.")
    try:
        return found.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"`{name}` must hold numbers: {error}. Convert them.") from error


def subtract_outer(z: Array, u: Array, v: Array) -> None:
    """Compute ``z -= u v^T`` in place, without a second array of the size of ``z``."""
    if is_numpy_array(z) and z.dtype == np.float64 and z.flags.c_contiguous:
        from scipy.linalg.blas import dger  # four times as fast as NumPy on short rows

        dger(-1.0, v, u.astype(np.float64, copy=False), a=z.T, overwrite_a=True)
        return
    step = max(1, 2**18 // z.shape[1])
    for a in range(0, z.shape[0], step):
        z[a : a + step] -= u[a : a + step, None] * v


def wide_dot(u: Array, v: Array) -> Array:
    """Compute ``u^T V`` in float64, ``(p,)``, by parts, without a float64 copy of ``V``."""
    xp, total = namespace(v), 0.0
    step = v.shape[0] if str(device(v)) != "cpu" else max(1, 2**18 // max(v.shape[1], 1))
    for a in range(0, v.shape[0], max(step, 1)):
        some = (xp.astype(x[a : a + step], xp.float64, copy=False) for x in (u, v))
        total = total + xp.matmul(*some)
    return total


def whole_difference(whole: Array, shift: Array) -> Array:
    """Compute ``whole - shift`` of 64-bit integers in float64, rounded once at the end.

    Where the shift is beyond 2^52, and so a whole number itself, both are split into halves of
    32 bits, whose differences are exact.  Elsewhere the cast is exact, or its rounding error is
    small beside the difference.
    """
    xp, signed = namespace(whole), dtype_name(whole.dtype) == "int64"
    near = xp.astype(whole, xp.float64) - shift
    if is_torch_array(whole) and not signed:
        whole = whole.view(xp.int64)  # PyTorch cannot shift unsigned integers
    plain = is_torch_array(whole)
    mask, bits = (0xFFFFFFFF, 32) if plain else map(whole.dtype.type, (0xFFFFFFFF, 32))
    high = whole >> bits
    high = high if signed else high & mask
    low, half = xp.astype(whole & mask, xp.float64), 2.0**32
    above = xp.floor(shift / half)
    split = (xp.astype(high, xp.float64) - above) * half + (low - (shift - above * half))
    return xp.where(xp.abs(shift) > EXACT / 2, split, near)


class InexactError(ValueError):
    """A number that cannot be represented in the type to compute in."""


def check_whole_numbers(values: np.ndarray, name: str) -> None:
    """Refuse 64-bit integers that float64 cannot hold, before they are cast.

    Parameters
    ----------
    values : ndarray of any type
    name : str
        Name of the values in the message, such as ``"column 't'"``.
    """
    if dtype_name(values.dtype) not in ("int64", "uint64") or not values.size:
        return
    if max(-int(values.min()), int(values.max())) <= EXACT:  # as floats, 2^53 + 1 would pass
        return
    off = whole_difference(values, values.astype(np.float64)) != 0
    if off.any():
        _refuse_whole_number(values[off][0], name)


def check_extended(values: Any, name: str) -> None:
    """Refuse numbers in extended precision that float64 cannot hold, before they are cast."""
    if dtype_name(values.dtype) not in _EXTENDED:
        return
    with np.errstate(over="ignore"):
        off = (values.astype(np.float64) != values) & ~np.isnan(values)
    if off.any():
        raise InexactError(
            f"{name} holds {values[off][0]!s} in extended precision, which float64 cannot hold "
            f"exactly. Convert {name} to float64."
        )


def check_unmasked(values: Any, name: str) -> None:
    """Refuse masked entries, which would be read as if they were not masked."""
    if np.ma.is_masked(values):
        raise TypeError(
            f"{name} is a masked array, whose masked entries would be read; pass "
            "X.astype(float).filled(numpy.nan) and `missing`='mean'."
        )


def check_python_numbers(values: Any, name: str) -> None:
    """Refuse lists and objects that are not an array of numbers that float64 holds.

    Rows differ in length, or integers or decimals are too large.
    """
    check_unmasked(values, name)
    objects = isinstance(values, np.ndarray) and values.dtype.kind == "O"
    if objects or isinstance(values, (list, tuple)):
        _check_lengths(values, name)
        _check_labels(values, name)
    for value in values if objects or isinstance(values, (list, tuple)) else ():
        if isinstance(value, (list, tuple, np.ndarray)):
            check_python_numbers(value, name)
        elif isinstance(value, (int, np.integer, Decimal)) and not _is_exact(value):
            _refuse_whole_number(value, name)


def _check_lengths(rows: Any, name: str) -> None:
    """Refuse rows of different lengths, and numbers among rows."""
    first: int | None = None
    for i, row in enumerate(rows):
        length = _length(row)
        if i == 0:
            first = length
        elif length != first:
            one, other = (
                "is a single value" if n is None else f"has length {n}" for n in (first, length)
            )
            raise ValueError(
                f"The rows of {name} differ in length: row 1 {one}, row {i + 1} {other}. Make "
                "them equally long, with float('nan') for a missing value (`missing`='mean')."
            )


def _check_labels(rows: Any, name: str) -> None:
    """Refuse Series that do not name their entries alike, as numbers are joined by position."""
    indices = (getattr(row, "index", None) for row in rows if hasattr(row, "shape"))
    first = next(indices, None)
    if first is None or callable(first):
        return
    if any(index is not None and list(index) != list(first) for index in indices):
        raise ValueError(
            f"The rows of {name} name their entries differently, or in another order. Join them by "
            "name: pandas.DataFrame(rows)."
        )


def _length(row: Any) -> int | None:
    if isinstance(row, (list, tuple)):
        return len(row)
    shape = getattr(row, "shape", ())
    return int(shape[0]) if shape else None


def _is_exact(value: int | np.integer[Any] | Decimal) -> bool:
    """Whether float64 holds the number; a decimal up to 2^53 is rounded as its text would be."""
    if isinstance(value, Decimal):
        return not value.is_finite() or abs(value) <= EXACT or value == float(value)
    value = int(value)
    return abs(value) <= EXACT or (abs(value) < 2**1023 and int(float(value)) == value)


def _refuse_whole_number(value: Any, name: str) -> None:
    raise InexactError(
        f"{name} holds {str(value)[:40]}, which float64 cannot hold exactly (whole numbers up to "
        "2^53 = 9007199254740992 are exact). Subtract a constant such as the first value, drop it, "
        "or round it yourself by astype(float)."
    )
