"""Rules for the number of components, each compared with its definition by brute force."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA

from primedpca import PrimedPCA, as_source, choose_k, choosing


def factors(n=300, d=20, k=3, noise=1.0, seed=0):
    """Return rows with k common factors and noise."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, k)) @ rng.normal(size=(k, d)) + noise * rng.normal(size=(n, d))


def variances_of(rows):
    return np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2 / (len(rows) - 1)


X = factors()


@pytest.fixture(scope="module")
def found():
    return choose_k(X, random_state=0)


# -- rules ------------------------------------------------------------------------------------


def test_planted_factors_are_counted(found):
    for rule in ("parallel analysis", "broken stick", "MLE", "cross-validation"):
        assert found[rule].n_components == 3, rule
    assert found.n_components == 3


def test_noise_has_no_components():
    noise = choose_k(np.random.default_rng(1).normal(size=(200, 20)), random_state=0)
    for rule in ("parallel analysis", "broken stick", "cross-validation"):
        assert noise[rule].n_components == 0, rule
    assert noise.n_components == 1


def test_parallel_analysis_is_horns_by_brute_force(found):
    rng = np.random.default_rng(7)
    draws = []
    for _ in range(400):
        shuffled = np.stack([rng.permutation(column) for column in X.T], axis=1)
        draws.append(variances_of(shuffled))
    wanted = np.quantile(draws, 0.95, axis=0)
    np.testing.assert_allclose(found.thresholds["parallel analysis"], wanted, rtol=0.02)


def test_normal_columns_for_other_data_have_the_same_quantiles(found, tmp_path):
    np.save(tmp_path / "x.npy", X)
    for given in (as_source(tmp_path / "x.npy"), sp.csr_array(X)):
        other = choose_k(given, random_state=0)
        assert "normal columns" in other["parallel analysis"].why
        wanted = found.thresholds["parallel analysis"]
        np.testing.assert_allclose(other.thresholds["parallel analysis"], wanted, rtol=0.04)
        np.testing.assert_allclose(other.variances, found.variances)


def test_the_variances_of_drawn_matrices_are_those_of_drawn_rows():
    rng = np.random.default_rng(0)
    spreads = np.array([9.0, 4.0, 1.0, 1.0, 0.0])
    drawn = [choosing._wishart_variances(spreads, 29, rng) for _ in range(3000)]
    rows = []
    for _ in range(3000):
        one = rng.normal(size=(30, 5))
        rows.append(variances_of(one / one.std(axis=0, ddof=1) * np.sqrt(spreads)))
    for level in (0.1, 0.5, 0.9):
        pair = (np.quantile(one, level, axis=0) for one in (drawn, rows))
        np.testing.assert_allclose(*pair, rtol=0.03, atol=1e-12)


@pytest.mark.parametrize(("n", "d"), [(200, 2500), (1000, 2200)])
def test_the_limit_for_many_columns_is_that_of_drawn_rows(n, d):
    spreads = np.linspace(0.5, 2, d)
    rows = np.random.default_rng(0).normal(size=(n, d)) * np.sqrt(spreads)
    square = rows @ rows.T / (n - 1)
    assert choosing._largest_of_noise(spreads, n) == pytest.approx(
        np.linalg.eigvalsh(square)[-1], rel=0.04
    )


def test_wide_data_that_do_not_fit_a_draw_use_the_limit():
    wide = sp.csr_array(factors(150, 400, 4))
    found = choose_k(wide, 20, random_state=0)
    assert "(limit)" in found["parallel analysis"].why
    assert found.n_components == 4


def test_the_broken_stick_is_the_closed_form(found):
    wanted = [sum(1 / j for j in range(i, 21)) / 20 for i in range(1, 21)]
    total = variances_of(X).sum()
    np.testing.assert_allclose(found.thresholds["broken stick"], total * np.array(wanted))
    stick = np.random.default_rng(0)
    parts = np.diff(np.sort(stick.uniform(size=(20_000, 19)), axis=1), prepend=0, append=1, axis=1)
    simulated = np.sort(parts, axis=1)[:, ::-1].mean(axis=0)
    np.testing.assert_allclose(simulated[:10], wanted[:10], rtol=0.02)


