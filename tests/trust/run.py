"""Run every proof of the claims and write the page of their counts: ``make trust``.

python tests/trust/run.py                 # an hour or less on two cores
python tests/trust/run.py --quick         # minutes: the part that CI runs
python tests/trust/run.py --only fuzz,properties
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "trust.md"
RECORD = ROOT / "docs" / "results" / "trust.json"
PYTEST = [
    *(sys.executable, "-m", "pytest", "-q"),
    *("-n", "2"),
    *("-p", "no:cacheprovider"),
    *("-o", "junit_family=xunit1"),
]
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "pandas", "zarr", "h5py", "pyarrow")


@dataclass
class Part:
    """A part of the proof.

    Attributes
    ----------
    title, about : str
        Name and content, as the page gives them.
    paths : list of str
        Files of tests; empty for a program.
    marks : str
        Expression of pytest's ``-m``.
    words : list of str
        More arguments, or the command of a program.
    quick : list of str
        The command of a program for ``--quick``.
    quick_paths, quick_words : list of str
        Files and more arguments of tests for ``--quick``.
    environment, quick_environment : dict
    """

    title: str
    about: str
    paths: list[str] = field(default_factory=list)
    marks: str = "not slow and not browser"
    words: list[str] = field(default_factory=list)
    quick: list[str] = field(default_factory=list)
    quick_paths: list[str] = field(default_factory=list)
    quick_words: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    quick_environment: dict[str, str] = field(default_factory=dict)


def program(name: str, *words: str) -> list[str]:
    """Return the command of a program in this folder."""
    return [sys.executable, f"tests/trust/{name}.py", *words]


def fuzz(program: str, problems: int, seed: int) -> list[str]:
    """Return the command of a fuzz with its number of problems."""
    words = [sys.executable, f"tests/{program}.py", "--problems", str(problems)]
    return [*words, "--first-seed", str(seed), "--processes", "2"]


FAULTS = [
    *("tests/session", "tests/io", "tests/engines/test_dask_faults.py"),
    *("tests/engines/test_ranks_faults.py", "tests/sources/test_changed_files.py"),
    *("tests/sources/test_bombs.py", "tests/sources/test_regular_files.py"),
    *("tests/core/test_atomic_files.py", "tests/engines/test_threads.py"),
    *("tests/core/test_process_memory.py", "tests/trust/test_faults.py"),
]
#: Tests that run each line: written by the part about coverage, read by that about mutants.
MAP = ".trust_lines.json"
SAMPLE = ["--seed", "2026", "--seconds", "1500", "--map", MAP]
PARTS = {
    "external": Part(
        "Other people's tests",
        "scikit-learn's own tests of PCA, IncrementalPCA and TruncatedSVD on the drop-ins, its "
        "checks on every priming, and scanpy's tests of PCA where `SCANPY_TESTS` names them. Each "
        "module of theirs counts once. Expected failures and their reasons are in tests/external.",
        ["tests/external"],
        quick_words=["-k", "common_checks_of"],
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
        "Kills at every kind of operation on files, signals, full disks, read errors that pass and "
        "that stay, changed and damaged files, hostile models, lost workers and ranks, memory "
        "limits, clocks that jump, processes at the same checkpoint. The resumed fit has the same "
        "bits.",
        FAULTS,
        marks="not browser",
        quick_paths=["tests/trust/test_faults.py"],
    ),
    "mutants": Part(
        "Mutated files",
        "40 mutants of each kind of file and store, read in processes with limits on time and "
        "memory. `make mutants` reads 1,000 of each.",
        ["tests/sources/test_mutants.py"],
        marks="not slow",
        quick_words=["-k", "npy or failed_once"],
    ),
    "fuzz": Part(
        "Certificates against integer arithmetic",
        "Random problems with weights, scales, streams, missing values and units of any size. "
        "Every bound, interval and count is compared with a reference in exact integers.",
        words=fuzz("extended_fuzz", 5000, 30_000_000),
        quick=fuzz("extended_fuzz", 300, 30_000_000),
    ),
    "checked": Part(
        "Checked arithmetic",
        "Every look of a checked block Krylov iteration, with wrong arithmetic and starts that "
        "miss a component.",
        words=fuzz("checked_fuzz", 3000, 30_000_000),
        quick=fuzz("checked_fuzz", 200, 30_000_000),
    ),
    "explicit": Part(
        "Explicit matrices",
        "Proofs by a covariance or Gram matrix in float32, with errors planted in the matrix.",
        words=[*fuzz("checked_fuzz", 3000, 40_000_000), "--explicit"],
        quick=[*fuzz("checked_fuzz", 200, 40_000_000), "--explicit"],
    ),
    "given": Part(
        "Given components",
        "Audits of right, rotated, swapped and missing components.",
        words=[*fuzz("checked_fuzz", 1000, 50_000_000), "--given"],
        quick=[*fuzz("checked_fuzz", 60, 50_000_000), "--given"],
    ),
    "factorised": Part(
        "Given components, by a factorisation",
        "The same with a covariance or Gram matrix, and errors planted in it and in its factor.",
        words=[*fuzz("checked_fuzz", 1000, 60_000_000), "--given", "--explicit"],
        quick=[*fuzz("checked_fuzz", 60, 60_000_000), "--given", "--explicit"],
    ),
    "planted": Part(
        "Planted faults",
        "Wrong signs, indices, gaps and rounding terms, planted by hand in a copy of the numerical "
        "core, each to be caught by quick tests.",
        words=program("planted_faults"),
        quick=program("planted_faults", "1", "14", "26", "30"),
    ),
    "coverage": Part(
        "Branch coverage",
        "Lines and branches of _core, _operator, _solve, _certify and priming that the tests run; "
        "the counts are per cent. Code for GPUs, which needs one, is left out.",
        words=program("core_coverage", "--map", MAP),
        quick=program("core_coverage", "--quick", "--map", MAP),
    ),
    "mutation": Part(
        "Mutants of the core",
        "Changed operators, comparisons, constants and calls in refine, certify, solve, operator "
        "and sources, drawn at random. At least 85 % are to be "
        "caught by tests. Those that change no result are listed with reasons in "
        "tests/trust/equivalent_mutants.json. `make mutants` judges all.",
        words=program("mutation", "--sample", "200", *SAMPLE),
        quick=program("mutation", "--sample", "20", "--fuzz", "0", *SAMPLE),
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
    worst: str = ""
    quick: bool = False
    date: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing failed, and something ran."""
        return self.failed == 0 and self.passed > 0


