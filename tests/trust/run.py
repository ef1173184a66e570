"""Run every proof of the claims and write the page of their counts: ``make trust``.

python tests/trust/run.py                 # an hour or less on two cores
python tests/trust/run.py --quick         # minutes: the part that CI runs
python tests/trust/run.py --only fuzz,properties
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "trust.md"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "pandas", "zarr", "h5py", "pyarrow")


@dataclass
class Part:
    """A part of the proof.

    Attributes
    ----------
    title, about : str
    paths : list of str
        Files of tests; empty for a program.
    marks : str
        Expression of pytest's ``-m``.
    words : list of str
        More arguments, or the command of a program.
    quick : list of str or None
        The same for ``--quick``; None leaves the part out.
    environment, quick_environment : dict
    """

    title: str
    about: str
    paths: list[str] = field(default_factory=list)
    marks: str = "not slow and not browser"
    words: list[str] = field(default_factory=list)
    quick: list[str] | None = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    quick_environment: dict[str, str] = field(default_factory=dict)


def fuzz(program: str, problems: int, seed: int) -> list[str]:
    """Return the command of a fuzz with its number of problems."""
    words = [sys.executable, f"tests/{program}.py", "--problems", str(problems)]
    return [*words, "--first-seed", str(seed), "--processes", "2"]


FAULTS = [
    *("tests/session", "tests/io", "tests/engines/test_dask_faults.py"),
    *("tests/engines/test_ranks_faults.py", "tests/sources/test_changed_files.py"),
    *("tests/sources/test_bombs.py", "tests/sources/test_regular_files.py"),
    *("tests/core/test_atomic_files.py", "tests/engines/test_threads.py"),
    "tests/core/test_process_memory.py",
]
PARTS = {
    "external": Part(
        "Other people's tests",
        "scikit-learn's own tests of PCA, IncrementalPCA and TruncatedSVD, run on the drop-ins; "
        "the table of expected failures, each with its reason, is in tests/external.",
        ["tests/external"],
    ),
    "matrix": Part(
        "Awkward inputs",
        "Means, units, subnormals, spectra, shapes, dtypes, layouts, malformed sparse structures, "
        "non-finite values, weights, scales and parameters: right within the promises, or refused "
        "by name.",
        ["tests/trust/test_matrix.py"],
    ),
    "properties": Part(
        "Properties",
        "Equivariance, other forms of the same numbers, and what a model says of itself, searched "
        "for counterexamples by Hypothesis.",
        ["tests/trust/test_properties.py"],
        environment={"HYPOTHESIS_PROFILE": "night"},
        quick_environment={"HYPOTHESIS_PROFILE": "quick"},
    ),
    "work": Part(
        "Work of standard fits",
        "Passes, columns multiplied and readings of 30 fits, compared with the record.",
        ["tests/trust/test_work.py"],
    ),
    "faults": Part(
        "Faults",
        "Kills, signals, full disks, read errors, changed and damaged files, hostile models, lost "
        "workers and ranks, memory limits.",
        FAULTS,
        quick=None,
    ),
    "mutants": Part(
        "Mutated files",
        "40 mutants of each kind of file and store, read in processes with limits on time and "
        "memory. `make mutants` reads 1,000 of each.",
        ["tests/sources/test_mutants.py"],
        marks="not slow",
        quick=None,
    ),
    "fuzz": Part(
        "Certificates against integer arithmetic",
        "Random problems with weights, scales, streams, missing values and units of any size. "
        "Every bound, interval and count is compared with a reference in exact integers.",
        words=fuzz("extended_fuzz", 6000, 30_000_000),
        quick=fuzz("extended_fuzz", 300, 30_000_000),
    ),
    "checked": Part(
        "Checked arithmetic",
        "Every look of a checked block Krylov iteration, with wrong arithmetic and starts that "
        "miss a component.",
        words=fuzz("checked_fuzz", 3000, 30_000_000),
        quick=fuzz("checked_fuzz", 200, 30_000_000),
    ),
}


@dataclass
class Outcome:
    """Counts of one part, and what it found."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether nothing failed, and something ran."""
        return self.failed == 0 and self.passed > 0


def run_part(name: str, part: Part, quick: bool, folder: Path) -> Outcome:
    """Run one part in a process of its own."""
    environment = os.environ | (part.quick_environment if quick else part.environment)
    report = folder / f"{name}.xml"
    if part.paths:
        command = [*PYTEST, "-m", part.marks, f"--junitxml={report}", *part.words, *part.paths]
    else:
        command = (part.quick or part.words) if quick else part.words
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    found = Outcome(name, seconds=time.monotonic() - start)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if part.paths:
        _count(found, report)
    else:
        _read_fuzz(found, done.stdout, done.returncode)
    if not found.good:
        print("\n".join(lines[-60:]))
    return found


def _count(found: Outcome, report: Path) -> None:
    if not report.exists():
        found.failed = 1
        return
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    found.failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    found.skipped, found.passed = skipped, total - skipped - found.failed


def _read_fuzz(found: Outcome, text: str, code: int) -> None:
    """Count the claims that a fuzz printed."""
    claims = re.search(r"(\d+) claims|^all +\d+ +(\d+)", text, re.M)
    found.passed = int(claims[1] or claims[2]) if claims else 0
    found.failed = int(code != 0)


def page(outcomes: list[Outcome], quick: bool) -> str:
    """Return the page."""
    libraries = []
    for name in LIBRARIES:
        try:
            libraries.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    rows = [
        f"| {PARTS[o.name].title} | {PARTS[o.name].about} | {o.passed:,} | {o.failed} | "
        f"{o.skipped} | {o.seconds / 60:.1f} min |"
        for o in outcomes
    ]
    kind = "the quick part" if quick else "all parts"
    good = all(outcome.good for outcome in outcomes)
    return "\n".join(
        [
            "# Trust, but run it",
            "",
            "One command runs every proof of the library's claims and writes this page:",
            "",
            "```bash copy",
            "make trust",
            "```",
            "",
            f"This is {kind}, run on {datetime.now(UTC):%Y-%m-%d} with Python "
            f"{platform.python_version()}, {', '.join(libraries)}. "
            + ("Nothing failed." if good else "**Something failed.**"),
            "",
            "| part | what is tried | passed | failed | skipped | time |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            "Of the fuzzes, the count is that of single claims (a bound, an interval, a number of "
            "components) that were compared with the truth. `make mutants` reads 1,000 mutants of "
            "every kind of file.",
            "",
        ]
    )


def main() -> int:
    """Run the parts, print their counts, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help=f"some of {','.join(PARTS)}")
    parser.add_argument(
        "--out", type=Path, help="page to write; default: docs/trust.md if not quick"
    )
    asked = parser.parse_args()
    names = asked.only.split(",") if asked.only else list(PARTS)
    outcomes = []
    with TemporaryDirectory() as folder:
        for name in names:
            if asked.quick and PARTS[name].quick is None:
                continue
            outcomes.append(run_part(name, PARTS[name], asked.quick, Path(folder)))
            print(f"{name}: {outcomes[-1]}", flush=True)
    out = asked.out or (None if asked.quick or asked.only else PAGE)
    if out is not None:
        out.write_text(page(outcomes, asked.quick), encoding="utf-8")
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes)
    print(f"{passed} passed, {failed} failed")
    return int(not all(outcome.good for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
