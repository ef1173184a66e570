"""scanpy's own tests of PCA under ``patch_sklearn()``; nothing of them is copied.

Its wheel does not contain them: ``SCANPY_TESTS`` names the folder ``tests`` of its repository at
the installed version.  Some need the network or other versions of anndata and fail with
scikit-learn's classes too, so that both runs are compared.
"""

import importlib.util
import os
from pathlib import Path

import pytest
from external.running import run

TESTS = os.environ.get("SCANPY_TESTS")


@pytest.mark.integration
@pytest.mark.skipif(importlib.util.find_spec("scanpy") is None, reason="scanpy is not installed")
@pytest.mark.skipif(not TESTS, reason="SCANPY_TESTS does not name scanpy's folder of tests")
def test_scanpys_own_tests_pass_on_the_drop_ins(tmp_path):
    module, helpers = [str(Path(TESTS) / "test_pca.py")], "testing.scanpy._pytest"
    theirs, failed = run(module, tmp_path, [helpers])
    ours, failed_on_ours = run(module, tmp_path, ["swap", helpers])
    assert set(failed_on_ours) == set(failed), failed_on_ours
    assert set(ours) == set(theirs)
    assert len(ours) >= 70
