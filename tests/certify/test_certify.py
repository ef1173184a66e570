"""A certificate is never wrong: fuzzed end to end against LAPACK on the data as they are."""

import math
import warnings
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from catalogue import PROBLEMS, SOURCES, thinned
from scipy.linalg import expm, subspace_angles
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from primedpca import PrimedPCA, certify
from primedpca._certify import certifiers
from primedpca._core.process import one_blas_thread
from primedpca._operator.operator import Centred
from primedpca._solve import audit as audit_module
from primedpca._solve.audit import audit
from primedpca.metrics import angles
from primedpca.priming import BlockKrylov
from primedpca.result import Certificate, Cluster

DELTA = 0.05

SPECTRA = {
    "flat": lambda m, rng: np.ones(m),
    "nearly flat": lambda m, rng: np.linspace(1.1, 1, m),
    "geometric": lambda m, rng: rng.uniform(0.5, 0.95) ** np.arange(m),
    "slow": lambda m, rng: np.arange(1, m + 1) ** -0.5,
    "linear": lambda m, rng: np.linspace(10, 0.1, m),
    "clustered": lambda m, rng: np.repeat(2.0 ** -np.arange(m), 3)[:m] + 1e-6 * rng.random(m),
    "repeated": lambda m, rng: np.repeat(0.5 ** np.arange(m), 2)[:m],
    "gap 1e-10": lambda m, rng: 0.7 ** np.arange(m) * (1 + 1e-10 * np.arange(m)[::-1]),
    "spiked": lambda m, rng: np.r_[np.full(min(3, m), 100.0), np.ones(max(0, m - 3))],
    "rank-deficient": lambda m, rng: np.r_[0.5 ** np.arange(max(1, m // 3)), np.zeros(m)][:m],
}


def problem(seed):
    """Random data of some kind, and their exact components and variances."""
    rng = np.random.default_rng(seed)
    top = 60 if rng.random() < 0.7 else 400
    n, d = (int(value) for value in rng.integers(2, top, 2))
    n = max(n, 3)
    m = min(n - 1, d)
    name = list(SPECTRA)[seed % len(SPECTRA)]
    spectrum = np.sort(SPECTRA[name](m, rng))[::-1]
    noise = rng.standard_normal((n, m))
    scores = np.linalg.qr(noise - noise.mean(axis=0))[0]
    axes = np.linalg.qr(rng.standard_normal((d, m)))[0].T
    X = scores * np.sqrt(spectrum * (n - 1)) @ axes
    X = X + rng.standard_normal(d) * 10.0 ** rng.integers(-1, 7)
    X = X.astype([np.float32, np.float64][rng.integers(2)])
    wide = X.astype(np.longdouble)
    _, s, vt = np.linalg.svd((wide - wide.mean(axis=0)).astype(np.float64), full_matrices=True)
    variances = np.zeros(d)
    variances[: s.size] = s**2 / (n - 1)
    return name, X, variances, vt, rng


def violations(certificate, components, variances, truth, scale):
    """How often the truth lies outside what the certificate claims.

    The reference is right to a few ulps of the largest variance, far below ``scale``, the
    rounding that the certificate itself allows for.
    """
    k = certificate.angle_bounds.size
    wrong = 0
    slack = 1e-13 * scale
    low, high = certificate.eigenvalue_bounds.T
    wrong += int(((variances[:k] < low - slack) | (variances[:k] > high + slack)).sum())
    off = angles(components, truth[:k])
    wrong += int((off > certificate.angle_bounds * 1.01 + 1e-9).sum())
    for start, stop, bound in certificate.clusters:
        if bound < math.pi / 2 and stop <= k:  # the vectors past k are not given out
            between = subspace_angles(components[start:stop].T.astype("f8"), truth[start:stop].T)
            wrong += int(between.max() > bound * 1.01 + 1e-9)
    return wrong


def attempt(seed):
    """One random problem, fitted or audited in some way: violations by kind of certificate."""
    name, X, variances, truth, rng = problem(seed)
    k = int(rng.integers(1, min(X.shape) + 1)) if min(X.shape) < 12 else int(rng.integers(1, 12))
    k = min(k, min(X.shape) - 1) or 1
    way = rng.integers(6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if way < 4:
            priming = ["block_krylov", "exact", "oja", _orthogonal(truth, k, X.shape)][way]
            if way == 2:
                from primedpca.priming import Oja

                priming = Oja(steps=20)
            kind = "probabilistic" if rng.random() < 0.7 else "deterministic"
            pca = PrimedPCA(
                k, priming=priming, certificate=kind, failure_probability=DELTA, random_state=seed
            ).fit(X)
            certificate, components = pca.certificate_, pca.components_
        else:
            components = _components(truth, k, rng, way)
            if rng.random() < 0.3:  # by a full decomposition
                certificate = certify(X, components, failure_probability=DELTA, random_state=seed)
            else:
                data = Centred(X, float64=True)
                vectors = np.ascontiguousarray(components.T)
                certificate = audit(data, vectors, None, DELTA, seed, 20)
    wrong = violations(certificate, components, variances, truth, variances[0])
    return name, certificate, wrong, variances, k, X.dtype, way


def _orthogonal(truth, k, shape):
    """Directions that hold nothing of the first component."""
    count = min(k + 4, *shape, truth.shape[0] - 1)
    return truth[1 : 1 + max(count, k)].T if truth.shape[0] > k else truth[:k].T


def _components(truth, k, rng, way):
    """Wrong, or nearly right, orthonormal rows."""
    if way == 4 and truth.shape[0] > k:
        return truth[1 : k + 1]
    noise = 10.0 ** rng.uniform(-12, 0) * rng.standard_normal((truth.shape[1], k))
    return np.linalg.qr(truth[:k].T + noise)[0].T


def fuzz(count, start=0):
    wrong = {"exact": 0, "deterministic": 0, "probabilistic": 0}
    tries = {"exact": 0, "deterministic": 0, "probabilistic": 0}
    wide_gaps = proven = 0
    for seed in range(start, start + count):
        with one_blas_thread:  # of LAPACK's reference too: small matrices, and two test workers
            name, certificate, bad, variances, k, dtype, way = attempt(seed)
        tries[certificate.kind] += 1
        spent = certificate.failure_probability  # never more than was granted
        assert 0 < spent <= DELTA if certificate.kind == "probabilistic" else spent == 0
        wrong[certificate.kind] += bad > 0
        if bad and certificate.kind != "probabilistic":
            print("violated", seed, name, certificate.kind, way)
        if way < 3:
            padded = np.r_[np.inf, variances, 0.0]
            gaps = np.minimum(padded[:-2] - padded[1:-1], padded[1:-1] - padded[2:])[:k]
            wide = gaps > (1e-3 if dtype == np.float64 else 1e-2) * variances[0]
            wide_gaps += int(wide.sum())
            proven += int((certificate.angle_bounds[wide] <= math.pi / 128).sum())
    return wrong, tries, wide_gaps, proven


def check_fuzz(count):
    wrong, tries, wide_gaps, proven = fuzz(count)
    print(wrong, tries, proven, wide_gaps)
    assert wrong["exact"] == wrong["deterministic"] == 0
    n = tries["probabilistic"]
    assert wrong["probabilistic"] <= DELTA * n + 3 * math.sqrt(DELTA * n)
    assert proven >= 0.95 * wide_gaps


def test_no_bound_is_violated():
    check_fuzz(300)


@pytest.mark.slow
def test_no_bound_is_violated_in_ten_thousand_problems():
    check_fuzz(10_000)


# -- certify -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", thinned(SOURCES))
def test_certify_reads_every_source(kind, tmp_path):
    problem = PROBLEMS[0]
    certificate = certify(
        SOURCES[kind](problem.X, tmp_path), problem.components[:4], tol=1e-3, random_state=0
    )
    assert certificate.angle_bounds.max() <= 1e-3
    low, high = certificate.eigenvalue_bounds.T
    assert (low <= problem.variances[:4]).all()
    assert (problem.variances[:4] <= high).all()


def test_a_planted_miss_is_refused():
    X = load_digits().data
    truth = np.linalg.svd(X - X.mean(axis=0))[2]
    assert certify(X, truth[:10], random_state=0).streak(1e-3) == 10
    missed = certify(X, truth[1:11], random_state=0)
    assert missed.streak(math.pi / 4) == 0
    swapped = certify(X, truth[[0, 2, 1, 3]], random_state=0)
    assert swapped.streak(1e-3) == 1
    assert swapped.angle_bounds[3] <= 1e-3


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_names_of_columns_are_compared(library):
    frames = pytest.importorskip(library)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(500, 3)) * [5, 2, 1] @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    truth = np.linalg.svd(x - x.mean(axis=0))[2]

    def frame(values, names):
        return frames.DataFrame(dict(zip(names, values.T, strict=True)))

    data, order = frame(x, "abc"), [2, 0, 1]

    def streak(components, given=data):
        return certify(given, components, random_state=0).streak(1e-3)

    assert streak(frame(truth, "abc")) == 3
    assert streak(frame(truth[:, order], "cab")) == 3
    assert streak(frame(truth, "cab")) == 0
    with pytest.raises(ValueError, match="name 'x' in column 1, where `X` has 'a'"):
        streak(frame(truth, "xyz"))
    with pytest.raises(ValueError, match="name 'x' in column 3, where `X` has 'c'"):
        streak(frame(truth, "abx"))
    # Without names, or with columns that are only numbered, by position.
    assert streak(truth) == 3
    assert streak(frame(truth, "012")) == 3
    assert streak(frame(truth, "abc"), x) == 3
    assert streak(frame(truth, "abc"), frame(x, "012")) == 3
    # Numbers that are the same on both sides are names.
    assert streak(frame(truth[:, order], "201"), frame(x, "012")) == 3


def test_columns_of_a_frame_without_names_are_numbered():
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(3).normal(size=(500, 3)) * [5, 2, 1]
    truth = pandas.DataFrame(np.linalg.svd(x - x.mean(axis=0))[2])
    frame = pandas.DataFrame(x, columns=list("abc"))
    assert certify(frame, truth, random_state=0).streak(1e-3) == 3


def test_an_index_of_pandas_in_an_arrow_table_is_no_part_of_components():
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    x = np.random.default_rng(3).normal(size=(500, 3)) * [5, 2, 1]
    truth = np.linalg.svd(x - x.mean(axis=0))[2][:, ::-1]
    for index in (["PC1", "PC2", "PC3"], [7, 8, 3]):
        table = arrow.Table.from_pandas(pandas.DataFrame(truth, index, list("cba")))
        frame = pandas.DataFrame(x, columns=list("abc"))
        assert certify(frame, table, random_state=0).streak(1e-3) == 3


def test_a_component_with_variance_is_not_said_to_have_none():
    X = np.zeros((6, 4))
    X[:, 0] = range(6)  # varies along the first axis only
    one, two, *_ = np.eye(4)
    wrong = certify(X, [two, one], random_state=0)
    assert not wrong.zero.any()
    assert not wrong.met(1.0).any()
    assert "no variance" not in str(wrong)
    for order in ([one, two], [-one, np.eye(4)[3], two]):
        right = certify(X, order, tol=1e-6, random_state=0)
        assert right.zero.tolist() == [False] + [True] * (len(order) - 1)
        assert right.met(1e-6).all()


@pytest.mark.parametrize(("off", "zero"), [(1e-6, True), (1e-4, False), (0.1, False), (1.4, False)])
def test_a_given_component_has_no_variance_only_if_the_rows_say_so(off, zero):
    """Its own share counts, not only that it is the third one in data of rank two."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    scores = rng.normal(size=(200, 2))
    X = np.linalg.qr(scores - scores.mean(axis=0))[0] * [3, 2] @ turn[:, :2].T
    first = np.cos(off) * turn[:, 0] + np.sin(off) * turn[:, 2]
    third = np.cos(off) * turn[:, 2] - np.sin(off) * turn[:, 0]
    assert (np.var(X @ third) / np.var(X, axis=0).sum() < 1e-9) == zero
    for tol in (None, 1.5):
        found = certify(X, [first, turn[:, 1], third], tol=tol, random_state=0)
        assert found.zero.tolist() == [False, False, zero]
        assert found.met(1.5)[2] == zero
        assert ("no variance" in str(found)) == zero


def test_no_variance_in_an_audit_by_block_krylov():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) * [3, 2] @ np.linalg.qr(rng.normal(size=(30, 2)))[0].T
    truth = np.linalg.svd(X - X.mean(axis=0))[2]
    for order, met in (([0, 1, 2, 3], True), ([0, 2, 1, 3], False), ([2, 1, 0, 3], False)):
        vectors = np.ascontiguousarray(truth[order].T)
        found = audit(Centred(X, float64=True), vectors, 1e-3, 1e-6, 0, 20)
        assert found.zero.tolist() == [False, False, met, met]
        assert found.met(1e-3).all() == met


def test_certify_deterministically():
    problem = PROBLEMS[0]
    assert certify(problem.X, problem.components[:3], failure_probability=0).kind == "exact"
    vectors = np.ascontiguousarray(problem.components[:3].T)
    certificate = audit(Centred(problem.X), vectors, None, 0.0, 0, 20)
    assert certificate.kind == "deterministic"
    assert certificate.failure_probability == 0
    assert certificate.streak(1e-3) == 3


@pytest.mark.parametrize(
    ("components", "words"),
    [
        (np.ones((2, 24)), "`components` must have orthonormal rows.* by 24"),
        (np.eye(23)[:2], r"shape \(2, 23\), but `X` has 24 features"),
        (np.eye(24)[0], "one row for each component"),
        (np.full((1, 24), np.nan), "non-finite value, nan, in row 1, column 1. Pass finite"),
    ],
    ids=["not orthonormal", "wrong length", "one row", "nan"],
)
def test_bad_components_are_refused(components, words):
    with pytest.raises(ValueError, match=words):
        certify(PROBLEMS[0].X, components)


def test_more_components_than_rows_are_audited():
    X = np.random.default_rng(0).normal(size=(6, 24))
    components = np.linalg.svd(X - X.mean(axis=0))[2][:8]
    found = certify(X, components, random_state=0)
    assert found.angle_bounds.shape == (8,)
    assert found.zero.tolist() == [False] * 5 + [True] * 3


def test_given_components_are_compared_with_directions_alone(monkeypatch):
    """The lengths of the vectors that a fit of the audit finds, which are rounded, do not count."""
    problem, solve = PROBLEMS[0], audit_module.solve
    before = certify(problem.X, problem.components[:3], random_state=0)

    def longer(*given, **more):
        found = solve(*given, **more)
        parts = found.decomposition
        parts = replace(parts, components=1.001 * parts.components)
        return replace(found, decomposition=parts)

    monkeypatch.setattr(audit_module, "solve", longer)
    after = certify(problem.X, problem.components[:3], random_state=0)
    np.testing.assert_allclose(after.angle_bounds, before.angle_bounds, rtol=0, atol=1e-12)


def test_components_may_differ_from_orthonormal_ones_by_one_in_ten_thousand():
    problem = PROBLEMS[0]
    right = problem.components[:3] * math.sqrt(1 + 0.9e-4)
    assert certify(problem.X, right).met(1e-3).all()
    with pytest.raises(ValueError, match=r"differ from the identity by 0\.00011"):
        certify(problem.X, problem.components[:3] * math.sqrt(1 + 1.1e-4))


# -- fitting to an accuracy ------------------------------------------------------------------


def test_components_that_no_pass_has_found_have_no_variance():
    """Rows of rank 1 and blocks of three vectors: the last of four components is any other one."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 1)) @ rng.normal(size=(1, 20))
    options = {"priming": BlockKrylov(3, side="left"), "certificate": "probabilistic"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = PrimedPCA(4, max_passes=2, random_state=0, **options).fit(X)
    assert model.explained_variance_.shape == (4,)
    assert model.explained_variance_[-1] == 0
    assert np.abs(model.components_ @ model.components_.T - np.eye(4)).max() < 1e-12


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, torch.tensor])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_a_certified_fit_meets_its_target(problem, dtype, make):
    X = problem.X.astype(dtype)
    pca = PrimedPCA(4, priming="block_krylov", certificate="probabilistic", random_state=0)
    pca.fit(make(X))
    assert pca.status_.name == "CERTIFIED"
    assert pca.angle_bounds_.max() <= pca.tol
    assert pca.components_.dtype == dtype
    truth = np.linalg.svd(X - X.mean(axis=0, dtype="f8"), full_matrices=False)[2]
    assert (angles(pca.components_, truth[:4]) <= pca.angle_bounds_ + 1e-9).all()


def test_running_out_of_passes_names_the_components():
    pca = PrimedPCA(4, priming="block_krylov", certificate="probabilistic", max_passes=2)
    with pytest.warns(ConvergenceWarning, match="Not proven: component"):
        pca.fit(PROBLEMS[1].X)
    assert not pca.converged_


@pytest.mark.parametrize("max_passes", [1, 4])
def test_an_audit_that_ends_with_fewer_components_proves_nothing_of_the_rest(max_passes):
    """Blocks may be narrower than the components that are given."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((700, 1400)) * np.arange(1, 1401) ** -0.3
    X[rng.random(X.shape) < 0.9] = 0.0
    _, s, vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    options = {"max_passes": max_passes, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = PrimedPCA(20, **options).fit(sp.csr_array(X)).n_components_
    assert found < 20
    proof = certify(sp.csr_array(X), vt[:20], **options)
    assert proof.angle_bounds.shape == proof.zero.shape == (20,)
    assert (proof.angle_bounds[found:] == np.pi / 2).all()
    assert not proof.zero.any()
    assert all(run.stop <= found for run in proof.clusters)
    low, high = proof.eigenvalue_bounds.T
    true = s[:20] ** 2 / 699
    assert (low <= true).all()
    assert (true <= high).all()


def test_a_basis_that_is_still_too_small_proves_nothing_of_the_rest():
    X = PROBLEMS[0].X
    options = {"certificate": "probabilistic", "max_passes": 1, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="Not proven: .*Found 3 of 8 components"):
        pca = PrimedPCA(8, priming=BlockKrylov(block_size=3), **options).fit(X)
    assert pca.status_.name == "NOT_CERTIFIED"
    assert pca.angle_bounds_.shape == (3,)
    low, high = pca.certificate_.eigenvalue_bounds.T
    truth = PROBLEMS[0].variances[:3]
    assert ((low <= truth) & (truth <= high)).all()


def test_rank_deficient_data_are_certified_without_a_warning():
    X = load_digits().data  # three of its columns are constant
    for way in ("exact", "block_krylov"):
        pca = PrimedPCA(64, priming=way, certificate="probabilistic", random_state=0).fit(X)
        assert pca.converged_
        assert pca.certificate_.zero[-3:].all()


def test_a_pair_is_certified_as_a_plane():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((300, 12))
    scores = np.linalg.qr(noise - noise.mean(axis=0))[0]
    X = scores * np.sqrt(np.r_[5, 3, 3, 2, 1.5, np.full(7, 0.5)])
    pca = PrimedPCA(4, priming="block_krylov", certificate="probabilistic", random_state=0).fit(X)
    assert pca.converged_
    assert [(c.start, c.stop) for c in pca.certificate_.clusters] == [(1, 3)]
    assert pca.certificate_.clusters[0].angle_bound <= pca.tol
    assert pca.certificate_.streak(pca.tol) == 1


def test_probes_ride_and_the_history_tells():
    X = PROBLEMS[1].X
    pca = PrimedPCA(4, priming=BlockKrylov(), certificate="probabilistic", random_state=0).fit(X)
    assert len(pca.history_) == pca.n_passes_  # no pass of their own in float64
    assert pca.history_[-1]["angle_bounds"].max() <= pca.tol


# -- rounding ----------------------------------------------------------------------------------


def variances_of(X, scale=1.0):
    """True variances, largest first; differences of rows that are far from zero are exact."""
    rows = (X - X[-1]).astype(np.longdouble)
    rows = (rows - rows.mean(axis=0)) / np.asarray(scale).astype(np.longdouble)
    square = rows.T @ rows / (X.shape[0] - 1)
    return np.linalg.eigvalsh(square.astype(np.float64))[::-1]


def assert_holds(certificate, truth):
    low, high = certificate.eigenvalue_bounds.T
    slack = 1e-14 * truth[0]  # of the truth's own decomposition
    assert ((low <= truth[: low.size] + slack) & (truth[: low.size] <= high + slack)).all()


def fitted(X, k, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        weight = options.pop("sample_weight", None)
        pca = PrimedPCA(k, certificate="deterministic", random_state=0, **options)
        return pca.fit(X, sample_weight=weight)


@pytest.mark.parametrize("distance", [1e6, 1e11, 1e14])
def test_a_mean_that_no_float64_holds(distance):
    """What is subtracted is the mean rounded, which adds a variance along its error."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((40, 6)) * [3, 2, 1.5, 1, 0.7, 0.5]
        X = X + distance * rng.standard_normal(6)
        for priming in ("exact", BlockKrylov(block_size=2)):
            assert_holds(fitted(X, 2, priming=priming).certificate_, variances_of(X))


@pytest.mark.parametrize("distance", [1e3, 1e6, 1e7, 1e9, 1e15])
@pytest.mark.parametrize("shape", [(60, 12), (12, 60)])
@pytest.mark.parametrize("way", ["exact", "block_krylov", "std", "columns first"])
def test_rows_of_weight_zero_that_spoil_the_guess_of_the_mean(distance, shape, way):
    n, d = shape
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, 2)) @ rng.standard_normal((2, d))
        X += 1e-3 * rng.standard_normal((n, d))
        X[:5] += distance * rng.standard_normal(d)
        weight = np.r_[np.zeros(5), np.ones(n - 5)]
        X = np.asfortranarray(X) if way == "columns first" else X
        options = {"scale": "std"} if way == "std" else {}
        options["priming"] = "exact" if way == "exact" else BlockKrylov(block_size=3)
        pca = fitted(X, 4, sample_weight=weight, max_passes=1 + seed, **options)
        scale = pca.scale_ if way == "std" else 1.0
        assert_holds(pca.certificate_, variances_of(X[5:], scale))


