"""Block Krylov with an explicit matrix: a checked factorisation, fits, false claims."""

import math
from unittest import mock

import numpy as np
import pytest
from checked_fuzz import are_false, check_explicit, run, summary
from extended_problems import Cut

from primedpca import PrimedPCA, certify, plan
from primedpca._certify import checks, explicit, inertia
from primedpca._operator import kernels, statistics
from primedpca._operator.operator import Centred
from primedpca.priming import BlockKrylov, block_krylov
from primedpca.result import Status


def on_a_matrix(shape, block=4):
    return BlockKrylov(block, side="right" if shape[1] <= shape[0] else "left", explicit=True)


def rows(n=300, d=60, mean=0.0, seed=0, power=0.7):
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0] if d < 500 else 1.0
    X = rng.normal(size=(n, d)) * np.arange(1.0, d + 1) ** -power
    return (X @ turn if d < 500 else X).astype("f4") + np.float32(mean)


def truth(X, weights=None, scale=False):
    """Components and variances by LAPACK in float64; missing values as means."""
    X = np.asarray(X, dtype=np.float64)
    w = np.ones(len(X)) if weights is None else weights
    there = ~np.isnan(X)
    X = np.where(there, X - np.nansum(w[:, None] * X, axis=0) / (w[:, None] * there).sum(axis=0), 0)
    if scale:
        X = X / np.sqrt((w[:, None] * X**2).sum(axis=0) / w.sum())
    _, sizes, vectors = np.linalg.svd(np.sqrt(w)[:, None] * X, full_matrices=False)
    return vectors, sizes**2 / (w.sum() - 1)


def holds(model, vectors, variances):
    """Whether all that the certificate claims is true."""
    found, k = model.certificate_, model.n_components_
    sines = np.linalg.norm(model.components_ - (model.components_ @ vectors.T) @ vectors, axis=1)
    own = model.components_ @ vectors.T
    own[np.arange(k), np.arange(k)] = 0.0
    sines = np.hypot(sines, np.linalg.norm(own, axis=1))
    low, high = found.eigenvalue_bounds.T
    slip = 1e-10 * variances[0]
    inside = (low - slip <= variances[:k]) & (variances[:k] <= high + slip)
    return bool((sines <= np.sin(found.angle_bounds) + 1e-7).all() and inside.all())


# -- no claim is false -----------------------------------------------------------------------


# Only more problems of the same kinds wait for the integration tests.
@pytest.mark.parametrize("count", [100, pytest.param(300, marks=pytest.mark.integration)])
def test_no_claim_is_false(count):
    results = run(range(count), examiner=check_explicit)
    assert not any(r.violated for r in results), summary(results)
    assert sum(r.claims for r in results) > 13 * count
    assert sum(r.met for r in results) > 0.5 * count  # the search is not empty


def test_errors_of_the_matrix_that_count_as_zero_are_found_false(monkeypatch):
    look = checks.Check.look

    def trusting(self, state, share, seed):
        found = look(self, state, share, seed)
        return found._replace(error=0.0, tests=0 * found.tests, noise=0.0)

    monkeypatch.setattr(checks.Check, "look", trusting)
    assert are_false(20, range(120), check_explicit)


def test_a_factor_that_is_not_checked_is_found_false(monkeypatch):
    def trusting(self, state, j, sigma):
        vectors = np.concatenate(state.basis, axis=1) @ state.turn[:, :j]
        factor = (vectors * np.sqrt(state.variances[:j])).astype(state.square.dtype)
        return np.inf if explicit.factorised(state.square, factor, sigma) is None else sigma

    monkeypatch.setattr(explicit.ExplicitCertifier, "_factorise", trusting)
    assert are_false(5, range(200), check_explicit)


