"""Data on which careless arithmetic proves what is false: weights, units, offsets, integers.

The truth is LAPACK's on the same rows where they are easy: without rows of no weight, without the
offset, in another unit.  ``tests/certify/test_extended.py`` compares random problems with integers.
"""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch

from primedpca import PrimedPCA, as_source, certify, svd
from primedpca._operator.operator import Centred
from primedpca.metrics import angles
from primedpca.monitoring import statistics

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(300, 10)) * 0.7 ** np.arange(10)
WAYS = ("exact", "block_krylov", "subspace_iteration", "frequent_directions")


def truth(rows, weight=None):
    """Variances and components by LAPACK, of rows that are near zero."""
    weight = np.ones(len(rows)) if weight is None else weight
    centred = rows - np.average(rows, axis=0, weights=weight)
    covariance = (centred * weight[:, None]).T @ centred / (weight.sum() - 1)
    values, vectors = np.linalg.eigh(covariance)
    return values[::-1], vectors[:, ::-1].T


def check(pca, values, vectors, noise=1e-11):
    """No bound below the truth, no interval beside it; LAPACK itself is off by ``noise``."""
    k, found = pca.n_components_, pca.certificate_
    single = found.single
    apart = angles(pca.components_.astype(np.float64), vectors[:k])
    assert (apart[single] <= pca.angle_bounds_[single] + 1e-7).all()
    low, high = found.eigenvalue_bounds.T
    slack = noise * values[0]
    assert (low - slack <= values[:k]).all()
    assert (values[:k] <= high + slack).all()
    error = 1e-9 if pca.components_.dtype == np.float64 else 1e-6
    np.testing.assert_allclose(pca.explained_variance_, values[:k], rtol=0, atol=error * values[0])


# -- weights ----------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [1e3, 1e10, 1e14, 1e100, 1e200])
@pytest.mark.parametrize("priming", ["auto", *WAYS])
@pytest.mark.parametrize("place", ["first", "last"])
def test_rows_of_weight_zero_are_not_there(priming, far, place):
    X, weight = ROWS.copy(), np.ones(300)
    gone = slice(0, 5) if place == "first" else slice(-5, None)
    X[gone], weight[gone] = far, 0.0
    pca = PrimedPCA(2, priming=priming, random_state=0).fit(X, sample_weight=weight)
    check(pca, *truth(ROWS[weight > 0]))
    assert pca.converged_
    assert pca.angle_bounds_.max() < 1e-3
    assert not pca.certificate_.zero.any()


@pytest.mark.parametrize("priming", ["auto", "frequent_directions"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array, torch.as_tensor])
def test_a_whole_first_block_of_weight_zero(form, priming, monkeypatch):
    monkeypatch.setattr("primedpca.sources.memory.dense.BLOCK_BYTES", 2000, raising=False)
    X, weight = ROWS.copy(), np.ones(300)
    X[:100], weight[:100] = 1e12 + 1e6 * X[:100], 0.0
    pca = PrimedPCA(3, priming=priming, random_state=0).fit(form(X), sample_weight=weight)
    check(pca, *truth(ROWS[100:]))
    assert pca.converged_


def test_a_share_of_the_variance_beside_rows_of_weight_zero():
    X, weight = ROWS.copy(), np.ones(300)
    X[0], weight[0] = 1e10, 0.0
    values, _ = truth(ROWS[1:])
    share = np.cumsum(values) / values.sum()
    pca = PrimedPCA(0.9).fit(X, sample_weight=weight)
    assert pca.n_components_ == 1 + int(np.searchsorted(share, 0.9))


@pytest.mark.parametrize("priming", WAYS)
@pytest.mark.parametrize("far", [1e5, 1e10])
def test_standardised_beside_rows_of_weight_zero(priming, far):
    X, weight = ROWS.copy(), np.ones(300)
    X[0], weight[0] = far, 0.0
    pca = PrimedPCA(2, priming=priming, scale="std", random_state=0).fit(X, sample_weight=weight)
    rows = (ROWS[1:] - ROWS[1:].mean(axis=0)) / ROWS[1:].std(axis=0)
    check(pca, *truth(rows))
    np.testing.assert_allclose(pca.scale_, ROWS[1:].std(axis=0), rtol=1e-12)


@pytest.mark.parametrize("priming", WAYS)
@pytest.mark.parametrize("ratio", [1e-300, 1e-12, 1e8, 1e300])
def test_weights_of_any_ratio(priming, ratio):
    weight = np.ones(300)
    weight[:100] = ratio
    pca = PrimedPCA(2, priming=priming, random_state=0).fit(ROWS + 3.0, sample_weight=weight)
    check(pca, *truth(ROWS, weight))
    assert pca.converged_
    assert np.isfinite(pca.singular_values_).all()