def test_a_cast_turns_a_component_by_less_than_is_allowed_for():
    allowed = 2.0**-23
    rng = np.random.default_rng(0)
    for d in (1, 2, 3, 10, 1000, 100_000):
        for power in (1, 3, 30):  # down to entries that float32 does not hold
            rows = rng.standard_normal((4, d)) ** power
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            assert angles(rows.astype(np.float32), rows).max() <= allowed / 2 * (1 + 1e-6)


def test_a_cast_may_turn_a_span_by_more():
    """Sixteen vectors whose entries are all rounded to the same side."""
    square = np.ones((1, 1))
    for _ in range(6):
        square = np.block([[square, square], [square, -square]])
    middle = (1 + 2.0**-24) / 8  # between two numbers of float32
    basis = square[:, 1:17] * (middle + square[:, 1:17] * 2.0**-40)
    cast = basis.astype(np.float32).astype(np.float64)
    turned = subspace_angles(basis, cast).max()
    bounds = np.full(16, np.pi / 2)
    proven = Certificate(bounds, np.zeros((16, 2)), [Cluster(0, 16, 0.0)], "exact", 0.0, bounds < 0)
    allowed = proven.rounded(2.0**-23).clusters[0].angle_bound
    assert 2.0**-23 < turned <= allowed