def run_part(name: str, part: Part, quick: bool, folder: Path) -> Outcome:
    """Run one part in a process of its own."""
    environment = os.environ | (part.quick_environment if quick else part.environment)
    report = folder / f"{name}.xml"
    if part.paths:
        paths = (part.quick_paths or part.paths) if quick else part.paths
        words = part.quick_words if quick else part.words
        command = [*PYTEST, "-m", part.marks, f"--junitxml={report}", *words, *paths]
    else:
        command = part.quick if quick else part.words
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    found = Outcome(name, seconds=time.monotonic() - start, quick=quick, date=date)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if part.paths:
        _count(found, report)
    else:
        _read_program(found, done.stdout, done.returncode)
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
    found.worst = _worst(suite)


def _worst(suite: ElementTree.Element) -> str:
    """Return the largest error that a test recorded, or else the slowest test."""
    cases = list(suite.iter("testcase"))
    errors = [
        (float(held.get("value", 0)), case.get("name", ""))
        for case in cases
        for held in case.iter("property")
        if held.get("name") == "error"
    ]
    if errors:
        error, name = max(errors)
        return f"{error:.2g} of the promised error: {_short(name)}"
    seconds, name = max((float(case.get("time", 0)), case.get("name", "")) for case in cases)
    return f"slowest, {seconds:.1f} s: {_short(name)}"


def _short(name: str) -> str:
    return name.removeprefix("test_")[:90].replace("|", "/")


#: What programs print last: the number that counts, and the number of all.
CAUGHT = re.compile(r"^(\d+) of (\d+) (planted faults|mutants) caught.*$", re.M)
CLAIMS = re.compile(r"^.*?(\d+) claims.*$|^all +\d+ +(\d+) +(\d+) +(\d+) +(\d+).*$", re.M)
COVERED = re.compile(r"^TOTAL.* (\d+)%.*$", re.M)


