"""Orthonormal bases: rank, accuracy, completion, the rule for signs, and the small eigenproblem."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from catalogue import EPS
from sklearn.utils.extmath import svd_flip

from primedpca._core.arrays import like_block, to_numpy
from primedpca._core.orthonormal import (
    as_components,
    basis_of,
    complete,
    continued,
    orthonormalise,
    random_basis,
    small_eigh,
)

LIBRARIES = {"numpy": np.array, "torch": torch.tensor}


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    return np.dtype(request.param)


@pytest.fixture(params=LIBRARIES)
def make(request, dtype):
    """Turns values into an array of the library and dtype under test; always a fresh copy."""
    return lambda values: LIBRARIES[request.param](np.asarray(values, dtype))


def noise(d, p, seed=0):
    return np.random.default_rng(seed).standard_normal((d, p))


def assert_orthonormal(basis, factor=20):
    wide = to_numpy(basis).astype(np.float64)
    eps = EPS[to_numpy(basis).dtype]
    np.testing.assert_allclose(wide.T @ wide, np.eye(wide.shape[1]), atol=factor * eps)


def assert_spans(basis, directions, tolerance):
    """Every column of ``directions``, made a unit vector, lies in the span of ``basis``."""
    basis = to_numpy(basis).astype(np.float64)
    unit = to_numpy(directions).astype(np.float64)
    unit = unit / np.abs(unit).max(axis=0)
    unit /= np.linalg.norm(unit, axis=0)
    rest = unit - basis @ (basis.T @ unit)
    assert np.linalg.norm(rest, axis=0).max() < tolerance


# -- basis_of ---------------------------------------------------------------------------------


def test_basis_keeps_independent_columns(make, dtype):
    directions = make(noise(50, 6))
    basis = basis_of(directions)
    assert basis.shape == (50, 6)
    assert basis.dtype == directions.dtype
    assert type(basis) is type(directions)
    assert_orthonormal(basis)
    assert_spans(basis, directions, 30 * EPS[dtype])


def test_basis_does_not_touch_its_argument(make):
    directions = make(noise(50, 6))
    before = to_numpy(directions).tobytes()
    basis_of(directions)
    assert to_numpy(directions).tobytes() == before


def test_basis_drops_dependent_columns(make, dtype):
    independent = noise(50, 4)
    mixed = independent @ noise(4, 9, seed=1)
    directions = make(np.concatenate([mixed, independent], axis=1))
    basis = basis_of(directions)
    assert basis.shape == (50, 4)
    assert_orthonormal(basis)
    assert_spans(basis, directions, 100 * EPS[dtype])


def test_basis_of_equal_columns_is_one_column(make, dtype):
    column = noise(50, 1)
    basis = basis_of(make(np.concatenate([column, column, -3 * column], axis=1)))
    assert basis.shape == (50, 1)
    assert_orthonormal(basis)
    assert_spans(basis, column, 20 * EPS[dtype])


def test_basis_drops_zero_columns(make):
    directions = noise(30, 5)
    directions[:, [0, 3]] = 0
    assert basis_of(make(directions)).shape == (30, 3)


def test_basis_of_nothing_is_empty(make):
    assert basis_of(make(np.zeros((30, 4)))).shape == (30, 0)


def test_basis_of_more_columns_than_rows_spans_everything(make):
    basis = basis_of(make(noise(5, 12)))
    assert basis.shape == (5, 5)
    assert_orthonormal(basis)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("dtype", "scales"),
    [
        ("float64", [1e-300] * 4),
        ("float64", [1e300] * 4),
        ("float64", [1e-160] * 4),
        ("float64", [5e-324, 1e-300, 1.0, 1e300]),
        ("float32", [1e-38] * 4),
        ("float32", [1e38] * 4),
        ("float32", [1e-45, 1e-20, 1.0, 1e38]),
    ],
)
def test_basis_does_not_care_for_the_size_of_columns(library, dtype, scales):
    plain = np.sign(noise(40, 4)).astype(dtype)  # ±1, so that even the smallest number holds it
    directions = LIBRARIES[library](plain * np.array(scales, dtype))
    basis = basis_of(directions)
    assert basis.shape == (40, 4)
    assert_orthonormal(basis)
    assert_spans(basis, plain, 30 * EPS[np.dtype(dtype)])


def test_basis_sees_a_small_independent_part(make, dtype):
    """Columns that differ by far more than rounding, but little, are two; by rounding, one."""
    a, b = noise(60, 2).T / np.sqrt(60)
    apart = np.stack([a, a + 1e3 * EPS[dtype] * b], axis=1)
    same = np.stack([a, a + 0.01 * EPS[dtype] * b], axis=1)
    assert basis_of(make(apart)).shape == (60, 2)
    assert basis_of(make(same)).shape == (60, 1)


# -- orthonormalise ---------------------------------------------------------------------------


def graded(d, p, condition):
    """Columns whose singular values fall from 1 to 1 / condition."""
    left, right = np.linalg.qr(noise(d, p))[0], np.linalg.qr(noise(p, p, seed=1))[0]
    return left * np.geomspace(1, 1 / condition, p) @ right


def kahan(d, p, cosine=0.35):
    """Nearly dependent columns that no entry on the diagonal of R gives away."""
    sine = np.sqrt(1 - cosine**2)
    upper = np.triu(np.full((p, p), -cosine), 1) + np.eye(p)
    return np.linalg.qr(noise(d, p))[0] @ (sine ** np.arange(p)[:, None] * upper)


MATRICES = {
    "well conditioned": noise(200, 12),
    "square": noise(12, 12),
    "one column": noise(200, 1),
    "one row": noise(1, 1),
    "wide": noise(6, 9),
    "condition 1e3": graded(200, 12, 1e3),
    "condition 3e4": graded(200, 12, 3e4),
    "condition 1e6": graded(200, 12, 1e6),
    "condition 1e12": graded(200, 12, 1e12),
    "Kahan, 40": kahan(200, 40),
    "Kahan, 90": kahan(200, 90),
    "dependent": noise(200, 3) @ noise(3, 8, seed=1),
    "a zero column": noise(200, 5) * [1, 1, 0, 1, 1],
    "badly scaled": noise(200, 6) * 10.0 ** np.arange(-15, 15, 5),
    "many rows": noise(70_000, 5),
}


@pytest.mark.parametrize("name", MATRICES)
def test_qr(name, make, dtype):
    a = make(MATRICES[name])
    given = to_numpy(a).astype(np.float64)
    q, r = orthonormalise(a)
    inner = min(given.shape)
    assert tuple(q.shape) == (given.shape[0], inner)
    assert r.shape == (inner, given.shape[1])
    assert isinstance(r, np.ndarray)
    assert to_numpy(q).dtype == dtype
    assert_orthonormal(q)
    sizes = np.linalg.norm(given, axis=0)
    error = np.linalg.norm(to_numpy(q).astype(np.float64) @ r - given, axis=0)
    assert (error <= 40 * EPS[dtype] * sizes).all()
    np.testing.assert_array_equal(r, np.triu(r))
    assert (np.diag(r) >= 0).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-162, 1e-155, 1e150, 1e300])
def test_qr_at_the_ends_of_the_range(scale):
    plain = noise(100, 6)
    q, r = orthonormalise(plain * scale)
    assert_orthonormal(q)
    np.testing.assert_allclose(q @ (r / scale), plain, atol=1e-13)


def test_qr_of_no_columns():
    q, r = orthonormalise(np.empty((7, 0)))
    assert q.shape == (7, 0)
    assert r.shape == (0, 0)


# -- complete and random_basis ----------------------------------------------------------------


def test_complete_keeps_the_basis_and_adds_orthonormal_columns(make):
    known = basis_of(make(noise(30, 3)))
    full = complete(known, like_block(known, 30), 8, seed=5)
    assert full.shape == (30, 8)
    assert full.dtype == known.dtype
    assert_orthonormal(full)
    np.testing.assert_array_equal(to_numpy(full[:, :3]), to_numpy(known))


def test_complete_up_to_the_whole_space(make):
    known = basis_of(make(noise(9, 4)))
    full = complete(known, like_block(known, 9), 9, seed=0)
    assert full.shape == (9, 9)
    assert_orthonormal(full)


def test_complete_is_drawn_from_the_seed(make):
    known = basis_of(make(noise(30, 3)))
    like = like_block(known, 30)
    one, again, other = (to_numpy(complete(known, like, 6, seed=s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one[:, 3:] - other[:, 3:]).max() > 0.01


def test_complete_leaves_alone_what_is_wide_enough(make):
    known = basis_of(make(noise(30, 3)))
    assert complete(known, like_block(known, 30), 3, seed=0) is known


def test_random_basis_begins_with_the_start(make, dtype):
    start = make(noise(30, 2))
    basis = random_basis(like_block(start, 30), 5, seed=0, start=start)
    assert basis.shape == (30, 5)
    assert_orthonormal(basis)
    assert_spans(basis[:, :2], start, 20 * EPS[dtype])


def test_random_basis_takes_no_more_of_the_start_than_asked_for(make):
    start = make(noise(30, 7))
    assert random_basis(like_block(start, 30), 5, seed=0, start=start).shape == (30, 5)


def test_random_basis_is_the_same_in_every_library():
    numpy, tensor = (
        random_basis(like_block(make(noise(1, 1)), 40), 6, seed=3) for make in LIBRARIES.values()
    )
    np.testing.assert_allclose(numpy, to_numpy(tensor), atol=1e-13)


# -- continued ---------------------------------------------------------------------------------


@pytest.mark.parametrize("apart", [1e-1, 1e-3, 1e-5, 1e-7, 1e-13])
@pytest.mark.parametrize("mixed", [False, True])
def test_continued_holds_all_of_nearly_parallel_columns(apart, mixed):
    """Their difference lies in other columns too: the inverse of a triangle would be large."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((90, 12)))[0]
    z = rng.standard_normal((90, 6))
    difference = rng.standard_normal(90)
    z[:, 1] = z[:, 0] + apart * difference
    z[:, 2] += mixed * difference
    blocks = (basis[:, :5], basis[:, 5:])
    newest, held, coupling = continued(z.copy(), blocks, range(2))
    wide = [part.astype(np.longdouble) for part in (z, basis, held, newest, coupling)]
    off = wide[0] - wide[1] @ wide[2] - wide[3] @ wide[4]
    assert np.linalg.norm(off.astype(float), 2) <= 64 * EPS[np.dtype("f8")] * np.linalg.norm(z, 2)
    assert_orthonormal(np.c_[basis, newest])


