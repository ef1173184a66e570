"""Is the plan the cheapest way?  Time every way that was weighed, on every set.

    python benchmarks/planner.py [--sets a,b] [--repeats 3] [--out FILE.md]

The last column is the time of what ``priming="auto"`` chose over that of the best way.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from pathlib import Path
from typing import Any

import cases

from primedpca import PrimedPCA, plan

TOL = math.pi / 128
#: A way that is expected to take longer than this many times the choice is not tried.
HOPELESS = 8.0


def seconds(X: Any, k: int, way: Any, certificate: str, best: float) -> float:
    """How long a fit takes; slow ones are not repeated."""
    pca = PrimedPCA(k, priming=way.priming, tol=TOL, certificate=certificate, random_state=0)
    clock = time.perf_counter()
    pca.fit(X)
    return min(best, time.perf_counter() - clock)


def weigh(case: cases.Case, certificate: str, repeats: int) -> list[str]:
    """A line for each way to these components."""
    X = case.load()
    made = plan(X, case.k, tol=TOL, certificate=certificate)
    chosen = made.ways[0]
    tried = [way for way in made.ways if way.seconds <= HOPELESS * chosen.seconds]
    times = dict.fromkeys(range(len(tried)), math.inf)
    for _ in range(repeats):  # alternating, so that a slow moment hits all
        for i, way in enumerate(tried):
            times[i] = seconds(X, case.k, way, certificate, times[i])
    best = min(times.values())
    lines = []
    for i, way in enumerate(tried):
        mark = f"{times[i] / best:.2f}" if i == 0 else ""
        proven = "yes" if certificate != "none" else "no"
        lines.append(
            f"| {case.name} | {proven} | {way.name} | {way.seconds:.2f} | {times[i]:.2f} | {mark} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Parse, weigh, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(cases.CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/planner.md")
    arguments = parser.parse_args()
    lines = [
        "| set | certified | way | expected s | measured s | chosen / best |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    warnings.simplefilter("ignore")
    for name in arguments.sets.split(","):
        for certificate in ("none", "auto"):
            lines += weigh(cases.CASES[name], certificate, arguments.repeats)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