def test_kaiser_and_the_ratio_by_their_definitions():
    wine = load_wine().data
    found = choose_k(wine, scale="std", variance_ratio=0.7, random_state=0)
    values = np.linalg.eigvalsh(np.corrcoef(wine.T))[::-1]
    assert found["Kaiser"].n_components == (values > 1).sum() == 3
    reached = np.cumsum(values) / values.sum()
    assert found["variance ratio"].n_components == np.argmax(reached >= 0.7) + 1


@pytest.mark.parametrize("data", [X, load_iris().data, factors(80, 12, 5, 0.5, 3)])
def test_the_likelihood_is_that_of_scikit_learn(data):
    assert choose_k(data, random_state=0)["MLE"].n_components == PCA("mle").fit(data).n_components_


def left_out_entries(rows, most):
    """Return the mean squared error of each entry, predicted by EM without it (Josse & Husson)."""
    n, d = rows.shape
    errors = np.zeros(most + 1)
    for k in range(most + 1):
        for i in range(n):
            for j in range(d):
                filled = rows.copy()
                filled[i, j] = np.delete(rows[:, j], i).mean()
                for _ in range(60):
                    mean = filled.mean(axis=0)
                    u, s, v = np.linalg.svd(filled - mean, full_matrices=False)
                    new = mean[j] + (u[i, :k] * s[:k]) @ v[:k, j]
                    moved, filled[i, j] = abs(new - filled[i, j]), new
                    if moved < 1e-6:
                        break
                errors[k] += (rows[i, j] - filled[i, j]) ** 2
    return errors / (n * d)


def test_cross_validation_is_that_of_entries_left_out():
    rows = factors(30, 10, 2, 0.5)
    wanted = left_out_entries(rows, 3)
    found = choose_k(rows, random_state=0)
    np.testing.assert_allclose(found.errors[:3], wanted[:3], rtol=0.1)
    assert found["cross-validation"].n_components == int(np.argmin(wanted)) == 2


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_copied_and_constant_columns_do_not_change_cross_validation(kind):
    noise = np.random.default_rng(0).normal(size=(100, 11))
    two = factors(100, 11, 2)
    constant = np.full((100, 2), 0.1)
    for rows, k in (
        (noise, 0),
        (np.hstack([noise, constant]), 0),
        (two, 2),
        (np.hstack([two, constant]), 2),
        (np.hstack([two, two[:, :1]]), 2),
        (np.vstack([two.T, two.T[:1]]), 2),
    ):
        found = choose_k(rows.astype(kind), random_state=0)["cross-validation"]
        assert found.n_components == k
        assert not found.at_least


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_cross_validation_of_data_without_noise_finds_the_rank(kind):
    rows = factors(100, 20, 3, 0.0).astype(kind)
    assert choose_k(rows, random_state=0)["cross-validation"].n_components == 3


def test_reconstruction_of_rows_left_out_would_not_do():
    # It improves with every component: the reason to leave out entries instead.
    train, test = X[:200], X[200:]
    mean, v = train.mean(axis=0), np.linalg.svd(train - train.mean(axis=0))[2]
    rest = [((test - mean) @ (np.eye(20) - v[:k].T @ v[:k])).var() for k in range(20)]
    assert (np.diff(rest) < 0).all()


# -- bootstrap --------------------------------------------------------------------------------


def test_the_bootstrap_is_that_of_resampled_rows():
    wine = load_wine().data[:, [0, 1, 2, 5, 6, 9]]
    found = choose_k(wine, replicates=1500, random_state=0)
    rng = np.random.default_rng(3)
    values, loadings = [], []
    reference = np.linalg.svd(wine - wine.mean(axis=0), full_matrices=False)[2]
    reference *= np.sign((reference * found.model.components_).sum(axis=1))[:, None]
    for _ in range(1500):
        rows = wine[rng.integers(0, len(wine), len(wine))]
        _, s, v = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
        values.append(s**2 / (len(rows) - 1))
        loadings.append(v * np.sign((v * reference).sum(axis=1))[:, None])
    spread = np.std(values, axis=0) / np.mean(values, axis=0)
    ours = np.log(found.intervals[:, 1] / found.variances) / 1.959964
    np.testing.assert_allclose(ours, spread, rtol=0.12)
    np.testing.assert_allclose(ours, np.log(found.variances / found.intervals[:, 0]) / 1.959964)
    wanted = np.quantile(np.array(loadings)[:, 0], [0.025, 0.975], axis=0).T
    widths = np.ptp(wanted, axis=1)
    np.testing.assert_allclose(found.loading_intervals(0), wanted, atol=0.15 * widths.max())
    first = found.loading_intervals(0)
    assert ((first[:, 0] <= reference[0]) & (reference[0] <= first[:, 1])).all()