def test_expected_length_of_a_gaussian_vector_is_found_false(monkeypatch):
    """Half of all vectors are shorter: a rank-one error and a few draws show it."""
    X, below = rows(80, 40), 0
    data = Centred(X)
    wide = data.in_float64()
    square = np.asarray(wide.covariance())
    axis = np.linalg.eigh(square)[1][:, -1:]
    planted = square - 0.3 * axis @ axis.T
    rho = float(np.linalg.eigvalsh(planted)[-4])
    for seed in range(20):
        for length, false in ((math.sqrt(8), True), (None, False)):
            certifier = explicit.ExplicitCertifier(
                data, wide, BlockKrylov(explicit=True), 3, 1e-6, seed, 1.5
            )
            certifier.check.receive(square @ certifier.check.omega)
            values, vectors = np.linalg.eigh(planted)
            state = mock.Mock(basis=(vectors[:, -3:],), turn=np.eye(3), variances=values[:-4:-1])
            state.basis = (np.ascontiguousarray(vectors[:, :-4:-1]),)
            state.square = planted.astype("f4")
            with monkeypatch.context() as patch:
                if length:
                    patch.setattr(explicit, "tau", lambda s, failure, length=length: length)
                bound = certifier._factorise(state, 3, rho * 1.01)
            assert false or bound >= np.linalg.eigvalsh(square)[-4]
            below += false and bound - rho * 1.01 < 0.3
    assert below >= 4


@pytest.mark.parametrize(("sound", "found"), [(False, 5), (True, 0)])
def test_nothing_is_concluded_from_unsound_arithmetic_or_from_no_vectors(monkeypatch, sound, found):
    data = Centred(rows(80, 40))
    asked = (data, data.in_float64(), BlockKrylov(explicit=True), 3, 1e-6, 0, 1.5)
    certifier = explicit.ExplicitCertifier(*asked)
    monkeypatch.setattr(explicit.ExplicitCertifier, "sound", sound)
    monkeypatch.setattr(explicit, "looked", lambda state: state)
    monkeypatch.setattr(certifier, "_proof", lambda *_: "a proof")
    snapshot = mock.Mock()
    snapshot.state.variances = np.ones(found)
    assert certifier.conclude(snapshot) is None


def whole_of(tiles):
    """The lower triangular matrix of the tiles."""
    m = sum(row[0].shape[0] for row in tiles)
    found, end = np.zeros((m, m)), 0
    for row in tiles:
        wide = np.concatenate(row, axis=1)
        found[end : end + wide.shape[0], : wide.shape[1]] = wide
        end += wide.shape[0]
    assert not np.triu(found, 1).any()
    return found


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("tile", [400, 20, 7])
def test_a_factor_is_that_of_the_shifted_matrix(monkeypatch, dtype, tile):
    monkeypatch.setattr(inertia, "TILE", tile)
    square = np.asarray(Centred(rows(200, 50)).in_float64().covariance())
    values, vectors = np.linalg.eigh(square)
    factor = (vectors[:, -3:] * np.sqrt(values[-3:])).astype(dtype)
    sigma, low = float(values[-4]) * 1.1, float(values[-4]) * 0.9
    tiles = inertia.factorised(square.astype(dtype), factor, sigma)
    assert len(tiles) == round(50 / tile) or tile == 400
    lower, limit = whole_of(tiles), 1e-6 if dtype == "f4" else 1e-14
    whole = sigma * np.eye(50) - square + factor.astype(float) @ factor.T.astype(float)
    assert np.abs(lower @ lower.T - whole).max() < limit
    omega = np.random.default_rng(0).normal(size=(50, 8))
    product, size = inertia.times_square(tiles, omega)
    np.testing.assert_allclose(product, lower @ (lower.T @ omega))
    assert size == pytest.approx(np.sum(lower**2))
    assert inertia.factorised(square.astype(dtype), factor, low) is None