def _read_program(found: Outcome, text: str, code: int) -> None:
    """Count what a program printed: claims, faults that were caught, or per cent."""
    found.failed = int(code != 0)
    if caught := CAUGHT.search(text):
        found.passed = int(caught[1])
        if code:  # of mutants, some may survive; the program says how many
            found.failed = int(caught[2]) - found.passed
        missed = [line.split(": ", 1)[1] for line in text.splitlines() if "NOT CAUGHT" in line]
        found.worst = caught[0] + ("; not caught: " + missed[0][:90] if missed else "")
    elif claims := CLAIMS.search(text):
        found.passed = int(claims[1] or claims[2])
        found.worst = (
            claims[0]
            if claims[1]
            else (
                f"{claims[3]} problems with a false claim; {claims[4]} claims finer than the "
                f"reference; {claims[5]} problems refused"
            )
        )
    elif covered := COVERED.search(text):
        found.passed = int(covered[1])
        found.worst = next(iter(re.findall(r"^least.*$", text, re.M)), "")
    found.worst = found.worst.replace("|", "/")


def page(outcomes: list[Outcome]) -> str:
    """Return the page."""
    libraries = []
    for name in LIBRARIES:
        try:
            libraries.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    rows = [
        f"| {PARTS[o.name].title} | {PARTS[o.name].about} | {o.passed:,} | {o.failed} | "
        f"{o.skipped} | {o.worst} | {'quick' if o.quick else 'whole'}, {o.date} | "
        f"{o.seconds / 60:.1f} min |"
        for o in outcomes
    ]
    absent = [part.title for name, part in PARTS.items() if name not in {o.name for o in outcomes}]
    quick = [PARTS[o.name].title for o in outcomes if o.quick]
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
            f"Run with Python {platform.python_version()}, {', '.join(libraries)}. "
            + ("Nothing failed." if good else "**Something failed.**"),
            "",
            *([f"In their quick form only: {', '.join(quick)}.", ""] if quick else []),
            *([f"Not run yet: {', '.join(absent)}.", ""] if absent else []),
            "| part | what is tried | passed | failed | skipped | worst case | run | time |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            "Of the fuzzes, the count is that of single claims (a bound, an interval, a number of "
            "components) that were compared with the truth.",
            "",
            "| command | what it does |",
            "|---|---|",
            "| `make trust` with `ARGS=--quick` | every part in a short form |",
            "| `make trust` with `ARGS='--only faults --write'` | one part, and its row here |",
            "| `make mutants` | 1,000 mutants of every kind of file, and all mutants of the core; "
            "what is done is kept in `mutation.jsonl`, and a second run continues there |",
            "| `make night` | fuzz with new seeds for eight hours and print what is new; files "
            "that were read wrong join `tests/data/corpus.json`, which the tests read from then on "
            "|",
            "",
            "The default tests contain the awkward inputs, the properties and the work of standard "
            "fits; the integration tests, which run with every change as well, the faults, the "
            "other projects' tests and 40 mutants of every kind of file.",
            "",
        ]
    )


def recorded(outcomes: list[Outcome]) -> list[Outcome]:
    """Add outcomes to those of earlier runs, write them, and return all in the order of parts."""
    held = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else []
    known = {each["name"]: Outcome(**each) for each in held} | {o.name: o for o in outcomes}
    found = [known[name] for name in PARTS if name in known]
    RECORD.write_text(json.dumps([asdict(o) for o in found], indent=1) + "\n", encoding="utf-8")
    return found


def main() -> int:
    """Run the parts, print their counts, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="every part in a short form")
    parser.add_argument("--only", help=f"some of {','.join(PARTS)}")
    parser.add_argument(
        "--write", action="store_true", help="write docs/trust.md after --quick and --only, too"
    )
    asked = parser.parse_args()
    names = asked.only.split(",") if asked.only else list(PARTS)
    outcomes = []
    with TemporaryDirectory() as folder:
        for name in names:
            outcomes.append(run_part(name, PARTS[name], asked.quick, Path(folder)))
            print(f"{name}: {outcomes[-1]}", flush=True)
            if asked.write or not (asked.quick or asked.only):  # each, should a later one be lost
                PAGE.write_text(page(recorded(outcomes)), encoding="utf-8")
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes)
    print(f"{passed} passed, {failed} failed")
    return int(not all(outcome.good for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
