"""What a proof costs: proven, unproven, `certify`, scikit-learn and peers on the sets of every day.

    python benchmarks/panel.py --peers --before OLD/src      # everything, an hour or more
    python benchmarks/panel.py --sets iris,mnist --repeats 3
    python benchmarks/panel.py --quick                       # does it run at all?

See README.md in this folder.
"""

from __future__ import annotations

import argparse
import gc
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cases
import numpy as np
import panel_tables
import race
import scipy.sparse as sp
import tables
import tune
from panel_sets import PANEL, cut
from panel_worker import ROUND, Worker, clock

import primedpca
from primedpca_paper.peers import PEERS, TOL, Peer, Setting, entries, orthonormal

DEFAULT_TOL = math.pi / 1024
#: Above this many bytes scikit-learn's exact solvers would need several copies of the data.
EXACT_BYTES = 7e8
OURS = ("unproven", "proven", "certify", "certify_open", "proven_128")


@dataclass
class Entry:
    """Something that is timed in every round; `run` is given the number of the round."""

    name: str
    run: Callable[[int], dict[str, Any]]
    label: str = ""
    replies: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""

    @property
    def best(self) -> float:
        return min((reply["seconds"] for reply in self.replies), default=math.inf)

    @property
    def right(self) -> bool:
        """Whether every answer is within pi/128 of the truth, where that is known."""
        return all(reply.get("angle", 0.0) <= TOL for reply in self.replies)


@dataclass
class Data:
    """A set in memory, and the file that the workers read it from."""

    case: cases.Case
    X: Any
    path: str


def prepare(case: cases.Case, folder: Path, quick: bool) -> Data:
    X = cut(case.load()) if quick else case.load()
    path = folder / (f"{case.name}.npz" if sp.issparse(X) else f"{case.name}.npy")
    if sp.issparse(X):
        sp.save_npz(path, X, compressed=False)
    else:
        np.save(path, X)
    return Data(case, X, str(path))


# -- who is timed --------------------------------------------------------------------------------


def own_entries(now: Worker, before: Worker | None, least: float) -> Iterator[Entry]:
    """This checkout and the older one next to each other, then the audits."""
    for certificate, name in (("none", "unproven"), ("auto", "proven")):
        for worker, place in ((before, "before_"), (now, "")):
            if worker is not None:
                yield Entry(place + name, _fit(worker, least, certificate))
    for name, tol in (("certify", DEFAULT_TOL), ("certify_open", None)):
        yield Entry(name, lambda _, tol=tol: now("certify", least=least, tol=tol))


def _fit(worker: Worker, least: float, certificate: str) -> Callable[[int], dict[str, Any]]:
    return lambda _: worker("fit", least=least, certificate=certificate)


def sklearn_entries(data: Data, least: float) -> Iterator[Entry]:
    """``PCA`` with nothing set; on sparse data also ``TruncatedSVD``, which does not centre."""
    from sklearn.decomposition import PCA, TruncatedSVD

    X, k = data.X, data.case.k
    kinds = {"sklearn": PCA, "truncated": TruncatedSVD} if sp.issparse(X) else {"sklearn": PCA}
    for name, kind in kinds.items():

        def run(_: int, kind: Any = kind) -> dict[str, Any]:
            seconds, model = clock(lambda: kind(k, random_state=0).fit(X), least)
            return {"seconds": seconds, "solver": getattr(model, "_fit_svd_solver", "")}

        yield Entry(name, run, kind.__name__)


def peer_entries(data: Data, quick: bool, now: Worker, least: float) -> Iterator[Entry]:
    """The fastest tuned peers, as many as one run cannot distinguish, and ours at pi/128."""
    case = replace(data.case, tiny=True) if quick else data.case
    reference = case.reference(data.X)
    peers = race.quick(list(PEERS)) if quick else list(PEERS)
    records = tuned(case, data.X, reference, peers, None if quick else cache_of(case))
    found = [
        (seconds, peer, setting)
        for peer in peers
        for setting, seconds in tune.right_settings(records[peer.name])
    ]
    fastest = min((seconds for seconds, *_ in found), default=0.0)
    for seconds, peer, setting in found:
        if seconds <= tune.CLOSE * fastest:
            run = _peer(peer, setting, data, reference, least)
            yield Entry("peer", run, f"{peer.name} ({peer.label(setting)})")
    yield Entry("proven_128", lambda r: now("fit", least=least, tol=TOL, seed=_seed(r)))


def cache_of(case: cases.Case) -> Path:
    """Sets that are not raced have a file of their own: the race counts all sets in its file."""
    name = "tuning.json" if case.name in cases.CASES else "panel_tuning.json"
    return cases.CACHE / name


def tuned(
    case: cases.Case, X: Any, reference: np.ndarray, peers: list[Peer], cache: Path | None
) -> dict[str, Any]:
    versions = tables.versions()
    known = tune.load_cache(cache, versions) if cache else {}
    known[case.name] = tune.tune(case, X, reference, peers, known.get(case.name, {}))
    if cache:
        tune.save_cache(cache, versions, known)
    return known[case.name]


def _peer(
    peer: Peer, setting: Setting, data: Data, reference: np.ndarray, least: float
) -> Callable[[int], dict[str, Any]]:
    def run(r: int) -> dict[str, Any]:
        seconds, found = clock(lambda: peer.run(data.X, data.case.k, setting, _seed(r)), least)
        return {"seconds": seconds, "angle": tune.worst_angle(found.components, reference)}

    return run


def _seed(r: int) -> int:
    return tune.SEEDS[r % len(tune.SEEDS)]