def test_a_factor_of_another_library():
    torch = pytest.importorskip("torch")
    square = Centred(rows(200, 50)).in_float64().covariance()
    values, vectors = np.linalg.eigh(square)
    factor = vectors[:, -3:] * np.sqrt(values[-3:])
    asked = torch.from_numpy(square), torch.from_numpy(factor)
    ((lower,),) = inertia.factorised(*asked, float(values[-4]) * 1.1)
    ((expected,),) = inertia.factorised(square, factor, float(values[-4]) * 1.1)
    np.testing.assert_allclose(lower.numpy(), expected, atol=1e-12)
    assert inertia.factorised(*asked, float(values[-4]) * 0.9) is None


# -- fits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(300, 60), (60, 300), (70, 70), (40, 5000)])
@pytest.mark.parametrize("mean", [0.0, 3.0, 1000.0])
def test_fits_on_both_sides_are_proven(shape, mean):
    X = rows(*shape, mean)
    model = PrimedPCA(4, priming=on_a_matrix(shape), random_state=0).fit(X)
    assert model.status_ is Status.CERTIFIED
    assert model.certificate_.kind == "probabilistic"
    assert 0 < model.certificate_.failure_probability <= 1e-6
    left = shape[0] < shape[1]
    assert 1 + left <= model.n_passes_ <= 2 + left  # one more where the matrix is too coarse
    assert holds(model, *truth(X))


@pytest.mark.parametrize("shape", [(300, 60), (60, 300)])
@pytest.mark.parametrize("way", ["weights", "std", "missing", "given", "as they are"])
def test_preparations_are_proven(shape, way):
    X, options, weights = rows(*shape, 2.0, seed=3), {}, None
    rng = np.random.default_rng(1)
    if way == "weights":
        weights = rng.integers(0, 4, shape[0]).astype(float)
    elif way == "missing":
        X[rng.random(shape) < 0.05] = np.nan
        options["missing"] = "mean"
    elif way == "std":
        options["scale"] = "std"
    elif way == "given":
        options["scale"] = rng.uniform(0.5, 2.0, shape[1]).astype("f4")
    elif way == "as they are":
        options["center"] = False
    model = PrimedPCA(3, priming=on_a_matrix(shape), random_state=0, **options).fit(
        X, sample_weight=weights
    )
    expected = X if way != "given" else X / options["scale"].astype(float)
    found = truth(expected, weights, way == "std")
    if way == "as they are":
        _, sizes, vectors = np.linalg.svd(X.astype(float), full_matrices=False)
        found = vectors, sizes**2 / (len(X) - 1)
    assert model.status_ is Status.CERTIFIED
    assert model.certificate_.kind == "probabilistic"
    assert holds(model, *found)


@pytest.mark.parametrize("shape", [(300, 60), (60, 300)])
@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0])
def test_a_corrupted_matrix_is_found_out(monkeypatch, shape, size):
    """What float32 does to the rows hides or adds a direction: the answer is right all the same."""
    cast, rng = kernels.in_float32, np.random.default_rng(0)

    def corrupted(block):
        return cast(block) * (1 + size * rng.choice([-1, 1], block.shape)).astype("f4")

    monkeypatch.setattr(kernels, "in_float32", corrupted)
    X = rows(*shape)
    model = PrimedPCA(4, priming=on_a_matrix(shape), random_state=0).fit(X)
    assert model.status_ is Status.CERTIFIED
    if size != 1e-3:  # between the two it depends on the side
        assert model.certificate_.kind == ("exact" if size == 1.0 else "probabilistic")
    assert holds(model, *truth(X))


def test_close_variances_are_distinguished_by_a_pass_in_float64():
    rng = np.random.default_rng(2)
    X = np.linalg.qr(rng.normal(size=(400, 60)))[0] * (1 - 1e-5 * np.arange(60.0) ** 2)
    X[:, 12:] *= 0.5
    X = ((X - X.mean(axis=0)) @ np.linalg.qr(rng.normal(size=(60, 60)))[0]).astype("f4")
    model = PrimedPCA(4, priming=on_a_matrix(X.shape), random_state=0, tol=1e-2).fit(X)
    assert model.certificate_.kind == "probabilistic"
    assert model.status_ is Status.CERTIFIED
    assert model.n_passes_ == 2
    assert holds(model, *truth(X))


