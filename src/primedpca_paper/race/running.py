"""Runs of a race: every contestant on every data set with every seed, one row per evaluation.

Evaluations are not timed.  They come at the ends of epochs and at steps that grow by a tenth, so
that runs whose quality swings with the epoch are seen at both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from primedpca import PrimedPCA, prime, refine
from primedpca._core.orthonormal import basis_of
from primedpca._operator.operator import Centred
from primedpca.metrics import angles
from primedpca.protocols import Priming
from primedpca.sources import as_source
from primedpca.sources.base import whole
from primedpca_paper.arena import centred_rows, true_components
from primedpca_paper.datasets import SETS, load_set
from primedpca_paper.peers import CountingEngine, Peer, Setting, Work, entries
from primedpca_paper.protocol import THRESHOLDS
from primedpca_paper.records import machine_of, versions

__all__ = ["Data", "Entry", "Plan", "load_data", "race", "run_peer", "run_priming"]

#: Largest smaller side of data whose reference is a full decomposition by LAPACK in float64.
LAPACK = 4000
#: Angle in radians to which the reference of larger data is proven.
REFERENCE = 1e-4
#: A run ends when it has had this many full streaks at the finest threshold in a row.
ENOUGH = 3
#: Maximum number of passes of a priming that visits the whole data.
MOST_PASSES = 500


@dataclass(frozen=True)
class Data:
    """A data set in memory with its true components.

    Attributes
    ----------
    name : str
    X : ndarray or sparse array of shape (n, d)
    truth : ndarray of shape (k, d)
    origin : str
        How the true components were computed.
    """

    name: str
    X: Any
    truth: np.ndarray
    origin: str


@dataclass(frozen=True)
class Plan:
    """Settings that all contestants share.

    Attributes
    ----------
    k : int
        Number of components.
    extra : int
        Number of extra directions of primings.
    seeds : int
        Number of runs, with seeds 0, 1, ...
    budget : float
        Seconds for one run, evaluations not counted.
    batch : int
        Rows in a mini-batch.
    """

    k: int = 16
    extra: int = 4
    seeds: int = 3
    budget: float = 60.0
    batch: int = 1000


@dataclass(frozen=True)
class Entry:
    """One evaluation of one run.

    Attributes
    ----------
    data, method, setting : str
    n, d, stored, k : int
        Size of the data, number of stored entries, number of components.
    kind : {"priming", "refined", "solver"}
    seed, step : int
    seconds, passes, gflop : float
        So far, with one refining if ``kind`` is "refined".  ``gflop`` counts products with the
        data; NaN where it is not known.
    angles : ndarray of shape (k,)
        To the true components, in radians.
    note : str
    machine, date : str
    """

    data: str
    n: int
    d: int
    stored: int
    k: int
    method: str
    kind: str
    setting: str
    seed: int
    step: int
    seconds: float
    passes: float
    gflop: float
    angles: np.ndarray
    note: str = ""
    machine: str = ""
    date: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d"))

    def streak(self, threshold: float) -> int:
        """Return the number of leading components within ``threshold``."""
        return int(np.cumprod(self.angles < threshold).sum())


def load_data(words: str, k: int, folder: Any = None) -> Data:
    """Load a set of the paper by its name, or any file, and solve it.

    Parameters
    ----------
    words : str
        One of the paper's sets, or a path.
    k : int
        Number of components.
    folder : Path, optional
        Folder of the paper's sets.
    """
    # A set of the paper wins over a file of the same name.
    X = load_set(words, folder).X if words in SETS else whole(as_source(words))  # noqa: N806
    if not 1 <= k < min(X.shape):
        raise ValueError(f"`k`={k} must be at least 1 and less than min{X.shape} of {words!r}.")
    if min(X.shape) <= LAPACK:
        truth = true_components(centred_rows(X), k)[1].T
        return Data(words, X, truth, "LAPACK in float64")
    pca = PrimedPCA(k, tol=REFERENCE, max_passes=MOST_PASSES, random_state=12345)
    pca.fit(X.astype(np.float64))
    if not pca.converged_:
        raise ValueError(
            f"The true components of {words!r} could not be proven to {REFERENCE} rad: "
            f"{pca.status_} Use fewer components."
        )
    return Data(words, X, pca.components_, f"PrimedPCA, proven to {REFERENCE} rad")


def run_priming(
    data: Data, name: str, priming: Priming, plan: Plan, seed: int, machine: str = ""
) -> Iterator[Entry]:
    """Run a priming within the budget; yield the rows before and after refining."""
    X, k = data.X, plan.k  # noqa: N806
    p = min(k + plan.extra, *X.shape)
    work, rows = Work(), min(plan.batch, X.shape[0])
    known = Centred(X)
    known.learn()  # the mean for refining, as the priming has it by then
    fresh = Centred.of(X, engine=CountingEngine(work))
    epoch = math.ceil(X.shape[0] / rows) if priming.visits != "whole" else 1
    make = _entries_of(data, k, name, repr(priming), seed, machine)
    due, full, last = 1, 0, None
    try:
        for last in prime(
            fresh, priming, p, batch_size=rows, max_passes=MOST_PASSES, random_state=seed
        ):
            over = last.seconds > plan.budget
            if not (over or _is_due(last.step, due, epoch)):
                continue
            due = max(due + 1, math.ceil(1.1 * last.step))
            for row in _evaluated(known, last, make, work, plan, priming, p):
                yield row
            full = full + 1 if row.streak(THRESHOLDS[-1]) >= k else 0
            last = None
            if over or full >= ENOUGH:
                return
        if last is not None:
            yield from _evaluated(known, last, make, work, plan, priming, p)
    except Exception as error:  # a finding: the row says so, and the others run on
        note = _note(error)
        yield make("refined", 0, math.nan, math.nan, math.nan, np.full(k, np.pi / 2), note)


def _note(error: Exception) -> str:
    """Return what a contestant raised in one line; some errors have no text."""
    said = str(error).strip().partition("\n")[0][:200]
    return f"{type(error).__name__}: {said}".removesuffix(": ")


def _is_due(step: int, due: int, epoch: int) -> bool:
    """Whether to evaluate: every tenth more steps, and at some ends of epochs."""
    ends = step // epoch
    at_end = step % epoch == 0 and (ends <= 10 or ends % (ends // 10) == 0)
    return step >= due or at_end


def _evaluated(
    known: Centred, last: Any, make: Any, work: Work, plan: Plan, priming: Priming, p: int
) -> Iterator[Entry]:
    k = plan.k
    columns = work.columns if priming.visits == "whole" else 2 * p * last.passes
    gflop = 2e-9 * make.stored * columns if columns else math.nan
    start = time.perf_counter()
    directions = last.directions
    found = refine(known, basis_of(directions), min(k, directions.shape[1]))
    cost = time.perf_counter() - start
    raw = np.asarray(directions)[:, :k]
    yield make("priming", last.step, last.seconds, last.passes, gflop, _angles(raw.T, make.truth))
    more = 4e-9 * make.stored * directions.shape[1]
    passes = last.passes + 1
    refined = _angles(found.components, make.truth)
    yield make("refined", last.step, last.seconds + cost, passes, gflop + more, refined)


def run_peer(data: Data, peer: Peer, plan: Plan, seed: int, machine: str = "") -> Iterator[Entry]:
    """Run a solver at one setting after the other, from cheap to expensive."""
    full, k = 0, plan.k
    _warm_up(peer)
    width = peer.widths[len(peer.widths) // 2]
    for step, effort in enumerate(peer.efforts, 1):
        setting = Setting(width, effort)
        make = _entries_of(data, k, peer.name, peer.label(setting), seed, machine)
        refusal = peer.refuses(data.X, k, setting)
        if refusal:
            yield make("solver", 0, math.nan, math.nan, math.nan, np.full(k, np.pi / 2), refusal)
            return
        start = time.perf_counter()
        try:
            found = peer.run(data.X, k, setting, seed)
        except Exception as error:  # what a solver raises is a finding
            note = _note(error)
            yield make("solver", step, math.nan, math.nan, math.nan, np.full(k, np.pi / 2), note)
            continue
        seconds = time.perf_counter() - start
        passes = gflop = math.nan
        with suppress(NotImplementedError):
            work = peer.work(data.X, k, setting)
            passes, gflop = work.passes, work.gflop(data.X)
        note = "proven" if found.proven else ""
        row = make(
            "solver", step, seconds, passes, gflop, _angles(found.components, data.truth), note
        )
        yield row
        full = full + 1 if row.streak(THRESHOLDS[-1]) >= k else 0
        if seconds > plan.budget or full >= ENOUGH:
            return


def _warm_up(peer: Peer) -> None:
    """Run the solver on little data, so that loading its library is not timed."""
    tiny = np.random.default_rng(0).standard_normal((60, 40))
    with suppress(Exception):  # the run itself tells what is wrong
        peer.run(tiny, 2, Setting(4, peer.efforts[0]), 0)


class _entries_of:  # noqa: N801  called like a function
    """Maker of the rows of one run."""

    def __init__(
        self, data: Data, k: int, method: str, setting: str, seed: int, machine: str
    ) -> None:
        self.truth, self.stored = data.truth, entries(data.X)
        self._first = (data.name, *data.X.shape, self.stored, k, method)
        self._setting, self._seed, self._machine = setting, seed, machine

    def __call__(
        self,
        kind: str,
        step: int,
        seconds: float,
        passes: float,
        gflop: float,
        found: np.ndarray,
        note: str = "",
    ) -> Entry:
        """Return the row of one evaluation."""
        first: Any = (*self._first, kind, self._setting, self._seed, step)
        return Entry(*first, seconds, passes, gflop, found, note, self._machine)  # type: ignore[call-arg]


def _angles(components: Any, truth: np.ndarray) -> np.ndarray:
    """Return the angles to the truth; right angles for components that are absent or not finite."""
    found = np.full(len(truth), np.pi / 2)
    components = np.asarray(components, dtype=np.float64)[: len(truth)]
    good = np.isfinite(components).all(axis=1) & components.any(axis=1)
    if components.ndim == 2 and components.shape[1] == truth.shape[1] and good.any():
        at = np.flatnonzero(good)
        found[at] = angles(components[at], truth[at])
    return found


def machine_words() -> str:
    """Return the machine and the versions in one line."""
    return f"{machine_of('cpu')}; {versions()}"


def race(
    data: Sequence[Data],
    primings: Sequence[tuple[str, Priming]],
    peers: Sequence[Peer],
    plan: Plan,
    progress: Callable[[str], None] = lambda words: None,
) -> Iterator[Entry]:
    """Run every contestant on every data set with every seed."""
    machine = machine_words()
    for held in data:
        for seed in range(plan.seeds):
            for name, priming in primings:
                progress(f"{held.name}: {name}, seed {seed}")
                yield from run_priming(held, name, priming, plan, seed, machine)
            for peer in peers:
                if seed and not peer.seeded:
                    continue
                progress(f"{held.name}: {peer.name}, seed {seed}")
                yield from run_peer(held, peer, plan, seed, machine)
