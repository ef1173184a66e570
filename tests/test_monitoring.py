"""T² and SPE: their values, and the fraction of new rows that exceeds their limits."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from primedpca import PrimedPCA, load
from primedpca.monitoring import Limits, Statistics, limits, statistics

LEVEL = 0.95


def fitted(X, k, **options):
    return PrimedPCA(k, priming="exact", certificate="none", **options).fit(X)


def rows(rng, n, deviations, mean=3.0):
    return mean + rng.normal(size=(n, deviations.size)) * deviations


@pytest.mark.parametrize("options", [{}, {"scale": "std"}, {"whiten": True}, {"center": False}])
@pytest.mark.parametrize("kind", [np.asarray, np.float32, sp.csr_array])
def test_statistics_are_what_they_say(kind, options):
    rng = np.random.default_rng(0)
    X = rows(rng, 80, np.arange(9.0, 0, -1))
    pca = PrimedPCA(3, **options).fit(kind(X))
    found = statistics(pca, kind(X[:20]))
    scale = 1.0 if pca.scale_ is None else pca.scale_
    seen = (X[:20] - (pca.mean_ if pca.center else 0.0)) / scale
    scores = seen @ pca.components_.T
    rest = seen - scores @ pca.components_
    close = {"rtol": 1e-4 if kind is np.float32 else 1e-9}
    np.testing.assert_allclose(found.t2, (scores**2 / pca.explained_variance_).sum(1), **close)
    np.testing.assert_allclose(found.spe, (rest**2).sum(1), **close)


def rates(k, deviations, n, options=None, fits=40, **preparation):
    """Return the fraction of new rows beyond the 5 % limits of T² and SPE, over many fits."""
    rng, found = np.random.default_rng(1), []
    mean = 3.0 if preparation.get("center", True) else 0.0
    for _ in range(fits):
        X, new = rows(rng, n, deviations, mean), rows(rng, 400, deviations, mean)
        pca = fitted(X, k, **preparation)
        given = {} if options is None else {"calibration": X} | options
        bound, seen = limits(pca, LEVEL, **given), statistics(pca, new)
        found.append([(seen.t2 > bound.t2).mean(), (seen.spe > bound.spe).mean()])
    return np.mean(found, axis=0)


NOISE = np.sqrt(np.r_[100.0, 60.0, 30.0, np.ones(27)])
FALLING = np.sqrt(0.9 ** np.arange(40))


@pytest.mark.parametrize("center", [True, False])
def test_t2_of_new_rows_passes_its_limit_as_often_as_it_should(center):
    # With all components kept the distribution is exact; 5 % of 16,000 rows, but rows of one fit
    # share its errors: the spread over fits was seen to be below 0.5 %.
    beyond, _ = rates(4, np.arange(4.0, 0, -1), 30, center=center)
    assert abs(beyond - 0.05) < 0.015


def test_t2_with_a_chi_square_limit_would_not_carry_over():
    rng = np.random.default_rng(2)
    pca = fitted(rows(rng, 30, np.arange(4.0, 0, -1)), 4)
    assert limits(pca, LEVEL).t2 > 1.2 * stats.chi2.ppf(LEVEL, 4)


def test_spe_of_new_rows_passes_a_calibrated_limit_as_often_as_it_should():
    for deviations, k, n in ((NOISE, 3, 100), (FALLING, 5, 300)):
        _, beyond = rates(k, deviations, n, {})
        assert 0.035 < beyond < 0.07, (k, n)


def test_rows_of_the_fit_need_their_limit_raised():
    _, low = rates(3, NOISE, 100, {"seen": False})
    assert low > 0.08  # these rows are closer to the components than new rows


def test_rows_that_had_no_part_in_the_fit_need_nothing_raised():
    rng, found = np.random.default_rng(3), []
    for _ in range(30):
        pca = fitted(rows(rng, 60, NOISE), 3)
        bound = limits(pca, LEVEL, rows(rng, 400, NOISE), seen=False)
        found.append((statistics(pca, rows(rng, 400, NOISE)).spe > bound.spe).mean())
    assert abs(np.mean(found) - 0.05) < 0.012


def long_tailed(rng, n, spectrum):
    """Return rows of random length, whose SPE varies far more than that of normal rows."""
    return rng.normal(size=(n, spectrum.size)) * np.sqrt(spectrum) * rng.gamma(2.0, 0.5, (n, 1))


@pytest.mark.parametrize("k", [5, 60])
def test_a_calibrated_limit_bears_long_tails_and_many_components(k):
    rng, spectrum = np.random.default_rng(10), np.arange(1.0, 101) ** -1.0
    X, new = (long_tailed(rng, n, spectrum) for n in (3000, 20_000))
    pca = fitted(X, k)
    beyond = (statistics(pca, new).spe > limits(pca, LEVEL, X).spe).mean()
    assert 0.03 < beyond < 0.09


def test_rows_to_spare_give_limits_for_any_distribution():
    # T² and SPE of these rows vary far more than F and chi-square allow.
    rng, spectrum, found = np.random.default_rng(12), np.arange(1.0, 31) ** -1.0, []
    for _ in range(20):
        pca = fitted(long_tailed(rng, 500, spectrum), 10)
        spare, new = long_tailed(rng, 199, spectrum), long_tailed(rng, 2000, spectrum)
        bound, seen = limits(pca, LEVEL, spare, seen=False), statistics(pca, new)
        found.append([(seen.t2 > bound.t2).mean(), (seen.spe > bound.spe).mean()])
        assert (statistics(pca, spare).t2 > bound.t2).sum() == 9  # place 190 of 199
        assert (seen.t2 > limits(pca, LEVEL).t2).mean() > 0.1
    # 5 % exactly, on average over fits and rows; each of 20 is spread by sqrt(.05 * .95 / 200).
    assert np.all(np.abs(np.mean(found, axis=0) - 0.05) < 3.5 * 0.0154 / np.sqrt(20))


def test_too_few_rows_to_spare_are_taken_as_normal():
    rng = np.random.default_rng(13)
    pca, spare = fitted(rows(rng, 100, NOISE), 3), rows(rng, 18, NOISE)  # 19 are needed
    assert limits(pca, LEVEL, spare, seen=False).t2 == limits(pca, LEVEL).t2
    enough = rows(rng, 19, NOISE)
    assert limits(pca, LEVEL, enough, seen=False).t2 == statistics(pca, enough).t2.max()


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_limit_is_never_raised_beyond_all_of_a_row(calibrated):
    rng = np.random.default_rng(11)
    X = rows(rng, 300, np.ones(1000))  # no component stands out: the first-order formula is useless
    pca = fitted(X, 100)
    bound = limits(pca, LEVEL, X if calibrated else None).spe
    assert bound < 1.5 * ((X - X.mean(axis=0)) ** 2).sum(axis=1).max()
    assert (statistics(pca, rows(rng, 1000, np.ones(1000))).spe < bound).mean() > LEVEL


def test_without_calibration_the_limit_of_spe_is_high_enough_and_not_absurd():
    for deviations, k, n in ((NOISE, 3, 100), (FALLING, 5, 300), (FALLING, 5, 100)):
        _, beyond = rates(k, deviations, n)
        assert beyond < 0.06, (k, n)
    _, beyond = rates(5, FALLING, 300)
    assert beyond > 0.02  # for a geometric decay, the limit is about right


def test_the_assumed_spectrum_is_the_widest_of_those_that_fall_ever_more_slowly():
    rng = np.random.default_rng(4)
    X = rows(rng, 400, np.sqrt(np.arange(1, 31) ** -1.2))
    full = fitted(X, 30).explained_variance_
    from primedpca.monitoring import _left_out

    rest, h = _left_out(fitted(X, 6))
    assert rest == pytest.approx(full[6:].sum(), rel=1e-9)
    assert rest**2 / h >= (full[6:] ** 2).sum()


def test_faults_are_found():
    rng = np.random.default_rng(5)
    X = rows(rng, 500, NOISE)
    pca, new = fitted(X, 3), rows(rng, 20, NOISE)
    inside, outside = (
        new + 60 * pca.components_[0],
        new + 10 * np.linalg.svd(pca.components_)[2][-1],
    )
    bound = limits(pca, 0.999, X)
    assert (statistics(pca, inside).t2 > bound.t2).all()
    assert (statistics(pca, outside).spe > bound.spe).all()


def test_all_components_leave_no_spe():
    rng = np.random.default_rng(6)
    X = rows(rng, 50, np.ones(5), mean=1e3)
    for kind in (np.float64, np.float32):
        pca = fitted(X.astype(kind), 5)
        assert limits(pca, 0.99).spe == 0
        assert not statistics(pca, X.astype(kind)).spe.any()


def test_weights_count_as_rows():
    rng = np.random.default_rng(7)
    X, weights = rows(rng, 40, np.arange(5.0, 0, -1)), np.tile([1.0, 3.0], 20)
    weighed = PrimedPCA(2).fit(X, sample_weight=weights)
    repeated = PrimedPCA(2).fit(np.repeat(X, weights.astype(int), axis=0))
    assert limits(weighed).t2 == pytest.approx(limits(repeated).t2, rel=1e-9)


def test_limits_survive_a_file(tmp_path):
    X = rows(np.random.default_rng(8), 60, np.arange(6.0, 0, -1))
    pca = PrimedPCA(2, random_state=0).fit(X)
    pca.save(tmp_path / "m.safetensors")
    assert limits(load(tmp_path / "m.safetensors"), 0.9) == limits(pca, 0.9)
    assert isinstance(limits(pca, 0.9, statistics(pca, X)), Limits)


def test_bad_requests_are_refused():
    X = rows(np.random.default_rng(9), 12, np.arange(20.0, 0, -1))
    pca = fitted(X, 3)
    for level in (0, 1, 99):
        with pytest.raises(ValueError, match=r"`level`=.*\(0, 1\)"):
            limits(pca, level)
    with pytest.raises(ValueError, match=r"12 rows leave 0 degrees of freedom.*fewer components"):
        limits(fitted(X, 11))
    with pytest.raises(ValueError, match=r"`calibration` has 1 rows"):
        limits(pca, 0.9, X[:1])
    assert limits(pca, 0.9, Statistics(np.ones(3), np.arange(3.0))).spe > 0
    with pytest.raises(ValueError, match=r"0 components of the model have variance"):
        limits(PrimedPCA(2).fit(np.ones((9, 4))))
    one = PrimedPCA(2).partial_fit(X[:1])
    with pytest.raises(ValueError, match=r"no components yet: `n_samples_`=1.*`partial_fit`"):
        limits(one)
    assert statistics(one, X).t2.max() == 0  # all of the row counts as SPE
    with pytest.raises(NotFittedError):
        limits(PrimedPCA(2))
    for ask in (limits, lambda model: statistics(model, X)):
        with pytest.raises(TypeError, match="`model` must be a fitted PrimedPCA, got PCA"):
            ask(PCA(2).fit(X))
    with pytest.raises(ValueError, match="features"):
        statistics(pca, X[:, :5])
