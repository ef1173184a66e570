"""The floor under a fit: its flops and bytes at the rates of this machine, and how near it comes.

    python benchmarks/floor.py --sets mnist,nips --repeats 5

An engine records the passes of every fit.  NumPy and SciPy alone then make the same products, in
two threads and in pieces that stay in cache.  Added are one Gram-Schmidt pass over the basis, one
eigenproblem of its order, the vectors, and for a proof the inner products of the basis with the
random vectors or one Cholesky factorisation.  Nothing else counts.  See README.md in this folder.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from panel_sets import PANEL
from scipy.linalg import cholesky, eigh
from threadpoolctl import threadpool_limits

from primedpca import PrimedPCA, certify
from primedpca.engines import LocalEngine

THREADS = 2
#: Bytes of a piece of the data that stays in the cache of a core.
PIECE = 2**19
#: Random vectors that check a proof, dense and sparse.
CHECKS = {False: 8, True: 16}


class Sweep(NamedTuple):
    """One pass: which kernel, the bytes of a number, columns multiplied, and columns that check."""

    kernel: str
    item: int
    columns: int
    checks: int


class Recorder(LocalEngine):
    """Engine of this machine that writes down its passes."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "sweeps", Counter())

    def sweep(self, source: Any, kernel: Any, whole: Any, mine: Any) -> Any:
        both = {**whole, **mine}
        operand = both.get("vectors", both.get("left"))
        checks = both.get("checks")
        dtype = np.float64 if operand is None else operand.dtype
        if both.get("dtype") is not None:
            dtype = np.float32 if both.get("rounded") else both["dtype"]
        columns = 0 if operand is None else operand.shape[1]
        more = 0 if checks is None else checks.shape[1]
        self.sweeps[Sweep(kernel.__name__, np.dtype(dtype).itemsize, columns, more)] += 1
        return super().sweep(source, kernel, whole, mine)


# -- what a machine can do -----------------------------------------------------------------------


def best(run: Callable[[], Any], repeats: int, threads: int | None = 1) -> float:
    """Seconds of the fastest run with so many BLAS threads; short ones are run more often."""
    times: list[float] = []
    with threadpool_limits(threads):
        while len(times) < repeats or (sum(times) < 0.1 and len(times) < 100):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
    return min(times)


def in_pieces(work: Callable[[slice], Any], length: int, step: int) -> None:
    """Two threads share the pieces, if there are two."""
    pieces = [slice(i, min(i + step, length)) for i in range(0, length, step)]
    if len(pieces) == 1:
        work(pieces[0])
    else:
        list(POOL.map(lambda t: [work(p) for p in pieces[t::THREADS]], range(THREADS)))


POOL = ThreadPoolExecutor(THREADS)