@pytest.mark.slow
def test_intervals_hold_the_true_variances_as_often_as_they_say():
    rng, held = np.random.default_rng(0), []
    true = np.array([16.0, 4.0, 1.0])
    for _ in range(200):
        found = choose_k(rng.normal(size=(150, 3)) * np.sqrt(true), random_state=rng)
        held.append((found.intervals[:, 0] <= true) & (true <= found.intervals[:, 1]))
    assert (np.mean(held, axis=0) > 0.9).all()


def test_files_are_read_in_few_passes_with_the_same_intervals(found, tmp_path):
    big = factors(3000, 400, 4)
    np.save(tmp_path / "big.npy", big)
    other = choose_k(tmp_path / "big.npy", random_state=0)
    assert other.passes <= other.model.n_passes_ + 2
    assert other.variances.size == 50
    assert other.n_components == 4
    assert other["variance ratio"].at_least
    assert other["MLE"].n_components is None
    same = choose_k(big, random_state=0)
    np.testing.assert_allclose(other.intervals[:4], same.intervals[:4], rtol=0.03)


# -- results and refusals ----------------------------------------------------------------------


def test_the_table_says_what_each_rule_found(found):
    lines = str(found).splitlines()
    assert lines[0].split() == ["rule", "k", "because"]
    assert lines[1].split()[:3] == ["parallel", "analysis", "3"]
    assert "20 variances of 300 rows x 20 columns" in lines[-1]
    html = found._repr_html_()
    assert html.count("<tr>") == 7
    assert "&" not in html.replace("&gt;", "").replace("&lt;", "")
    assert ">= 5" in str(choose_k(X, 5, random_state=0)["variance ratio"].words)


def test_the_same_seed_gives_the_same_answer(found):
    again = choose_k(X, random_state=0)
    assert str(again) == str(found)
    np.testing.assert_array_equal(again.intervals, found.intervals)


def test_frames_and_missing_values():
    frame = pd.DataFrame(X.copy())
    frame.iloc[3, 4] = np.nan
    found = choose_k(frame, missing="mean", scale="std", random_state=0)
    assert found.n_components == 3
    assert PrimedPCA(found.n_components, missing="mean").fit(frame).n_components_ == 3


def test_data_without_centring():
    rows = np.abs(factors(200, 10, 2)) + 5
    found = choose_k(rows, center=False, random_state=0)
    wanted = np.linalg.svd(rows, compute_uv=False) ** 2 / 199
    np.testing.assert_allclose(found.variances, wanted)
    assert found["broken stick"].n_components == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"variance_ratio": 2}, "`variance_ratio`=2 must be a number above 0 and below 1"),
        ({"level": 0}, "`level`=0 must"),
        ({"replicates": 0}, "`replicates`=0 must be an integer of at least 2"),
        ({"replicates": 1}, "`replicates`=1 must be an integer of at least 2"),
        ({"max_components": 21}, r"`max_components`=21 exceeds min\(n_samples, n_features\)=20"),
    ],
)
def test_bad_requests_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        choose_k(X, **options)


@pytest.mark.parametrize("name", ["n_components", "sample_weight"])
def test_options_that_would_have_no_effect_are_refused(name):
    with pytest.raises(TypeError, match=f"Unknown option: `{name}`"):
        choose_k(X, **{name: 3})


def test_rows_that_are_all_equal_are_refused():
    constants = np.tile(np.random.default_rng(0).normal(size=31), (22, 1))
    integers = np.tile(2**62 + np.arange(31) ** 7, (22, 1))
    for same in (np.ones((9, 3)), sp.csc_array(constants), integers, sp.csr_array(integers)):
        with pytest.raises(ValueError, match="The variance of `X` is zero"):
            choose_k(same)
    with pytest.raises(ValueError, match="from 0 to 19"):
        choose_k(X, random_state=0).loading_intervals(20)
    for component in (1.5, "1", None, True):
        with pytest.raises(ValueError, match=f"`component`={component!r} must be an index"):
            choose_k(X, random_state=0).loading_intervals(component)
    with pytest.raises(KeyError, match="Unknown rule: 'elbow'"):
        choose_k(X, random_state=0)["elbow"]