def test_weights_beyond_the_range_are_named():
    with pytest.raises(ValueError, match=r"`sample_weight` is as large as 1e\+308.*Divide"):
        PrimedPCA(1).fit(ROWS, sample_weight=np.full(300, 1e308))


@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("priming", ["exact", "block_krylov", "frequent_directions"])
def test_rows_of_weight_zero_must_still_be_numbers(scale, form, priming):
    X, weight = ROWS.copy(), np.ones(300)
    X[0, 0], weight[0] = -np.inf, 0.0
    with pytest.raises(ValueError, match=r"infinity.*row 0, column 0"):
        PrimedPCA(1, scale=scale, priming=priming).fit(form(X), sample_weight=weight)


def test_one_row_that_outweighs_the_zeros_of_a_sparse_column():
    X = RNG.poisson(1.0, (49, 4)).astype(float)
    X[30] = [1, 0, 4, 1]
    weight = RNG.random(49) + 0.1
    weight[30] = 3e7
    pca = PrimedPCA(2, scale="std", random_state=0).fit(sp.csr_array(X), sample_weight=weight)
    wide, w = X.astype(np.longdouble), weight.astype(np.longdouble)[:, None]
    mean = (w * wide).sum(axis=0) / w.sum()
    spread = np.sqrt((w * (wide - mean) ** 2).sum(axis=0) / w.sum())
    np.testing.assert_allclose(pca.scale_, spread.astype(float), rtol=1e-13)


def test_a_first_block_of_next_to_no_weight_takes_several_looks_at_the_mean(small_blocks):
    """From a guess of 1e15, the first look finds a mean of pi only up to 0.01."""
    rng = np.random.default_rng(0)
    X, weight = np.pi + 1e-6 * rng.normal(size=(2000, 3)), np.ones(2000)
    first = as_source(X).blocks[0][1]
    X[:first], weight[:first] = 1e15 / 3, 1e-60
    pca = PrimedPCA(2, scale="std", random_state=0).fit(X, sample_weight=weight)
    wide = X[first:].astype(np.longdouble)
    np.testing.assert_allclose(pca.scale_, wide.std(axis=0).astype(float), rtol=1e-10)


# -- units ------------------------------------------------------------------------------------


@pytest.mark.parametrize("priming", WAYS)
@pytest.mark.parametrize("power", range(-500, 501, 50))
def test_units_of_any_power_of_two(priming, power):
    unit = 2.0**power
    plain = PrimedPCA(2, priming=priming, random_state=0).fit(ROWS)
    pca = PrimedPCA(2, priming=priming, random_state=0).fit(ROWS * unit)
    values, vectors = truth(ROWS)
    apart = angles(pca.components_, vectors[:2])
    assert (apart <= pca.angle_bounds_ + 1e-7).all()
    assert pca.converged_
    bounds = pca.certificate_.eigenvalue_bounds / unit / unit
    assert (bounds[:, 0] <= values[:2] * (1 + 1e-12)).all()
    assert (bounds[:, 1] >= values[:2] * (1 - 1e-12)).all()
    np.testing.assert_allclose(pca.components_, plain.components_, atol=1e-9)
    np.testing.assert_allclose(
        pca.explained_variance_ratio_, plain.explained_variance_ratio_, rtol=1e-9
    )


def test_every_power_of_two_by_a_full_decomposition():
    values, vectors = truth(ROWS[:40, :4])
    for power in range(-500, 501):
        pca = PrimedPCA(2).fit(ROWS[:40, :4] * 2.0**power)
        assert angles(pca.components_, vectors[:2]).max() < 1e-7, power
        low, high = (pca.certificate_.eigenvalue_bounds / 2.0**power / 2.0**power).T
        assert (low <= values[:2] * (1 + 1e-12)).all(), power
        assert (high >= values[:2] * (1 - 1e-12)).all(), power
        assert pca.angle_bounds_.max() < 1e-9, power


