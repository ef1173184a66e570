"""Properties that hold for all data, searched for counterexamples by Hypothesis.

``HYPOTHESIS_PROFILE=night`` looks at 40 times as many examples as the default.
"""

import math
import os
import warnings

import hypothesis
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from primedpca import PrimedPCA, as_source, certify, load, plan, refine
from primedpca.metrics import angles, captured_variance, subspace_error
from primedpca.priming import BlockKrylov

given, st = hypothesis.given, hypothesis.strategies

hypothesis.settings.register_profile(
    "quick", max_examples=12, deadline=None, derandomize=True, database=None
)
hypothesis.settings.register_profile("night", max_examples=500, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

#: Relative to the first variance, what rounding may change between two ways of the same numbers.
CLOSE = {"float64": 1e-10, "float32": 2e-5}


@st.composite
def tables(draw, least=1, most=12, tall=False, dtype=None):
    """Random rows with a decaying spectrum, a mean, and a rotation; never constant."""
    d = draw(st.integers(2, most))
    n = draw(st.integers(d + 2 if tall else 3, 60))
    seed = draw(st.integers(0, 2**32 - 1))
    decay = draw(st.sampled_from([0.5, 0.8, 0.95]))
    mean = draw(st.sampled_from([0.0, 1.0, -30.0, 1000.0]))
    kind = dtype or draw(st.sampled_from(["float64", "float32"]))
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X = (rng.standard_normal((n, d)) * decay ** np.arange(d)) @ turn + mean
    return X.astype(kind)


def count(X, most=3):
    return min(most, *X.shape) if X.shape[0] > X.shape[1] else min(most, X.shape[0] - 1, X.shape[1])


def fitted(X, k=None, w=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return PrimedPCA(k or count(X), random_state=0, **options).fit(X, sample_weight=w)


def variances(X):
    X = np.asarray(X, dtype=np.longdouble)
    centred = (X - X.mean(axis=0)).astype(np.float64)
    return np.linalg.svd(centred, compute_uv=False) ** 2 / (len(X) - 1)


def same(a, b, X):
    """Whether two models agree: their variances, and their spans where the spectrum has gaps."""
    slack = CLOSE[np.dtype(X.dtype).name] * a.explained_variance_[0]
    slack *= (
        1 + (np.abs(np.asarray(X, dtype=float)).max() / np.sqrt(a.explained_variance_[0])) / 1e3
    )
    assert np.abs(a.explained_variance_ - b.explained_variance_).max() <= 10 * slack
    true = np.append(variances(X), 0.0)
    for k in range(1, a.n_components_ + 1):
        gap = true[k - 1] - true[k]
        if gap > 1e4 * slack:
            assert subspace_error(a.components_[:k], b.components_[:k]) <= 100 * slack / gap


# -- equivariance ----------------------------------------------------------------------------


@given(tables(), st.randoms(use_true_random=False))
def test_permuted_rows(X, random):
    order = list(range(len(X)))
    random.shuffle(order)
    same(fitted(X), fitted(X[order]), X)


@given(tables(), st.randoms(use_true_random=False))
def test_permuted_columns(X, random):
    order = list(range(X.shape[1]))
    random.shuffle(order)
    one, two = fitted(X), fitted(np.ascontiguousarray(X[:, order]))
    two.components_ = two.components_[:, np.argsort(order)]
    same(one, two, X)


@given(tables(dtype="float64"), st.integers(0, 10**6))
def test_rotated_columns(X, seed):
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((X.shape[1],) * 2))[0]
    one, two = fitted(X), fitted(X @ turn)
    two.components_ = two.components_ @ turn.T
    same(one, two, X)


@given(tables(dtype="float64"), st.floats(-1e4, 1e4))
def test_shifted_rows(X, shift):
    one, two = fitted(X), fitted(X + shift)
    same(one, two, X + shift)
    assert np.allclose(two.mean_, one.mean_ + shift, rtol=1e-12, atol=1e-9)


@given(tables(), st.integers(-20, 20))
def test_powers_of_two_change_no_bit_of_the_components(X, power):
    one, two = fitted(X), fitted(np.ldexp(X, power).astype(X.dtype))
    assert np.array_equal(one.components_, two.components_)
    assert np.array_equal(np.ldexp(one.explained_variance_, 2 * power), two.explained_variance_)


@given(tables(dtype="float64"), st.floats(1e-3, 1e3))
def test_another_unit(X, unit):
    one, two = fitted(X), fitted(X * unit)
    two.explained_variance_ = two.explained_variance_ / unit**2
    same(one, two, X)


@given(tables())
def test_other_seeds_agree_within_their_bounds(X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one, two = (PrimedPCA(count(X), random_state=seed).fit(X) for seed in (1, 2))
    apart = angles(one.components_, two.components_)
    assert (apart <= one.angle_bounds_ + two.angle_bounds_ + 1e-6).all()


@given(tables())
def test_layouts_give_the_same_bits(X):
    padded = np.zeros((2 * len(X), X.shape[1]), X.dtype)
    padded[::2] = X
    one = fitted(X)
    for other in (np.asfortranarray(X), padded[::2], X.astype(X.dtype.newbyteorder(">"))):
        assert np.allclose(
            fitted(other).explained_variance_, one.explained_variance_, rtol=CLOSE[X.dtype.name]
        )


@given(tables(dtype="float64"))
def test_columns_of_zeros_get_loadings_of_zero(X):
    wide = np.concatenate([X, np.zeros((len(X), 2))], axis=1)
    one, two = fitted(X), fitted(wide, count(X))
    assert np.abs(two.components_[:, -2:]).max() < 1e-9
    two.components_ = two.components_[:, :-2]
    same(one, two, X)


@given(tables(dtype="float64"))
def test_a_row_at_the_mean_only_dilutes(X):
    more = np.vstack([X, X.mean(axis=0)])
    one, two = fitted(X), fitted(more, count(X))
    two.explained_variance_ = two.explained_variance_ * len(X) / (len(X) - 1)
    same(one, two, X)


# -- the same numbers in other forms ----------------------------------------------------------


class Blocks:
    """Blocks of rows that can be iterated over again."""

    def __init__(self, *blocks):
        self.blocks = blocks

    def __iter__(self):
        return iter(self.blocks)


@given(tables(), st.data())
def test_blocks_of_an_iterable(X, data):
    cut = data.draw(st.integers(1, len(X) - 1))
    one = fitted(as_source(Blocks(X)), count(X))
    two = fitted(as_source(Blocks(X[:cut], X[cut:])), count(X))
    same(one, two, X)


@given(tables(dtype="float64"), st.data())
def test_partial_fit_does_not_depend_on_the_cut(X, data):
    cut = data.draw(st.integers(1, len(X) - 1))
    one = PrimedPCA(count(X), random_state=0).partial_fit(X)
    two = PrimedPCA(count(X), random_state=0).partial_fit(X[:cut]).partial_fit(X[cut:])
    assert np.array_equal(one.components_, two.components_)
    assert np.array_equal(one.explained_variance_, two.explained_variance_)


@given(tables(dtype="float64"), st.data())
def test_merged_models_hold_their_bounds(X, data):
    cut = data.draw(st.integers(2, len(X) - 1))
    k = count(X)
    one = PrimedPCA(k, random_state=0).partial_fit(X[:cut])
    one.merge(PrimedPCA(k, random_state=0).partial_fit(X[cut:]))
    assert one.n_samples_ == len(X)
    holds(one, X)


@given(tables(dtype="float64"), st.data())
def test_models_merged_in_either_order_agree_within_their_bounds(X, data):
    cut = data.draw(st.integers(2, len(X) - 2) if len(X) > 4 else st.just(2))
    hypothesis.assume(cut < len(X))
    halves = [X[:cut], X[cut:]]
    models = []
    for first, second in (halves, halves[::-1]):
        model = PrimedPCA(count(X), random_state=0).partial_fit(first)
        models.append(model.merge(PrimedPCA(count(X), random_state=0).partial_fit(second)))
    one, two = models
    assert one.n_samples_ == two.n_samples_ == len(X)
    assert np.allclose(one.mean_, two.mean_, rtol=1e-12, atol=1e-9)
    low, high = (model.certificate_.eigenvalue_bounds for model in models)
    slack = 1e-12 * one.explained_variance_[0] + 1e-13 * np.abs(X).max() ** 2
    assert (low[:, 0] <= high[:, 1] + slack).all()
    assert (high[:, 0] <= low[:, 1] + slack).all()


@given(X=tables(dtype="float64"), data=st.data())
def test_a_saved_stream_continues_with_the_same_bits(tmp_path_factory, X, data):
    cut = data.draw(st.integers(1, len(X) - 1))
    path = tmp_path_factory.mktemp("stream") / "m.safetensors"
    one = PrimedPCA(count(X), random_state=0).partial_fit(X[:cut])
    one.save(path)
    two = load(path).partial_fit(X[cut:])
    assert np.array_equal(one.partial_fit(X[cut:]).components_, two.components_)


@given(tables())
def test_sparse_is_dense(X):
    X = np.where(np.abs(X - np.median(X)) > 0.2 * X.std(), X, 0).astype(X.dtype)
    hypothesis.assume(np.linalg.matrix_rank(X - X.mean(axis=0)) >= count(X))
    one = fitted(X)
    for kind in (sp.csr_array, sp.csc_array, sp.coo_array):
        same(one, fitted(kind(X), count(X)), X)


@given(tables(dtype="float64"), st.data())
def test_weights_are_repeated_rows(X, data):
    w = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(X), max_size=len(X))))
    repeated = np.repeat(X, w, axis=0)
    hypothesis.assume(len(repeated) > X.shape[1] + 1)
    hypothesis.assume(variances(repeated)[count(X) - 1] > 1e-6)
    one, two = fitted(X, w=w.astype(float)), fitted(repeated, count(X))
    same(two, one, repeated)


