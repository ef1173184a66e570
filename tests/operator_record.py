"""Statistics of the first pass on data whose sums are exact, as in ``operator_record.json``.

    python tests/operator_record.py            # compare with operator_record.json
    python tests/operator_record.py --write    # record anew, and say why in the commit

The data are small whole numbers times powers of two, and the weights squares of such, so that sums
have no rounding errors in any order.  Guesses of the mean, units, bounds on errors and the number
of passes and reads are then the same on every machine.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parent))

from primedpca._core.arrays import is_sparse, to_numpy
from primedpca._operator.one_pass import stream
from primedpca._operator.operator import Centred
from primedpca.engines import LocalEngine
from primedpca.sources.base import BlockSource, cut_evenly

RECORD = Path(__file__).with_suffix(".json")
FIELDS = ("unit", "gain", "total", "first", "slip", "astray", "mean", "scale", "offset", "near")
COLUMNS = ("shift", "fill", "factor", "own")


class Cut(BlockSource):
    """A matrix in blocks of a given length that counts its reads."""

    def __init__(self, array: Any, step: int, axis: int = 0) -> None:
        self.held, self.shape, self.dtype, self.axis = array, array.shape, array.dtype, axis
        self.blocks, self.reads = cut_evenly(array.shape[axis], step), 0

    def read(self, i: int) -> Any:
        """Return block ``i``."""
        self.reads += 1
        start, stop = self.blocks[i]
        if is_sparse(self.held):
            held = self.held[start:stop] if self.axis == 0 else self.held[:, start:stop]
            return held.asformat("csr" if self.axis == 0 else "csc")
        return self.held[start:stop] if self.axis == 0 else self.held[:, start:stop]


def numbers(n: int = 40, d: int = 6, offset: Any = (0, 0, 100, -50, 3, 1000)) -> np.ndarray:
    """Small whole numbers about offsets, of which many are zero where the offset is."""
    rng = np.random.default_rng(3)
    values = rng.integers(-9, 10, (n, d)) * (rng.random((n, d)) < 0.6)
    return (values + np.resize(offset, d)).astype(np.float64)


def weights(n: int, zeros: Any = ()) -> np.ndarray:
    """Squares of small dyadic numbers, zero at some places."""
    found = np.resize([1.0, 4.0, 0.25, 9.0, 1.0, 2.25, 0.0], n)
    found[list(zeros)] = 0.0
    return found


def with_holes(X: np.ndarray) -> np.ndarray:
    """Every seventh entry missing."""
    X = X.copy()
    X.ravel()[::7] = np.nan
    return X


def cases() -> dict[str, tuple[Any, int, int, dict[str, Any]]]:
    """Name -> matrix, length of a block, axis of the blocks, and options of the operator."""
    X, thin = numbers(), numbers(offset=(0,))
    full = thin.copy()
    full[:, 2] += 4096
    full[full[:, 2] == 0, 2] = 1
    big = np.full((40, 3), 2**60) + numbers(40, 3, (0,)).astype(np.int64) * 2**20
    scale = np.array([1.0, 2.0, 0.5, 4.0, 1.0, 8.0])
    late = numbers()
    late[:20] *= 2.0**70
    found: dict[str, tuple[Any, int, int, dict[str, Any]]] = {}
    for name, matrix in {
        "float64": X,
        "float32": X.astype(np.float32),
        "int16": X.astype(np.int16),
        "longdouble": X.astype(np.longdouble),
        "near zero": thin,
        "csr": sp.csr_array(thin),
        "csr, full": sp.csr_array(full),
        "csr, float32": sp.csr_array(full.astype(np.float32)),
    }.items():
        for step in (40, 11):
            found[f"{name}, rows, {step}"] = (matrix, step, 0, {})
        found[f"{name}, columns"] = (matrix, 2, 1, {})
        found[f"{name}, wide"] = (matrix.T, 2, 0, {})
        found[f"{name}, wide, columns"] = (matrix.T, 11, 1, {})
        both = {"sample_weight": np.array([1.0, 4, 0, 0.25, 9, 1])}
        found[f"{name}, wide, columns, weights"] = (matrix.T, 11, 1, both)
        found[f"{name}, not centred"] = (matrix, 11, 0, {"center": False})
        found[f"{name}, weights"] = (matrix, 11, 0, {"sample_weight": weights(40)})
        first = {"sample_weight": weights(40, range(15))}
        found[f"{name}, weights, late"] = (matrix, 11, 0, first)
        found[f"{name}, weights, columns"] = (matrix, 2, 1, {"sample_weight": weights(40)})
        found[f"{name}, std"] = (matrix, 11, 0, {"scale": "std"})
        both = {"scale": "std", "sample_weight": weights(40), "center": False}
        found[f"{name}, std, weights"] = (matrix, 11, 0, both)
        found[f"{name}, std, columns"] = (matrix, 4, 1, {"scale": "std"})
        found[f"{name}, scale"] = (matrix, 11, 0, {"scale": scale})
        found[f"{name}, scale, columns"] = (matrix, 4, 1, {"scale": scale})
        both = {"scale": scale, "missing": "mean", "sample_weight": weights(40)}
        found[f"{name}, scale, missing"] = (matrix, 11, 0, both)
    for name, matrix in {"dense": with_holes(X), "csr": sp.csr_array(with_holes(full))}.items():
        for more in ({}, {"scale": "std"}, {"center": False}, {"sample_weight": weights(40)}):
            options = {"missing": "mean"} | more
            found[f"missing, {name}, {', '.join(more)}"] = (matrix, 11, 0, options)
        found[f"missing, {name}, columns"] = (matrix, 4, 1, {"missing": "mean", "scale": "std"})
    for power in (-1000, -420, -110, -101, -99, -30, 30, 99, 101, 110, 420, 1000):
        found[f"2^{power}"] = (np.ldexp(X, power), 11, 0, {})
        found[f"2^{power}, std"] = (np.ldexp(X, power), 11, 0, {"scale": "std"})
    for power in (-120, -45, -31, -29, 22, 29, 31, 100):
        small = np.ldexp(X, power).astype(np.float32)
        found[f"2^{power}, float32"] = (small, 11, 0, {})
        found[f"2^{power}, float32, std"] = (small, 11, 0, {"scale": "std"})
        found[f"2^{power}, float32, csr"] = (sp.csr_array(small), 11, 0, {"center": False})
    for power in (60, 64, 66, 70, 130):
        heavy = {"sample_weight": np.ldexp(weights(40), power)}
        found[f"weights 2^{power}"] = (X, 11, 0, heavy)
        found[f"weights 2^{power}, std"] = (X, 11, 0, heavy | {"scale": "std"})
    found["rows that grow"] = (late[::-1].copy(), 11, 0, {})
    found["rows that shrink"] = (late, 11, 0, {})
    far = numbers()
    far[:20] *= 2.0**105
    single = numbers().astype(np.float32)
    single[:20] *= 2.0**40
    for name, matrix in {"float64": far, "float32": single}.items():
        for order, rows in (("grow", matrix[::-1].copy()), ("shrink", matrix)):
            found[f"rows that {order} far, {name}"] = (rows, 11, 0, {})
            heavy = {"sample_weight": weights(40), "scale": scale}
            found[f"rows that {order} far, {name}, weights"] = (rows, 11, 0, heavy)
    for power in (-300, -101, 101, 300):
        same = np.full((40, 6), np.ldexp(3.0, power))
        same[25:] *= numbers()[25:]
        found[f"rows that are alike at first, 2^{power}"] = (same, 5, 0, {})
        same = np.ldexp(numbers(), power)
        same[:25] = 0
        found[f"rows that are zero at first, 2^{power}"] = (same, 5, 0, {})
    found["constant"] = (np.full((40, 3), 5.0), 11, 0, {})
    found["zero"] = (np.zeros((40, 3)), 11, 0, {})
    found["constant, std"] = (np.full((40, 3), 5.0), 11, 0, {"scale": "std"})
    found["int64"] = (big, 11, 0, {})
    found["int64, csr"] = (sp.csr_array(big), 11, 0, {})
    found["int64, far block"] = (np.r_[big[:11] * 0, big[11:]], 11, 0, {})
    return found


CASES = cases()


def listed(value: Any) -> Any:
    """Return a number with ten digits, or of an array a weighted sum and the number of signs."""
    if value is None or isinstance(value, bool):
        return value
    if np.ndim(to_numpy(value) if hasattr(value, "shape") else value) == 0:
        return float(f"{float(value):.10g}")
    array = np.asarray(to_numpy(value), np.float64)
    return [float(f"{np.abs(array) @ np.arange(1, array.size + 1):.10g}"), int((array < 0).sum())]


def of_frame(frame: Any) -> dict[str, Any]:
    """Return the fields of a frame."""
    found = {name: getattr(frame, name) for name in FIELDS}
    found |= {name: getattr(frame.columns, name) for name in COLUMNS}
    return {name: listed(value) for name, value in found.items() if value is not None}


def opened(name: str) -> Centred:
    """Return a new operator on the data of a case, whose blocks are read by one worker."""
    matrix, step, axis, options = CASES[name]
    return Centred(Cut(matrix, step, axis), LocalEngine(1), **options)


def spent(data: Centred) -> list[float]:
    """Number of passes and of reads so far."""
    return [data.passes, data.source.reads]


def frames(name: str) -> dict[str, Any]:
    """Return the frames of one case after different first passes."""
    data = opened(name)
    found: dict[str, Any] = {"weight": [data.weight, data.weight_unit]}
    data.learn()
    found["learned"] = [of_frame(data.frame), spent(data)]
    data = opened(name)
    eye = np.eye(data.shape[1])[:, :2]
    data.covariance_product(data.like.asarray(eye))
    found["product"] = [of_frame(data.frame), spent(data)]
    wide = opened(name).in_float64()
    wide.learn()
    narrow = opened(name)
    found["shared"] = [narrow.share(wide), of_frame(narrow.frame)]
    found["widened"] = of_frame(data.widened().frame)
    data = opened(name)
    parts = []
    for position, part in stream(data, 9):
        parts.append([*position[:3], listed(part.frame.mean), part.frame.unit, part.weight])
    found["stream"] = [parts, of_frame(data.frame), spent(data)]
    return found


def measured(name: str) -> dict[str, Any]:
    """Return the frames of one case, as JSON gives them back."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(frames(name)))


