"""Small problems, ordinary and extreme, each made from its seed: ``problem(seed)``."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from primedpca.priming import (
    BlockKrylov,
    EigenGame,
    FrequentDirections,
    Krasulina,
    MuEigenGame,
    Oja,
    PowerMethod,
    SubspaceIteration,
)
from primedpca.sources import BlockSource

INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "bool")
SHARES = (0.5, 0.6, 0.75, 0.8, 0.9, 0.95, 0.99, 0.999)


class Cut(BlockSource):
    """An array, dense or sparse, that is read in several blocks of rows or columns."""

    def __init__(self, x: Any, axis: int, edges: list[int]) -> None:
        self.shape, self.dtype, self.axis = x.shape, x.dtype, axis
        self.x, self.blocks = x, tuple(pairwise(edges))

    def read(self, i: int) -> Any:
        start, stop = self.blocks[i]
        return self.x[start:stop] if self.axis == 0 else self.x[:, start:stop]


@dataclass
class Problem:
    """Data as given, what is asked of them, and which errors are an answer."""

    seed: int
    category: str
    X: np.ndarray
    k: int | float
    task: str = "fit"
    given: Any = None
    weights: np.ndarray | None = None
    center: bool = True
    scale: Any = None
    missing: str = "error"
    options: dict[str, Any] = field(default_factory=dict)
    components: str = ""
    #: Words of errors that are an answer here.
    answers: tuple[str, ...] = ()
    rng: Any = None

    @property
    def preparation(self) -> dict[str, Any]:
        return {"center": self.center, "scale": self.scale, "missing": self.missing}


def problem(seed: int) -> Problem:
    """The problem of this number."""
    names = list(CATEGORIES)
    category = names[seed % len(names)]
    rng = np.random.default_rng((seed, 15))
    made = Problem(seed, category, *_data(rng), rng=rng)
    made.options = {"random_state": int(rng.integers(2**31))}
    CATEGORIES[category](made, rng)
    _finish(made, rng)
    return made


# -- data ------------------------------------------------------------------------------------


def _data(rng: Any, d: int | None = None) -> tuple[np.ndarray, int]:
    """Rows of float64 and how many components to ask for."""
    d = d or int(rng.integers(1, 13))
    n = int(rng.integers(2, d + 2)) if rng.random() < 0.2 else int(rng.integers(d + 1, 150))
    n = max(n, 3)
    X = KINDS[rng.choice(list(KINDS))](rng, n, d)
    X = X + _offset(rng, d) * (X.std(axis=0).max() or 1.0) * (rng.random() < 0.5)
    if rng.random() < 0.1:
        X[:, rng.integers(d)] = rng.choice([0.0, 1.0, 0.1, -1e5, 10.0 ** rng.uniform(-20, 20) / 3])
    if rng.random() < 0.1 and d > 1:
        X[:, 0] = X[:, -1]
    return X, int(rng.integers(1, min(n, d) + 1))


def _offset(rng: Any, d: int, most: float = 12) -> np.ndarray:
    """Means, in standard deviations, of up to ``10^most``."""
    size = 10.0 ** rng.uniform(-1, most)
    return rng.choice([np.full(d, size), size * rng.normal(size=d)])


def _turned(rng: Any, X: np.ndarray) -> np.ndarray:
    return X @ np.linalg.qr(rng.normal(size=(X.shape[1],) * 2))[0]


def _falling(rng: Any, n: int, d: int) -> np.ndarray:
    return rng.normal(size=(n, d)) * rng.uniform(0.2, 1.0) ** np.arange(d)


def _graded(rng: Any, n: int, d: int) -> np.ndarray:
    return rng.normal(size=(n, d)) * 10.0 ** -rng.uniform(0, 6, d)


def _near_ties(rng: Any, n: int, d: int) -> np.ndarray:
    """Variances in groups that differ by little."""
    basis = np.linalg.qr(rng.normal(size=(n, min(n, d))))[0]
    values = 2.0 ** -rng.integers(0, 3, basis.shape[1])
    values = values * (1 + rng.normal(size=values.size) * 10.0 ** -rng.uniform(2, 15))
    return (basis * values) @ np.linalg.qr(rng.normal(size=(d, d)))[0][: basis.shape[1]]


def _ties(rng: Any, n: int, d: int) -> np.ndarray:
    """Exactly equal variances: every row and its negative, one column at a time."""
    sizes = rng.choice([1.0, 2.0, 3.0], d)
    rows = np.concatenate([np.diag(sizes), -np.diag(sizes)])
    return rows[rng.permutation(2 * d)] if d > 1 else np.array([[1.0], [-1.0], [2.0]])


def _low_rank(rng: Any, n: int, d: int) -> np.ndarray:
    rank = int(rng.integers(1, max(2, min(n, d))))
    return rng.integers(-4, 5, (n, rank)) @ rng.integers(-4, 5, (rank, d)) * 1.0


def _outliers(rng: Any, n: int, d: int) -> np.ndarray:
    X = _falling(rng, n, d)
    X[rng.integers(n)] *= 10.0 ** rng.uniform(1, 8)
    return X


def _counts(rng: Any, n: int, d: int) -> np.ndarray:
    return rng.poisson(rng.uniform(0.1, 4), (n, d)) * 1.0


def _tiny_rest(rng: Any, n: int, d: int) -> np.ndarray:
    """A few directions, and something near the rounding of the largest beside them."""
    X = _falling(rng, n, d)
    X[:, d // 2 :] *= 10.0 ** -rng.uniform(4, 10)
    return _turned(rng, X)


KINDS = {
    "falling": _falling,
    "turned": lambda rng, n, d: _turned(rng, _falling(rng, n, d)),
    "graded": _graded,
    "near ties": _near_ties,
    "ties": _ties,
    "low rank": _low_rank,
    "outliers": _outliers,
    "counts": _counts,
    "tiny rest": _tiny_rest,
}


# -- categories ------------------------------------------------------------------------------


def _exact(p: Problem, rng: Any) -> None:
    p.options["priming"] = rng.choice(["auto", "exact"])


def _krylov(p: Problem, rng: Any) -> None:
    if rng.random() < 0.25:
        p.X, p.k = _data(rng, int(rng.integers(13, 31)))
    d = p.X.shape[1]
    block = None if rng.random() < 0.4 else int(rng.integers(1, d + 1))
    basis = None if rng.random() < 0.6 else int(rng.integers(max(p.k, block or 1), 4 * d + 1))
    p.options["priming"] = BlockKrylov(block, basis, str(rng.choice(["right", "left"])))
    p.options["tol"] = 10.0 ** -rng.uniform(0.5, 7)
    p.options["certificate"] = rng.choice(["auto", "deterministic", "probabilistic"])
    p.options["max_passes"] = int(rng.choice([1, 3, 10, 60]))
    p.options["warm_start"] = bool(rng.random() < 0.2)


def _primings(p: Problem, rng: Any) -> None:
    steps = {"steps": int(rng.integers(1, 40))}
    makers = [
        lambda: SubspaceIteration(),
        lambda: PowerMethod(),
        lambda: FrequentDirections(),
        lambda: Oja(**steps),
        lambda: EigenGame(**steps),
        lambda: MuEigenGame(**steps),
        lambda: Krasulina(**steps),
        lambda: np.linalg.qr(rng.normal(size=(p.X.shape[1],) * 2))[0][:, : p.k],
        lambda: rng.normal(size=(p.X.shape[1], p.k)),
    ]
    p.options["priming"] = makers[rng.integers(len(makers))]()
    p.options["max_passes"] = int(rng.choice([2, 10, 60]))
    p.options["certificate"] = rng.choice(["auto", "deterministic"])
    p.options["batch_size"] = int(rng.choice([7, 50, 1000]))
    p.answers = ("learning_rate",)


def _certify(p: Problem, rng: Any) -> None:
    p.task = "certify"
    p.components = str(
        rng.choice(["right", "near", "turned", "others", "random", "swapped", "uneven"])
    )
    p.options["tol"] = None if rng.random() < 0.5 else 10.0 ** -rng.uniform(0.3, 7)
    p.options["max_passes"] = int(rng.choice([1, 4, 20]))
    if rng.random() < 0.3:
        p.X, p.k = _data(rng, int(rng.integers(13, 26)))
    if rng.random() < 0.3:
        p.options["failure_probability"] = 0
    _sometimes(p, rng)


def _share(p: Problem, rng: Any) -> None:
    p.k = float(rng.choice([*SHARES, rng.uniform(0.3, 0.9999)]))
    if rng.random() < 0.3:  # held exactly by some number of components
        p.X = _ties(rng, 0, int(rng.integers(2, 9)))
        p.k = float(rng.choice([0.25, 0.5, 0.75]))
    if rng.random() < 0.5:
        p.options["priming"] = BlockKrylov(int(rng.integers(1, p.X.shape[1] + 1)))
    _sometimes(p, rng)


def _stream(p: Problem, rng: Any) -> None:
    p.task = "stream"
    least = p.k
    if rng.random() < 0.7:
        p.options["priming"] = FrequentDirections(int(rng.integers(least, p.X.shape[1] + 5)))
    if rng.random() < 0.3:
        _array_scale(p, rng, 3)
    if rng.random() < 0.4:
        _weights(p, rng)
    p.center = bool(rng.random() < 0.9)


def _stream_columns(p: Problem, rng: Any) -> None:
    """A stream whose columns are scaled by their deviations, or filled by their means."""
    _stream(p, rng)
    p.scale = None
    if rng.random() < 0.7:
        p.scale = "std"
        p.X = p.X * 10.0 ** (rng.uniform(-1, 1, p.X.shape[1]) * rng.choice([1, 10, 50]))
    if p.scale is None or rng.random() < 0.5:
        holes = rng.random(p.X.shape) < rng.choice([0.01, 0.1, 0.4])
        holes[:2] = False
        p.X[holes] = np.nan
        p.missing = "mean"
    if p.weights is not None:
        p.weights = np.clip(p.weights, 0, p.weights[p.weights > 0].min() * 1e60)
        p.weights = p.weights / p.weights.max() * len(p.weights)
        p.weights[:2] = np.maximum(p.weights[:2], 1.0)


def _sketch(p: Problem, rng: Any) -> None:
    size = int(rng.integers(p.k, p.X.shape[1] + 5))
    p.options |= {"priming": FrequentDirections(size), "extra_components": 0}
    p.options["tol"] = 10.0 ** -rng.uniform(0.5, 6)
    _sometimes(p, rng)


def _weights(p: Problem, rng: Any) -> None:
    n = len(p.X)
    kind = rng.choice(["counts", "ratios", "small sum", "zeros", "uniform", "one", "huge"])
    w = rng.random(n) + 0.1
    if kind == "counts":
        w = rng.integers(0, 4, n).astype(float)
    elif kind == "ratios":
        w = 10.0 ** rng.uniform(-300, 0, n)
        w[rng.permutation(n)[: max(3, n // 3)]] = rng.choice([1.0, 1e3, 1e10])
    elif kind == "small sum":
        w = w / w.sum() * (1 + 10.0 ** -rng.uniform(0, 8))
    elif kind == "huge":
        w = w * 10.0 ** rng.uniform(0, 300)
    elif kind == "one":
        w[rng.integers(n)] = 10.0 ** rng.uniform(3, 12)
    if kind in ("zeros", "counts") or rng.random() < 0.4:  # first and last rows, or any
        gone = [slice(0, n // 3), slice(n - n // 3, n), rng.permutation(n)[: n // 3]]
        rows = gone[rng.integers(3)]
        w[rows] = 0.0
        if rng.random() < 0.6:
            p.X[rows] += 10.0 ** rng.uniform(0, 14) * rng.choice([1.0, -1.0])
    while w.sum() <= 1.0 + 1e-9 or (w > 0).sum() < 2:
        w[rng.integers(n)] += 1.5
    p.weights = w


def _array_scale(p: Problem, rng: Any, most: float = 150) -> None:
    p.answers = (*p.answers, "range of float32")
    p.scale = 10.0 ** rng.uniform(-1, 1, p.X.shape[1])
    if rng.random() < 0.7:
        p.scale = p.scale * 10.0 ** rng.uniform(-most, most, p.X.shape[1])
    if rng.random() < 0.5:  # columns of such units
        p.X = p.X * p.scale


def _scale(p: Problem, rng: Any) -> None:
    if rng.random() < 0.4:
        return _array_scale(p, rng)
    p.scale = "std"
    if rng.random() < 0.6:
        powers = rng.uniform(-1, 1, p.X.shape[1]) * rng.choice([1, 10, 100, 150])
        if rng.random() < 0.5:
            powers = rng.choice([-150, -100, 0, 100, 150], p.X.shape[1])
        p.X = p.X * 10.0**powers
    return None


def _missing(p: Problem, rng: Any) -> None:
    holes = rng.random(p.X.shape) < rng.choice([0.01, 0.1, 0.4])
    holes[rng.integers(len(p.X), size=2)] = False
    holes[:2] = False
    p.X[holes] = np.nan
    p.missing = "mean"
    if rng.random() < 0.3:
        p.scale = "std"
    if rng.random() < 0.3:
        p.weights = rng.integers(0, 4, len(p.X)).astype(float)
        p.weights[:2] = 1.0


def _sparse(p: Problem, rng: Any) -> None:
    n, d = p.X.shape
    mask = rng.random((n, d)) < rng.choice([0.1, 0.5, 0.9], d)
    full = rng.random(d) < 0.4
    p.X = np.where(mask | full, p.X, 0.0)
    p.X[:, full] += (_offset(rng, d) * (rng.random() < 0.8))[full]
    if rng.random() < 0.3:
        p.scale = "std"
    if rng.random() < 0.3:
        p.weights = rng.integers(0, 4, n).astype(float)
        p.weights[:2] = 1.0
    if isinstance(p.scale, str):
        _settle_constants(p)
    if rng.random() < 0.1 and not p.scale:
        p.X = p.X.astype("f4")
    form = rng.choice(["csr_array", "csc_array", "csr_matrix", "coo_array", "twice"])
    p.given = _twice(rng, p.X) if form == "twice" else getattr(sp, form)(p.X)
    p.options["priming"] = rng.choice(["auto", "exact", "block_krylov", "frequent_directions"])


def _twice(rng: Any, X: np.ndarray) -> Any:
    """Compressed rows in no order, some entries stored in two halves, some zeros stored."""
    rows, columns = np.nonzero((X != 0) | (rng.random(X.shape) < 0.1))
    whole, halved = X[rows, columns], rng.random(rows.size) < 0.3
    values = np.concatenate([np.where(halved, whole / 2, whole), whole[halved] / 2])
    rows = np.concatenate([rows, rows[halved]])
    columns = np.concatenate([columns, columns[halved]])
    order = np.lexsort([rng.random(rows.size), rows])
    starts = np.searchsorted(rows[order], np.arange(len(X) + 1))
    return sp.csr_array((values[order], columns[order], starts), shape=X.shape)


def _integers(p: Problem, rng: Any) -> None:
    kind = np.dtype(str(rng.choice(INTEGERS)))
    n, d = max(p.X.shape[0], 3), p.X.shape[1]
    if kind.kind == "b":
        p.X = rng.random((n, d)) < 0.5
        return
    ends = np.iinfo(kind)
    span = ends.max - ends.min
    way = rng.choice(["all", "top", "bottom", "middle", "times"])
    width = span if way == "all" else int(span ** rng.uniform(0.1, 1.0)) + 1
    width = min(width, 10**7) if way == "times" else width
    start = {"top": ends.max - width, "bottom": ends.min}.get(
        way, (ends.max + ends.min - width) // 2
    )
    if way == "times":  # nanoseconds since 1970, where they fit
        start = min(1_700_000_000 * 10**9, ends.max - min(width, span))
    draw = rng.random((n, d)) * rng.uniform(0.5, 1, d)
    steps = (draw * 2.0**62).astype(np.int64).astype(object) * width >> 62
    p.X = (steps + max(start, ends.min)).clip(ends.min, ends.max).astype(kind)
    if kind.itemsize == 8:
        p.answers = ("2^53",)
    p.k = min(p.k, n, d)
    _any_task(p, rng)
    if isinstance(p.scale, str):
        _settle_constants(p)
    if p.task == "fit" and rng.random() < 0.2:
        p.given = rng.choice([sp.csr_array, sp.csc_array])(p.X)


def _any_task(p: Problem, rng: Any) -> None:
    """One way of many to ask for the same."""
    way = rng.choice(["auto", "block_krylov", "frequent_directions", "certify", "stream", "std"])
    if way == "certify":
        p.task, p.options = "certify", {}
        p.components = str(rng.choice(["right", "turned", "near"]))
    elif way == "stream":
        p.task = "stream"
    elif way == "std":
        p.scale = "std"
    else:
        p.options["priming"] = way


def _containers(p: Problem, rng: Any) -> None:
    """The same numbers in other arrays."""
    kind = rng.choice(["F", "back", "every second", "swapped", "list", "long", "objects", "frame"])
    if kind in ("objects", "frame") or rng.random() < 0.3:
        _integers(p, rng)
        p.task, p.components, p.given = "fit", "", None
        p.options.setdefault("random_state", 0)
    if isinstance(p.scale, str):
        _settle_constants(p)
    X = p.X
    if kind == "F":
        p.given = np.asfortranarray(X)
    elif kind == "back":
        p.given = np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1]
    elif kind == "every second":
        p.given = np.repeat(X, 2, axis=0)[::2]
    elif kind == "swapped":
        p.given = X.astype(X.dtype.newbyteorder())
    elif kind == "list":
        p.given = X.tolist()
    elif kind == "long" and X.dtype == np.float64:  # eleven bits more
        p.X = X.astype(np.longdouble) * (1 + np.longdouble(2) ** -60 * rng.integers(0, 99, X.shape))
    elif kind == "objects":
        p.given = X.astype(object)
    elif kind == "frame":
        p.given = _frame(X)


def _frame(X: np.ndarray) -> Any:
    """A data frame whose columns are of several types; the array itself without pandas."""
    try:
        import pandas
    except ImportError:
        return X
    frame = pandas.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    if abs(X[:, 0].astype(object)).max() < 2**53:
        frame["c0"] = frame["c0"].astype(float)
    return frame


def _units(p: Problem, rng: Any) -> None:
    power = p.seed // len(CATEGORIES) % 1001 - 500
    if rng.random() < 0.15:
        power = int(rng.choice([rng.integers(-1000, -500), rng.integers(501, 900)]))
        p.answers = ("range", "divide", "multiply", "unit")
    X = p.X * 2.0**-4
    p.X = np.ldexp(X, power)
    lost = not np.isfinite(p.X).all() or (np.ldexp(p.X, -power) != X).any()
    if lost:
        p.X, p.answers = np.ldexp(np.round(X, 2), int(np.clip(power, -900, 800))), ("range",)
    p.options["priming"] = rng.choice(["auto", "exact", "block_krylov", "frequent_directions"])
    way = rng.random()
    if way < 0.5:
        _any_task(p, rng)
    elif way < 0.7:  # residuals that are not yet small
        p.options["priming"] = BlockKrylov(int(rng.integers(1, 3)))
        p.options["max_passes"] = int(rng.integers(1, 8))
        p.options["certificate"] = str(rng.choice(["auto", "deterministic"]))
    if p.task == "stream":  # sometimes of several units
        p.options.pop("priming", None)
        p.X[rng.integers(len(p.X)) :] *= 2.0 ** -rng.choice([0, 0, 30, 400])


def _single(p: Problem, rng: Any) -> None:
    p.answers = (*p.answers, "float32 cannot divide")
    largest = np.nanmax(abs(p.X))
    p.X = p.X / (largest / 1e30 if largest > 1e30 else 1.0)
    p.X = p.X.astype(rng.choice(["f4", "f4", "f4", "f2"]) if largest < 6e4 else "f4")
    p.options["priming"] = rng.choice(["auto", "exact", "block_krylov", "subspace_iteration"])
    if rng.random() < 0.3:
        p.scale = "std"
    if rng.random() < 0.3:
        room = 120 - int(np.frexp(np.nanmax(abs(p.X)))[1])
        p.X = np.ldexp(p.X.astype("f4"), int(rng.integers(-80, max(-79, room))))
    if rng.random() < 0.2:
        _weights(p, rng)
        p.X = p.X.astype("f4")


def _blocks(p: Problem, rng: Any) -> None:
    """Several blocks of rows or columns, in which the first is unlike the others."""
    axis = int(rng.integers(2)) if p.X.shape[1] > 1 else 0
    length = p.X.shape[axis]
    if axis == 0 and rng.random() < 0.3:
        p.X[: max(1, length // 4)] *= 10.0 ** rng.uniform(-12, 12)
    if rng.random() < 0.4:
        _weights(p, rng)
    if rng.random() < 0.2:
        p.scale = "std"
        _settle_constants(p)
    cuts = rng.permutation(np.arange(1, length))[: rng.integers(0, 6)]
    x = sp.csr_array(p.X) if axis == 0 and rng.random() < 0.25 else p.X
    p.given = Cut(x, axis, [0, *sorted(map(int, cuts)), length])
    if rng.random() < 0.5:
        p.options["priming"] = rng.choice(["block_krylov", "frequent_directions", "power_method"])


def _checked(p: Problem, rng: Any) -> None:
    """Block Krylov in float32, from either side, on spectra that are hard to prove."""
    p.X, p.k = _data(rng, int(rng.integers(8, 19)))
    if rng.random() < 0.3:  # more columns than rows
        p.X = p.X[: int(rng.integers(4, p.X.shape[1]))]
    p.X = p.X / (np.abs(p.X).max() or 1.0) * 10.0 ** rng.uniform(-3, 3)
    if rng.random() < 0.5:  # means that float32 can hold beside the spread
        p.X = p.X - p.X.mean(axis=0) + rng.choice([0, 1, 30]) * p.X.std() * rng.normal()
    p.X, p.k = p.X.astype("f4"), min(p.k, *p.X.shape)
    block = None if rng.random() < 0.3 else int(rng.integers(1, 9))
    basis = None if rng.random() < 0.6 else int(rng.integers(p.k, p.k + 20))
    p.options["priming"] = BlockKrylov(block, basis, str(rng.choice(["right", "left"])))
    p.options["tol"] = 10.0 ** -rng.uniform(0.3, 6)
    p.options["failure_probability"] = 10.0 ** -float(rng.integers(3, 10))
    p.options["max_passes"] = int(rng.choice([3, 8, 20, 60]))
    p.options["warm_start"] = bool(rng.random() < 0.3)
    if rng.random() < 0.15:
        p.k = float(rng.choice([*SHARES, rng.uniform(0.3, 0.9999)]))
    changes = [_missing, _sometimes, lambda p, rng: None]
    changes[rng.integers(len(changes))](p, rng)
    p.X = p.X.astype("f4")
    if p.missing == "error" and rng.random() < 0.25:
        p.X[rng.random(p.X.shape) < 0.5] = 0.0
        if isinstance(p.scale, str):
            _settle_constants(p)
        p.given = sp.csr_array(p.X)


def _sometimes(p: Problem, rng: Any) -> None:
    """Now and then weights, a scale, no centring."""
    if rng.random() < 0.25:
        _weights(p, rng)
    if rng.random() < 0.25:
        p.scale = "std" if rng.random() < 0.5 else 10.0 ** rng.uniform(-3, 3, p.X.shape[1])
    if rng.random() < 0.1:
        p.center = False


def _mixed(p: Problem, rng: Any) -> None:
    first = [_exact, _krylov, _primings, _share, _sketch]
    first[rng.integers(len(first))](p, rng)
    for change in (_weights, _scale, _missing, _single):
        if rng.random() < 0.25:
            options = dict(p.options)
            change(p, rng)
            p.options = options
    if rng.random() < 0.3 and p.missing == "error" and p.X.dtype != np.float16:
        if isinstance(p.scale, str):
            _settle_constants(p)
        p.given = sp.csr_array(p.X) if rng.random() < 0.5 else sp.csc_array(p.X)


CATEGORIES = {
    "exact": _exact,
    "krylov": _krylov,
    "primings": _primings,
    "certify": _certify,
    "share": _share,
    "stream": _stream,
    "stream columns": _stream_columns,
    "sketch": _sketch,
    "weights": _weights,
    "scale": _scale,
    "missing": _missing,
    "sparse": _sparse,
    "integers": _integers,
    "containers": _containers,
    "units": _units,
    "float32": _single,
    "blocks": _blocks,
    "checked": _checked,
    "mixed": _mixed,
}


def _finish(p: Problem, rng: Any) -> None:
    """Whatever the category has not said."""
    if p.X.dtype.kind == "f" and np.isinf(p.X).any():
        p.X = np.nan_to_num(p.X, nan=np.nan, posinf=1.0, neginf=-1.0)
    if p.scale is not None and isinstance(p.scale, str) and p.given is None:
        _settle_constants(p)
    p.given = p.X if p.given is None else p.given
    if isinstance(p.k, int):
        p.k = min(p.k, *p.X.shape)
    for name, value in p.options.items():
        p.options[name] = value.item() if isinstance(value, np.generic) else value


def _settle_constants(p: Problem) -> None:
    """Make constant what a scaler may take for constant: a spread of few roundings of the mean."""
    w = np.ones(len(p.X)) if p.weights is None else p.weights
    for column in p.X.T:
        there = column == column
        x, share = column[there].astype(np.longdouble), w[there] / w[there].sum()
        mean = (share * x).sum()
        spread = np.sqrt((share * (x - mean) ** 2).sum())
        if spread <= 20 * np.finfo(np.float64).eps * abs(mean):
            column[there] = column[there][0]