@given(tables(dtype="float64"), st.data())
def test_rows_of_weight_zero_are_absent(X, data):
    hypothesis.assume(len(X) > X.shape[1] + 3)
    out = data.draw(st.integers(0, len(X) - 1))
    w = np.ones(len(X))
    w[out] = 0
    spoilt = X.copy()
    spoilt[out] = 1e9
    same(fitted(np.delete(X, out, axis=0), count(X)), fitted(spoilt, w=w), X)


@given(X=tables())
def test_saved_models_transform_to_the_same_bits(tmp_path_factory, X):
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    one = fitted(X)
    one.save(path)
    assert np.array_equal(load(path).transform(X), one.transform(X))


@given(tables(dtype="float64"))
def test_standard_deviations_are_those_of_standard_scaler(X):
    hypothesis.assume((X.std(axis=0) > 1e-6).all())
    scaled = StandardScaler().fit_transform(X)
    same(fitted(scaled), fitted(X, scale="std"), scaled)


@given(tables(dtype="float64"), st.data())
def test_missing_values_are_those_of_simple_imputer(X, data):
    holes = X.copy()
    for _ in range(data.draw(st.integers(1, 5))):
        i = data.draw(st.integers(0, len(X) - 1))
        holes[i, data.draw(st.integers(0, X.shape[1] - 1))] = np.nan
    hypothesis.assume((np.isfinite(holes).sum(axis=0) >= 2).all())
    filled = SimpleImputer().fit_transform(holes)
    hypothesis.assume(variances(filled)[count(X) - 1] > 1e-6)
    same(fitted(filled), fitted(holes, missing="mean"), filled)


