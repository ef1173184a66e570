"""Measure the branch coverage of the numerical core.

    python tests/trust/core_coverage.py            # default and integration tests of these folders
    python tests/trust/core_coverage.py --quick    # the default tests only

The exit code is 0 if at least 95 per cent of lines and branches were run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

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


def main() -> int:
    """Run the tests under coverage and print the table of files that are not covered whole."""
    quick = "--quick" in sys.argv[1:]
    marks = "not slow and not browser" + (" and not integration" if quick else "")
    with TemporaryDirectory() as folder:
        environment = os.environ | {"COVERAGE_FILE": f"{folder}/held"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marks]
        command += ["--cov", "--cov-report=", *TESTS]
        tested = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        report = [sys.executable, "-m", "coverage", "report", "--include"]
        report += [",".join(f"*/primedpca/{name}/*" for name in CORE), "--omit"]
        report += [",".join(f"*/primedpca/{name}" for name in LEFT_OUT)]
        done = subprocess.run(report, cwd=ROOT, env=environment, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    files = re.findall(r"primedpca/(\S+\.py) .* (\d+)%", done.stdout)
    if files:
        name, share = min(files, key=lambda each: int(each[1]))
        print(f"least: {share} % of {name}")
    total = re.search(r"^TOTAL.* (\d+)%", done.stdout, re.M)
    return int(tested.returncode != 0 or total is None or int(total[1]) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
