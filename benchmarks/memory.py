"""Peak memory beyond the data, each run in a process of its own.

One process loads a set and forks a child for every run, so that the data are read once and no
run sees what another left behind.  The kernel keeps the peak of each child; Linux only.

Called by race.py as ``python memory.py SET`` with the runs on its standard input.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any


def measure(case_name: str, jobs: list[tuple[str, list[Any]]]) -> list[float | None]:
    """Megabytes beyond the data at the peak of each run, None where it cannot be told."""
    if not Path("/proc/self/clear_refs").exists():
        return [None] * len(jobs)
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), case_name],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return [None] * len(jobs)
    return json.loads(done.stdout.splitlines()[-1])


def _kilobytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise KeyError(field)


def _child(X: Any, k: int, peer: Any, setting: Any) -> float:
    from cases import half

    small = half(300, 100)
    peer.run(type(X)(small) if hasattr(X, "indptr") else small, 2, setting, 0)  # threads, buffers
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = _kilobytes("VmRSS")
    peer.run(X, k, setting, 0)
    return (_kilobytes("VmHWM") - before) / 1024


def _forked(*arguments: Any) -> float | None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(_child(*arguments)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def main() -> None:
    """Nothing that starts threads may run in this process before it forks."""
    import sklearn.decomposition  # noqa: F401 once, not in every child
    from cases import CASES, TINY

    from primedpca_paper.peers import CERTIFIED, OURS, PEERS, Setting

    warnings.simplefilter("ignore")
    case = (CASES | TINY)[sys.argv[1]]
    known = {peer.name: peer for peer in (OURS, CERTIFIED, *PEERS)}
    jobs = json.load(sys.stdin)
    for name, _ in jobs:
        importlib.import_module(known[name].package)
    X = case.load()
    print(json.dumps([_forked(X, case.k, known[name], Setting(*s)) for name, s in jobs]))


if __name__ == "__main__":
    main()
