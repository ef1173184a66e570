"""scikit-learn's own tests, run on the drop-ins; nothing of them is copied.

A process of its own loads ``swap.py``, which calls ``patch_sklearn``, and then collects the test
modules of the installed scikit-learn.  Whatever fails must stand in ``EXPECTED``, with a reason,
and whatever stands there must fail.
"""

import importlib.util
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from primedpca.sklearn import PCA, IncrementalPCA, TruncatedSVD

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"

#: Tests of scikit-learn that fail on the drop-ins, and why.
EXPECTED = {
    "test_pca": {
        "test_array_api_error_and_warnings_on_unsupported_params": (
            "The test expects an error for power_iteration_normalizer='LU', because the array API "
            "has no LU factorisation. Here nothing is factorised that way: the parameter is "
            "validated and has no effect, so there is nothing to refuse. Its first assertion, "
            "on svd_solver='arpack', holds."
        ),
    },
    "test_incremental_pca": {},
    "test_truncated_svd": {},
}
#: Tests that pass with scikit-learn's own classes on a CPU, in scikit-learn 1.9.
FEWEST = {"test_pca": 375, "test_incremental_pca": 26, "test_truncated_svd": 44}


def run(module, folder, **variables):
    """Run a test module of scikit-learn; return the names that passed and that failed."""
    report = folder / "report.xml"
    path = os.pathsep.join([str(HERE), str(SOURCE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "swap", "-p", "no:cacheprovider"]
    command += [f"--rootdir={folder}", "-c", os.devnull, f"--junit-xml={report}"]
    command += ["--pyargs", f"sklearn.decomposition.tests.{module}"]
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | variables
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-3000:]
    passed, failed = [], {}
    for case in ET.parse(report).iter("testcase"):
        problem = case.find("failure") if case.find("error") is None else case.find("error")
        if problem is not None:
            failed[case.get("name")] = problem.get("message")
        elif case.find("skipped") is None:
            passed.append(case.get("name"))
    return passed, failed


@pytest.mark.integration
@pytest.mark.parametrize("module", EXPECTED)
def test_scikit_learns_own_tests_pass_on_the_drop_ins(module, tmp_path):
    passed, failed = run(module, tmp_path)
    # This one runs only where SCIPY_ARRAY_API is set.
    expected = set(EXPECTED[module]) - {"test_array_api_error_and_warnings_on_unsupported_params"}
    assert set(failed) == expected, failed
    assert len(passed) >= FEWEST[module]


@pytest.mark.integration
@pytest.mark.skipif(
    importlib.util.find_spec("array_api_strict") is None, reason="array-api-strict is missing"
)
def test_scikit_learns_tests_of_other_array_libraries_pass(tmp_path):
    passed, failed = run("test_pca", tmp_path, SCIPY_ARRAY_API="1", PYTEST_ADDOPTS="-k array_api")
    assert set(failed) == set(EXPECTED["test_pca"]), failed
    # PyTorch and array-api-strict, each with six estimators and two checks, and "mle".
    assert len(passed) >= 50


@parametrize_with_checks([PCA(), IncrementalPCA(), TruncatedSVD()])
def test_common_checks_of_scikit_learn(estimator, check):
    check(estimator)
