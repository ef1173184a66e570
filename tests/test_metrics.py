"""Angles, streaks, captured variance and subspace error against closed forms."""

from __future__ import annotations

import catalogue
import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

from primedpca._operator.operator import Centred
from primedpca.metrics import angles, captured_variance, longest_correct_streak, subspace_error

EPS = np.finfo(np.float64).eps
PROBLEM = catalogue.PROBLEMS[1]


def turned(by, d=8):
    """Rows e_i turned by the angles ``by``, each in a plane of its own."""
    by = np.asarray(by, dtype=np.float64)
    rows = np.zeros((by.size, d))
    rows[np.arange(by.size), np.arange(by.size)] = np.cos(by)
    rows[np.arange(by.size), by.size + np.arange(by.size)] = np.sin(by)
    return rows


# -- angles ----------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [0.0, 1e-15, 1e-12, 1e-8, 1e-4, 0.1, 1.0, 1.5, np.pi / 2])
def test_an_angle_is_right_to_rounding_however_small(angle):
    found = angles(turned([angle]), np.eye(1, 8))[0]
    assert found == pytest.approx(angle, rel=8 * EPS, abs=0)


def test_small_angles_between_vectors_that_are_not_axes():
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.standard_normal((30, 2)))[0].T
    other = np.cos(1e-9) * q[0] + np.sin(1e-9) * q[1]
    # Each entry of both is rounded once: that alone is worth a few ulps of length one.
    assert angles(other, q[0])[0] == pytest.approx(1e-9, abs=8 * EPS)


def test_signs_and_lengths_do_not_count():
    rng = np.random.default_rng(1)
    u, v = rng.standard_normal((2, 5, 9))
    factors = np.array([-1.0, 1e300, -1e-300, 3.0, -7.5])[:, None]
    plain = angles(u, v)
    assert np.allclose(angles(u * factors, v), plain, rtol=1e-14, atol=0)
    assert np.allclose(angles(u, v * factors), plain, rtol=1e-14, atol=0)
    assert (plain <= np.pi / 2).all()
    assert np.allclose(np.cos(plain), np.abs((u * v).sum(1)) / _norms(u) / _norms(v))


def _norms(rows):
    return np.linalg.norm(rows, axis=1)


def test_orthogonal_is_the_largest_angle():
    found = angles(np.eye(4), np.roll(np.eye(4), 1, axis=0))
    assert np.array_equal(found, np.full(4, np.pi / 2))


def test_one_vector_lists_and_tensors_are_taken():
    assert angles([1.0, 0.0], [1.0, 1.0]) == pytest.approx(np.pi / 4)
    assert angles(torch.eye(3), np.eye(3)).tolist() == [0.0, 0.0, 0.0]


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"`components` .*\(2, 4\).* `reference` .*\(3, 4\)"):
        angles(np.eye(2, 4), np.eye(3, 4))
    with pytest.raises(ValueError, match=r"`components` have shape .*`reference`"):
        angles(np.eye(3, 4), np.eye(3, 5))


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_vectors_without_a_direction_are_refused(bad):
    rows = np.eye(2)
    rows[1, 1] = bad
    with pytest.raises(ValueError, match="finite and not zero"):
        angles(rows, np.eye(2))


# -- streaks ---------------------------------------------------------------------------------


def test_the_papers_example():
    V = np.pi / 8
    found = turned([V / 2, V / 3, 2 * V, V / 2])
    assert longest_correct_streak(found, np.eye(4, 8), V) == 2


def test_a_streak_may_be_everything_or_nothing():
    assert longest_correct_streak(np.eye(5), -np.eye(5), 1e-12) == 5
    assert longest_correct_streak(np.eye(5)[::-1], np.eye(5), np.pi / 8) == 0
    assert longest_correct_streak(np.eye(3)[[0, 2, 1]], np.eye(3), np.pi / 8) == 1


def test_the_threshold_itself_is_not_within():
    V = float(angles(turned([0.25]), np.eye(1, 8))[0])
    assert longest_correct_streak(turned([0.25]), np.eye(1, 8), V) == 0
    assert longest_correct_streak(turned([0.25]), np.eye(1, 8), np.nextafter(V, 1)) == 1


@pytest.mark.parametrize("threshold", [0.0, -0.1, np.pi / 2, 22.5, np.nan])
def test_a_threshold_that_is_no_angle_is_refused(threshold):
    with pytest.raises(ValueError, match=r"`threshold`=.* must be an angle in radians"):
        longest_correct_streak(np.eye(2), np.eye(2), threshold)


# -- captured variance -----------------------------------------------------------------------


def directions(d, k=3):
    return np.random.default_rng(5).standard_normal((k, d))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("source", catalogue.thinned(catalogue.SOURCES))
@pytest.mark.parametrize("problem", catalogue.PROBLEMS[1:3], ids=lambda problem: problem.name)
def test_captured_variance_against_the_covariance_matrix(source, problem, dtype, tmp_path):
    rows = problem.X.astype(dtype)
    v = directions(rows.shape[1])
    v = v / _norms(v)[:, None]
    C = np.cov(rows.astype(np.float64), rowvar=False)
    expected = np.einsum("ki,ij,kj->k", v, C, v)
    found = captured_variance(catalogue.SOURCES[source](rows, tmp_path), 7.0 * v)
    assert found.shape == (3,)
    allowed = catalogue.VARIANCE_ERROR[rows.dtype] * problem.variances[0]
    assert np.abs(found - expected).max() < allowed