def differences(found: Any, known: Any, where: str = "") -> list[str]:
    """Return the places at which two records differ by more than rounding in float32."""
    if isinstance(found, dict) and isinstance(known, dict):
        pairs = [(key, found.get(key), known.get(key)) for key in found.keys() | known.keys()]
    elif isinstance(found, list) and isinstance(known, list) and len(found) == len(known):
        pairs = [(i, a, b) for i, (a, b) in enumerate(zip(found, known, strict=True))]
    else:
        number = all(
            isinstance(x, (int, float)) and not isinstance(x, bool) for x in (found, known)
        )
        # Bounds on errors include rounding errors, which depend on the order of sums.
        rtol = 0.02 if where.endswith(("/astray", "/slip")) else 1e-6
        same = np.isclose(found, known, rtol, 0, equal_nan=True) if number else found == known
        return [] if same else [f"{where}: {found}, recorded as {known}"]
    return [one for key, a, b in pairs for one in differences(a, b, f"{where}/{key}")]


PARTS: dict[str, Callable[[], dict[str, Any]]] = {name: partial(measured, name) for name in CASES}

if __name__ == "__main__":
    now = {name: measure() for name, measure in PARTS.items()}
    if "--write" in sys.argv:
        lines = [
            f"{json.dumps(name)}:{json.dumps(part, separators=(',', ':'))}"
            for name, part in now.items()
        ]
        RECORD.write_text("{" + ",\n".join(lines) + "}\n")
    print(*differences(now, json.loads(RECORD.read_text())), sep="\n")