def outside_answer(data: Data, folder: Path) -> str | None:
    """A file with scikit-learn's exact components, or None where only ours are affordable."""
    from sklearn.decomposition import PCA

    X, k = data.X, data.case.k
    if sp.issparse(X) or X.nbytes > EXACT_BYTES:
        return None
    solver = "covariance_eigh" if X.shape[0] >= X.shape[1] else "full"
    np.save(folder / "outside.npy", orthonormal(PCA(k, svd_solver=solver).fit(X).components_))
    return str(folder / "outside.npy")


# -- a set ---------------------------------------------------------------------------------------


def measure(case: cases.Case, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One set from its preparation to its row of the table."""
    print(f"{case.title}, k={case.k}", flush=True)
    now, before = options.workers
    least = 0.0 if options.quick else ROUND
    data = prepare(case, folder, options.quick)
    for worker in (now, before):
        if worker is not None:
            worker("load", path=data.path, k=case.k)
    answer = outside_answer(data, folder)
    now("take", path=answer)
    starters = [*own_entries(now, before, least), *sklearn_entries(data, least)]
    note = ""
    if options.peers:
        try:
            starters += peer_entries(data, options.quick, now, least)
        except (ArithmeticError, ValueError) as error:  # no truth, no tuning
            note = f"No peers: {error}"
    run_rounds(starters, options.repeats)
    row = row_of(data, starters, now("plan")) | {"note": note}
    return row | {"outside": "ours, another seed" if answer is None else "scikit-learn, exact"}


def run_rounds(starters: list[Entry], repeats: int) -> None:
    """Every entry in turn; others that are far behind sit out after the first round."""
    proven = next(entry for entry in starters if entry.name == "proven")
    for r in range(repeats):
        for entry in starters:
            slow = entry.best > max(race.SLOW * proven.best, 1.0)
            if entry.error or (r and slow and entry.name not in OURS):
                continue
            try:
                entry.replies.append(entry.run(r))
            except Exception as error:  # a finding: the row says so, the others go on
                entry.error = f"{entry.name}: {error}"
        print(f"    round {r + 1} of {repeats}", flush=True)


def row_of(data: Data, starters: list[Entry], planned: dict[str, Any]) -> dict[str, Any]:
    X, case = data.X, data.case
    row = {"set": case.name, "title": case.title, "n": X.shape[0], "d": X.shape[1]}
    row |= {"nnz": entries(X), "k": case.k, "dtype": X.dtype.name}
    row |= {"load": tables.machine()["load"], "errors": [e.error for e in starters if e.error]}
    done = {entry.name: entry for entry in starters if entry.replies and entry.name != "peer"}
    peers = [e for e in starters if e.name == "peer" and e.replies and e.right]
    if peers:
        done["peer"] = min(peers, key=lambda entry: entry.best)
        row["peer"] = done["peer"].label
    for name, entry in done.items():
        row[f"{name}_ms"] = 1e3 * entry.best
        row[f"{name}_all_ms"] = [1e3 * reply["seconds"] for reply in entry.replies]
        for key in ("status", "kind", "proven", "passes", "way", "said", "solver"):
            if key in entry.replies[-1]:
                row[f"{name}_{key}"] = entry.replies[-1][key]
    return row | {f"planned_{key}": value for key, value in planned.items()}


# -- the command ---------------------------------------------------------------------------------


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", help=f"some of {','.join(PANEL)}; all by default")
    parser.add_argument("--repeats", type=int, default=5, help="rounds; the fastest counts")
    parser.add_argument("--peers", action="store_true", help="tune and time the race's peers")
    parser.add_argument("--before", type=Path, help="an older checkout, or its src folder")
    parser.add_argument("--quick", action="store_true", help="a corner of each set, one round")
    parser.add_argument("--out", type=Path, help="folder; by default the results kept here")
    options = parser.parse_args(arguments)
    if options.out is None:  # corners must not take the place of what was measured
        options.out = cases.CACHE / "quick" if options.quick else Path(__file__).parent / "results"
    names = options.sets.split(",") if options.sets else list(PANEL)
    unknown = [name for name in names if name not in PANEL]
    if unknown:
        parser.error(f"no set {unknown[0]!r}; there are {', '.join(PANEL)}")
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats} must be at least 1")
    options.repeats = 1 if options.quick else options.repeats
    options.chosen = [PANEL[name] for name in names]
    return options


def start_workers(options: argparse.Namespace, stack: ExitStack) -> None:
    own = Worker(Path(primedpca.__file__).parent.parent)
    options.workers = (stack.enter_context(closing(own)), None)
    if options.before:
        source = options.before / "src"
        older = Worker(source if source.is_dir() else options.before)
        options.workers = (own, stack.enter_context(closing(older)))


def main(arguments: list[str] | None = None) -> None:
    warnings.simplefilter("ignore")  # of peers; what matters is in the table
    options = parse(arguments)
    if options.quick:
        race.one_thread()
    if options.peers:
        race.warm_up(list(PEERS))
    rows: list[dict[str, Any]] = []
    cases.CACHE.mkdir(exist_ok=True)
    with ExitStack() as stack:
        start_workers(options, stack)
        for case in options.chosen:
            # One set at a time, on disk as in memory.
            with tempfile.TemporaryDirectory(dir=cases.CACHE) as folder:
                rows.append(measure(case, Path(folder), options))
            gc.collect()
            # After every set, so that an interrupted run leaves what it has.
            panel_tables.write(options.out, rows, options.quick)
    print((options.out / "panel.md").read_text())


if __name__ == "__main__":
    main()
