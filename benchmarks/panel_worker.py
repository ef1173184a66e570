"""Fits of one checkout of primedpca, timed on orders from panel.py, one JSON object a line.

Checkouts compared with each other each have a process of their own, alike in all but PYTHONPATH.
Only NumPy, SciPy and primedpca's public names are used here, so that older checkouts serve too.
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

#: Threads of whoever ran before spin for some 30 ms, and would take cores from the next.
REST = 0.1
#: Runs are repeated until a round takes this long, so that the fastest of a round means something
#: for fits of a millisecond, too.
ROUND = 0.2
MOST_RUNS = 50


def clock(run: Callable[[], Any], least: float = ROUND) -> tuple[float, Any]:
    """Seconds of the fastest run of a round, and what the last run returned."""
    gc.collect()
    time.sleep(REST)
    times: list[float] = []
    while not times or (sum(times) < least and len(times) < MOST_RUNS):
        start = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - start)
    return min(times), result


def read(path: str) -> Any:
    """An array or a CSR array, by the ending of the file."""
    return np.load(path) if path.endswith(".npy") else sp.load_npz(path)


class Bench:
    """The data of the moment, and what can be done with them."""

    def __init__(self) -> None:
        import primedpca

        self.library = primedpca
        self.X: Any = None
        self.k = 0
        self.outside: Any = None

    def about(self) -> dict[str, Any]:
        return {"file": self.library.__file__, "version": self.library.__version__}

    def load(self, path: str, k: int) -> dict[str, Any]:
        self.X = self.outside = None  # before the next set comes in
        gc.collect()
        self.X, self.k = read(path), k
        return {}

    def plan(self) -> dict[str, Any]:
        ways = self.library.plan(self.X, self.k).ways
        return {"seconds": ways[0].seconds, "passes": ways[0].passes} if ways else {}

    def fit(self, least: float, seed: int = 0, **options: Any) -> dict[str, Any]:
        pca = self.library.PrimedPCA(self.k, random_state=seed, **options)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            seconds, model = clock(lambda: pca.fit(self.X), least)
        proof = model.certificate_
        return {
            "seconds": seconds,
            "status": model.status_.name,
            "kind": None if proof is None else proof.kind,
            "proven": 0 if proof is None else int(proof.met(pca.tol).sum()),
            "passes": float(model.n_passes_),
            "way": str(model.plan_),
            "said": str(said[-1].message) if said else "",
        }

    def take(self, path: str | None) -> dict[str, Any]:
        """The answer to be certified: another's from a file, or ours from another seed."""
        if path is None:
            other = self.library.PrimedPCA(self.k, random_state=1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.outside = other.fit(self.X).components_
        else:
            self.outside = np.load(path)
        return {}

    def certify(self, least: float, tol: float | None) -> dict[str, Any]:
        def run() -> Any:
            return self.library.certify(self.X, self.outside, tol=tol, random_state=0)

        seconds, proof = clock(run, least)
        met = proof.met(math.pi / 1024 if tol is None else tol)
        return {"seconds": seconds, "kind": proof.kind, "proven": int(met.sum())}


def main() -> None:
    bench = Bench()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            reply = getattr(bench, order.pop("do"))(**order)
        except Exception as error:  # the parent decides what it means
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)


class Worker:
    """The other end: a checkout's ``src`` folder and the process that runs it."""

    def __init__(self, source: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source.resolve())}
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        found = self("about")["file"]
        if source.resolve() not in Path(found).parents:
            raise ImportError(f"{source} does not hold primedpca; {found} was imported instead.")

    def __call__(self, order: str, **options: Any) -> dict[str, Any]:
        self.process.stdin.write(json.dumps({"do": order} | options) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline() or '{"error": "the process died."}')
        if "error" in reply:
            raise RuntimeError(f"{order}({options}): {reply['error']}")
        return reply

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


if __name__ == "__main__":
    main()
