"""The bad-input matrix: data and requests that go wrong elsewhere, and what must come of each.

A :class:`Case` is right (its numbers are compared with a reference) or refused (with an error whose
message is matched).  Data of families that are about numbers are tried on every source of
:data:`SOURCES`.
"""

import warnings
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

#: Error types that the library documents; anything else is raw.
DOCUMENTED = (ValueError, TypeError, FileNotFoundError)


@dataclass
class Case:
    """Data, options, and what must come of them: None for right, else a pattern of the error."""

    name: str
    X: Any
    refused: str | None = None
    k: Any = 2
    options: dict = field(default_factory=dict)
    weight: Any = None
    sources: tuple = ("array",)
    #: Reference data, if other than ``X``; False: only soundness is checked.
    truth: Any = None


def rows(n=40, d=6, decay=0.6, seed=0):
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return (rng.standard_normal((n, d)) * decay ** np.arange(d)) @ turn


NUMBERS = ("array", "fortran", "memmap", "blocks", "torch", "frame", "csr", "csc")
#: The same array in many small blocks, and with other numbers of threads.
CUTS = ("array", "small blocks", "one thread", "seven threads")
SHAPES = {"tall": (60, 7), "wide": (9, 40), "square": (15, 15)}


def ladders():
    """Means far larger than the spread, up to what section 7 of the design promises."""
    for (name, shape), kind in product(SHAPES.items(), ("float64", "float32")):
        for power in range(9 if kind == "float64" else 4):
            X = (rows(*shape) + 10.0**power).astype(kind)
            yield Case(f"mean 1e{power} {kind} {name}", X, sources=(*NUMBERS[:4], "csr"))


def units():
    for power in range(-500, 501, 50):
        yield Case(f"unit 2^{power}", np.ldexp(rows(), power), sources=("array", "memmap", "csr"))
    for power in range(-120, 121, 20):
        # Variances outside the range of float32 are a documented error or exact.
        X = np.ldexp(rows().astype("float32"), power)
        yield Case(f"unit 2^{power} float32", X, sources=("array", "blocks", "csr"))


def subnormals():
    tiny = np.finfo(float).tiny
    yield Case("all subnormal", rows() * tiny / 16, truth=False)
    yield Case("one subnormal column", np.c_[rows(), np.full(40, tiny / 4)])
    yield Case("subnormal beside 1e300", np.c_[rows() * 1e150, np.linspace(0, tiny, 40)])
    yield Case("zeros and negative zeros", np.where(rows() > 0, rows(), -0.0))


def spectra():
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.standard_normal((40, 8)))[0]
    turn -= turn.mean(axis=0)
    turn = np.linalg.qr(turn)[0]
    back = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    shapes = {
        "equal": np.ones(8),
        "pairs": np.repeat([8.0, 4.0, 2.0, 1.0], 2),
        "gap 1e-6": np.array([1, 1 - 1e-6, *np.full(6, 0.1)]),
        "gap 1e-10": np.array([1, 1 - 1e-10, *np.full(6, 0.1)]),
        "gap 1e-15": np.array([1, 1 - 1e-15, *np.full(6, 0.1)]),
        "steep": 0.1 ** np.arange(8.0),
        "very steep": 1e-3 ** np.arange(8.0),
        "flat": 1 - 1e-3 * np.arange(8.0),
        "rank 1": np.array([1.0, *np.zeros(7)]),
        "rank 2 of 8": np.array([1.0, 0.5, *np.zeros(6)]),
        "one large": np.array([1e6, *np.ones(7)]),
    }
    for (name, s), kind in product(shapes.items(), ("float64", "float32")):
        X = ((turn * s) @ back).astype(kind)
        yield Case(f"spectrum {name} {kind}", X, sources=NUMBERS)
        yield Case(f"spectrum {name} {kind} wide", np.ascontiguousarray(X.T[:, :30]))
    yield Case("k beyond the rank", (turn * shapes["rank 2 of 8"]) @ back, k=5)
    base = rows()
    for name, X in {
        "constant": np.full((20, 4), 7.0),
        "zeros": np.zeros((20, 4)),
        "one column varies": np.c_[np.arange(20.0), np.full((20, 3), 5.0)],
        "equal rows": np.repeat(base[:2], 20, axis=0),
        "equal columns": np.repeat(base[:, :2], 3, axis=1),
        "a column twice": np.c_[base, base[:, :1]],
        "one outlier": np.vstack([base, np.full((1, 6), 1e8)]),
        "integers": np.round(base * 10),
        "one nonzero": np.eye(20, 5) * np.r_[1.0, np.zeros(4)],
        "alternating": np.tile([[1.0, -1.0], [-1.0, 1.0]], (10, 3)),
    }.items():
        yield Case(name, X, k=1, sources=NUMBERS)