def products(X: Any, item: int, columns: int, both: bool) -> Callable[[], None]:
    """``X V``, and ``X^T Y`` as well if ``both``, along the longer side."""
    dtype = np.dtype(f"f{item}")
    tall = X if X.shape[0] >= X.shape[1] else X.T
    rng = np.random.default_rng(0)
    if sp.issparse(X):
        rows = -(-X.shape[0] // THREADS)
        halves = [X[i : i + rows].astype(dtype) for i in range(0, X.shape[0], rows)]
        vectors = rng.standard_normal((X.shape[1], columns)).astype(dtype)

        def half(t: int) -> None:
            y = halves[t] @ vectors
            if both:
                halves[t].T @ y

        return lambda: list(POOL.map(half, range(len(halves))))
    vectors = rng.standard_normal((tall.shape[1], columns)).astype(dtype)
    step = max(16, PIECE // (item * tall.shape[1]))

    def piece(rows: slice) -> None:
        a = tall[rows].astype(dtype, copy=False)
        y = a @ vectors
        if both:
            a.T @ y

    return lambda: in_pieces(piece, tall.shape[0], step)


def square(X: np.ndarray, item: int) -> Callable[[], None]:
    """The covariance or Gram matrix, from pieces or in one call."""
    dtype = np.dtype(f"f{item}")
    tall = X if X.shape[0] >= X.shape[1] else X.T
    step = max(4 * tall.shape[1], PIECE // (item * tall.shape[1]))

    def piece(rows: slice) -> None:
        a = tall[rows].astype(dtype, copy=False)
        a.T @ a

    return lambda: in_pieces(piece, tall.shape[0], step)


def times(matrix: np.ndarray, columns: int) -> Callable[[], None]:
    """The matrix times some columns."""
    vectors = matrix[:, :columns].copy()
    step = max(16, PIECE // (4 * matrix.shape[1]))
    return lambda: in_pieces(lambda rows: matrix[rows] @ vectors, matrix.shape[0], step)


def reading(X: Any) -> Callable[[], None]:
    """A sum of all numbers."""
    data = X.data if sp.issparse(X) else X
    step = max(1, len(data) // 64)
    return lambda: in_pieces(lambda rows: data[rows].sum(), len(data), step)


def iteration(length: int, block: int, steps: int, item: int) -> Callable[[], None]:
    """One Gram-Schmidt pass over a basis that grows by a block in each step."""
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((length, min(block * steps, length))).astype(f"f{item}")

    def run() -> None:
        for start in range(0, basis.shape[1], block):
            new, old = basis[:, start : start + block].copy(), basis[:, :start]
            if start:
                new -= old @ (old.T @ new)
            new @ np.linalg.inv(new.T @ new + 1e3 * np.eye(new.shape[1], dtype=new.dtype))

    return run


# -- the floor of a fit --------------------------------------------------------------------------


class Run(NamedTuple):
    """What is timed, and what it did."""

    seconds: float
    sweeps: Counter[Sweep]
    steps: int
    block: int
    side: str


def of_sweep(X: Any, sweep: Sweep, repeats: int) -> float:
    """Seconds of one pass without anything around it."""
    kernel, item, columns, checks = sweep
    seconds = 0.0
    if kernel == "covariance":
        seconds += best(square(X, item), repeats)
    elif columns:
        both = kernel in ("product", "gram_product")
        seconds += best(products(X, item, columns, both), repeats)
    else:
        seconds += best(reading(X), repeats)
    if checks:
        seconds += best(products(X, 8, checks, True), repeats)
    return seconds


def parts(X: Any, k: int, run: Run, proven: bool, repeats: int) -> Iterator[tuple[str, float]]:
    """The parts of the floor and their seconds."""
    for sweep, count in run.sweeps.items():
        yield "passes", count * of_sweep(X, sweep, repeats)
    m = min(X.shape)
    explicit = any(sweep.kernel == "covariance" for sweep in run.sweeps)
    passed = sum(n for s, n in run.sweeps.items() if s.kernel in ("product", "gram_product"))
    steps = run.steps - passed if explicit else run.steps
    rng = np.random.default_rng(0)
    if explicit and proven and steps != 1:
        matrix = rng.standard_normal((m, m)).astype("f4")
        definite = matrix + matrix.T + np.float32(4 * math.sqrt(m)) * np.eye(m, dtype="f4")
        yield "proof", best(lambda: cholesky(definite, check_finite=False), repeats, None)
    if not run.steps:  # an audit
        return
    if explicit and steps <= 1:  # a full decomposition
        matrix = rng.standard_normal((m, m))
        few = (m - k, m - 1) if 6 * k < m else None
        whole = matrix + matrix.T
        yield "eigenproblem", best(lambda: eigh(whole, subset_by_index=few), repeats)
        return
    length = m if explicit else X.shape[run.side == "right"]
    basis = min(run.block * steps, length)
    yield "Gram-Schmidt", best(iteration(length, run.block, steps, 4), repeats)
    small = rng.standard_normal((basis, basis))
    yield "eigenproblem", best(lambda: np.linalg.eigh(small + small.T), repeats)
    tall = rng.standard_normal((length, basis)).astype("f4")
    turn = rng.standard_normal((basis, k)).astype("f4")
    yield "vectors", best(lambda: tall @ turn, repeats)
    if explicit:
        matrix = rng.standard_normal((m, m)).astype("f4")
        yield "matrix", steps * best(times(matrix, run.block), repeats)
    elif proven:
        random = rng.standard_normal((length, 2 * CHECKS[sp.issparse(X)]))
        yield "proof", best(lambda: tall.T.astype("f8") @ random, repeats)


def run_of(X: Any, k: int, what: str, outside: np.ndarray, repeats: int) -> Run:
    """Time a fit or an audit, and record one."""
    recorder = Recorder()

    def call(**more: Any) -> Any:
        if what == "certify":
            return certify(X, outside, tol=math.pi / 1024, random_state=0, **more)
        kind = "auto" if what == "proven" else "none"
        return PrimedPCA(k, random_state=0, certificate=kind, **more).fit(X)

    model = call(engine=recorder)
    seconds = best(call, repeats, None)
    if what == "certify":
        return Run(seconds, recorder.sweeps, 0, 0, "right")
    last, priming = model.history_[-1], model.plan_.priming
    block = getattr(priming, "block_size", None) or k
    return Run(seconds, recorder.sweeps, last["step"], block, getattr(priming, "side", "right"))


def rows(name: str, repeats: int) -> Iterator[str]:
    """The lines of one set."""
    case = PANEL[name]
    X, k = case.load(), case.k
    outside = PrimedPCA(k, random_state=1, certificate="none").fit(X).components_
    for what in ("unproven", "proven", "certify"):
        run = run_of(X, k, what, outside, repeats)
        found: Counter[str] = Counter()
        for part, seconds in parts(X, k, run, what != "unproven", repeats):
            found[part] += seconds
        floor = sum(found.values())
        words = ", ".join(f"{part} {1e3 * seconds:.3g}" for part, seconds in found.items())
        share = f"{100 * floor / run.seconds:.0f} %"
        line = f"| {name} | {what} | {1e3 * run.seconds:.3g} | {1e3 * floor:.3g} | {share} |"
        yield f"{line} {words} |"


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(PANEL))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/floor.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [
        "| set | what | ms | floor ms | floor / ms | parts of the floor, ms |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for name in options.sets.split(","):
        for line in rows(name, options.repeats):
            print(line, flush=True)
            lines.append(line)
    options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