def test_captured_variance_of_the_components_is_their_eigenvalue():
    found = captured_variance(PROBLEM.X, PROBLEM.components)
    assert np.allclose(found, PROBLEM.variances, rtol=1e-11)


def test_captured_variance_need_not_be_of_orthogonal_vectors():
    v = PROBLEM.components[0]
    assert np.ptp(captured_variance(PROBLEM.X, [v, v, -2 * v])) == 0


def test_captured_variance_takes_the_preparation():
    X, v = PROBLEM.X, directions(24)
    v = v / _norms(v)[:, None]
    n = len(X)
    weight = np.random.default_rng(0).integers(1, 4, n)
    repeated = np.repeat(X, weight, axis=0)
    scaled = (X - X.mean(0)) / X.std(0)
    for options, M, count in [
        ({"center": False}, X, n),
        ({"sample_weight": weight}, repeated - repeated.mean(0), weight.sum()),
        ({"scale": "std"}, scaled, n),
    ]:
        expected = ((M @ v.T) ** 2).sum(0) / (count - 1)
        assert np.allclose(captured_variance(X, v, **options), expected, rtol=1e-10)


def test_captured_variance_is_one_pass():
    data = Centred(PROBLEM.X)
    captured_variance(data, PROBLEM.components[:3])
    assert data.passes == 1


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e150])
def test_captured_variance_in_units_far_from_one(scale):
    """The square of 1e-200 is zero in float64, and so is the variance; nothing overflows."""
    expected = PROBLEM.variances[:2] * scale * scale
    found = captured_variance(PROBLEM.X * scale, PROBLEM.components[:2])
    assert np.allclose(found, expected, rtol=1e-10, atol=0)


def test_captured_variance_refuses_other_features():
    with pytest.raises(ValueError, match="`components` have 5 features, but `X` has 24"):
        captured_variance(PROBLEM.X, np.eye(5))


# -- subspace error --------------------------------------------------------------------------


def test_subspace_error_in_closed_form():
    by = np.array([0.1, 0.7, 1e-3])
    expected = np.mean(np.sin(by) ** 2)
    assert subspace_error(turned(by), np.eye(3, 8)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("angle", [1e-12, 1e-6])
def test_a_tiny_subspace_error_does_not_drown(angle):
    assert subspace_error(turned([angle]), np.eye(1, 8)) == pytest.approx(angle**2, rel=1e-10)


def test_order_and_rotation_inside_do_not_count():
    rng = np.random.default_rng(2)
    u = np.linalg.qr(rng.standard_normal((9, 4)))[0].T
    v = np.linalg.qr(rng.standard_normal((9, 4)))[0].T
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    plain = subspace_error(u, v)
    assert 0.1 < plain < 1
    assert subspace_error(turn @ u, v) == pytest.approx(plain, rel=1e-13)
    assert subspace_error(u, turn @ v) == pytest.approx(plain, rel=1e-13)
    assert subspace_error(u, turn @ u) < 1e-30


def test_the_ends_of_subspace_error():
    assert subspace_error(np.eye(2, 4), np.eye(2, 4)) == 0
    assert subspace_error(np.eye(4)[:2], np.eye(4)[2:]) == 1


def test_subspace_error_refuses_what_is_not_orthonormal():
    skew = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    with pytest.raises(ValueError, match="`components` must have orthonormal rows"):
        subspace_error(skew, np.eye(2, 3))
    with pytest.raises(ValueError, match="`reference` must have orthonormal rows"):
        subspace_error(np.eye(2, 3), skew)
    with pytest.raises(ValueError, match=r"`components` have shape .*`reference`"):
        subspace_error(np.eye(2, 3), np.eye(3))


def test_columns_of_frames_are_found_by_name():
    pandas = pytest.importorskip("pandas")
    X = np.random.default_rng(0).normal(size=(50, 4)) * [4, 3, 2, 1]
    truth = np.linalg.svd(X - X.mean(axis=0))[2][:2]
    rows = pandas.DataFrame(X, columns=list("abcd"))
    given = pandas.DataFrame(truth, columns=list("abcd"))
    wanted = captured_variance(X, truth)
    np.testing.assert_allclose(captured_variance(rows[list("dbca")], given), wanted)
    turned = given[list("dcba")]
    assert angles(given, turned).max() == 0
    assert subspace_error(given, turned) < 1e-30
    assert longest_correct_streak(given, turned, 1e-6) == 2
    with pytest.raises(ValueError, match="'a' in column 1, where `reference` has 'z'"):
        angles(given, given.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="'z' in column 1, where `X` has 'a'"):
        captured_variance(rows, given.rename(columns={"a": "z"}))
    index = pandas.Index(["PC1", "PC2"])
    stored = pytest.importorskip("pyarrow").Table.from_pandas(turned.set_index(index))
    assert angles(given, stored).max() == 0
    np.testing.assert_allclose(captured_variance(rows, stored), wanted)


def test_labels_of_data_arrays_go_by_name():
    X = np.random.default_rng(0).normal(size=(40, 3)) * [1, 2, 4]
    frame = pd.DataFrame(np.eye(3), columns=list("abc"))
    coords = {"f": list("cab")}
    turned = xr.DataArray(frame[list("cab")].to_numpy(), dims=("k", "f"), coords=coords)
    assert not angles(turned, frame).any()
    assert longest_correct_streak(turned, frame, 0.1) == 3
    data = pd.DataFrame(X, columns=list("abc"))
    np.testing.assert_allclose(captured_variance(data, turned), X.var(axis=0, ddof=1))
