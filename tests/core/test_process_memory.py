"""Freed memory stays in the process for the next step, unless the environment forbids it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="what is set here is glibc's alone"
)

FITS = """
import json, resource
import numpy as np, scipy.sparse as sp
from primedpca import PrimedPCA
X = sp.random_array((3000, 60_000), density=0.004, rng=np.random.default_rng(0), dtype="f4")
X, faults = sp.csr_array(X), [resource.getrusage(resource.RUSAGE_SELF).ru_minflt]
for _ in range(4):
    PrimedPCA(20, tol=0.5, certificate="none", random_state=0, max_passes=8).fit(X)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(json.dumps(np.diff(faults).tolist()))
"""

CHOICE = """
from primedpca._core.process import _mallopt, reusing_memory
with reusing_memory():
    print(_mallopt() is not None)
"""


def run(code, **variables):
    kept = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    kept = kept | {"OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"} | variables
    done = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.integration
def test_steps_touch_no_new_memory():
    """If glibc returned all freed memory, a fit would cause tens of thousands of page faults."""
    eager = {"MALLOC_TRIM_THRESHOLD_": "65536"}
    kept = json.loads(run(FITS, **eager))
    given_back = json.loads(run(FITS, **eager, MALLOC_MMAP_THRESHOLD_="131072"))
    assert max(kept[1:]) < min(given_back[1:]) / 4


@pytest.mark.parametrize(
    ("variables", "changed"),
    [
        ({}, "True"),
        ({"MALLOC_TRIM_THRESHOLD_": "65536"}, "True"),  # as Dask starts its workers
        ({"MALLOC_MMAP_THRESHOLD_": "131072"}, "False"),
        ({"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=65536"}, "False"),
    ],
)
def test_what_somebody_has_chosen_is_left_alone(variables, changed):
    assert run(CHOICE, **variables).strip() == changed