@given(tables(dtype="float64"))
def test_without_centring_it_is_the_svd(X):
    one = fitted(X, center=False)
    s = np.linalg.svd(X, compute_uv=False)[: one.n_components_]
    assert np.allclose(one.singular_values_, s, rtol=1e-9, atol=1e-9 * s[0])


@given(tables(dtype="float64"))
def test_float32_agrees_with_float64(X):
    narrow = X.astype("float32")
    one, two = fitted(narrow.astype("float64")), fitted(narrow)
    two.components_ = two.components_.astype("float64")
    same(one, two, narrow)


# -- what a model says of itself ---------------------------------------------------------------


def holds(model, X):
    """Every claim of the certificate, against LAPACK in float64."""
    X = np.asarray(X, dtype=np.longdouble)
    centred = (X - X.mean(axis=0)).astype(np.float64)
    _, s, vt = np.linalg.svd(centred, full_matrices=False)
    true = s**2 / (len(X) - 1)
    low, high = model.certificate_.eigenvalue_bounds.T
    slack = 1e-12 * true[0] + 1e-13 * float(np.abs(X).max()) ** 2
    k = model.n_components_
    assert (low <= true[:k] + slack).all()
    assert (high >= true[:k] - slack).all()
    proven = model.angle_bounds_ < math.pi / 2
    gaps = np.minimum(
        np.append(math.inf, -np.diff(true))[:k], np.append(-np.diff(true), true[-1])[:k]
    )
    clear = gaps > 1e-6 * true[0]  # the reference itself is not sure of closer ones
    found = angles(model.components_, vt[:k])
    assert (found <= model.angle_bounds_ * (1 + 1e-9) + 1e-7)[proven & clear].all()