def test_spans_at_right_angles_are_not_said_to_be_nearer():
    for seed in range(60):
        turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(40, 40)))[0]
        half = turn * np.r_[4, 4, 3, 3, np.linspace(1, 0.1, 36)] @ turn.T
        X = np.vstack([half, -half])
        found = certify(X, np.linalg.svd(X)[2][[2, 3, 0, 1]], random_state=0)
        assert [run.angle_bound for run in found.clusters] == [np.pi / 2] * 2


@pytest.mark.filterwarnings("ignore:The variances of `X` are below the range:RuntimeWarning")
@pytest.mark.parametrize("fit", [PrimedPCA.fit, PrimedPCA.partial_fit])
@pytest.mark.parametrize("power", range(-540, -505, 3))
def test_subnormal_variances_lie_in_their_intervals(fit, power):
    a, b = (math.ldexp(size, power) for size in (1.37, 0.77))
    X = np.array([[a, 0], [-a, 0], [0, b], [0, -b]])
    bounds = fit(PrimedPCA(2), X).certificate_.eigenvalue_bounds
    for (low, high), side in zip(bounds.tolist(), (a, b), strict=True):
        assert Fraction(low) <= 2 * Fraction(side) ** 2 / 3 <= Fraction(high)


def test_a_certificate_of_left_vectors_holds_for_their_images():
    """Errors grow by the root of a ratio of variances, and those of single vectors add up."""
    rng = np.random.default_rng(0)
    n, d, k, sizes = 12, 30, 6, 2.0 ** -np.arange(12)
    for _ in range(50):
        left, right = (np.linalg.qr(rng.normal(size=(m, n)))[0] for m in (n, d))
        skew = 1e-3 * rng.normal(size=(n, n))
        off = left @ expm(skew - skew.T)  # orthonormal, and each vector off by a known angle
        cosines = np.abs((off * left).sum(axis=0))[:k]
        bounds = np.arccos(cosines) + 1e-12
        run = Cluster(1, 4, subspace_angles(off[:, 1:4], left[:, 1:4])[0] + 1e-12)
        given = Certificate(bounds, np.zeros((k, 2)), [run], "exact", 0.0, np.zeros(k, bool))
        found = certifiers._on_the_right(given, sizes**2, 1e-16)
        images = (right * sizes) @ (left.T @ off[:, :k])
        images /= np.linalg.norm(images, axis=0)
        assert (angles(images.T, right.T[:k]) <= found.angle_bounds).all()
        images = np.linalg.qr(images)[0]
        assert (angles(images.T, right.T[:k]) <= found.angle_bounds).all()
        assert subspace_angles(images[:, 1:4], right[:, 1:4])[0] <= found.clusters[0].angle_bound
        assert (found.angle_bounds[:3] < 100 * bounds[:3].max()).all()