def test_what_float32_cannot_prove_is_decomposed_in_float64():
    X = rows()
    X[:, 30:] = 0.0  # components without variance
    model = PrimedPCA(40, priming=on_a_matrix(X.shape), random_state=0).fit(X)
    assert model.certificate_.kind == "exact"
    assert model.status_ in (Status.CERTIFIED, Status.EXACT)
    assert model.n_passes_ > 1


def test_squares_beyond_the_range_of_float32_are_made_in_float64():
    X = rows(4000, 60)
    X[7, 3] = 3e19
    model = PrimedPCA(1, priming=on_a_matrix(X.shape), random_state=0).fit(X)
    assert model.status_ is Status.CERTIFIED
    assert holds(model, *truth(X))


@pytest.mark.parametrize("shape", [(300, 60), (60, 300)])
@pytest.mark.parametrize(
    "options", [{"certificate": "deterministic"}, {"failure_probability": 1e-200}, {"tol": 1e-6}]
)
def test_proofs_beyond_the_reach_of_float32_and_of_chance_are_made_in_float64(shape, options):
    X = rows(*shape)
    model = PrimedPCA(4, priming=on_a_matrix(shape), random_state=0, **options).fit(X)
    assert model.status_ is Status.CERTIFIED
    if "tol" not in options:
        assert model.certificate_.kind in ("exact", "deterministic")
    assert holds(model, *truth(X))


@pytest.mark.parametrize("shape", [(300, 60), (60, 300)])
def test_arrays_of_another_library(shape):
    torch = pytest.importorskip("torch")
    X = rows(*shape, 2.0)
    model = PrimedPCA(4, priming=on_a_matrix(shape), random_state=0).fit(torch.from_numpy(X))
    assert model.certificate_.kind == "probabilistic"
    model.components_ = np.asarray(model.components_)
    assert holds(model, *truth(X))


def test_float64_is_multiplied_and_factorised_in_float64():
    X = rows(300, 60, 2.0).astype(float)
    model = PrimedPCA(4, priming=on_a_matrix(X.shape), random_state=0).fit(X)
    vectors, variances = truth(X)
    assert model.status_ is Status.CERTIFIED
    assert model.n_passes_ == 1
    assert holds(model, vectors, variances)
    np.testing.assert_allclose(model.explained_variance_, variances[:4], rtol=1e-6)


@pytest.mark.parametrize("shape", [(300, 60), (60, 300)])
def test_a_fraction_of_the_variance(shape):
    X = rows(*shape, power=1.5)
    _, variances = truth(X)
    model = PrimedPCA(0.9, priming=on_a_matrix(shape), random_state=0).fit(X)
    held = np.cumsum(variances) / variances.sum()
    assert model.n_components_ == 1 + int(np.searchsorted(held, 0.9))
    assert model.converged_


@pytest.mark.parametrize("certificate", ["auto", "none"])
def test_sparse_rows_and_the_longer_side(certificate):
    import scipy.sparse as sp

    X = rows(300, 60) * (np.random.default_rng(0).random((300, 60)) < 0.3)
    for data, side in ((sp.csr_array(X), "right"), (X, "left"), (X.T.copy(), "right")):
        way = BlockKrylov(4, side=side, explicit=True)
        model = PrimedPCA(3, priming=way, certificate=certificate, random_state=0).fit(data)
        _, variances = truth(data.toarray() if sp.issparse(data) else data)
        assert model.converged_
        np.testing.assert_allclose(model.explained_variance_, variances[:3], rtol=1e-4)


def test_equal_variances_at_the_end_are_decomposed_in_float64():
    X = np.concatenate([np.eye(40), -np.eye(40)]).astype("f4")
    model = PrimedPCA(3, priming=on_a_matrix(X.shape), random_state=0).fit(X)
    assert model.status_ is Status.EXACT
    assert model.certificate_.kind == "exact"