@given(tables(), st.sampled_from(["auto", "deterministic", "probabilistic"]))
def test_certificates_hold(X, kind):
    holds(fitted(X, certificate=kind), X)


@given(tables(most=20), st.sampled_from(["left", "right"]), st.integers(1, 6))
def test_certificates_of_unfinished_fits_hold(X, side, passes):
    priming = BlockKrylov(side=side, block_size=2)
    holds(fitted(X, priming=priming, max_passes=passes), X)


@given(tables(most=20), st.integers(0, 10**6), st.floats(0, 1.5))
def test_audits_of_wrong_components_hold(X, seed, angle):
    k = count(X)
    rows = X.astype(np.longdouble)  # float32 would round the mean, and with it the reference
    centred = (rows - rows.mean(axis=0)).astype(np.float64)
    vt = np.linalg.svd(centred, full_matrices=False)[2][:k]
    off = np.random.default_rng(seed).standard_normal(vt.shape)
    given_ = np.linalg.qr((vt + math.tan(angle) * off / np.linalg.norm(off, axis=1)[:, None]).T)[
        0
    ].T
    proof = certify(X, given_, random_state=0)
    true = variances(X)
    found = angles(given_, vt)
    gaps = np.minimum(
        np.append(math.inf, -np.diff(true))[:k], np.append(-np.diff(true), true[-1])[:k]
    )
    clear = (proof.angle_bounds < math.pi / 2) & (gaps > 1e-5 * true[0])
    assert (found <= proof.angle_bounds * (1 + 1e-9) + 1e-6)[clear].all()


@given(tables(most=20), st.integers(2, 8))
def test_more_passes_never_loosen_the_worst_bound(X, passes):
    priming = BlockKrylov(block_size=1)
    one, two = (fitted(X, 1, priming=priming, max_passes=m) for m in (passes, passes + 3))
    assert two.angle_bounds_.max() <= one.angle_bounds_.max() * (1 + 1e-6) or two.converged_


@given(tables(most=20), st.integers(2, 8))
def test_more_passes_never_loosen_an_upper_bound_of_a_variance(X, passes):
    priming = BlockKrylov(block_size=1)
    one, two = (fitted(X, priming=priming, max_passes=m) for m in (passes, passes + 3))
    before, after = (model.certificate_.eigenvalue_bounds[:, 1] for model in (one, two))
    after = after[: before.size]  # few passes may end before there are as many components
    assert (after <= before + CLOSE[X.dtype.name] * before.max()).all()


@given(tables(most=20))
def test_a_larger_tolerance_never_costs_more_passes(X):
    priming = BlockKrylov(block_size=2)
    passes = [fitted(X, priming=priming, tol=tol).n_passes_ for tol in (1e-3, 1e-2, 0.1)]
    assert passes == sorted(passes, reverse=True)


