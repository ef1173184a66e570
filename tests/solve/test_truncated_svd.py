"""`svd`: factors, intervals and certificates against LAPACK, for every kind of matrix."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import primedpca
from primedpca._solve import truncated_svd
from primedpca.metrics import angles

RNG = np.random.default_rng(1)
TALL = RNG.normal(size=(500, 60)) / np.arange(1, 61) + 0.5
WIDE = RNG.normal(size=(60, 800)) / np.sqrt(np.arange(1, 801))
MATRICES = {
    "tall": TALL,
    "wide": WIDE,
    "float32": TALL.astype("float32"),
    "sparse": sp.csr_array(np.where(RNG.random(TALL.shape) < 0.2, TALL * [5, *[1] * 59], 0.0)),
    "columns": sp.csc_matrix(np.where(RNG.random(WIDE.shape) < 0.2, WIDE, 0.0)),
    "tensor": torch.tensor(TALL),
    "integers": RNG.integers(0, 50, (90, 30)),
    "large": TALL * 1e150,
}


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("name", MATRICES)
def test_factors_and_intervals_are_those_of_lapack(name, center):
    given = MATRICES[name]
    dense = given.toarray() if sp.issparse(given) else np.asarray(given, dtype=np.float64)
    dense = dense - dense.mean(axis=0) * center
    true = np.linalg.svd(dense, full_matrices=False)
    found = U, s, Vt = primedpca.svd(given, 5, center=center, tol=1e-4, random_state=0)
    assert isinstance(U, torch.Tensor) == (name == "tensor")
    U, s, Vt = (np.asarray(part, dtype=np.float64) for part in (U, s, Vt))
    close = 1e-5 if name == "float32" else 1e-11
    np.testing.assert_allclose(U.T @ U, np.eye(5), atol=close)
    np.testing.assert_allclose(Vt @ Vt.T, np.eye(5), atol=close)
    # A vector that is off by an angle changes its singular value by the square of that.
    np.testing.assert_allclose(s, true[1][:5], rtol=1e-6)
    low, high = found.singular_value_bounds.T
    slack = 1e-6 if name == "float32" else 1e-14
    assert (low <= true[1][:5] * (1 + slack)).all()
    assert (true[1][:5] * (1 - slack) <= high).all()
    off = angles(Vt, true[2][:5])
    assert (off <= found.certificate.angle_bounds + (1e-7 if name == "float32" else 1e-9)).all()
    rest = np.linalg.norm(dense - (U * s) @ Vt, 2)
    assert rest <= true[1][5] * (1 + 1e-3)


def test_files_are_read_by_blocks(tmp_path):
    np.save(tmp_path / "a.npy", TALL)
    one, two = (primedpca.svd(a, 3, random_state=0) for a in (tmp_path / "a.npy", TALL))
    for part, other in zip(one, two, strict=True):
        np.testing.assert_allclose(part, other, atol=1e-10)


def test_left_vectors_are_orthonormal_beyond_the_rank():
    low = RNG.normal(size=(50, 3)) @ RNG.normal(size=(3, 40))
    U, s, Vt = primedpca.svd(low, 6, random_state=0)
    np.testing.assert_allclose(U.T @ U, np.eye(6), atol=1e-12)
    np.testing.assert_allclose((U * s) @ Vt, low, atol=1e-6)
    assert s[3:].max() < 1e-6 * s[0]


def test_a_result_is_a_tuple_with_a_certificate_that_can_be_pickled():
    found = primedpca.svd(TALL, 2, random_state=0)
    assert len(found) == 3
    assert found.U is found[0]
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.Vt, found.Vt)
    np.testing.assert_array_equal(again.singular_value_bounds, found.singular_value_bounds)
    assert again.status is found.status


def test_a_seed_gives_the_same_bits():
    one, two = (primedpca.svd(WIDE, 4, random_state=5) for _ in range(2))
    for part, other in zip(one, two, strict=True):
        np.testing.assert_array_equal(part, other)


def test_without_a_certificate_there_are_no_intervals():
    found = primedpca.svd(TALL, 2, certificate="none", random_state=0)
    assert found.certificate is None
    assert found.singular_value_bounds is None


def test_a_shortfall_warns():
    flat = RNG.normal(size=(600, 500))
    with pytest.warns(UserWarning, match="Not proven") as told:
        primedpca.svd(flat, 3, max_passes=3, priming="block_krylov", random_state=0)
    assert {one.filename for one in told} == {__file__}  # the line of the caller


@pytest.mark.parametrize(
    ("k", "options", "error", "words"),
    [
        (0, {}, ValueError, "`k`=0 must be an integer of at least 1"),
        (0.5, {}, ValueError, "`k`=0.5 must be an integer"),
        (61, {}, ValueError, r"`k`=61 exceeds min\(n, d\)=60"),
        (2, {"whiten": True}, TypeError, "Unknown option: `whiten`"),
        (2, {"iterations": 3}, TypeError, "Unknown option: `iterations`"),
        (2, {"tol": 7}, ValueError, "`tol`=7"),
    ],
)
def test_invalid_requests_are_named(k, options, error, words):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error, match=words):
            primedpca.svd(TALL, k, **options)


def test_the_margin_of_singular_values_covers_five_roundings():
    """Those of ``n - 1``, of two square roots, of their product and of the margin itself."""
    assert 5 * 2.0**-53 <= truncated_svd.LAST_BITS <= 2.0**-50