def test_constant_columns_do_not_lower_the_mean_of_a_column():
    """As in the report, scaled columns that vary have variance 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 5))
    wide = np.hstack([X, np.ones((200, 5))])
    found, reference = (choose_k(data, scale="std", random_state=0) for data in (wide, X))
    assert found["Kaiser"].n_components == reference["Kaiser"].n_components
    np.testing.assert_allclose(found.thresholds["Kaiser"][0], 1.0, rtol=1e-2)


@pytest.mark.parametrize("unit", [1e-140, 1e-100, 1e-30, 1e80, 1e140])
def test_intervals_follow_the_unit(unit):
    rows = np.random.default_rng(0).normal(size=(60, 3)) * [3, 2, 1]
    wanted = choose_k(rows, random_state=0).intervals
    found = choose_k(rows * unit, random_state=0).intervals
    np.testing.assert_allclose(found / unit / unit, wanted, rtol=1e-6)


def test_tiny_numbers_are_an_error_without_a_warning_of_the_fit():
    rows = np.random.default_rng(0).normal(size=(60, 5))
    with pytest.raises(ValueError, match="The variance of `X` is zero"):
        choose_k(rows * 1e-200)
    with pytest.warns(RuntimeWarning, match="are below the range of float64") as caught:
        choose_k(rows * 1e-160)
    assert [one.filename for one in caught] == [__file__]


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("beside", [0, 1])
def test_a_single_column_is_like_its_shuffles_whatever_rounding_says(kind, beside):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = np.zeros((50, 1 + beside), kind)
        X[:, 0] = rng.normal(size=50) * 3 + 1
        found = choose_k(X, random_state=0)
        counts = [found[r].n_components for r in ("parallel analysis", "broken stick", "Kaiser")]
        assert counts == [0, 0, 0] if not beside else counts[0] == counts[2] == 0


def test_columns_of_tiny_relative_deviations_count_unless_they_are_standardised():
    rng = np.random.default_rng(0)
    ulps = rng.integers(-3, 4, size=(200, 2))
    X = np.column_stack([rng.normal(size=(200, 3)), 2.0**52 + ulps])  # the spacing there is 1
    near = np.column_stack([X[:, :3], ulps])
    found, wanted = choose_k(X, random_state=0), choose_k(near, random_state=0)
    for rule in ("parallel analysis", "broken stick", "Kaiser", "cross-validation"):
        assert found[rule].n_components == wanted[rule].n_components
    np.testing.assert_allclose(found.thresholds["Kaiser"], wanted.thresholds["Kaiser"], rtol=1e-9)
    np.testing.assert_allclose(
        found.thresholds["parallel analysis"], wanted.thresholds["parallel analysis"], rtol=0.1
    )
    scaled, plain = (choose_k(rows, scale="std", random_state=0) for rows in (X, X[:, :3]))
    np.testing.assert_allclose(scaled.thresholds["Kaiser"][:3], plain.thresholds["Kaiser"])


@pytest.mark.parametrize("shape", [(40, 5), (3000, 300), (20, 300)])
@pytest.mark.filterwarnings("error")
def test_variances_near_the_end_of_float64_give_the_same_choice_without_warnings(shape):
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape) + 2 * rng.normal(size=(shape[0], 1)) * rng.normal(size=shape[1])
    X *= 2.0 ** -np.ceil(np.log2(X.var(axis=0).sum()) / 2)  # total variance in [1/4, 1]
    wanted, found = (choose_k(Y, random_state=0) for Y in (X, X * 2.0**512))
    for one, other in zip(wanted.suggestions, found.suggestions, strict=True):
        if one.rule != "MLE":  # of a power of the unit
            assert (one.rule, one.words) == (other.rule, other.words)
    for rule, least in wanted.thresholds.items():
        np.testing.assert_allclose(found.thresholds[rule] / 2.0**1000, least * 2.0**24, rtol=1e-9)
    np.testing.assert_allclose(found.errors / 2.0**1000, wanted.errors * 2.0**24, rtol=1e-9)
