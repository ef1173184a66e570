"""scikit-learn's common checks of every priming, and arrays of other libraries.

Collected in a process of its own by ``test_sklearn.py``, which sets ``SCIPY_ARRAY_API`` before
SciPy is imported.
"""

import dataclasses

import numpy as np
import pytest
import sklearn
from sklearn.utils.estimator_checks import parametrize_with_checks

from primedpca import PrimedPCA
from primedpca.priming import REGISTRY

STEPS = {"steps": 30}  # enough for conventions; convergence is not what the checks are about
PRIMINGS = {
    name: kind(**STEPS) if "steps" in {field.name for field in dataclasses.fields(kind)} else kind()
    for name, kind in REGISTRY.items()
}


@parametrize_with_checks([PrimedPCA(1, priming=p, random_state=0) for p in PRIMINGS.values()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_common_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("dispatch", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
@pytest.mark.parametrize("name", PRIMINGS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_other_array_libraries(name, library, dtype, dispatch):
    """PrimedPCA returns NumPy arrays, or tensors for tensors; the numbers are those of NumPy."""
    xp = pytest.importorskip(library)
    X = np.random.default_rng(0).normal(size=(60, 6)) * 0.5 ** np.arange(6) + 3
    X = X.astype(dtype)
    model = PrimedPCA(2, priming=PRIMINGS[name], random_state=0)
    want = model.fit_transform(X)
    with sklearn.config_context(array_api_dispatch=dispatch):
        found = model.fit_transform(xp.asarray(X))
    bound = 1e-3 if dtype == "float32" else 1e-8
    assert np.abs(np.asarray(found) - want).max() <= bound * np.abs(want).max()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_arrays_that_numpy_cannot_read_are_refused():
    xp = pytest.importorskip("array_api_strict")
    away = xp.asarray(np.eye(5), device=xp.Device("device1"))
    with pytest.raises(TypeError, match="Pass an array of NumPy, SciPy or PyTorch"):
        PrimedPCA(2).fit(away)
