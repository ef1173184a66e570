"""scikit-learn's own tests, run on the drop-ins; nothing of them is copied.

A process of its own loads ``swap.py``, which calls ``patch_sklearn``, and then collects the test
modules of the installed scikit-learn.  Whatever fails must stand in ``EXPECTED``, with a reason,
and whatever stands there must fail.
"""

import importlib.util
from pathlib import Path

import pytest
from external.running import run
from sklearn.utils.estimator_checks import parametrize_with_checks

from primedpca.sklearn import PCA, IncrementalPCA, TruncatedSVD

HERE = Path(__file__).parent

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


@pytest.mark.integration
@pytest.mark.parametrize("module", EXPECTED)
def test_scikit_learns_own_tests_pass_on_the_drop_ins(module, tmp_path):
    passed, failed = run([f"sklearn.decomposition.tests.{module}"], tmp_path)
    # This one runs only where SCIPY_ARRAY_API is set.
    expected = set(EXPECTED[module]) - {"test_array_api_error_and_warnings_on_unsupported_params"}
    assert set(failed) == expected, failed
    assert len(passed) >= FEWEST[module]


@pytest.mark.integration
@pytest.mark.skipif(
    importlib.util.find_spec("array_api_strict") is None, reason="array-api-strict is missing"
)
def test_scikit_learns_tests_of_other_array_libraries_pass(tmp_path):
    tests = ["sklearn.decomposition.tests.test_pca", "-k", "array_api"]
    passed, failed = run(tests, tmp_path, SCIPY_ARRAY_API="1")
    assert set(failed) == set(EXPECTED["test_pca"]), failed
    # PyTorch and array-api-strict, each with six estimators and two checks, and "mle".
    assert len(passed) >= 50


@pytest.mark.integration
def test_every_priming_passes_the_common_checks_where_scipy_knows_the_array_api(tmp_path):
    passed, failed = run([str(HERE / "checks_of_primings.py")], tmp_path, SCIPY_ARRAY_API="1")
    assert failed == {}
    # Nine primings, each with 55 checks, two types of tensors, with and without dispatch.
    assert len(passed) >= 500


@parametrize_with_checks([PCA(), IncrementalPCA(), TruncatedSVD()])
def test_common_checks_of_scikit_learn(estimator, check):
    check(estimator)
