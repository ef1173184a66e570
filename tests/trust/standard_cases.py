"""Standard fits, audits and formulas whose numbers ``tightness.py`` records.

They cover every kind of proof: exact, explicit, deterministic, checked from the right and the left,
sketches, given components, explained variance ratios, ties, weights, scales, missing values, few
passes and restarts.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
import trust.standard_states as held

from primedpca import PrimedPCA, certify, prime, refine, svd
from primedpca._certify import bounds, checks, inertia, probes
from primedpca._certify.bounds import Evidence
from primedpca._operator.operator import Centred
from primedpca._solve import audit, driver
from primedpca._solve.driver import Goal
from primedpca.priming import BlockKrylov, FrequentDirections

MODULES = (
    *("_certify.bounds", "_certify.certifiers", "_certify.checked", "_certify.checks"),
    *("_certify.explicit", "_certify.given", "_certify.inertia", "_certify.probes"),
    *("_certify.sketch_bounds", "_solve.audit", "_solve.driver", "_solve.history"),
    *("_solve.prime", "_solve.refine", "_solve.truncated_svd"),
)
#: Relative size of the perturbations, by the type of the data.
PERTURBATION = {"f": 2.0**-21, "d": 2.0**-40}
#: Unit roundoff that makes margins for rounding visible.
COARSE = 1e-8
TOL = math.pi / 1024


@contextmanager
def coarse(unit: float = COARSE) -> Iterator[None]:
    """Let all margins for rounding be those of a coarser arithmetic."""
    with ExitStack() as patch:
        for short in MODULES:
            module = importlib.import_module(f"primedpca.{short}")
            if hasattr(module, "UNIT"):
                patch.enter_context(mock.patch.object(module, "UNIT", unit))
        yield


# -- data --------------------------------------------------------------------------------------


@functools.cache
def rows(n: int, d: int, power: float, kind: str = "f4", seed: int = 0) -> np.ndarray:
    """Rows with variances that fall like a power, rotated, with a mean."""
    rng = np.random.default_rng((seed, n, d))
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X = (rng.standard_normal((n, d)) * np.arange(1, d + 1.0) ** -power) @ turn
    return (X + rng.standard_normal(d)).astype(kind)


@functools.cache
def tied(n: int, d: int, kind: str = "f4") -> np.ndarray:
    """Rows with two pairs of equal variances among the first, exactly."""
    rng = np.random.default_rng((7, n, d))
    m = min(n, d)
    left = np.linalg.qr(np.c_[np.ones(n), rng.standard_normal((n, m - 1))])[0][:, 1:]
    right = np.linalg.qr(rng.standard_normal((d, m - 1)))[0]
    sizes = 0.9 ** np.arange(m - 1)
    sizes[[1, 4]] = sizes[[2, 5]]
    return np.asarray((left * sizes) @ right.T * math.sqrt(n), dtype=kind)


@functools.cache
def counts(n: int = 300, d: int = 500) -> sp.csr_array:
    """Sparse counts whose spectrum falls slowly."""
    rng = np.random.default_rng(3)
    low = rng.gamma(0.4, size=(n, 12)) @ rng.gamma(0.3, size=(12, d)) / 8
    return sp.csr_array(rng.poisson(low + 0.01).astype("f4"))


def perturbed(X: Any, seed: int) -> Any:
    """Data with relative errors of a few units in the last place; as they are for seed 0."""
    if not seed:
        return X
    values = X.data if sp.issparse(X) else X
    if values.dtype.char not in PERTURBATION:
        return X
    noise = np.random.default_rng(seed).standard_normal(values.shape)
    changed = (values * (1 + PERTURBATION[values.dtype.char] * noise)).astype(values.dtype)
    if not sp.issparse(X):
        return changed
    return sp.csr_array((changed, X.indices, X.indptr), shape=X.shape)


# -- cases -------------------------------------------------------------------------------------


def fitted(X: Any, k: Any, **options: Any) -> list:
    """Return what a fit with its certificate says."""
    pca = PrimedPCA(k, **({"random_state": 0} | options)).fit(X)
    found = pca.certificate_
    history = [len(pca.history_), pca.n_passes_, pca.status_]
    proof = [] if found is None else [found, found.kind == "exact", found.kind == "deterministic"]
    return [*history, pca.explained_variance_, *proof]


def checked(side: str, block: int | None = None, **options: Any) -> BlockKrylov:
    """Block Krylov whose proof is checked by random vectors."""
    return BlockKrylov(block, side=side, **options)


def audited(X: Any, k: int, shift: float = 0.0, **options: Any) -> list:
    """Return what an audit of the true components says, each turned by an angle."""
    dense = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    if options.get("center", True):
        dense = dense - dense.mean(axis=0)
    true = np.linalg.svd(dense, full_matrices=False)[2]
    given = np.linalg.qr((true[:k] + shift * true[k : 2 * k]).T)[0].T
    given *= np.sign((given * true[:k]).sum(axis=1))[:, None]
    found = certify(X, given, **({"random_state": 0} | options))
    return [found, found.kind == "exact", found.kind == "deterministic"]


def streamed(X: np.ndarray, k: int, size: int, **options: Any) -> list:
    """Return the certificate of rows that came in parts."""
    pca = PrimedPCA(k, priming="frequent_directions", random_state=0, **options)
    for start in range(0, len(X), size):
        pca.partial_fit(X[start : start + size])
    return [pca.explained_variance_, pca.certificate_]


def beside(X: Any, k: int, side: str, shift: float, tol: float = math.pi / 1024) -> list:
    """Return what is found beside given components, each turned by an angle."""
    data = Centred.of(X)
    dense = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    true = np.linalg.svd(dense - dense.mean(axis=0), full_matrices=False)[2]
    given = np.linalg.qr((true[:k] + shift * true[k + 9 : 2 * k + 9]).T)[0]
    wide = data.in_float64()
    vectors, own = audit._check_components(given.T, wide)
    goal = Goal(tol=tol, seed=5)
    found = audit._beside(data, wide, (vectors, own), side, goal)
    certificate = found.certificate
    return [found.exhausted, found.spent, *([] if certificate is None else [certificate])]


def evidence(seed: int, p: int = 9, q: int = 4, size: float = 0.02, **more: Any) -> Evidence:
    """Return synthetic evidence with moderate residuals, so that every term of a bound shows."""
    rng = np.random.default_rng(seed)
    values = np.sort(rng.uniform(0.3, 1.0, p))[::-1] * np.linspace(1.6, 1.0, p)
    b = size * rng.uniform(0.3, 1.0, (q, p)) * rng.choice([-1.0, 1.0], (q, p))
    return Evidence(values, b, **({"missed": 0.12, "rounding": 1e-3} | more))


def formulas(held: Evidence, k: int) -> list:
    """Call all bounds that follow from evidence."""
    up = bounds.upper(held)
    p = held.values.size
    found: list = [bounds.topmost(held), bounds.angle_bounds(held, k, up)]
    found += [bounds._block(held, a, b, up) for a, b in ((0, 0), (0, 2), (2, 3), (p - 2, p - 1))]
    found += [bounds._gap(held, a, b, up) for a, b in ((0, 0), (1, 3), (2, 2))]
    total = 1.2 * float(held.values.sum())
    found += [bounds.fewest(held, up, total, share) for share in (0.3, 0.7, 0.9, 0.99)]
    found += [bounds.carried(held, up), bounds.carried(held, 1.01 * up[: p - 2])]
    for kind, count in (("exact", k), ("deterministic", p + 2)):
        found.append(bounds.certificate_of(held, count, None, kind, 0.0))
    return found


def every_field(seed: int, outside: bool, crosses: bool) -> Evidence:
    """Return synthetic evidence in which every field is set."""
    rng = np.random.default_rng(seed)
    root = 0.02 * rng.standard_normal((4, 4))
    return evidence(
        seed,
        columns=1e-3 * rng.uniform(0.3, 1.0, 6),
        skew=0.003,
        cross=0.004,
        outside=outside,
        crosses=0.003 * rng.uniform(0.3, 1.0, 9) if crosses else None,
        relief=root @ root.T,
    )


def times(known: Evidence, factor: float) -> Evidence:
    """Return evidence in another unit."""
    names = ("values", "residual", "missed", "rounding", "columns", "relief")
    return replace(known, **{name: factor * getattr(known, name) for name in names})


def tied_evidence() -> Evidence:
    """Return evidence of two runs of nearly equal values."""
    values = np.array([1.0, 0.8, 0.7995, 0.5, 0.4998, 0.4996, 0.3])
    rng = np.random.default_rng(4)
    return Evidence(values, 0.003 * rng.standard_normal((3, 7)), 0.1, 5e-4, skew=1e-3, cross=2e-3)


def streams() -> list:
    """Call the bounds of a sketch."""
    squares = np.array([9.0, 5.0, 4.95, 2.0, 1.0, 0.2])
    found: list = [bounds.stream_bounds(squares, 0.3, e, k) for e in (0.0, 0.02) for k in (3, 8)]
    found += [bounds.stream_bounds(squares[:n], 0.05, 0.01, 4) for n in (0, 1, 4)]
    return found


def quantiles() -> list:
    """Call the small functions of the random vectors."""
    found: list = [checks.tau(s, p) for s in (1, 7, 8, 16) for p in (1e-9, 1e-6, 0.2)]
    found += [checks.tau_of_sum(s, p) for s in (8, 12, 16) for p in (1e-9, 1e-6, 0.2)]
    found += [[np.abs(part) for part in checks._chebyshev(n)] for n in range(6)]
    found += [checks._root(np.array(f)) for f in ([-2.0, 1.0, 3.0], [-1e-3, 2.0], [1.0, 1.0])]
    found += [checks._root(np.array(f)) for f in ([-1.0, 0.0, 1.0], [0.0, 1.0], [-9.0, 1, 2, 3])]
    found += [probes._inverse(t, h) for t in (1, 2, 5) for h in (0.5, 1.0, 1.5, 1e3)]
    found += [inertia._exponent(size) for size in (1e-320, 0.7, 1.0, 3e5, 1e305)]
    found += [inertia._slack((9, 2), 5.0, 3.0, 0.7), audit._slip(3, 2)]
    found += [bounds.spectral_norm(np.zeros((0, 3))), bounds.spectral_norm(np.diag([3.0, 4, 0]))]
    found += [bounds.spectral_norm(np.array([[1e-3, 2e-3]])), driver.cast_error(Centred.of(eye()))]
    return found


def eye() -> np.ndarray:
    """Return a small float32 matrix."""
    return np.eye(4, dtype="f4")


def roundings() -> list:
    """Call the bounds on rounding errors for data of few rows, whose terms are all of a size."""
    X = rows(12, 5, 0.5, "f8")
    gaps = X.copy()
    gaps[2, 1] = gaps[5, 3] = np.nan
    found = []
    for data, more in ((X, {}), (X.T.copy(), {}), (gaps, {"missing": "mean"}), (X, UNCENTRED)):
        for scale in (None, "std"):
            held = Centred.of(data, **more, scale=scale).in_float64()
            held.covariance_product(held.like.asarray(np.eye(held.shape[1])[:, :2]))
            for width, largest, skew in ((1, 0.01, 0.0), (40, 9.0, 0.0), (3, 1.0, 1e-15)):
                found.append(bounds.rounding_of(held, width, largest, skew))
                found.append(bounds.preparation_error(held, largest))
    return found


UNCENTRED = {"center": False}


def coarsely(function: Callable, *args: Any, **options: Any) -> list:
    """Call a function with a coarse unit roundoff."""
    with coarse():
        return function(*args, **options)


def cases(seed: int = 0) -> dict[str, Callable[[], Any]]:
    """Return the fits, audits and formulas by name; a seed other than 0 perturbs the data."""

    def of(X: Any) -> Any:
        return perturbed(X, seed)

    flat, middle, steep = ((400, 160, power) for power in (0.3, 0.7, 1.5))
    wide = rows(160, 400, 0.7)
    right, left = checked("right"), checked("left")
    explicit = {side: checked(side, 4, explicit=True) for side in ("right", "left")}
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.2, 3.0, 400)
    gaps = rows(400, 60, 0.7).copy()
    gaps[rng.random(gaps.shape) < 0.02] = np.nan
    call = functools.partial
    found: dict[str, Callable[[], Any]] = {}
    states(found, of)

    def fit(name: str, X: Any, k: Any, **options: Any) -> None:
        found[name] = call(fitted, of(X), k, **options)

    def margins(name: str, X: Any, k: Any, **options: Any) -> None:
        found[f"{name}, coarse"] = call(coarsely, fitted, of(X), k, **({"tol": 0.1} | options))

    for name, shape in (("flat", flat), ("middle", middle), ("steep", steep)):
        fit(f"{name}, right", rows(*shape), 5, priming=right)
        fit(f"{name}, explicit", rows(*shape), 5, priming=explicit["right"])
    fit("wide, left", wide, 5, priming=left)
    fit("wide, left, narrow blocks", wide, 5, priming=checked("left", 3))
    fit("wide, explicit", wide, 5, priming=explicit["left"])
    fit("wide, exact", wide, 5, priming="exact")
    fit("exact", rows(*middle), 5, priming="exact")
    fit("exact, float64", rows(*middle, "f8"), 5, priming="exact", tol=1e-9)
    fit("exact, tied", tied(100, 40), 5, priming="exact")
    for tol in (TOL, 1e-4):
        equal = np.kron(np.eye(24), np.array([[1.0], [-1.0]])).astype("f4")
        fit(f"exact, all equal to {tol:.0e}", equal, 3, priming="exact", tol=tol)
        fit(f"right, all equal to {tol:.0e}", equal, 3, priming=right, tol=tol)
    lost = rows(400, 60, 1.5, "f8").copy()
    lost[:, :50] *= 1e-12
    fit("exact, nearly of low rank", lost, 14, priming="exact")
    fit("right, nearly of low rank", lost, 14, priming=right)
    low = (rows(200, 6, 0.5, "f8") @ rows(60, 6, 0.5, "f8").T).astype("f4")
    for name, way in (("right", right), ("left", left), ("sketch", FrequentDirections(16))):
        fit(f"{name}, of low rank", low, 8, priming=way)
    fit("sketch, fine", rows(400, 60, 0.5, "f8"), 3, priming=FrequentDirections(9), tol=1e-5)
    fit("exact, 80 %", rows(*middle), 0.8, priming="exact")
    fit("right, tied", tied(200, 90), 5, priming=right)
    fit("left, tied", tied(90, 200), 5, priming=left)
    fit("right, 60 %", rows(*steep), 0.9, priming=right)
    fit("left, 60 %", rows(160, 400, 1.5), 0.9, priming=left)
    fit("right, narrow blocks", rows(*middle), 6, priming=checked("right", 2))
    fit("right, restarts", rows(*middle), 4, priming=checked("right", 4, max_basis=24))
    fit("left, restarts", wide, 4, priming=checked("left", 4, max_basis=24))
    fit("right, few passes", rows(*flat), 5, priming=right, max_passes=6)
    fit("left, few passes", wide, 5, priming=left, max_passes=9)
    fit("right, fine", rows(*middle, "f8"), 5, priming=right, tol=1e-7)
    fit("right, fine float32", rows(*middle), 5, priming=right, tol=1e-6)
    fit("right, weights", rows(*middle), 5, priming=right)
    fit("right, scaled", rows(*middle), 5, priming=right, scale="std")
    fit("right, missing", gaps, 4, priming=right, missing="mean")
    fit("right, uncentred", rows(*middle), 4, priming=right, center=False)
    fit("right, rare", rows(*middle), 4, priming=right, failure_probability=1e-12)
    fit("sparse, right", counts().T.tocsr(), 5, priming=right)
    fit("sparse, left", counts(), 5, priming=left)
    certain = {"certificate": "deterministic"}
    fit("deterministic", rows(*steep, "f8"), 3, priming=right, **certain)
    fit("deterministic, flat", rows(300, 60, 0.4, "f8"), 3, priming=right, **certain)
    fit("probes", rows(*middle, "f8"), 4, priming="subspace_iteration")
    fit("probes, fine", rows(*middle), 4, priming=right, tol=3e-6)
    fit("probes, restarts", rows(*middle), 4, priming=checked("right", 4, max_basis=24), tol=3e-6)
    fit("probes, 60 %", rows(*steep, "f8"), 0.8, priming=right, tol=1e-7)
    fit("oja", rows(200, 20, 0.7), 3, priming="oja")
    fit("sketch", rows(400, 60, 1.5, "f8"), 3, priming=FrequentDirections(30), tol=0.02)
    fit("sketch, refined", rows(400, 60, 1.0, "f8"), 3, priming=FrequentDirections(20), tol=0.02)
    fit("sketch, not enough", rows(400, 60, 0.5), 3, priming=FrequentDirections(12))
    fit("unproven", rows(*middle), 5, certificate="none", priming="subspace_iteration")
    fit("unproven, left", wide, 5, certificate="none", priming=left)
    fit("unproven, explicit", wide, 5, certificate="none", priming=explicit["left"])
    fit("unproven, part", rows(400, 40, 0.7), 4, priming="oja", refine_share=0.5)
    fit("planned", rows(*middle), 5)
    found["streamed"] = call(streamed, of(rows(400, 30, 1.0)), 3, 90)
    found["weights"] = call(_weighted, of(rows(*middle)), weights, right)
    for kind in ("f4", "f8"):
        X = of(rows(300, 60, 0.7, kind))
        found[f"audit, {kind}"] = call(audited, X, 4, 1e-4)
        found[f"audit without probability, {kind}"] = call(
            audited, X, 4, 1e-4, failure_probability=0.0
        )
    found["audit, fine"] = call(audited, of(rows(200, 30, 0.7, "f8")), 3, 1e-8, tol=1e-6)
    found["audit, one pass"] = call(audited, of(rows(200, 30, 0.7)), 3, 1e-4, max_passes=1)
    found["audit, krylov"] = call(_audit, of(rows(300, 80, 1.0, "f8")), 4, 1e-6)
    found["audit, krylov without tol"] = call(_audit, of(rows(300, 80, 1.0, "f8")), 4, None)
    for side, X in (("right", rows(*middle)), ("left", wide)):
        found[f"beside, {side}"] = call(beside, of(X), 5, side, 3e-4)
        found[f"beside, {side}, inaccurate"] = call(beside, of(X), 5, side, 2e-3)
        found[f"beside, {side}, coarse"] = call(coarsely, beside, of(X), 5, side, 3e-3, 0.1)
    found["beside, sparse"] = call(beside, of(counts()), 5, "left", 3e-4)
    found["beside, steep"] = call(beside, of(rows(*steep)), 4, "right", 1e-4)
    margins("right", rows(*middle), 5, priming=right)
    margins("left", wide, 5, priming=left)
    margins("explicit", rows(*middle), 5, priming=explicit["right"])
    margins("explicit, left", wide, 5, priming=explicit["left"])
    margins("exact", rows(200, 60, 0.7, "f8"), 5, priming="exact")
    margins("wide, exact", rows(60, 200, 0.7, "f8"), 5, priming="exact")
    margins("deterministic", rows(200, 60, 0.7, "f8"), 5, priming=right, **certain)
    margins("probes", rows(200, 60, 0.7, "f8"), 5, priming="subspace_iteration")
    margins("sketch", rows(400, 60, 1.5, "f8"), 3, priming=FrequentDirections(30))
    margins("tied", tied(200, 90), 5, priming=right)
    found["svd"] = call(_svd, of(rows(200, 60, 0.7)))
    found["refine"] = call(_refined, of(rows(200, 30, 0.7, "f8")))
    found["prime"] = call(_primed, of(rows(200, 30, 0.7, "f8")))
    return found


def states(found: dict[str, Callable[[], Any]], of: Callable) -> None:
    """Add formulas, and the calls of single steps with chosen states."""
    call = functools.partial
    for seed_of, (outside, crosses) in enumerate(
        ((False, False), (True, False), (False, True), (True, True))
    ):
        known = every_field(seed_of, outside, crosses)
        found[f"formulas {seed_of + 1}"] = call(formulas, known, 4)
        for factor in (1e-9, 1e9):
            name = f"formulas {seed_of + 1}, times {factor:.0e}"
            found[name] = call(formulas, times(known, factor), 4)
    found["formulas 5"] = call(formulas, evidence(5), 6)
    found["formulas 6"] = call(formulas, evidence(6, q=0, size=0.0, rounding=0.0), 9)
    found["formulas 7"] = call(formulas, tied_evidence(), 5)
    found["formulas of sketches"] = streams
    found["quantiles"] = quantiles
    found["roundings"] = roundings
    tall, wide = of(rows(300, 90, 0.7)), of(rows(90, 300, 0.7))
    for side, X in (("right", tall), ("left", wide)):
        found[f"rides, {side}"] = call(held.rides, X, side)
        found[f"decisions, {side}"] = call(held.decisions, X, side)
        for i, (steps, error, skew) in enumerate(
            ((8, 0.0, 0.0), (8, 1e-5, 1e-4), (9, 1e-4, 0.005))
        ):
            found[f"proofs {i + 1}, {side}"] = call(held.proofs, X, side, steps, error, skew)
        for steps in (5, 12):
            found[f"{steps} explicit steps, {side}"] = call(held.matrices, X, side, steps)
        found[f"given steps, {side}"] = call(held.beside_findings, X, side)
        found[f"given steps 2, {side}"] = call(held.beside_findings, X, side, 5e-3, 0.2)
        # With rounding errors as large as the others.
        for name, function, more in (
            ("rides", held.rides, ()),
            ("proofs", held.proofs, (8, 1e-5, 1e-4)),
            ("explicit steps", held.matrices, (5,)),
            ("given steps", held.beside_findings, ()),
        ):
            found[f"{name}, {side}, coarse"] = call(coarsely, function, X, side, *more)
    flat, steep = of(rows(300, 90, 0.25)), of(rows(300, 90, 1.2))
    for i, (X, tol, most, k) in enumerate(
        (
            *((flat, TOL, 100, 3), (flat, 0.2, 100, 3), (flat, TOL, 12, 3), (steep, TOL, 100, 3)),
            *((tall, 0.3, 100, 4), (tall, 1e-5, 100, 4), (steep, TOL, 100, 0.8), (tall, TOL, 7, 2)),
        )
    ):
        found[f"looks {i + 1}, right"] = call(held.looks, X, tol, most, k, "right")
        turned = np.ascontiguousarray(X.T)
        found[f"looks {i + 1}, left"] = call(held.looks, turned, tol, most, k, "left")
        for order in (1, 256):
            name = f"explicit looks {i + 1}, {order}"
            found[name] = call(held.explicit_looks, X if i % 2 else turned, k, tol, order)
    double = of(rows(200, 60, 0.7, "f8"))
    for i, (k, failure, small, basis) in enumerate(
        (
            *((3, 0.0, True, None), (3, 0.0, False, None), (3, 1e-6, False, None)),
            *((3, 1e-6, False, 20), (0.6, 1e-6, False, None), (0.6, 0.0, True, None)),
            *((2, 1e-6, False, 12), (0.9, 1e-3, False, None)),
        )
    ):
        looked = call(held.probe_looks, double, k, failure, small, basis)
        found[f"probe looks {i + 1}"] = call(looked, None)
        found[f"probe looks {i + 1}, with a sketch"] = call(looked, _sketched)
    found["audits"] = call(held.audits, of(rows(100, 24, 1.0, "f8")))
    for size in (8, 20):
        found[f"sketch steps {size}"] = call(held.sketches, of(rows(300, 24, 1.0, "f8")), size)
    tiny = of(rows(60, 12, 0.7))
    for side in ("right", "left"):
        X = tiny if side == "right" else np.ascontiguousarray(tiny.T)
        found[f"full basis, {side}"] = call(held.full_basis, X, side)
        found[f"second attempts, {side}"] = call(held.second_attempts, X, side)
    found["explicit steps, flat"] = call(held.matrices, flat, "right", 5)
    found["checkpoint"] = call(held.resumed, of(rows(200, 30, 0.7)))
    found["ends"] = call(held.ends, tall)
    found["solutions"] = call(held.solutions, tall)
    found["stops"] = call(held.stops, of(rows(200, 30, 0.7)))
    found["small parts"] = call(held.small_parts, of(rows(200, 30, 0.7, "f8")))
    found["right vectors"] = call(held.right_vectors, wide)
    for name in ("sizes", "ceilings", "angles_between", "floors", "probe_bounds"):
        found[name.replace("_", " ")] = getattr(held, name)


def _sketched(basis: Any, skew: float) -> float:
    """Stand for the bound of a sketch on what a basis can have missed."""
    return 0.3 / sum(block.shape[1] for block in basis) + skew


def _weighted(X: np.ndarray, weights: np.ndarray, priming: BlockKrylov) -> list:
    pca = PrimedPCA(5, priming=priming, random_state=0).fit(X, sample_weight=weights)
    return [pca.n_passes_, pca.certificate_]


def _audit(X: np.ndarray, k: int, tol: float | None) -> list:
    true = np.linalg.svd(X - X.mean(axis=0))[2]
    given = np.linalg.qr((true[:k] + 1e-5 * true[k : 2 * k]).T)[0]
    wide = Centred.of(X).in_float64()
    vectors, _ = audit._check_components(given.T, wide)
    return [audit.audit(wide, vectors, tol, 1e-6, 3, 30)]


def _svd(X: np.ndarray) -> list:
    found, first = svd(X, 4, random_state=0), svd(X, 1, random_state=0)
    return [first.s, found.s, found.singular_value_bounds, found.certificate]


def _refined(X: np.ndarray) -> list:
    span = np.linalg.qr(np.random.default_rng(2).standard_normal((30, 9)))[0]
    whole, part = refine(X, span, 4), refine(X, span, 3, share=0.3, random_state=1)
    return [whole.explained_variance, part.explained_variance]


def _primed(X: np.ndarray) -> list:
    found: list = []
    for name in ("oja", "subspace_iteration", "frequent_directions"):
        for last in prime(X, name, 4, batch_size=30, max_passes=3, random_state=0):
            found.append([last.step, last.passes])
    return found
