"""Certificates of real data: useful, sharp, in time, and never wrong."""

import math
import os

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, eigsh

from primedpca import PrimedPCA, certify, prime
from primedpca._operator.operator import Centred
from primedpca.metrics import angles

FOLDER = os.environ.get("PRIMEDPCA_DATA")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="PRIMEDPCA_DATA names no folder with real data"),
]
TOL = math.pi / 128
SPARSE = {
    "nips": "nips_1987-2003_bow.npz",
    "newsgroups": "newsgroups20_bow.npz",
    "pbmc3k": "pbmc3k_counts.npz",
}


@pytest.fixture(scope="module", params=["mnist", "cifar10", *SPARSE])
def case(request):
    """Float32 data, and their first 51 components by LAPACK or ARPACK in float64."""
    if request.param in SPARSE:
        X = sp.load_npz(f"{FOLDER}/{SPARSE[request.param]}").tocsr().astype("f4")
        truth = leading(X.astype("f8"))
    else:
        names = {"mnist": ["mnist_train"], "cifar10": [f"cifar10_train_{c}" for c in "abc"]}
        X = np.concatenate([np.load(f"{FOLDER}/{name}.npz")["X"] for name in names[request.param]])
        wide = X.astype("f8")
        wide -= wide.mean(axis=0)
        d = wide.shape[1]
        truth = scipy.linalg.eigh(wide.T @ wide, subset_by_index=(d - 51, d - 1))[1][:, ::-1].T
        X = X.astype("f4")
    return request.param, X, truth


def leading(X):
    mean = np.asarray(X.mean(axis=0)).ravel()

    def covariance(v):
        y = X @ v - mean @ v
        return X.T @ y - mean * y.sum()

    operator = LinearOperator((X.shape[1],) * 2, matvec=covariance, dtype="f8")
    values, vectors = eigsh(operator, 51, tol=1e-14, v0=np.ones(X.shape[1]), ncv=160)
    return vectors[:, np.argsort(-values)].T


@pytest.mark.parametrize("k", [16, 50])
def test_every_component_is_certified_singly_by_default(case, k):
    _, X, truth = case
    pca = PrimedPCA(k, random_state=0).fit(X)
    assert pca.status_.name == "CERTIFIED"
    assert pca.certificate_.clusters == []
    assert pca.angle_bounds_.max() <= pca.tol <= TOL
    assert (angles(pca.components_, truth[:k]) <= pca.angle_bounds_ + 1e-7).all()


@pytest.mark.parametrize("k", [16, 50])
def test_bounds_are_sharp_and_come_in_time(case, k):
    name, X, truth = case
    options = {"tol": TOL, "random_state": 0}
    auto = PrimedPCA(k, **options).fit(X)
    way = "block_krylov" if type(auto.plan_.priming).__name__ == "Exact" else auto.plan_.priming
    pca = PrimedPCA(k, priming=way, **options).fit(X)
    assert pca.status_.name == "CERTIFIED"
    off = angles(pca.components_, truth[:k])
    assert (off <= pca.angle_bounds_ + 1e-7).all()
    above = off > 1e-6
    ratio = np.median(pca.angle_bounds_[above] / off[above])
    met = first_pass_within(X, pca.plan_, truth[:k])
    print(f"{name}, k={k}: proven at {pca.n_passes_:.0f}, true at {met:.0f}, ratio {ratio:.2f}")
    assert ratio <= 5
    assert pca.n_passes_ <= met + 2


def first_pass_within(X, plan, truth):
    data = Centred(X, float64=True)
    for snapshot in prime(data, plan.priming, plan.n_directions, random_state=0):
        if snapshot.state.variances.size < truth.shape[0]:
            continue
        found = snapshot.directions[:, : truth.shape[0]].T
        if angles(found, truth).max() <= TOL:
            return snapshot.passes
    return math.inf


def test_a_planted_miss_is_refused(case):
    _, X, truth = case
    assert certify(X, truth[:16], tol=TOL, random_state=0).streak(TOL) == 16
    assert certify(X, truth[1:17], tol=TOL, random_state=0).streak(math.pi / 4) == 0