@given(tables(tall=True, dtype="float64"), st.floats(0.2, 0.99))
def test_a_fraction_keeps_the_fewest_components(X, share):
    model = fitted(X, share)
    ratios = variances(X) / variances(X).sum()
    sums = np.cumsum(ratios)
    hypothesis.assume(np.abs(sums - share).min() > 1e-9)
    assert model.n_components_ == int((sums < share).sum()) + 1


@given(tables(dtype="float64"))
def test_fractions_add_up(X):
    model = fitted(X, min(X.shape[0] - 1, X.shape[1]))
    assert model.explained_variance_ratio_.sum() <= 1 + 1e-9
    rest = variances(X).sum() - model.explained_variance_.sum()
    left = max(min(X.shape) - model.n_components_, 0)
    assert model.noise_variance_ * left == pytest.approx(rest, abs=1e-9 * variances(X).sum())


@given(tables())
def test_components_are_orthonormal_and_sorted(X):
    model = fitted(X)
    square = model.components_.astype(float) @ model.components_.T.astype(float)
    assert np.abs(square - np.eye(len(square))).max() < 1e-5
    assert (np.diff(model.explained_variance_) <= 0).all()
    peaks = np.abs(model.components_).argmax(axis=1)
    assert (model.components_[np.arange(len(peaks)), peaks] > 0).all()


@given(tables(dtype="float64"))
def test_scores_are_uncorrelated_with_the_stated_variances(X):
    model = fitted(X)
    covariance = np.atleast_2d(np.cov(model.transform(X).T))
    size = model.explained_variance_[0] + 1e-6 * np.abs(X).max() ** 2
    assert np.abs(covariance - np.diag(model.explained_variance_)).max() <= 1e-2 * size


@given(tables(tall=True, dtype="float64"))
def test_all_components_give_the_rows_back(X):
    model = fitted(X, X.shape[1])
    back = model.inverse_transform(model.transform(X))
    assert np.abs(back - X).max() <= 1e-9 * max(1.0, np.abs(X).max())


@given(tables(dtype="float64"))
def test_whitened_scores_have_unit_variance(X):
    model = fitted(X, 1, whiten=True)
    assert np.var(model.transform(X), axis=0, ddof=1)[0] == pytest.approx(1, rel=1e-6)


@given(tables(tall=True, dtype="float64"))
def test_precision_is_the_inverse_of_the_covariance(X):
    model = fitted(X, 1)
    hypothesis.assume(model.noise_variance_ > 1e-6 * model.explained_variance_[0])
    product = model.get_covariance() @ model.get_precision()
    assert np.allclose(product, np.eye(len(product)), atol=1e-6)
    assert model.score(X) == pytest.approx(model.score_samples(X).mean())


@given(tables(dtype="float64"), st.integers(0, 10**6))
def test_refining_never_loses_variance(X, seed):
    k = count(X)
    rough = np.random.default_rng(seed).standard_normal((X.shape[1], k))
    before = captured_variance(X, np.linalg.qr(rough)[0].T).sum()
    found = refine(X, rough, k)
    assert found.explained_variance.sum() >= before * (1 - 1e-9)
    again = refine(X, found.components.T, k)
    assert np.allclose(again.explained_variance, found.explained_variance, rtol=1e-8, atol=1e-10)


@given(tables())
def test_the_data_are_not_changed(X):
    before = X.copy()
    X.setflags(write=False)
    fitted(X).transform(X)
    certify(X, np.eye(X.shape[1])[:1].astype(X.dtype), random_state=0)
    assert np.array_equal(X, before)


@given(tables(), st.integers(30, 200))
def test_plans_keep_their_memory(X, megabytes):
    found = plan(X, count(X), max_memory=megabytes * 10**6)
    assert all(way.memory <= megabytes * 10**6 for way in found.ways)


@given(tables())
def test_a_repeated_fit_has_the_same_bits(X):
    one, two = fitted(X), fitted(X)
    for name in ("components_", "explained_variance_", "mean_", "angle_bounds_"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