@pytest.mark.filterwarnings("ignore:The variances of `X` are below the range of float64")
@pytest.mark.parametrize("options", [{"missing": "mean"}, {"scale": "std"}], ids=str)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("power", [-900, -540, -110, 110, 460])
@pytest.mark.parametrize("priming", WAYS)
def test_constant_columns_that_are_not_centred_have_a_unit(priming, power, form, options):
    """They have no spread, and only their squared means show how large they are."""
    rows = np.outer(np.ones(40), [2.0, 1.0, 0.0])
    pca = PrimedPCA(2, priming=priming, center=False, random_state=0, **options)
    pca.fit(form(np.ldexp(rows, power)))
    first = np.array([2, 1, 0]) / np.sqrt(5)
    assert angles(pca.components_[:1], first[None])[0] <= pca.angle_bounds_[0] + 1e-7
    np.testing.assert_allclose(pca.singular_values_[0], np.ldexp(np.sqrt(200), power), rtol=1e-12)
    proof = certify(form(np.ldexp(rows, power)), first[None], center=False, **options)
    assert proof.streak(1e-6) == 1
    for low, high in (pca.certificate_.eigenvalue_bounds[0], proof.eigenvalue_bounds[0]):
        assert low * (1 - 1e-12) <= np.ldexp(200 / 39, 2 * power) <= high * (1 + 1e-12)
        assert high > 0


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_standardised_columns_of_very_different_units(form):
    X = RNG.normal(size=(200, 5))
    X[:, 3] += X[:, 0]
    X[:, 4] -= X[:, 1]
    units = np.array([1e150, 1e-150, 1.0, 1e-5, 1e100])
    pca = PrimedPCA(5, scale="std").fit(form(X * units))
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    check(pca, *truth(rows))
    np.testing.assert_allclose(pca.scale_, X.std(axis=0) * units, rtol=1e-12)
    assert np.isfinite(pca.certificate_.eigenvalue_bounds).all()


@pytest.mark.parametrize("kind", [np.float16, np.float32])
@pytest.mark.parametrize("scale", [1e-12, 1e12, 1e30])
def test_scales_that_lead_out_of_the_range_of_the_type(kind, scale):
    X = ROWS[:, :4].astype(kind)
    pca = PrimedPCA(2, scale=np.full(4, scale), certificate="none").fit(X)
    values, _ = truth(X.astype(float))
    np.testing.assert_allclose(pca.explained_variance_ * scale**2, values[:2], rtol=1e-4)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, torch.as_tensor])
@pytest.mark.parametrize("power", [-134, -125, 100])
def test_float32_at_the_ends_of_its_range(form, power):
    X = ROWS[:, :4].astype(np.float32) * np.float32(2.0**power)
    pca = PrimedPCA(2, certificate="none").fit(form(X))
    _, vectors = truth(X.astype(float) / 2.0**power)
    assert angles(pca.components_, vectors[:2].astype(np.float32)).max() < 1e-2


def test_spreads_that_cannot_be_divided_by_are_named():
    X = RNG.normal(size=(20, 2)).astype(np.float32)
    X[:, 1] *= np.float32(1e-40)
    with pytest.raises(ValueError, match=r"Column 1 .* standard deviation of .* float32"):
        PrimedPCA(1, scale="std", certificate="none").fit(X)
    # A given scale beyond float32 is divided by in float64.
    pca = PrimedPCA(1, scale=[1e-60, 1.0]).fit(X)
    wanted = (X[:, 0].astype(np.float64) / 1e-60).var(ddof=1)
    np.testing.assert_allclose(pca.explained_variance_, [wanted])


# -- offsets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, np.asarray])
@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9, 1e12])
@pytest.mark.parametrize("priming", ["exact", "block_krylov", "frequent_directions"])
def test_full_columns_far_from_zero_beside_zeros(form, offset, priming):
    shift = np.array([np.pi, np.e, 0.0]) * offset
    rows = np.column_stack([*(RNG.normal(size=(2, 500)) * [[1.0], [1.2]]), RNG.poisson(3, 500)])
    X = rows + shift
    rows = X - np.round(shift)  # exactly, and near zero
    pca = PrimedPCA(3, priming=priming, random_state=0).fit(form(X))
    values, vectors = truth(rows)
    apart = np.arcsin(
        np.minimum(
            1,
            np.linalg.norm(
                pca.components_
                - vectors * np.sign((pca.components_ * vectors).sum(axis=1, keepdims=True)),
                axis=1,
            ),
        )
    )
    assert (apart <= pca.angle_bounds_ + 1e-13).all()
    low, high = pca.certificate_.eigenvalue_bounds.T
    assert (low <= values * (1 + 1e-13)).all()
    assert (values <= high * (1 + 1e-13)).all()


@pytest.mark.parametrize("priming", WAYS)
def test_a_large_constant_column_has_no_variance(priming):
    X = ROWS.copy()
    X[:, 4] = 1e17 / 3
    rows = X.copy()
    rows[:, 4] = 0.0
    check(PrimedPCA(2, priming=priming, random_state=0).fit(X), *truth(rows))
    assert PrimedPCA(0.9).fit(X).n_components_ == PrimedPCA(0.9).fit(rows).n_components_


