"""T² and SPE: their values, and the fraction of new rows that exceeds their limits."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from primedpca import PrimedPCA, load
from primedpca.monitoring import Limits, Statistics, limits, outliers, statistics

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


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_a_single_variance_that_is_left_out_raises_the_limit_in_every_unit(kind):
    X = rows(np.random.default_rng(14), 200, np.array([4.0, 3.0, 2.0, 1.8]))
    true = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    lost = 1 + (true[:3] / (true[:3] - true[3])).sum()  # kappa of one remaining variance, and mean
    centre = 199 / 200 * true[3] * (200 + lost) / (200 - lost)
    for unit in 1.0 + np.arange(12) / 7:
        found = limits(fitted((X * unit).astype(kind), 3), 0.9)
        assert found.spe == pytest.approx(unit**2 * centre * stats.chi2.ppf(0.9, 1), rel=0.01)


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


@pytest.mark.parametrize("fit", ["fit", "partial_fit"])
@pytest.mark.parametrize("certificate", ["none", "auto"])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_components_of_rounding_error_are_not_counted(kind, certificate, fit):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 5)) @ rng.normal(size=(5, 60))
    X[7] *= 6
    X = X.astype(kind)
    pca = getattr(PrimedPCA(certificate=certificate), fit)(X)
    five = PrimedPCA(5).fit(X)
    assert pca.n_components_ > 5
    assert limits(pca).t2 == pytest.approx(limits(five).t2, rel=1e-6)
    np.testing.assert_allclose(statistics(pca, X).t2, statistics(five, X).t2, rtol=1e-3)
    assert outliers(pca, X).p_value[7] < 1e-10


@pytest.mark.parametrize("certificate", ["none", "auto"])
@pytest.mark.parametrize("small", [1e-12, 1e-13])
def test_components_with_small_variances_are_counted(small, certificate):
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.normal(size=(20, 20)))[0][:4]
    X = rng.normal(size=(400, 4)) * np.sqrt([1.0, 0.5, 0.1, small]) @ turn
    pca = PrimedPCA(certificate=certificate).fit(X)
    four = stats.f.ppf(0.99, 4, 396) * 4 * (400**2 - 1) / (400 * 396)
    assert limits(pca).t2 == pytest.approx(four)


@pytest.mark.parametrize("unit", [2.0**300, 2.0**450, 2.0**-300, 2.0**-450])
def test_the_unit_does_not_change_a_calibrated_limit(unit):
    X = rows(np.random.default_rng(2), 100, np.arange(9.0, 0, -1))
    one, other = (limits(fitted(x, 3), LEVEL, x) for x in (X, X * unit))
    assert other.t2 == pytest.approx(one.t2)
    assert other.spe / unit**2 == pytest.approx(one.spe)


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
    with pytest.raises(ValueError, match=r"0 components have variance"):
        limits(PrimedPCA(2).fit(np.ones((9, 4))))
    one = PrimedPCA(2).partial_fit(X[:1])
    with pytest.raises(ValueError, match=r"no components yet.*`partial_fit`"):
        limits(one)
    assert statistics(one, X).t2.max() == 0  # all of the row counts as SPE
    with pytest.raises(NotFittedError):
        limits(PrimedPCA(2))
    for ask in (limits, lambda model: statistics(model, X)):
        with pytest.raises(TypeError, match="`model` must be a fitted PrimedPCA, got PCA"):
            ask(PCA(2).fit(X))
    with pytest.raises(ValueError, match="features"):
        statistics(pca, X[:, :5])


# -- p-values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "k", "center"), [(200, 30, 3, True), (100, 8, 2, False)])
def test_p_values_of_ordinary_rows_are_uniform(n, d, k, center):
    rng, deviations = np.random.default_rng(0), np.r_[np.linspace(10, 5, k), np.ones(d - k)]
    found = []
    for _ in range(40):
        rows = rng.normal(size=(n, d)) * deviations
        found.append(outliers(PrimedPCA(k, center=center).fit(rows), rows)[2:])
    for values in np.concatenate(found, axis=1):
        for level in (0.01, 0.05, 0.2):
            assert np.mean(values < level) == pytest.approx(level, rel=0.35)


def test_p_values_of_new_rows_are_not_too_small():
    rng, deviations = np.random.default_rng(1), np.r_[9.0, 6.0, np.ones(10)]
    t2, both = [], []
    for _ in range(30):
        model = PrimedPCA(2).fit(rng.normal(size=(150, 12)) * deviations)
        found = outliers(model, rng.normal(size=(150, 12)) * deviations, new=True)
        t2.append(found.p_t2)
        both.append(found.p_value)
    assert np.mean(np.array(t2) < 0.05) == pytest.approx(0.05, rel=0.25)
    assert np.mean(np.array(both) < 0.05) < 0.06


def test_p_values_are_the_tails_of_the_limits():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 6)) * [5, 4, 1, 1, 1, 1]
    model = PrimedPCA(2).fit(rows)
    for level in (0.9, 0.99):
        bound = limits(model, level)
        at = Statistics(np.array([bound.t2]), np.array([bound.spe]))
        found = outliers(model, at, new=True)
        np.testing.assert_allclose([found.p_t2[0], found.p_spe[0]], 1 - level, rtol=1e-6)
        assert found.p_value[0] == pytest.approx(2 * (1 - level))


def test_planted_outliers_have_small_p_values_both_ways():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(300, 10)) * np.r_[8, 5, np.ones(8)]
    rows[3, 0], rows[8, 7], rows[11, 9] = 60, 9, -8
    found = outliers(PrimedPCA(2).fit(rows), rows)
    assert set(np.argsort(found.p_value)[:3]) == {3, 8, 11}
    assert found.p_value[[3, 8, 11]].max() < 1e-5
    assert found.p_t2[3] < found.p_spe[3]
    assert found.p_spe[8] < found.p_t2[8]


def test_held_out_rows_give_ranks_that_hold_for_any_distribution():
    rng = np.random.default_rng(3)

    def draw(n):
        return rng.standard_t(2.5, size=(n, 5)) * [5, 3, 1, 1, 1]

    small = []
    for _ in range(60):
        model, kept = PrimedPCA(2).fit(draw(60)), draw(99)
        small.append(outliers(model, draw(50), kept).p_t2 <= 0.05)
    assert np.mean(small) == pytest.approx(0.05, abs=0.012)
    known = Statistics(np.arange(1.0, 10), np.arange(1.0, 10))
    found = outliers(model, Statistics(np.array([0.0, 5, 99]), np.zeros(3)), known)
    np.testing.assert_allclose(found.p_t2, [1, 0.6, 0.1])


def test_components_that_explain_everything_leave_one_test():
    rows = np.random.default_rng(0).normal(size=(50, 3)) * [3, 2, 1]
    found = outliers(PrimedPCA(3).fit(rows), rows)
    np.testing.assert_array_equal(found.p_value, found.p_t2)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_rows_that_have_no_statistics_are_refused(value):
    # A p-value of NaN is below no level, so that such a row would never be reported.
    rows = np.random.default_rng(0).normal(size=(50, 4))
    pca = PrimedPCA(2).fit(rows)
    rows[3, 1] = value
    for ask in (statistics, outliers):
        with pytest.raises(ValueError, match=r"non-finite|exceed the range"):
            ask(pca, rows)
    for ask in (pca.score, pca.score_samples, pca.contributions):
        with pytest.raises(ValueError, match=r"non-finite|exceed the range"):
            ask(rows)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_model_without_variance_has_no_limits(dtype):
    model = PrimedPCA(2).fit(np.ones((40, 6), dtype))
    with pytest.raises(ValueError, match="0 components have variance"):
        limits(model)


@pytest.mark.parametrize("size", [1e10, 1e20, 1e25])
@pytest.mark.parametrize("streamed", [False, True])
def test_the_rounding_of_a_large_constant_column_is_not_in_scores_or_distances(size, streamed):
    rng = np.random.default_rng(0)
    small = rng.normal(size=(200, 4))
    rounded = np.nextafter(size, np.where(rng.random(200) < 0.5, np.inf, -np.inf))
    X = np.column_stack([small, rounded])
    known, model = (PrimedPCA(2, scale="std") for _ in range(2))
    if streamed:
        for i in range(0, 200, 20):
            known.partial_fit(small[i : i + 20])
            model.partial_fit(X[i : i + 20])
    else:
        known.fit(small)
        model.fit(X)
    np.testing.assert_allclose(model.explained_variance_, known.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(model.scale_[:4], known.scale_, rtol=1e-12)
    bounds = [pca.certificate_.eigenvalue_bounds for pca in (model, known)]
    np.testing.assert_allclose(*bounds, rtol=1e-6)
    np.testing.assert_allclose(
        np.abs(model.transform(X)), np.abs(known.transform(small)), atol=1e-6
    )
    one, two = statistics(model, X), statistics(known, small)
    np.testing.assert_allclose(one.t2, two.t2, rtol=1e-6)
    np.testing.assert_allclose(one.spe, two.spe, rtol=1e-6, atol=1e-6)
    X[0, 4] *= 1.001  # a row that differs
    assert statistics(model, X).spe[0] > 1e3


def test_statistics_that_are_given_are_checked():
    X = rows(np.random.default_rng(0), 60, np.arange(6.0, 0, -1))
    pca = fitted(X, 2)
    found = statistics(pca, X)
    lists = Statistics(found.t2.tolist(), found.spe.tolist())
    np.testing.assert_array_equal(outliers(pca, lists).p_value, outliers(pca, X).p_value)
    assert limits(pca, 0.9, lists) == limits(pca, 0.9, X)
    holes, below = found.t2.copy(), found.spe.copy()
    holes[3], below[4] = np.nan, -1.0
    for given, words in (
        (Statistics(found.t2[1:], found.spe), r"t2` has shape \(59,\) and .*spe` has \(60,\)"),
        (Statistics(holes, found.spe), r"t2`\[3\]=nan must be at least 0"),
        (Statistics(found.t2, below), r"spe`\[4\]=-1.0 must be at least 0"),
        (Statistics(found.t2, ["a"] * 60), "spe` must hold numbers"),
    ):
        with pytest.raises(ValueError, match="`X." + words):
            outliers(pca, given)
        with pytest.raises(ValueError, match="`calibration." + words):
            outliers(pca, X, given)
        with pytest.raises(ValueError, match="`calibration." + words):
            limits(pca, 0.9, given)