def gaps():
    """Two variances that differ by less and less, from a gap that is clear to one in rounding."""
    rng = np.random.default_rng(3)
    left = np.linalg.qr(rng.standard_normal((200, 6)))[0]
    left = np.linalg.qr(left - left.mean(axis=0))[0]
    right = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    for power, kind in product(range(1, 16), ("float64", "float32")):
        s = np.array([1.0, 1 - 10.0**-power, 0.5, 0.5 * (1 - 10.0**-power), 0.1, 0.01])
        X = ((left * s) @ right).astype(kind)
        yield Case(f"gap 1e-{power} {kind}", X, k=4, sources=CUTS)


def nullable():
    """Frames whose columns may hold missing entries; floats beside them as the reference."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    base = np.round(rows() * 50)
    holes = base.copy()
    holes[3, 1] = holes[7, 2] = np.nan
    filled = np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)
    for kind in ("Int8", "Int16", "Int32", "Int64", "Float32", "Float64", "int64[pyarrow]"):
        whole = pandas.DataFrame(np.clip(base, -100, 100)).astype(kind)
        yield Case(f"nullable {kind}, whole", whole, truth=np.clip(base, -100, 100))
        torn = pandas.DataFrame(np.clip(holes, -100, 100)).astype(kind)
        yield Case(f"nullable {kind}", torn, r"missing|NaN|null")
        mean = np.nanmean(np.clip(holes, -100, 100), axis=0)
        truth = np.where(np.isnan(holes), mean, np.clip(holes, -100, 100))
        yield Case(f"nullable {kind}, filled", torn, options={"missing": "mean"}, truth=truth)
    truths = pandas.DataFrame(base > 0).astype("boolean")
    yield Case("nullable boolean", truths, truth=(base > 0).astype(float))
    frame = polars.DataFrame(np.where(np.isnan(holes), None, holes).tolist(), orient="row")
    yield Case("polars with nulls", frame, r"missing|NaN|null")
    yield Case("polars with nulls, filled", frame, options={"missing": "mean"}, truth=filled)
    yield Case("polars", polars.DataFrame(base), truth=base)
    yield Case("polars, lazy", polars.DataFrame(base).lazy(), "LazyFrame")
    mixed = pandas.DataFrame({"a": base[:, 0], "b": base[:, 1].astype("i4"), "c": base[:, 2] > 0})
    yield Case("frame of mixed types", mixed, truth=mixed.to_numpy(float))
    odd = np.array([[2**53 + 1, 1], [5, 2], [7, 4]])
    torn = pandas.DataFrame(odd).astype("Int64")
    torn.iloc[2, 1] = pandas.NA
    words = "whole|exact|2\\^53|53"
    options = {"missing": "mean"}
    yield Case("integers that no float holds", torn, words, k=1, options=options)
    text = pandas.DataFrame({"a": base[:, 0], "b": ["x"] * 40, "c": base[:, 1]})
    yield Case("frame with text", text, r"text|b|number")


def lazy():
    """More than 2^31 numbers, of which few take memory."""
    many = np.broadcast_to(np.arange(4, dtype="u1"), (2**29 + 3, 4))
    yield Case(
        "2^31 equal numbers that may not be multiplied",
        many,
        "memory|max_memory",
        k=1,
        options={"max_memory": "1KB"},
    )


def shapes():
    for n, d in product(range(4), repeat=2):
        X = rows(max(n, 1), max(d, 1))[:n, :d] if n and d else np.zeros((n, d))
        fails = None if n >= 2 and d >= 1 else r"sample|row|feature|column|empty|shape|minimum"
        yield Case(f"shape {n} x {d}", X, fails, k=1 if n >= 2 else None)
    for X in (np.zeros(5), np.zeros((2, 2, 2)), np.float64(1.0), [], [[]], None, "text", 3):
        words = r"2D|dimension|shape|source|type|array|sample|feature|path|not found|empty|column"
        yield Case(f"not a matrix: {X!r:.20}", X, words)


def dtypes():
    base = np.round(rows() * 50)
    for kind in ("i1", "i2", "i4", "i8", "f2", "f4", "f8", "g", ">f4", ">f8", ">i2", "<u4"):
        X = np.abs(base).astype(kind) if "u" in kind else base.astype(kind)
        yield Case(f"dtype {kind}", X, sources=("array", "fortran"))
    for kind in ("u1", "u2", "u4", "u8", "?"):
        yield Case(f"dtype {kind}", np.abs(base).astype(kind))
    yield Case(
        "int64 near its ends", np.array([[2**62, 1], [2**62 + 64, 2], [2**62 + 256, 5]]), k=1
    )
    yield Case("uint64 near its end", np.array([[2**64 - 1, 1], [2**64 - 9, 2], [5, 5]], "u8"), k=1)
    units = np.round(rows() * 50).astype("i8")
    for priming in ("exact", "block_krylov"):
        X, options = 2**62 + np.arange(6) ** 9 + units, {"priming": priming}
        name, truth = f"int64 that differ by units, {priming}", units.astype(float)
        yield Case(name, X, options=options, truth=truth, sources=NUMBERS)
    yield Case("objects of numbers", base.astype(object))
    words = r"complex|dtype|type|number|numeric|convert|string|date|text|supported"
    for name, X in {
        "complex64": base.astype("c8"),
        "complex128": base.astype("c16"),
        "strings": base.astype(str),
        "bytes": base.astype("S8"),
        "dates": base.astype("i8").astype("M8[D]"),
        "durations": base.astype("i8").astype("m8[s]"),
        "structured": np.zeros(5, [("a", "f8")]),
        "objects of text": np.array([["a", "b"], ["c", "d"]], object),
        "objects of None": np.array([[None, 1.0], [2.0, 3.0]], object),
        "void": np.zeros((3, 2), "V4"),
    }.items():
        yield Case(f"dtype {name}", X, words + "|2D|dimension|shape|missing|NaN|finite")


def layouts():
    base = rows()
    big = np.zeros((80, 12))
    big[::2, ::2] = base
    buffer = np.zeros(base.nbytes + 1, np.uint8)
    unaligned = buffer[1:].view(np.float64).reshape(base.shape)
    unaligned[...] = base
    read_only = base.copy()
    read_only.setflags(write=False)
    for name, X in {
        "strided": big[::2, ::2],
        "reversed": base[::-1, ::-1],
        "transposed": np.ascontiguousarray(base.T).T,
        "unaligned": unaligned,
        "read only": read_only,
        "broadcast": np.broadcast_to(base[:, :1], (40, 3)),
        "list": base.tolist(),
        "tuple": tuple(map(tuple, base)),
        "matrix of a subclass": np.asarray(base).view(type("Sub", (np.ndarray,), {})),
        "masked, nothing masked": np.ma.masked_array(base, mask=False),
    }.items():
        yield Case(f"layout {name}", X, k=1, truth=np.asarray(X, float))
    holes = np.ma.masked_array(base, mask=base > 1)
    yield Case("masked", holes, r"mask|missing|NaN")


def sparse_structures():
    good = sp.csr_array(np.where(np.abs(rows()) > 0.3, rows(), 0))
    dense = good.toarray()

    def changed(**parts):
        bad = good.copy()
        for name, value in parts.items():
            setattr(bad, name, value)
        return bad

    indices, indptr = good.indices.copy(), good.indptr.copy()
    words = r"index|indices|indptr|sparse|structure|column|length|stored"
    out, negative, falling, short = indices.copy(), indices.copy(), indptr.copy(), indptr.copy()
    out[3], negative[3] = 99, -1
    falling[5] = falling[4] - 2
    short[-1] = 10**6
    yield Case("sparse: index out of range", changed(indices=out), words)
    yield Case("sparse: negative index", changed(indices=negative), words)
    yield Case("sparse: falling indptr", changed(indptr=falling), words)
    yield Case("sparse: indptr beyond the data", changed(indptr=short), words)
    yield Case("sparse: indptr too short", changed(indptr=indptr[:-3]), words)
    yield Case("sparse: first indptr", changed(indptr=np.r_[1, indptr[1:]].astype("i4")), words)
    shuffled = good.copy()
    shuffled.indices[:2] = shuffled.indices[:2][::-1].copy()
    shuffled.data[:2] = shuffled.data[:2][::-1].copy()
    shuffled.has_sorted_indices = False
    yield Case("sparse: unsorted indices", shuffled, truth=dense)
    twice = sp.coo_array((np.r_[1.0, 2.0, 5.0], ([0, 0, 1], [1, 1, 0])), shape=(4, 3))
    yield Case("sparse: duplicates are summed", twice, k=1, truth=twice.toarray())
    zeros = good.copy()
    zeros.data[:5] = 0
    yield Case("sparse: explicit zeros", zeros, truth=zeros.toarray())
    wide = good.copy()
    wide.indices, wide.indptr = wide.indices.astype("i8"), wide.indptr.astype("i8")
    yield Case("sparse: int64 indices", wide, truth=dense)
    for kind in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok"):
        yield Case(f"sparse: {kind}", good.asformat(kind), truth=dense)
    yield Case("sparse: empty", sp.csr_array((10, 4)), k=1, truth=np.zeros((10, 4)))
    for value in (np.nan, np.inf):
        bad = good.copy()
        bad.data[7] = value
        yield Case(f"sparse: {value}", bad, r"NaN|finite|inf")
    huge = sp.csr_array(
        (np.r_[3.0, 4.0, 5.0], ([0, 5, 99_999], [0, 99_999, 7])), shape=(100_000, 100_000)
    )
    yield Case("sparse: 1e10 cells", huge, k=1, truth=False)


def non_finite():
    places = {"first": (0, 0), "last": (-1, -1), "middle": (20, 3), "first row": (0, slice(None))}
    for (name, place), value in product(places.items(), (np.nan, np.inf, -np.inf)):
        X = rows()
        X[place] = value
        yield Case(f"{value} {name}", X, r"NaN|finite|inf", sources=NUMBERS[:6])
        fine = np.isnan(value)
        yield Case(
            f"{value} {name}, filled",
            X,
            None if fine else r"finite|inf",
            options={"missing": "mean"},
            truth=np.where(np.isnan(X), np.nanmean(X, axis=0), X) if fine else None,
        )
    X = rows()
    X[:, 2] = np.nan
    yield Case("a column of NaN", X, r"NaN|missing|column", options={"missing": "mean"})
    X = rows()
    X[3] = np.inf
    w = np.ones(40)
    w[3] = 0
    # Rows of weight zero count as absent in every number, but they are data all the same.
    yield Case("infinity in a row of weight zero", X, r"finite|inf", weight=w)


def weights():
    base = rows()
    words = r"sample_weight|weight"
    for name, w in {
        "negative": np.r_[-1.0, np.ones(39)],
        "NaN": np.r_[np.nan, np.ones(39)],
        "infinite": np.r_[np.inf, np.ones(39)],
        "too few": np.ones(39),
        "two columns": np.ones((40, 2)),
        "all zero": np.zeros(40),
        "text": np.array(["a"] * 40),
        "sum of one": np.full(40, 1 / 40),
    }.items():
        yield Case(f"weights {name}", base, words, weight=w)
    whole = np.arange(40) % 3
    for name, w in {
        "integers": whole,
        "booleans": whole > 0,
        "float32": whole.astype("f4"),
        "list": whole.tolist(),
        "last block zero": np.r_[np.ones(20), np.zeros(20)],
        "first block zero": np.r_[np.zeros(20), np.ones(20)],
    }.items():
        repeated = np.repeat(base, np.asarray(w, int), axis=0)
        yield Case(f"weights {name}", base, weight=w, truth=repeated, sources=("array", "csr"))
    spread = np.r_[np.full(20, 1e-200), np.full(20, 1e9)]
    yield Case("weights of 1e-200 and 1e9", base, weight=spread, truth=False)
    yield Case("weights of 1e300", base, weight=np.full(40, 1e300), truth=False)


def scales():
    base = rows()
    words = r"scale"
    for name, scale in {
        "zero": np.r_[0.0, np.ones(5)],
        "negative": np.r_[-1.0, np.ones(5)],
        "NaN": np.r_[np.nan, np.ones(5)],
        "infinite": np.r_[np.inf, np.ones(5)],
        "too few": np.ones(5),
        "text": "minmax",
        "two rows": np.ones((2, 6)),
    }.items():
        yield Case(f"scale {name}", base, words, options={"scale": scale})
    std = base.std(axis=0)
    yield Case("scale std", base, options={"scale": "std"}, truth=base / std)
    units = base * 10.0 ** np.array([150, -150, 0, 30, -30, 5])
    yield Case("scale std of any unit", units, options={"scale": "std"}, truth=base / std)
    still = np.c_[base, np.full(40, 3.0)]
    fixed = np.c_[base / std, np.zeros(40)]
    yield Case("scale std of a constant column", still, options={"scale": "std"}, truth=fixed)
    yield Case("scale array", base, options={"scale": std * 3}, truth=base / (3 * std))


def requests():
    base = rows()
    bad = {
        "n_components": [0, -1, 7, 1.5, 0.0, 1.0, np.nan, True, "ten", "", [2], 2 + 0j],
        "tol": [0, -1, np.nan, np.inf, "x", None],
        "max_passes": [0, -1, 1.5, "x", None, np.nan],
        "batch_size": [0, -1, 1.5, "x"],
        "failure_probability": [0, 1, 2, -1e-9, np.nan, "x"],
        "refine_share": [0, 2, -0.5, np.nan, "x"],
        "certificate": ["x", None, 1],
        "missing": ["x", None, "median"],
        "priming": ["x", 3, None, type("P", (), {})],
        "extra_components": [-1, 1.5, "x"],
        "random_state": [-1, "x", 1.5],
        "max_memory": ["x", -1, 0, "1KB", np.nan],
        "device": ["nowhere", 3.5],
        "engine": ["nowhere", 3],
        "checkpoint": [3],
        "center": ["yes", 2],
        "whiten": ["yes", 2],
        "verbose": ["x"],
    }
    for name, values in bad.items():
        for value in values:
            options = {name: value}
            k = options.pop("n_components", 2)
            words = name if name != "extra_components" else "extra_components|n_directions"
            yield Case(f"{name}={value!r:.30}", base, words, k=k, options=options)
    for name, value in {
        "generator": np.random.default_rng(0),
        "legacy": np.random.RandomState(0),
        "large": 2**32 - 1,
        "zero": 0,
        "numpy": np.int64(3),
    }.items():
        yield Case(f"seed {name}", base, options={"random_state": value})
    for k in (np.int64(2), np.float64(0.9), "mle", None, 0.999999):
        yield Case(f"n_components={k!r}", base, k=k)


FAMILIES = (
    *(ladders, units, subnormals, spectra, gaps, shapes, dtypes, layouts, nullable, lazy),
    *(sparse_structures, non_finite, weights, scales, requests),
)


def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, when data are made
        found = [case for family in FAMILIES for case in family()]
    return [(case, source) for case in found for source in case.sources]