@pytest.mark.parametrize("priming", WAYS)
def test_missing_values_are_filled_with_the_mean_itself(priming):
    X = ROWS[:, :4] + 1e6
    X[RNG.random(X.shape) < 0.2] = np.nan
    pca = PrimedPCA(3, priming=priming, missing="mean", random_state=0).fit(X)
    wide = X.astype(np.longdouble) - 10**6
    rows = np.where(np.isnan(wide), np.nanmean(wide, axis=0), wide).astype(float)
    values, vectors = truth(rows)
    check(pca, values, vectors)
    assert pca.converged_


def test_distances_of_sparse_rows_far_from_zero():
    X = ROWS + 1e9
    rows = X - 1e9
    for form in (sp.csr_array, sp.csc_array):
        pca = PrimedPCA(3).fit(form(X))
        found = statistics(pca, form(X))
        centred = rows - rows.mean(axis=0)
        rest = centred - centred @ pca.components_.T @ pca.components_
        np.testing.assert_allclose(found.spe, (rest**2).sum(axis=1), rtol=1e-4)
        assert pca.score(form(X)) == pytest.approx(pca.score(X), rel=1e-4)


def test_an_outlier_of_no_weight_does_not_hide_a_sparse_column_far_from_zero():
    X = ROWS[:, :3].astype(np.float32) + np.float32(4096)
    weight = np.ones(300)
    X[0], weight[0] = -1e6, 1e-20  # without weights, no column is far from zero
    model = PrimedPCA(2, priming="block_krylov", certificate="none", random_state=0)
    pca = model.fit(sp.csr_array(X), sample_weight=weight)
    values, vectors = truth(X[1:].astype(float) - 4096)
    np.testing.assert_allclose(pca.explained_variance_, values[:2], rtol=1e-5)
    assert angles(pca.components_.astype(float), vectors[:2]).max() < 1e-4


@pytest.mark.filterwarnings("ignore:`max_passes`")
@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
def test_thin_columns_are_not_looked_at_twice(form):
    X = form(sp.random(2000, 300, 0.005, random_state=0))
    asked = {"certificate": "none", "max_passes": 4, "random_state": 0}
    plain = PrimedPCA(3, priming="block_krylov", **asked).fit(X)
    scaled = PrimedPCA(3, priming="block_krylov", scale="std", **asked).fit(X)
    first, other = (model.history_[0]["passes"] for model in (plain, scaled))
    assert other == first + 1


# -- integers ---------------------------------------------------------------------------------