# -- as_components ----------------------------------------------------------------------------


def sign_cases():
    tied = np.array([[-1.0, 1.0, -1.0], [1.0, -1.0, -1.0], [0.5, 0.5, 0.5]])
    return {"random": noise(20, 6), "ties": tied, "one feature": np.array([[-2.0, 3.0]])}


@pytest.mark.parametrize("case", sign_cases())
def test_signs_are_scikit_learns(case, make):
    basis = make(sign_cases()[case])
    rows = to_numpy(basis).T.copy()
    _, expected = svd_flip(None, rows.copy(), u_based_decision=False)
    found = to_numpy(as_components(basis))
    np.testing.assert_array_equal(found, expected)
    assert (found != rows).any()  # some sign was turned


def test_components_are_a_copy(make):
    basis = make(noise(20, 4))
    before = to_numpy(basis).tobytes()
    components = as_components(basis)
    components *= 2
    assert to_numpy(basis).tobytes() == before


# -- small_eigh -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_small_eigh(dtype):
    turn = np.linalg.qr(noise(7, 7))[0]
    matrix = (turn * [3.0, 9.0, 0.5, 27.0, 1.0, 0.0, 81.0] @ turn.T).astype(dtype)
    values, vectors = small_eigh(matrix)
    assert values.dtype == vectors.dtype == np.float64
    tolerance = 100 * EPS[np.dtype(dtype)] * 81
    np.testing.assert_allclose(values, [81, 27, 9, 3, 1, 0.5, 0], atol=tolerance)
    assert (np.diff(values) <= 0).all()
    assert_orthonormal(vectors)
    np.testing.assert_allclose(vectors * values @ vectors.T, matrix, atol=tolerance)


def test_small_eigh_gives_no_negative_values():
    values, _ = small_eigh(np.diag([2.0, -1e-17, 1.0, -3.0]))
    np.testing.assert_array_equal(values, [2.0, 1.0, 0.0, 0.0])
