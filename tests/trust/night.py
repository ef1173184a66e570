"""Fuzz readers, certificates and checked arithmetic for hours, and print only what is new.

    python tests/trust/night.py                   # eight hours
    python tests/trust/night.py --hours 0.05      # to see that it works

Seeds are drawn from the clock, so that every night looks at other problems.  A mutant of a file
that is not refused and not read right is added to ``tests/data/corpus.json``, which the tests of
readers run from then on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "data" / "corpus.json"
sys.path.insert(0, str(ROOT / "tests"))


def mutants(kind: str, number: int, seed: int) -> list[str]:
    """Read mutants of one kind of file; return what went wrong, and add it to the corpus."""
    with TemporaryDirectory() as folder:
        words = [kind, str(number), str(seed), folder]
        done = _run([str(ROOT / "tests" / "mutants.py"), *words])
    if done.returncode:
        return [f"mutants of {kind}, seed {seed}: {done.stderr[-500:]}"]
    bad = json.loads(done.stdout.splitlines()[-1])["bad"]
    known = json.loads(CORPUS.read_text())
    for words in bad:
        place, _, what = words.partition(": ")
        known.append([kind, seed, int(place), what[:200]])
    CORPUS.write_text(json.dumps(known, indent=1) + "\n" if known else "[]\n")
    return [f"mutant of {kind}, seed {seed}, number {words}" for words in bad]


def problems(program: str, number: int, seed: int) -> list[str]:
    """Compare claims with the truth; return the complaints of the fuzz."""
    words = ["--problems", str(number), "--first-seed", str(seed), "--processes", "1"]
    done = _run([str(ROOT / "tests" / f"{program}.py"), *words])
    return [f"{program}, seeds from {seed}:\n{done.stdout[-3000:]}"] if done.returncode else []


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)


def main() -> int:
    """Take the kinds in turn until the time is over."""
    from mutants import KINDS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--size", type=int, default=200, help="mutants or problems at a time")
    asked = parser.parse_args()
    end, first, new, rounds = time.monotonic() + 3600 * asked.hours, int(time.time()), 0, 0
    for turn in count():
        seed, kinds = first + turn * asked.size, list(KINDS)
        found = mutants(kinds[turn % len(kinds)], asked.size, seed)
        found += problems(("extended_fuzz", "checked_fuzz")[turn % 2], asked.size, seed)
        for words in found:
            print(f"NEW: {words}", flush=True)
        new, rounds = new + len(found), rounds + 1
        if time.monotonic() > end:
            break
    print(f"{rounds} rounds of {asked.size} mutants and {asked.size} problems, {new} new findings")
    return int(new > 0)


if __name__ == "__main__":
    sys.exit(main())