WHOLE = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("end", ["min", "max"])
@pytest.mark.parametrize("priming", ["exact", "block_krylov", "frequent_directions"])
def test_integers_at_the_ends_of_their_type(kind, end, priming):
    info = np.iinfo(kind)
    steps = RNG.integers(0, min(info.max // 2, 10**7), (200, 4)) // np.array([1, 2, 3, 4])
    X = (steps + int(info.min) if end == "min" else int(info.max) - steps.astype(object)).astype(
        kind
    )
    pca = PrimedPCA(3, priming=priming, random_state=0).fit(X)
    check(pca, *truth(steps.astype(float)), noise=1e-9)


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_integers_over_the_whole_range_of_their_type(kind):
    info = np.iinfo(kind)
    X = RNG.choice(np.array([info.min, info.max, info.max // 2, 7], dtype=kind), (200, 4))
    check(PrimedPCA(4).fit(X), *truth(X.astype(float) - float(info.max // 2)), noise=1e-9)


NANOSECONDS = 17 * 10**17 + (RNG.normal(size=(300, 3)) * [4e6, 3e6, 2e6]).astype(np.int64)
FORMS = {
    "array": np.asarray,
    "columns first": np.asfortranarray,
    "unsigned": lambda x: x.astype(np.uint64),
    "csr": sp.csr_array,
    "csc": sp.csc_array,
    "tensor": torch.as_tensor,
    "unsigned tensor": lambda x: torch.as_tensor(x).to(torch.uint64),
    "frame": pd.DataFrame,
    "big-endian": lambda x: x.astype(">i8"),
}


@pytest.mark.parametrize("form", FORMS)
def test_nanoseconds_are_subtracted_before_they_are_rounded(form):
    X = FORMS[form](NANOSECONDS)
    rows = (NANOSECONDS - 17 * 10**17).astype(float)
    pca = PrimedPCA(2).fit(X)
    check(pca, *truth(rows), noise=1e-9)
    assert pca.angle_bounds_.max() < 1e-3
    scores = np.asarray(pca.transform(X))
    expected = (rows - rows.mean(axis=0)) @ pca.components_.T
    assert np.abs(scores - expected).max() < 1000  # the mean itself is a float64, off by 128


FAR = 2**62 + np.arange(31) ** 7  # integers of which float64 holds one in 1,024


def differing(form, varying):
    """Rows of such integers, the first column less by 0, 1, 2, ..., and its variance."""
    X = np.tile(FAR, (22, 1))
    X[:, 0] -= varying * np.arange(22)
    return FORMS[form](X), varying**2 * np.arange(22).var(ddof=1)


@pytest.mark.parametrize("priming", [*WAYS, "oja"])
@pytest.mark.parametrize("form", ["array", "columns first", "unsigned", "csr", "csc", "tensor"])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_pass_subtracts_the_whole_mean_of_integers(form, priming, weighted):
    weight = np.random.default_rng(1).uniform(0.5, 3, 22) if weighted else None
    for varying in (0, 1, 100):
        X, _ = differing(form, varying)
        fitted = PrimedPCA(1, priming=priming, random_state=0).fit(X, sample_weight=weight)
        wanted = varying**2 * truth(np.arange(22.0)[:, None], weight)[0]
        np.testing.assert_allclose(fitted.explained_variance_, wanted, rtol=1e-12)
        assert fitted.converged_
        if varying:
            np.testing.assert_allclose(np.abs(fitted.components_[0]), np.eye(31)[0], atol=1e-9)
            audit = certify(X, np.eye(31)[:1], sample_weight=weight, random_state=0)
            assert audit.angle_bounds[0] < 1e-6


@pytest.mark.parametrize("priming", [*WAYS, "oja"])
@pytest.mark.parametrize("form", ["array", "columns first", "unsigned", "csr", "csc", "tensor"])
def test_integers_without_gaps_are_those_whose_gaps_would_be_filled(form, priming):
    X, _ = differing(form, 100)
    models = [
        PrimedPCA(1, priming=priming, missing=rule, random_state=0).fit(X)
        for rule in ("error", "mean")
    ]
    one, two = models
    np.testing.assert_allclose(two.explained_variance_, one.explained_variance_, rtol=1e-12)
    np.testing.assert_allclose(two.components_, one.components_, atol=1e-9)
    assert two.converged_
    assert np.abs(two.certificate_.angle_bounds[0]) < 1e-6


@pytest.mark.parametrize("form", ["array", "columns first", "unsigned", "csr", "csc", "tensor"])
@pytest.mark.parametrize("rule", ["error", "mean"])
def test_deviations_of_large_integers_are_not_taken_for_rounding(form, rule):
    small = np.random.default_rng(1).integers(-300, 300, (60, 4))
    X = np.column_stack([2**62 + small[:, :3], small[:, 3] * 0 + 2**62 + 1])
    pca = PrimedPCA(2, scale="std", missing=rule, center=True).fit(FORMS[form](X))
    rows = small[:, :3] / small[:, :3].std(axis=0)
    check(pca, truth(rows)[0], np.pad(truth(rows)[1], ((0, 0), (0, 1))))
    np.testing.assert_allclose(pca.scale_[:3], small[:, :3].std(axis=0))


@pytest.mark.parametrize("priming", WAYS)
@pytest.mark.parametrize("form", ["array", "csr", "csc"])
@pytest.mark.parametrize("far", [0.0, 1e10, 1e13])
def test_gaps_are_at_the_whole_mean_of_large_numbers(form, priming, far):
    small = np.round(ROWS * 2.0**10) * 2.0**-10 + far - far
    holes = np.random.default_rng(2).random(small.shape) < 0.1
    means = np.array([small[~gone, j].mean() for j, gone in enumerate(holes.T)])
    X = FORMS[form](np.where(holes, np.nan, small + far))
    pca = PrimedPCA(3, priming=priming, missing="mean", random_state=0).fit(X)
    assert pca.converged_
    values, vectors = truth(np.where(holes, means, small))
    if priming == "subspace_iteration":  # ends within its tolerance
        np.testing.assert_allclose(pca.explained_variance_, values[:3], rtol=1e-7)
    else:
        check(pca, values, vectors)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("size", [1.0, 1e18])
@pytest.mark.parametrize("weighted", [False, True])
def test_columns_of_constants_have_no_variance_at_all(form, size, weighted):
    X = form(np.tile(size * RNG.standard_normal(31), (22, 1)))
    weight = RNG.uniform(0.5, 3, 22) if weighted else None
    for priming in WAYS:
        model = PrimedPCA(2, priming=priming, certificate="none", random_state=0)
        assert not model.fit(X, sample_weight=weight).explained_variance_.any()
        assert not model.explained_variance_ratio_.any()


@pytest.mark.parametrize("priming", WAYS)
@pytest.mark.parametrize("far", [1e10, 1e13])
def test_means_of_more_digits_than_float64_has_beside_the_deviations(priming, far):
    X = np.round(ROWS * 2.0**10) * 2.0**-10 + far  # exact where numbers of `far` are
    pca = PrimedPCA(3, priming=priming, random_state=0).fit(X)
    assert pca.converged_
    check(pca, *truth(X - far))


@pytest.mark.parametrize("priming", WAYS)
def test_left_singular_vectors_of_float32_far_from_zero(priming):
    """Rounded to float32, the mean is off by a twentieth of a deviation."""
    X = (np.round(ROWS[:40] * 16) / 16 + 2.0**18 + 1 / 3).astype(np.float32)
    rows = X.astype(float) - X.astype(float).mean(axis=0)
    U, s, Vt = svd(X, 3, center=True, priming=priming, random_state=0)
    np.testing.assert_allclose(U * s, rows @ Vt.T, atol=1e-5 * s[0])


def test_small_integers_beside_a_large_constant_one():
    small = np.random.default_rng(1).integers(-3, 4, (200, 2))
    X = np.column_stack([np.full(200, 2**60), small])
    values = np.linalg.eigvalsh(np.cov(small.T))[::-1]
    for priming in ("exact", "block_krylov"):
        low, high = PrimedPCA(2, priming=priming).fit(X).certificate_.eigenvalue_bounds.T
        assert (low <= values * (1 + 1e-14)).all()
        assert (values * (1 - 1e-14) <= high).all()


def test_longdouble_is_subtracted_from_before_it_is_rounded():
    X = ROWS[:, :4].astype(np.longdouble) + np.longdouble(1e12)
    rows = (X - np.longdouble(1e12)).astype(float)
    pca = PrimedPCA(2).fit(X)
    values, vectors = truth(rows)
    assert (angles(pca.components_, vectors[:2]) <= pca.angle_bounds_ + 3e-8).all()
    np.testing.assert_allclose(pca.explained_variance_, values[:2], rtol=1e-8)


@pytest.mark.skipif(np.finfo(np.longdouble).eps == np.finfo(float).eps, reason="no wider type")
@pytest.mark.parametrize("given", [np.asarray, sp.csr_array, sp.csc_array])
def test_extended_precision_is_not_rounded_before_the_mean_is_subtracted(given):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(50, 4)) * [4, 3, 2, 1]
    X = 1 + 1e-17 * noise.astype(np.longdouble)  # in float64 every number is 1
    with pytest.raises(ValueError, match=r"`X` holds .*, which float64 cannot hold exactly"):
        PrimedPCA(2).partial_fit(given(X))
    if given is np.asarray:
        wanted = np.linalg.eigvalsh(np.cov(((X - 1) * 1e17).astype(float).T))[:1:-1]
        pca = PrimedPCA(2).fit(X)
        np.testing.assert_allclose(pca.explained_variance_ * 1e34, wanted, rtol=1e-12)
        low, high = pca.certificate_.eigenvalue_bounds.T * 1e34
        assert ((low <= wanted) & (wanted <= high)).all()
    else:
        for use in (PrimedPCA(2).fit, PrimedPCA(2, center=False).fit, lambda x: svd(x, 2)):
            with pytest.raises(ValueError, match="Convert `X` to float64"):
                use(given(X))
    same = noise.astype(np.longdouble)
    for fit in (PrimedPCA(2).fit, PrimedPCA(2).partial_fit):
        np.testing.assert_allclose(
            fit(given(same)).explained_variance_, PrimedPCA(2).fit(noise).explained_variance_
        )


def test_integers_that_would_be_rounded_are_named(tmp_path):
    message = re.escape("holds 1700000000000000001, which float64 cannot hold exactly")
    one = 17 * 10**17 + 1
    frame = pd.DataFrame({"t": np.arange(20) * 0 + one, "x": np.arange(20.0)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for X in (frame, frame.to_numpy(dtype=object), [[one, 0.5], [2, 3.0]]):
        with pytest.raises(ValueError, match=message):
            PrimedPCA(1).fit(X)
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(ValueError, match=f"{name}: column 't' {message}"):
            PrimedPCA(1).fit(tmp_path / name)
    with pytest.raises(ValueError, match="float64 cannot hold exactly"):
        PrimedPCA(1).partial_fit(NANOSECONDS + 1)
    as_source(pd.DataFrame({"t": [2**60, 2**61], "x": [0.5, 1.5]}))  # which float64 holds


def test_decimals_that_would_be_rounded_as_integers_are_named(tmp_path):
    def table(*values):
        return pa.table({"t": pa.array(map(Decimal, values)), "x": [0.5, 1.5, 4.0]})

    for text in (str(2**54 + 1), "18014398509481985.5"):
        rows = table(text, "7", "-3")
        pq.write_table(rows, tmp_path / "a.parquet")
        message = re.escape(f"holds {text}, which float64 cannot hold exactly")
        of_objects = np.array([[Decimal(text), 1], [2, 3], [4, 6]])
        frames = rows, pl.from_arrow(rows), rows.to_pandas(types_mapper=pd.ArrowDtype)
        for X in (*frames, tmp_path / "a.parquet", of_objects, of_objects.tolist()):
            with pytest.raises(ValueError, match=message):
                PrimedPCA(1).fit(X)
    with pytest.raises(ValueError, match="float64 cannot hold exactly"):
        PrimedPCA(1).fit(np.array([[np.int64(2**54 + 1), 1], [2, 3], [4, 6]], object))
    held = PrimedPCA(1).fit(table(str(2**60), "0.1", "-3.25"))
    np.testing.assert_allclose(held.mean_[0], (2**60 + 0.1 - 3.25) / 3)


# -- what cannot be known ---------------------------------------------------------------------


def test_rounding_larger_than_the_variances_proves_nothing():
    """One zero of next to no weight keeps a sparse column from being shifted."""
    X = np.column_stack([1e9 + ROWS[:, 0], ROWS[:, 1], ROWS[:, 2]])
    weight = np.ones(300)
    X[0], weight[0] = 0.0, 1e-30
    with pytest.warns(Warning, match="Rounding error"):
        pca = PrimedPCA(2).fit(sp.csr_array(X), sample_weight=weight)
    assert not pca.converged_
    assert not pca.certificate_.zero.any()
    low, high = pca.certificate_.eigenvalue_bounds.T
    values, _ = truth(X[1:] - [1e9, 0, 0])
    assert (low <= values[:2]).all()
    assert (values[:2] <= high).all()


def test_certify_says_so_of_weights_as_well():
    X, weight = ROWS.copy(), np.ones(300)
    X[0], weight[0] = 1e10, 0.0
    _, vectors = truth(ROWS[1:])
    found = certify(X, vectors[:2], sample_weight=weight, random_state=0)
    assert found.angle_bounds.max() < 1e-6
    wrong = certify(X, np.eye(10)[[5, 6]], sample_weight=weight, random_state=0)
    assert wrong.streak(0.1) == 0
    assert not wrong.zero.any()


@pytest.mark.parametrize("ends_with_a_block", [False, True])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_a_first_block_of_weight_zero_leaves_constants_exact(
    small_blocks, convert, ends_with_a_block
):
    X = np.full((2000, 3), [0.0, 5.0, 1e12])
    X[:1900] = np.random.default_rng(0).normal(size=(1900, 3)) * 1e10
    ends = [stop for _, stop in as_source(convert(X)).blocks]
    absent = ends[-2] if ends_with_a_block else 1501
    X[absent:] = [0.0, 5.0, 1e12]
    weights = np.r_[np.zeros(absent), np.linspace(0.1, 1, 2000 - absent)]
    data = Centred(convert(X), sample_weight=weights)
    assert data.source.blocks[0][1] < absent
    assert (absent in [stop for _, stop in data.source.blocks]) == ends_with_a_block
    assert np.array_equal(data.mean, [0.0, 5.0, 1e12])
    assert data.total == 0


def test_deviations_at_the_edge_of_the_range_are_used_and_those_beyond_it_are_refused():
    X = np.random.default_rng(0).normal(size=(50, 4))
    sign = np.where(np.arange(50) % 2, 1.0, -1.0)
    tiny, most = np.finfo(np.float64).tiny, np.finfo(np.float64).max
    plain = PrimedPCA(2, scale="std", random_state=0)
    X[:, 1] = sign
    wanted = plain.fit(X).components_
    for size in (2.5 * tiny, most / 2.5):
        X[:, 1] = size * sign
        found = plain.fit(X).components_
        np.testing.assert_allclose(np.abs(found), np.abs(wanted), atol=1e-12)
    X[:, 1] = 1.5 * tiny * sign
    with pytest.raises(ValueError, match=r"Column 1 .* standard deviation of .* beyond the range"):
        plain.fit(X)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("steps", [[1, 2], [0, 0, 0, 1], [1, 1, 1, 2], [0, 3, 5, 7]])
def test_deviations_of_the_smallest_numbers_are_refused(steps, center):
    """They are not constant, although their deviation in the unit of the data rounds to zero."""
    X = np.array(steps)[:, None] * [5e-324, 1.0]
    model = PrimedPCA(1, scale="std", center=center)
    with pytest.raises(
        ValueError, match=r"Column 0 .* standard deviation of (nearly 0|.*e-324|.*e-323)"
    ):
        model.fit(X)


@pytest.mark.filterwarnings("ignore:The variances of `X` are below the range of float64")
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("value", [1e-50, 1.0, 1e100])
@pytest.mark.parametrize("priming", WAYS)
def test_a_constant_column_does_not_hide_the_smallest_numbers(priming, value, form):
    X = np.full((25, 3), value)
    X[:, 1:] = 5e-324
    X[7, 2] = 1e-323
    pca = PrimedPCA(1, priming=priming, random_state=0).fit(form(X))
    np.testing.assert_allclose(pca.components_, [[0, 0, 1]], atol=1e-9)
    assert pca.certificate_.eigenvalue_bounds[0, 1] > 0
    assert not pca.certificate_.zero.any()


def by_batches(X):
    model = PrimedPCA(2, scale="std")
    for start in range(0, len(X), 50):
        model.partial_fit(X[start : start + 50])
    return model


@pytest.mark.parametrize("priming", [*WAYS, "oja", "partial_fit"])
def test_deviations_that_float32_cannot_hold_are_refused_by_every_priming(priming):
    """Products of float32 data may be in float64, but the scale of the model is in float32."""
    model = PrimedPCA(2, priming=priming, scale="std", random_state=0)
    fit = by_batches if priming == "partial_fit" else model.fit
    X = (ROWS[:, :4] * 2.0**-121).astype(np.float32)
    found = fit(X)
    np.testing.assert_allclose(found.scale_, X.std(axis=0, dtype=float), rtol=1e-6)
    for unit in (1e-39, 1e-43, 1e-45):
        with pytest.raises(ValueError, match=r"Column 0 .* standard deviation .* range of float32"):
            fit((ROWS[:, :4] * unit).astype(np.float32)).transform(X)


@pytest.mark.parametrize("certificate", ["auto", "none"])
@pytest.mark.parametrize("kind", ["u2", "f4"])
def test_columns_that_float32_resolves_are_not_constant(kind, certificate):
    """A deviation of a millionth of the mean is many steps of whole numbers of 16 bits."""
    if kind == "u2":
        X = np.full((1000, 2), 65000, "u2")
        X[:3, 0] += 1
        X[2:6, 1] += 1
    else:
        X = np.random.default_rng(0).normal(size=(5000, 3))
        X[:, 0] += 2 * X[:, 1] + 4e6
        X = X.astype("f4")
    wide = X.astype("f8")
    wide = (wide - wide.mean(axis=0)) / wide.std(axis=0)
    truth = np.linalg.svd(wide, compute_uv=False)[:2] ** 2 / (len(X) - 1)
    found = PrimedPCA(2, scale="std", certificate=certificate, random_state=0).fit(X)
    np.testing.assert_allclose(found.explained_variance_, truth, rtol=1e-3)
    np.testing.assert_allclose(found.scale_, X.astype("f8").std(axis=0), rtol=1e-3)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_scores_of_integers_that_float64_cannot_hold_are_refused(make):
    rng = np.random.default_rng(0)
    rows = rng.integers(-300, 300, (200, 4)) + 1_700_000_000_000_000_000  # nanoseconds
    model = PrimedPCA(2, random_state=0).fit(make(rows))
    wanted = np.linalg.eigvalsh(np.cov((rows - rows[0]).T))[::-1][:2]
    np.testing.assert_allclose(model.explained_variance_, wanted, rtol=1e-9)
    with pytest.raises(ValueError, match=r"holds in steps of 256: .* Subtract a whole number"):
        model.transform(make(rows))
    near = rows - 1_700_000_000_000_000_000
    assert np.isfinite(PrimedPCA(2).fit(make(near)).transform(make(near))).all()
    far = rng.integers(-(10**9), 10**9, (200, 4)) * 10**8 + 10**16  # a rounded mean does not matter
    assert abs(PrimedPCA(2).fit(make(far)).transform(make(far)).mean()) < 1e12


@pytest.mark.parametrize("priming", ["auto", "block_krylov", "subspace_iteration", np.eye(5, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constants_far_from_zero_are_refused_where_nothing_is_centred(priming, dtype):
    X = np.random.default_rng(0).standard_normal((50, 5)).astype(dtype)
    X[:, 1] = 1e12
    model = PrimedPCA(1, center=False, scale="std", priming=priming, random_state=0).fit(X)
    np.testing.assert_allclose(np.abs(model.components_[0, 1]), 1.0)
    X[:, 1] = 1e16 if dtype == np.float32 else 1e117
    with pytest.raises(ValueError, match=r"mean of column 1 .* is 1e\+1.* `center`=True"):
        PrimedPCA(1, center=False, scale="std", priming=priming, random_state=0).fit(X)