def test_components_that_are_not_real_numbers_are_refused():
    rows = np.random.default_rng(0).normal(size=(50, 6))
    good = np.linalg.svd(rows - rows.mean(0))[2][:3]
    masked = np.ma.array(good, mask=np.eye(3, 6))
    for bad in (good * (1 + 0j), masked, sp.csr_matrix(good), good[:0], "components.npy"):
        with pytest.raises(ValueError, match="`components`"):
            certify(rows, bad)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("tol", "small"), ("tol", True), ("failure_probability", None), ("max_passes", True)],
        *[("center", "no"), ("center", None), ("sample_weight", np.full(50, 1 + 5j))],
        ("scale", np.full(6, 1 + 5j)),
    ],
)
def test_invalid_options_of_certify_are_named(name, value):
    rows = np.random.default_rng(0).normal(size=(50, 6))
    with pytest.raises(ValueError, match=f"`{name}`"):
        certify(rows, np.eye(6)[:2], **{name: value})


@pytest.mark.parametrize("skew", [0.01, -0.01])
def test_refined_vectors_lost_in_rounding_are_orthonormalised(skew):
    """Whether their inner product is positive or negative."""
    basis = np.eye(4)[:, :2]
    basis[:, 1] = [skew, math.sqrt(1 - skew**2), 0.0, 0.0]
    priming = SimpleNamespace(refined=lambda state, data: (basis, np.array([2.0, 1.0])))
    snapshot = SimpleNamespace(state=SimpleNamespace(_replace=lambda **_: None))
    data = Centred(np.random.default_rng(0).normal(size=(9, 4)))
    found = certifiers.refined(data, priming, snapshot, 2).components
    np.testing.assert_allclose(found @ found.T, np.eye(2), atol=1e-12)
