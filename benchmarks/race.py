"""Speed against peers: tune them with the truth known, then race, and write one table.

    python benchmarks/race.py                       # everything, half an hour or more
    python benchmarks/race.py --sets nips,half --repeats 3
    python benchmarks/race.py --quick               # does it run at all?

See README.md in this folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cases
import memory
import numpy as np
import tables
import tune
from threadpoolctl import threadpool_limits

from primedpca_paper.peers import CERTIFIED, OURS, PEERS, Peer, Setting, audit, entries, orthonormal

#: After the first round, entries this much slower than the fastest right one sit out.
SLOW = 3.0
#: So many of the fastest peers have their answers certified, too.
AUDITED = 2


@dataclass
class Entry:
    """One peer at one setting, why it is in the race, and how it did."""

    peer: Peer
    setting: Setting
    roles: list[str]
    note: str = ""
    audited: bool = False
    seconds: list[float] = field(default_factory=list)
    audit_seconds: list[float] = field(default_factory=list)
    angle: float = 0.0
    proven: bool | None = None
    audit_proven: bool = True

    @property
    def best(self) -> float:
        return min(self.seconds, default=np.inf)

    @property
    def right(self) -> bool:
        return bool(self.seconds) and self.angle <= tune.TOL


def line_up(
    case: cases.Case, X: Any, peers: list[Peer], tuned: dict[str, Any], careful: dict[str, Any]
) -> tuple[list[Entry], list[tuple[Peer, str]]]:
    """Who starts on this set, and who does not and why."""
    starters = [Entry(OURS, Setting(), ["ours"]), Entry(CERTIFIED, Setting(), ["ours, certified"])]
    absent = []
    tuned_seconds = []
    for peer in peers:
        right = tune.right_settings(tuned[peer.name])
        wanted = [("tuned", setting, "") for setting, _ in right]
        wanted.append(("default", peer.default, ""))
        if careful.get(peer.name) and tune.was_run(tuned[peer.name]):
            setting, sets, unknown = careful[peer.name]
            note = f"right on {', '.join(sets)}" if sets else ""
            if unknown:
                note += ("; " if note else "") + f"not enough or not known on {', '.join(unknown)}"
            wanted.append(("all sets", setting, note))
        refusals = [peer.refuses(X, case.k, setting) for _, setting, _ in wanted]
        if not right:
            absent.append((peer, tune.why_none(tuned[peer.name])))
        for (role, setting, note), refusal in zip(wanted, refusals, strict=True):
            if refusal is None:
                _enter(starters, peer, setting, role, note)
        tuned_seconds += [(seconds, peer.name) for _, seconds in right[:1]]
    fastest = {name for _, name in sorted(tuned_seconds)[:AUDITED]}
    for entry in starters:
        # At the setting for all sets, too: one that is only just right can seldom be proven.
        right = {"tuned", "all sets"} & set(entry.roles)
        entry.audited = entry.peer.name in fastest and bool(right)
    return starters, absent


def _enter(starters: list[Entry], peer: Peer, setting: Setting, role: str, note: str) -> None:
    for entry in starters:
        if (entry.peer, entry.setting) == (peer, setting):
            entry.roles.append(role)
            entry.note = entry.note or note
            return
    starters.append(Entry(peer, setting, [role], note))


def run_race(
    case: cases.Case, X: Any, reference: np.ndarray, starters: list[Entry], repeats: int
) -> None:
    """Every entry in turn, `repeats` rounds; each round has its seed."""
    for r in range(repeats):
        fastest = min((entry.best for entry in starters if entry.right), default=np.inf)
        for entry in starters:
            slow = entry.best > max(SLOW * fastest, 1.0)
            if r and slow and not entry.audited and "ours" not in entry.roles[0]:
                continue
            _timed(case, X, reference, entry, tune.SEEDS[r % len(tune.SEEDS)])
        print(f"    round {r + 1} of {repeats}", flush=True)


def _timed(case: cases.Case, X: Any, reference: np.ndarray, entry: Entry, seed: int) -> None:
    gc.collect()
    start = time.perf_counter()
    try:
        found = entry.peer.run(X, case.k, entry.setting, seed)
    except Exception as error:  # what a peer raises is a finding, not our failure
        entry.note, entry.angle = f"{type(error).__name__}: {error}"[:160], np.pi / 2
        return
    entry.seconds.append(time.perf_counter() - start)
    entry.angle = max(entry.angle, tune.worst_angle(found.components, reference))
    if found.proven is not None:
        entry.proven = found.proven and entry.proven is not False
    if entry.audited:
        components = orthonormal(found.components)
        start = time.perf_counter()
        proven = audit(X, components, seed)
        entry.audit_seconds.append(time.perf_counter() - start)
        entry.audit_proven &= proven


def rows_of(
    case: cases.Case, X: Any, starters: list[Entry], absent: list[tuple[Peer, str]]
) -> list[dict[str, Any]]:
    """The entries as rows of the table, with passes and memory measured apart from the clock."""
    about = {"set": case.name, "n": X.shape[0], "d": X.shape[1], "nnz": entries(X), "k": case.k}
    ours = starters[0].best
    run = [entry for entry in starters if entry.seconds]
    jobs = [(entry.peer.name, list(entry.setting)) for entry in run]
    extra = memory.measure(case.name, jobs)
    rows = []
    for entry, megabytes in zip(run, extra, strict=True):
        work = entry.peer.work(X, case.k, entry.setting)
        row = about | tables.timed(entry.seconds, ours)
        row |= {"method": entry.peer.name, "role": " + ".join(entry.roles), "note": entry.note}
        row |= {"setting": entry.peer.label(entry.setting), "extra_mb": megabytes}
        row |= {"passes": work.passes, "gflop": work.gflop(X), "gbyte": work.gbyte(X)}
        row |= {"worst_angle_deg": np.degrees(entry.angle), "right": entry.right}
        rows.append(row | {"proven": entry.proven})
        if entry.audited:
            row = about | tables.timed(entry.audit_seconds, ours)
            row |= {"method": f"certify({entry.peer.name})", "role": "audit"}
            rows.append(row | {"setting": rows[-1]["setting"], "proven": entry.audit_proven})
    rows += [
        about | {"method": entry.peer.name, "role": " + ".join(entry.roles), "note": entry.note}
        for entry in starters
        if not entry.seconds
    ]
    rows += [about | {"method": peer.name, "role": "absent", "note": why} for peer, why in absent]
    return rows


def quick(peers: list[Peer]) -> list[Peer]:
    """The same peers with a few settings each."""
    return [
        dataclasses.replace(peer, widths=peer.widths[:2], efforts=peer.efforts[:8])
        for peer in peers
    ]


def tune_all(
    chosen: dict[str, cases.Case], peers: list[Peer], cache: Path | None, retune: bool
) -> dict[str, Any]:
    """Tuning of the chosen sets, and of others that the cache knows."""
    versions = tables.versions()
    known = tune.load_cache(cache, versions) if cache else {}
    for name, case in chosen.items():
        print(f"tuning on {case.title}", flush=True)
        X = case.load()
        reference = case.reference(X)
        known[name] = tune.tune(case, X, reference, peers, {} if retune else known.get(name, {}))
        if cache:
            tune.save_cache(cache, versions, known)
    return known


def careful_settings(peers: list[Peer], tuned: dict[str, Any]) -> dict[str, Any]:
    """For every peer the cheapest setting that is right wherever it can run."""
    ks = {name: case.k for name, case in (cases.CASES | cases.TINY).items()}
    return {
        peer.name: tune.all_sets_setting(
            peer,
            {name: r[peer.name] for name, r in tuned.items() if peer.name in r},
            ks,
        )
        for peer in peers
    }


def one_thread() -> None:
    """On tiny sets threads only wait for each other; here and in the processes for memory."""
    threadpool_limits(1)
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")


def warm_up(peers: list[Peer]) -> None:
    """Imports and thread pools are nobody's fault."""
    X = cases.half(200, 60)
    for peer in (OURS, CERTIFIED, *peers):
        if peer.missing() is None:
            peer.run(X, 3, peer.default, 0)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", help=f"some of {','.join(cases.CASES)}; all by default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny sets, few settings")
    parser.add_argument("--retune", action="store_true", help="forget earlier tuning")
    parser.add_argument("--out", type=Path, help="folder; by default the results kept here")
    options = parser.parse_args(arguments)
    if options.out is None:  # tiny sets must not take the place of what was measured
        options.out = cases.CACHE / "quick" if options.quick else Path(__file__).parent / "results"
    available = cases.TINY if options.quick else cases.CASES
    names = options.sets.split(",") if options.sets else list(available)
    unknown = [name for name in names if name not in available]
    if unknown:
        parser.error(f"no set {unknown[0]!r}; there are {', '.join(available)}")
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats} must be at least 1")
    options.chosen = {name: available[name] for name in names}
    return options


def main(arguments: list[str] | None = None) -> None:
    warnings.simplefilter("ignore")  # of peers; what matters is in the table
    options = parse(arguments)
    if options.quick:
        one_thread()
    peers = quick(list(PEERS)) if options.quick else list(PEERS)
    warm_up(peers)
    cache = None if options.quick else cases.CACHE / "tuning.json"
    tuned = tune_all(options.chosen, peers, cache, options.retune)
    careful = careful_settings(peers, tuned)
    rows: list[dict[str, Any]] = []
    for name, case in options.chosen.items():
        print(f"racing on {case.title}", flush=True)
        X = case.load()
        starters, absent = line_up(case, X, peers, tuned[name], careful)
        run_race(case, X, case.reference(X), starters, options.repeats)
        rows += rows_of(case, X, starters, absent)
        # After every set, so that an interrupted run leaves what it has.
        tables.write(options.out, rows, {c.name: c for c in options.chosen.values()})
    print((options.out / "table.md").read_text())


if __name__ == "__main__":
    main()
