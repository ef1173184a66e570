"""Measure the branch coverage of the numerical core.

    python tests/trust/core_coverage.py            # default and integration tests of these folders
    python tests/trust/core_coverage.py --quick    # the default tests only
    python tests/trust/core_coverage.py --map lines.json    # and the tests that run each line

The exit code is 0 if at least 95 per cent of lines and branches were run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from coverage import CoverageData

sys.path.insert(0, str(Path(__file__).parent))
from mutation import digest

ROOT = Path(__file__).parents[2]
LEAST = 95
CORE = ("_core", "_operator", "_solve", "_certify", "priming")
#: They run on a GPU, in a notebook or on a cluster, and have tests of their own there.
LEFT_OUT = (
    *("_operator/gpu_products.py", "_operator/triton_kernels.py", "_core/triton_sparse.py"),
    *("_core/graphs.py", "_core/device_sparse.py", "_solve/replay.py", "_core/notebook.py"),
    *("_core/dask_cluster.py", "_core/html.py"),
)
TESTS = [
    *("tests/core", "tests/operator", "tests/solve", "tests/certify", "tests/priming"),
    *("tests/trust", "tests/session", "tests/contracts", "tests/engines/test_local_engine.py"),
    *("tests/io", "tests/test_estimator.py", "tests/planning", "tests/test_choosing.py"),
]


def tested(folder: str, marks: str, more: list[str]) -> tuple[int, dict[str, float]]:
    """Run the tests under coverage; return the exit code and the seconds of each test."""
    command = [sys.executable, "-m", "pytest", "-q", "-vv", "-p", "no:cacheprovider", "-m", marks]
    command += [
        "-n",
        "2",
        "--cov",
        "--cov-context=test",
        "--cov-report=",
        "--durations=0",
        *TESTS,
        *more,
    ]
    environment = os.environ | {"COVERAGE_FILE": f"{folder}/held"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        print("\n".join(re.findall(r"^(?:FAILED|ERROR).*$", done.stdout, re.M)))
    seconds: dict[str, float] = {}
    for taken, name in re.findall(r"^([\d.]+)s (?:call|setup) +(\S.*)$", done.stdout, re.M):
        seconds[name] = seconds.get(name, 0.0) + float(taken)
    return done.returncode, seconds


def map_of_lines(data: Path, seconds: dict[str, float]) -> dict:
    """Return the tests that run each line of the package, tests sorted by their seconds."""
    held = CoverageData(str(data))
    held.read()
    contexts = {context.rpartition("|")[0] for context in held.measured_contexts()} - {""}
    seconds = dict.fromkeys(contexts, 0.0) | seconds
    names = sorted(seconds, key=lambda name: seconds[name])
    place = {name: i for i, name in enumerate(names)}
    files = {}
    for path in held.measured_files():
        file = path.rpartition("/primedpca/")[2]
        if not (ROOT / "src" / "primedpca" / file).is_file():
            continue
        lines = {}
        for line, tests in held.contexts_by_lineno(path).items():
            found = {place.get(test.rpartition("|")[0]) for test in tests} - {None}
            if found:
                lines[str(line)] = sorted(found)
        files[file] = {"digest": digest(file), "lines": lines}
    return {"tests": [[name, seconds[name]] for name in names], "files": files}


def report(folder: str) -> str:
    """Return the table of files of the core that are not covered whole."""
    command = [sys.executable, "-m", "coverage", "report", "--include"]
    command += [",".join(f"*/primedpca/{name}/*" for name in CORE), "--omit"]
    command += [",".join(f"*/primedpca/{name}" for name in LEFT_OUT)]
    environment = os.environ | {"COVERAGE_FILE": f"{folder}/held"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


def main() -> int:
    """Run the tests under coverage and print the table of files that are not covered whole."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the default tests only")
    parser.add_argument("--map", type=Path, help="write the tests that run each line, and sources")
    asked = parser.parse_args()
    marks = "not slow and not browser" + (" and not integration" if asked.quick else "")
    with TemporaryDirectory() as folder:
        code, seconds = tested(folder, marks, ["tests/sources"] if asked.map else [])
        if asked.map:
            held = map_of_lines(Path(folder) / "held", seconds)
            asked.map.write_text(json.dumps(held), encoding="utf-8")
        table = report(folder)
    print(table)
    files = re.findall(r"primedpca/(\S+\.py) .* (\d+)%", table)
    if files:
        name, share = min(files, key=lambda each: int(each[1]))
        print(f"least: {share} % of {name}")
    total = re.search(r"^TOTAL.* (\d+)%", table, re.M)
    return int(code != 0 or total is None or int(total[1]) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