def test_an_audit_without_random_vectors():
    X = rows(1200, 400)
    assert plan(X, 4).priming.explicit
    vectors, _ = truth(X)
    found = certify(X, vectors[:4], failure_probability=0, random_state=0)
    assert found.kind in ("exact", "deterministic")
    assert found.streak(math.pi / 1024) == 4


# -- flat spectra ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noise():
    X = np.random.default_rng(0).standard_normal((1500, 500), dtype="f4")
    return X, truth(X)


@pytest.mark.integration
@pytest.mark.parametrize("certificate", ["auto", "none"])
def test_flat_spectra_turn_to_a_matrix(noise, certificate):
    X, (vectors, _) = noise
    options = {"certificate": certificate, "random_state": 0}
    made = plan(X, 5, certificate=certificate)
    many = BlockKrylov(9)
    from dataclasses import replace

    from primedpca._solve.driver import Goal, solve

    turning = replace(made, priming=many, early=3, patience=None)
    found = solve(Centred(X), turning, Goal(proven=certificate == "auto"))
    assert found.passes <= 7  # three steps, their check, the matrix, and a pass to refine
    assert found.status in (Status.CERTIFIED, Status.CONVERGED)
    cosines = np.abs(np.sum(found.decomposition.components * vectors[:5], axis=1))
    assert (cosines > math.cos(2e-2)).all()
    if certificate == "auto":
        assert (cosines >= np.cos(found.certificate.angle_bounds) - 1e-7).all()
    whole = PrimedPCA(5, priming=on_a_matrix(X.shape), **options).fit(X)
    assert whole.converged_


def test_a_wide_basis_gives_way_to_a_full_decomposition(noise):
    X, (_, variances) = noise
    priming = on_a_matrix(X.shape)
    state, data = priming.init(Centred(X).like, 60, 0), Centred(X)
    while not priming.finished(state):
        state = priming.step(state, data)
    assert data.passes == 1
    assert state.projected.shape[0] < 500 / block_krylov.PART
    np.testing.assert_allclose(state.variances[:60] * 1500 / 1499, variances[:60], rtol=1e-5)


# -- blocks, workers, checkpoints ------------------------------------------------------------


def bits(model):
    return model.components_.tobytes(), model.certificate_.angle_bounds.tobytes()


@pytest.mark.parametrize("shape", [(900, 60), (60, 900)])
def test_bits_do_not_depend_on_workers(shape):
    from primedpca.engines import LocalEngine

    X = rows(*shape)
    source = Cut(X, int(shape[0] < shape[1]), [0, 100, 350, 600, 900])
    found = {
        bits(
            PrimedPCA(4, priming=on_a_matrix(shape), random_state=0, engine=LocalEngine(w)).fit(
                source
            )
        )
        for w in (1, 2, 4)
    }
    assert len(found) == 1


@pytest.mark.parametrize("shape", [(900, 60), (60, 900)])
def test_files_and_checkpoints_give_the_same_bits(tmp_path, shape):
    X = rows(*shape)
    np.save(tmp_path / "rows.npy", X)
    plain = PrimedPCA(4, priming=on_a_matrix(shape), random_state=0).fit(tmp_path / "rows.npy")
    kept = PrimedPCA(4, priming=on_a_matrix(shape), random_state=0, checkpoint=tmp_path / "kept")
    assert bits(kept.fit(tmp_path / "rows.npy")) == bits(plain)
    again = PrimedPCA(4, priming=on_a_matrix(shape), random_state=0, checkpoint=tmp_path / "kept")
    assert bits(again.fit(tmp_path / "rows.npy")) == bits(plain)


# -- the plan, and the first pass ------------------------------------------------------------


def blank(n, d, dtype="f4"):
    return np.broadcast_to(np.zeros((), dtype), (n, d))


def test_plans_form_a_matrix_where_that_is_cheapest():
    for shape, k in (((5000, 500), 30), ((60_000, 784), 16), ((400, 20_000), 16)):
        for certificate in ("auto", "none"):
            made = plan(blank(*shape), k, certificate=certificate)
            assert made.priming.explicit, shape
            assert made.ways[0].passes == 1 + (shape[0] < shape[1])
            assert " matrix with blocks of" in str(made)
    for shape, k in (((5000, 500), 200), ((103, 50_000), 40), ((100_000, 50), 5), ((1797, 64), 4)):
        assert not getattr(plan(blank(*shape), k).priming, "explicit", False), shape
    slow = plan(blank(5000, 2000), 10)
    assert not slow.priming.explicit
    assert slow.early == 3
    assert any(getattr(way.priming, "explicit", False) for way in slow.ways)
    assert plan(blank(50_000, 3072), 16).early is None  # a matrix would cost too much


def test_memory_holds_the_matrix_its_factor_and_a_full_decomposition():
    made = plan(blank(2000, 1000), 20)
    assert made.priming.explicit
    assert made.ways[0].memory > 4 * 8e6
    tight = plan(blank(2000, 1000), 20, max_memory="60MB")
    assert not tight.priming.explicit
    with pytest.raises(ValueError, match="that block Krylov on the covariance matrix"):
        plan(blank(2000, 1000), 20, max_memory="60MB", priming=on_a_matrix((2000, 1000)))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_near_zero_are_not_shifted(dtype):
    near, far = (rows(2000, 30, mean=mean).astype(dtype) for mean in (0.0, 4.0))
    for X, shifted in ((near, False), (far, True)):
        wide = Centred(X).in_float64()
        frame = statistics.guess(wide, wide.frame)
        assert (frame.columns.shift is not None) is shifted
        expected = np.cov(X.astype(float), rowvar=False, bias=True)
        np.testing.assert_allclose(wide.covariance(), expected, atol=1e-14 * np.trace(expected))
        np.testing.assert_allclose(wide.mean, X.mean(axis=0, dtype=float), atol=1e-12)
        assert wide.total == pytest.approx(np.trace(expected), rel=1e-12)
        frame = statistics.guess(Centred(X), Centred(X).frame)
        assert (frame.columns.shift is not None) is shifted
        eps = float(np.finfo(dtype).eps)
        found = Centred(X).covariance()
        np.testing.assert_allclose(found, expected, atol=100 * eps * np.trace(expected))
    few = statistics.guess(Centred(near[:500]), Centred(near[:500]).frame)
    assert few.columns.shift is not None  # looking would take longer
    near[:, 3] = 0.1  # a constant, whose variance is to be exactly zero
    wide = Centred(near).in_float64()
    assert wide.covariance()[3, 3] == 0.0


@pytest.mark.parametrize("n", [3_000, 700])
def test_the_fall_of_the_variances_is_known_after_three_steps(n):
    """The first block is random, so its parts along Ritz vectors count variances."""
    rng = np.random.default_rng(5)
    falls = {
        "flat": np.ones(600),
        "slow": np.arange(1, 601) ** -0.5,
        "steep": 0.9 ** np.arange(600),
    }
    for name, scale in falls.items():
        X = (rng.standard_normal((n, 600)) * scale).astype(np.float32)
        values = np.linalg.eigvalsh(np.cov(X.T.astype(np.float64)))[::-1]
        data, priming = Centred(X), BlockKrylov(16)
        state = priming.init(data.like, 34, 0)
        for _ in range(3):
            state = priming.step(state, data)
        true = 1 - values[59] / values[29]
        assert abs(block_krylov.fall(state, 30) - true) < (0.1 if name != "steep" else 0.3), name
        assert (block_krylov.fall(state, 30) < 0.1) == (name == "flat")


def test_a_flat_spectrum_of_many_components_turns_to_a_matrix_after_three_steps():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((2_700, 2_000), dtype=np.float32)
    made = plan(X, 50)
    assert made.early > 3
    fit = PrimedPCA(50, random_state=0).fit(X)
    # Three steps and their check, the matrix, and at most two passes of the proof.
    assert fit.n_passes_ <= 7
    assert fit.converged_
