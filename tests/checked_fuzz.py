"""Compare the proofs of a checked block Krylov iteration, look by look, with the truth.

    python tests/checked_fuzz.py --problems 2000 --first-seed 0 --processes 1
    python tests/checked_fuzz.py --seed 123            # one of them, in words
    python tests/checked_fuzz.py --explicit            # with an explicit matrix, factorised
    python tests/checked_fuzz.py --given               # of components that were given
    python tests/checked_fuzz.py --given --explicit    # the same with an explicit matrix

Every problem is made from its seed: float32 data of a hard spectrum, a start that may miss the top
component, and an arithmetic that may be wrong on purpose.  All looks are compared, also those
after which a fit would stop.  The exit code is 0 if nothing claimed was false.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import os
import sys
import warnings
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
from extended_problems import Cut

from primedpca._certify import checked, explicit, given
from primedpca._operator.operator import Centred
from primedpca._solve.audit import _compared as compared
from primedpca._solve.driver import Stage, follow
from primedpca.priming import BlockKrylov, block_krylov
from primedpca.priming.block_krylov import looked

#: Relative error of variances of the reference, a singular value decomposition in float64.
SLIP = 1e-12


@dataclass
class Problem:
    """Data as given, the start, and the arithmetic in which they are multiplied."""

    X: Any
    k: int | float
    priming: BlockKrylov
    failure: float
    tol: float
    steps: int
    seed: int
    start: np.ndarray | None = None
    liar: Any = None
    cuts: list[int] | None = None
    preparation: dict[str, Any] = field(default_factory=dict)
    kind: str = ""

    def dense(self) -> np.ndarray:
        """Prepared rows in float64, with the roots of their weights."""
        X = (self.X.toarray() if sp.issparse(self.X) else self.X).astype(np.float64)
        w = self.preparation.get("sample_weight")
        w = np.ones(len(X)) if w is None else w
        there = ~np.isnan(X)
        shares = w[:, None] * there
        mean = np.nansum(X * w[:, None], axis=0) / shares.sum(axis=0)
        mean = mean * self.preparation.get("center", True)
        X = np.where(there, X - mean, 0.0)
        if self.preparation.get("scale") == "std":
            X = X / np.sqrt((shares * X**2).sum(axis=0) / shares.sum(axis=0))
        return X * np.sqrt(w)[:, None] / math.sqrt(w.sum())

    def source(self, X: Any) -> Any:
        """The data, or the data cut into blocks of columns."""
        return X if self.cuts is None else Cut(X, 1, self.cuts)


@dataclass
class Result:
    """Claims of all looks of one problem, and those that are false."""

    seed: int
    kind: str
    looks: int = 0
    claims: int = 0
    met: bool = False
    violated: list[str] = field(default_factory=list)

    def claim(self, false: bool, words: str) -> None:
        """Count a claim."""
        self.claims += 1
        if false:
            self.violated.append(f"look {self.looks}: {words}")


# -- problems --------------------------------------------------------------------------------


def _falling(rng: Any, r: int, k: int) -> np.ndarray:
    return rng.uniform(0.5, 0.97) ** np.arange(r)


def _clusters(rng: Any, r: int, k: int) -> np.ndarray:
    levels = np.sort(2.0 ** -rng.integers(0, 5, r))[::-1]
    return levels * (1 + rng.normal(size=r) * 10.0 ** -rng.uniform(1, 9))


def _ties(rng: Any, r: int, k: int) -> np.ndarray:
    return np.sort(rng.choice([1.0, 0.5, 0.3, 0.1], r))[::-1]


def _flat(rng: Any, r: int, k: int) -> np.ndarray:
    values = (1.0 + np.arange(r)) ** -rng.uniform(0.1, 0.6)
    values[max(0, k - 2) : k + 3] = values[k - 1]
    values[k:] *= 1 - 10.0 ** -rng.uniform(1, 5)
    return values


def _steep(rng: Any, r: int, k: int) -> np.ndarray:
    return 10.0 ** (-np.arange(r) * rng.uniform(0.2, 1.0))


def _gap(rng: Any, r: int, k: int) -> np.ndarray:
    values = rng.uniform(0.6, 1.0, r)
    values[k:] *= 10.0 ** -rng.uniform(0.5, 5)
    return np.sort(values)[::-1]


SPECTRA = {
    "falling": _falling,
    "clusters": _clusters,
    "ties": _ties,
    "flat": _flat,
    "steep": _steep,
    "gap": _gap,
}


def problem(seed: int, times: int = 1) -> Problem:
    """The problem of this number, perhaps some times as large."""
    rng = np.random.default_rng((seed, 77))
    n, d = times * int(rng.integers(20, 90)), times * int(rng.integers(12, 60))
    if rng.random() < 0.3:
        n, d = d, n
    k, r = int(rng.integers(1, 7)), min(n - 1, d)
    if rng.random() < 0.05:
        k = r  # all of the rank
    if rng.random() < 0.25:  # of low rank, perhaps less than k
        r = int(rng.integers(max(1, k - 1), r))
    kind = str(rng.choice(list(SPECTRA)))
    sizes = SPECTRA[kind](rng, r, min(k, r))
    left = rng.normal(size=(n, r))
    left = np.linalg.qr(left - left.mean(axis=0))[0]
    right = np.linalg.qr(rng.normal(size=(d, d)))[0][:r]
    X = (left * sizes) @ right + rng.choice([0, 0, 1, 30]) * sizes[0] * rng.normal(size=d) / n
    p = Problem(X.astype("f4"), k, BlockKrylov(), 1e-6, 1.5, 12, seed, kind=kind)
    _ask(p, rng)
    _prepare(p, rng)
    _begin(p, rng)
    _lie(p, rng)
    return p


def _ask(p: Problem, rng: Any) -> None:
    """Side, block, basis and what is to be proven."""
    block = None if rng.random() < 0.3 else int(rng.integers(1, 12))
    basis = None if rng.random() < 0.7 else int(rng.integers(p.k, p.k + 34))
    p.priming = BlockKrylov(block, basis, str(rng.choice(["right", "left"])))
    p.failure = float(rng.choice([1e-3, 1e-6, 1e-9]))
    p.tol = float(rng.choice([1.5, 0.1, 1e-3]))
    p.steps = int(rng.integers(2, 14))
    p.seed = int(rng.integers(2**31))
    if rng.random() < 0.15:
        p.k = float(rng.choice([0.5, 0.8, 0.95, 0.999, rng.uniform(0.3, 0.9999)]))


def _prepare(p: Problem, rng: Any) -> None:
    ways = ["", "", "", "sparse", "weights", "std", "missing", "unit", "columns", "as they are"]
    way, (n, d) = str(rng.choice(ways)), p.X.shape
    if way == "sparse":
        p.X[rng.random(p.X.shape) < 0.6] = 0.0
        p.X = sp.csr_array(p.X)
    elif way == "missing":
        holes = rng.random(p.X.shape) < 0.05
        holes[:2] = False
        p.X[holes] = np.nan
        p.preparation["missing"] = "mean"
    elif way == "std":
        p.preparation["scale"] = "std"
    elif way == "unit":
        p.X = p.X * np.float32(2.0 ** rng.integers(-60, 40))
    elif way == "columns":
        p.cuts = [0, *sorted(map(int, rng.permutation(np.arange(1, d))[:3])), d]
    elif way == "as they are":
        p.preparation["center"] = False
    if way == "weights" or rng.random() < 0.1:
        w = rng.choice([rng.integers(0, 4, n), 10.0 ** rng.uniform(-3, 3, n)]).astype(float)
        w[:3] += 1.0
        p.preparation["sample_weight"] = w
    p.kind += f" {way}"


def _begin(p: Problem, rng: Any) -> None:
    """Sometimes a start without the top component, in a span that the covariance maps to itself."""
    way = rng.choice(["random", "random", "missing top", "invariant", "right"])
    if way == "random":
        return
    vectors = np.linalg.svd(p.dense(), full_matrices=True)[2].T
    first = 0 if way == "right" else int(rng.integers(1, 3))
    width = int(rng.integers(1, 9))
    start = vectors[:, first : first + width]
    if way == "missing top":
        start = start @ rng.normal(size=(start.shape[1],) * 2)
        start += vectors[:, first:] @ rng.normal(size=(vectors.shape[1] - first, start.shape[1]))
    p.start = np.ascontiguousarray(start).astype("f4")
    p.kind += f" {way}"


def _lie(p: Problem, rng: Any) -> None:
    """Sometimes multiply other data than the true ones: any arithmetic may be checked."""
    way = rng.choice(["", "", "", "rounded", "noisy", "blind"])
    X = p.X.toarray() if sp.issparse(p.X) else p.X
    if not way or np.isnan(X).any():
        return
    if way == "rounded":
        lie = X.astype("f2").astype("f4") if np.abs(X).max() < 6e4 else X
    elif way == "noisy":
        lie = X + rng.normal(size=X.shape) * np.abs(X).max() * 10.0 ** -rng.uniform(2, 7)
    else:  # without one of the leading components
        mean = X.mean(axis=0) * p.preparation.get("center", True)
        vector = np.linalg.svd(X - mean)[2][int(rng.integers(0, 3))]
        lie = X - np.outer((X - mean) @ vector, vector)
    p.liar = sp.csr_array(lie.astype("f4")) if sp.issparse(p.X) else lie.astype("f4")
    p.kind += f" {way}"


# -- comparison ------------------------------------------------------------------------------


def check(seed: int) -> Result:
    """Compare all looks of the problem of this number."""
    return examine(problem(seed), seed)


def examine(p: Problem, number: int = 0, alone: bool = False) -> Result:
    """Compare all looks; with ``alone`` stop after the first proof that is good enough."""
    found = Result(number, p.kind)
    data = Centred(p.source(p.X), **p.preparation)
    wide = data.in_float64()
    work = data if p.liar is None else Centred(p.source(p.liar), **p.preparation)
    certifier = checked.CheckedCertifier(
        work, wide, p.priming, p.k, p.failure, p.seed, p.tol, p.start
    )
    count = p.k if isinstance(p.k, int) else 4
    width = min(count + 2, *p.X.shape)
    p.k = p.k if isinstance(p.k, float) else min(p.k, width)
    certifier.wanted = p.k
    rows = p.dense()
    stage = Stage(p.priming, width, p.steps, p.seed, certifier, p.start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for snapshot in stage.snapshots():
            proof = certifier.look(snapshot)
            if proof is not None:
                _compare(p, certifier, snapshot, proof, rows, found)
            if certifier.exhausted and not certifier.operator.shared:
                break
            if alone and proof is not None and proof.certificate.met(p.tol).all():
                break
            certifier.go_on()
        proof = certifier.conclude(snapshot)
        if proof is not None:
            _compare(p, certifier, snapshot, proof, rows, found)
    return found


class Liar:
    """An operator whose matrix is made from other data; all else is true."""

    def __init__(self, wide: Centred, other: Centred) -> None:
        self.true, self.other = wide, other

    def __getattr__(self, name: str) -> Any:
        return getattr(self.true, name)

    def checked_square(self, checks: Any) -> tuple[Any, Any]:
        return self.other.checked_square(checks)[0], self.true.checked_square(checks)[1]

    def covariance(self) -> Any:
        return self.other.covariance()

    def gram(self) -> Any:
        return self.other.gram()


def check_explicit(seed: int) -> Result:
    """Compare all looks of the problem of this number with an explicit matrix."""
    p, rng = problem(seed), np.random.default_rng((seed, 78))
    if rng.random() < 0.8:  # otherwise blocks may run across the matrix
        p.X = p.X.toarray() if sp.issparse(p.X) else p.X
        p.liar = p.liar.toarray() if sp.issparse(p.liar) else p.liar
        if rng.random() < 0.8:  # otherwise the larger matrix may be decomposed
            shorter = "right" if p.X.shape[1] <= p.X.shape[0] else "left"
            p.priming = replace(p.priming, side=shorter)
        p.cuts = p.cuts if p.priming.side == "left" else None
    if rng.random() < 0.3 and not sp.issparse(p.X):
        far = 10.0 ** rng.uniform(-1, 3) * np.nanstd(p.X)
        if np.isfinite(far):
            p.X = (p.X + far * rng.normal(size=p.X.shape[1])).astype("f4")
    if rng.random() < 0.2 and not sp.issparse(p.X):
        p.X, p.liar = p.X.astype("f8"), None if p.liar is None else p.liar.astype("f8")
    p.priming = replace(p.priming, explicit=True)
    faults = {
        # A basis of up to a third of the dimensions, or of all.
        "PART": mock.patch.object(block_krylov, "PART", int(rng.choice([1, 1, 3]))),
        "products": mock.patch.object(block_krylov, "multiplied", _coarse(rng)),
        "factor": mock.patch.object(explicit, "factorised", _wrong(rng)),
    }
    chosen = ["PART"] if rng.random() < 0.5 else list(faults)
    with ExitStack() as stack:
        for name in chosen:
            stack.enter_context(faults[name])
        if seed % 2:  # otherwise matrices as small as these are factorised
            stack.enter_context(mock.patch.object(explicit, "ORDER", 0))
        if seed % 8 == 1:
            stack.enter_context(mock.patch.object(explicit, "multiplied", _coarse(rng)))
        return examine_explicit(p, seed)


def _coarse(rng: Any) -> Any:
    """Products with errors of a random size."""
    size = 10.0 ** -rng.uniform(1, 8)

    def multiplied(square: Any, vectors: Any) -> Any:
        found = square @ vectors
        # Errors that do not depend on anything but the factors, as those of an arithmetic.
        shift = np.random.default_rng(found.shape[1]).normal(size=found.shape)
        return (found * (1 + size * shift)).astype(found.dtype)

    return multiplied


def _wrong(rng: Any) -> Any:
    """Factors with errors, or of another matrix."""
    right, size, kind = explicit.factorised, 10.0 ** -rng.uniform(0, 7), rng.choice(["a", "b", "c"])

    def factorised(square: Any, factor: Any, sigma: float) -> Any:
        if kind == "a":  # of a matrix without its top eigenvector
            values, vectors = np.linalg.eigh(square.astype(np.float64))
            rest = square - values[-1] * np.outer(vectors[:, -1], vectors[:, -1])
            return right(rest.astype(square.dtype), factor, sigma)
        if kind == "b":
            return right(square, factor, sigma * (1 + size))
        found = right(square, factor, sigma)
        for tile in chain.from_iterable(found or []):
            shift = np.random.default_rng(1).normal(size=tile.shape)
            tile += (size * math.sqrt(sigma) * shift).astype(tile.dtype)
        return found

    return factorised


def examine_explicit(p: Problem, number: int = 0) -> Result:
    """Compare all looks at block Krylov with an explicit matrix."""
    found = Result(number, p.kind)
    data = Centred(p.source(p.X), **p.preparation)
    wide = data.in_float64()
    width = min((p.k if isinstance(p.k, int) else 4) + 2, *p.X.shape)
    p.k = p.k if isinstance(p.k, float) else min(p.k, width)
    options = (p.priming, p.k, p.failure, p.seed, p.tol, p.start)
    certifier = explicit.ExplicitCertifier(data, wide, *options)
    if p.liar is not None:
        other = Centred(p.source(p.liar), **p.preparation).in_float64()
        certifier.operator.wide = Liar(wide, other)
    _follow(p, Stage(p.priming, width, 40, p.seed, certifier, p.start), p.dense(), found)
    return found


def _follow(p: Problem, stage: Stage, rows: np.ndarray, found: Result) -> None:
    """Compare all looks of a stage with an explicit matrix."""
    certifier: Any = stage.certifier
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for snapshot in stage.snapshots():
            proof = certifier.look(snapshot)
            if proof is not None:
                _compare(p, certifier, snapshot, proof, rows, found)
            if certifier.exhausted or p.priming.finished(snapshot.state):
                break
            certifier.go_on()
        proof = certifier.conclude(snapshot)
        if proof is not None:
            _compare(p, certifier, snapshot, proof, rows, found)


WAYS = ("right", "right", "right", "off", "off", "lower", "swapped", "rotated", "tilted")


def given_components(p: Problem, rng: Any, vectors: np.ndarray) -> tuple[str, np.ndarray]:
    """Components ``(k, d)`` that are right, nearly right or wrong, and how they were made."""
    way, k = str(rng.choice(WAYS)), p.k
    if k >= vectors.shape[0]:
        way = "right"
    made = vectors[:k].copy()
    if way == "lower":  # one of them is a later one: the residuals show nothing
        made[int(rng.integers(k))] = vectors[k + int(rng.integers(min(3, vectors.shape[0] - k)))]
    elif way == "swapped":
        made = made[rng.permutation(k)]
    elif way == "rotated":
        made = np.linalg.qr(rng.normal(size=(k, k)))[0] @ made
    elif way == "tilted":  # towards the next one, as an iteration that has not converged
        angle = 10.0 ** -rng.uniform(1, 6)
        made[-1] = np.cos(angle) * made[-1] + np.sin(angle) * vectors[k]
    elif way == "off":
        noise = rng.normal(size=made.shape)
        made += 10.0 ** -rng.uniform(1, 7) * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    made = np.linalg.qr(made.T)[0].T
    return way, made.astype("f4") if rng.random() < 0.5 else made


def check_given(seed: int) -> Result:
    """Compare the certificate of given components of the problem of this number."""
    p, rng = problem(seed, times=3), np.random.default_rng((seed, 80))
    p.k = p.k if isinstance(p.k, int) else 3
    p.k = min(p.k, 8)
    p.tol = float(rng.choice([1.4, 0.1, 1e-2, 3e-3, 3e-4]))
    return examine_given(p, rng, seed)


def examine_given(p: Problem, rng: Any, number: int = 0) -> Result:
    """Compare the certificate of given components, where there is one."""
    rows = p.dense()
    values, vectors = _truth(rows)
    way, made = given_components(p, rng, vectors)
    found = Result(number, f"{way} {p.kind}")
    data = Centred(p.source(p.X), **p.preparation)
    work = data if p.liar is None else Centred(p.source(p.liar), **p.preparation)
    wide = data.in_float64()
    columns = np.ascontiguousarray(made.T.astype(np.float64))
    columns /= np.linalg.norm(columns, axis=0)
    usual, given.NARROW = given.NARROW, int(rng.integers(1, 9))
    side = str(rng.choice(["right", "left"]))
    own = columns.T @ columns
    certifier = given.GivenCertifier(work, wide, side, columns, own, p.failure, p.seed, p.tol, 60)
    stage = Stage(certifier.priming, max(data.shape), 60, p.seed, certifier, columns)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            follow(stage, lambda _: certifier.exhausted or certifier.certificate is not None)
    finally:
        given.NARROW = usual  # other tests in this process have the usual width
    if certifier.certificate is not None:
        found.looks, found.met = 1, True
        _claims(certifier.certificate, columns.T, wide, values, vectors, found)
    return found


def check_given_matrix(seed: int) -> Result:
    """Compare the certificate of given components that a factorised matrix proves."""
    p, rng = problem(seed, times=2), np.random.default_rng((seed, 81))
    p.k = min(p.k if isinstance(p.k, int) else 3, 8)
    p.tol = float(rng.choice([1.4, 0.1, 1e-2, 3e-3, 3e-4]))
    p.X = p.X.toarray() if sp.issparse(p.X) else p.X
    p.liar = p.liar.toarray() if sp.issparse(p.liar) else p.liar
    p.cuts = None
    if rng.random() < 0.2:
        p.X, p.liar = p.X.astype("f8"), None if p.liar is None else p.liar.astype("f8")
    p.priming = BlockKrylov(8, explicit=True)
    faults = [
        mock.patch.object(block_krylov, "multiplied", _coarse(rng)),
        mock.patch.object(explicit, "multiplied", _coarse(rng)),
        mock.patch.object(explicit, "factorised", _wrong(rng)),
    ]
    with ExitStack() as stack:
        for fault in faults:
            if rng.random() < 0.2:
                stack.enter_context(fault)
        return examine_given_matrix(p, rng, seed)


def examine_given_matrix(p: Problem, rng: Any, number: int = 0) -> Result:
    """Compare what a factorised matrix proves of given components, and all of a fit after it."""
    rows = p.dense()
    values, vectors = _truth(rows)
    way, made = given_components(p, rng, vectors)
    found = Result(number, f"{way} {p.kind}")
    data = Centred(p.source(p.X), **p.preparation)
    wide = data.in_float64()
    columns = np.ascontiguousarray(made.T.astype(np.float64))
    columns /= np.linalg.norm(columns, axis=0)
    options = (p.priming, p.k, p.failure, p.seed, p.tol, columns)
    certifier = explicit.GivenMatrixCertifier(data, wide, *options)
    if p.liar is not None:
        other = Centred(p.source(p.liar), **p.preparation).in_float64()
        certifier.operator.wide = Liar(wide, other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        proof = certifier.audit(columns)
    if proof is not None:
        found.looks, found.met = 1, bool(proof.certificate.met(max(p.tol, 1e-2)).all())
        components = np.asarray(proof.find().components, dtype=np.float64)
        _claims(proof.certificate, components, wide, values, vectors, found)
        audited = compared(wide, columns, components.T, proof.certificate, None)[0]
        _claims(audited, columns.T, wide, values, vectors, found)
    met = found.met
    if certifier.sound:
        _follow(p, Stage(p.priming, min(p.k + 2, *p.X.shape), 40, p.seed, certifier), rows, found)
    found.met = met  # by the audit alone
    return found


def _compare(p: Problem, certifier: Any, snapshot: Any, proof: Any, rows: Any, found: Any) -> None:
    """Compare all that one look claims."""
    found.looks += 1
    certificate, made = proof.certificate, proof.find()
    found.met |= bool(certificate.met(max(p.tol, 1e-2)).all())
    values, vectors = _truth(rows)
    components = np.asarray(made.components, dtype=np.float64)
    _claims(certificate, components, certifier.wide, values, vectors, found)
    if isinstance(p.k, float) and proof.counted:
        _count(p.k, certificate.angle_bounds.size, values, found)
    _missed(certifier, snapshot, values, vectors, found)


def _claims(certificate, components, wide, values, vectors, found) -> None:
    """Compare the angles and variances of a certificate."""
    angles = certificate.angle_bounds
    if not (np.isfinite(angles).all() and np.isfinite(certificate.eigenvalue_bounds).all()):
        found.violated.append(f"look {found.looks}: not finite: {angles}")
        return
    for i in range(len(angles)):
        if angles[i] < np.pi / 2:
            _angle(i, i + 1, angles[i], components[i : i + 1], values, vectors, found)
    for start, stop, bound in certificate.clusters:
        if bound < np.pi / 2:
            for part in _parts(components, start, stop):
                _angle(start, stop, bound, part, values, vectors, found)
    weight = wide.weight * wide.weight_unit
    scale = weight / (weight - 1)
    for i, (low, high) in enumerate(certificate.eigenvalue_bounds):
        value, slip = values[i] * scale, SLIP * values[0] * scale
        words = f"variance {i} is {value:.9g}, not in [{low:.9g}, {high:.9g}]"
        found.claim(not low - slip <= value <= high + slip, words)


def _parts(components: np.ndarray, start: int, stop: int) -> list[np.ndarray]:
    """The span of a cluster, or the vectors of it that are there."""
    if stop <= len(components):
        return [components[start:stop]]
    return [components[i : i + 1] for i in range(start, len(components))]


def _truth(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, sizes, right = np.linalg.svd(rows, full_matrices=True)
    values = np.zeros(rows.shape[1])
    values[: sizes.size] = sizes**2
    return values, right


def _angle(start, stop, bound, components, values, vectors, found) -> None:
    gaps = [np.inf]
    if start:
        gaps.append(values[start - 1] - values[start])
    if stop < values.size:
        gaps.append(values[stop - 1] - values[stop])
    gap = min(gaps) / values[0]
    if gap < 100 * SLIP:  # the reference cannot tell
        found.claim(gap <= 0 and bound < 1e-3, f"span {start}..{stop - 1} is tied: {bound:.3g}")
        return
    along = components @ vectors.T
    outside = np.delete(along, np.s_[start:stop], axis=1)
    sine = float(np.linalg.norm(outside, ord=2)) / float(np.linalg.norm(components, ord=-2))
    if sine < 0.99:
        angle = math.asin(sine)
    else:  # where the arcsine loses digits
        inside = float(np.linalg.norm(along[:, start:stop], ord=-2))
        angle = math.acos(min(1.0, inside / float(np.linalg.norm(components, ord=2))))
    words = f"span {start}..{stop - 1} is {angle:.3g} off, bound {bound:.3g}"
    found.claim(angle > bound * (1 + 1e-9) + SLIP / gap + 2.0**-50, words)


def _count(share: float, k: int, values: np.ndarray, found: Result) -> None:
    held = np.cumsum(values) / values.sum()
    words = f"{k} components hold {held[k - 1]:.9g}, and {held[k - 2]:.9g} without the last"
    false = held[k - 1] < share - 1e-12 or (k > 1 and held[k - 2] > share + 2e-7)
    found.claim(bool(false), words)


def _missed(certifier, snapshot, values, vectors, found) -> None:
    """Compare the bound on what the basis has missed."""
    if math.isinf(certifier._best):
        return
    state = snapshot.state
    blocks = [np.asarray(b, dtype=np.float64) for b in looked(state).basis]
    basis = np.concatenate(blocks, axis=1)
    basis = np.linalg.qr(basis)[0]
    wide = certifier.wide
    product = wide.covariance_product if certifier.priming.side == "right" else wide.gram_product
    length = basis.shape[0]
    square = np.asarray(product(np.eye(length)))
    rest = np.eye(length) - basis @ basis.T
    top = float(np.linalg.eigvalsh(rest @ (square + square.T) @ rest / 2)[-1])
    words = f"{top:.9g} was missed, bound {certifier._best:.9g}"
    found.claim(top > certifier._best * (1 + 1e-9) + SLIP * values[0], words)


# -- the command -----------------------------------------------------------------------------


def run(seeds: range, processes: int = 1, examiner: Any = check) -> list[Result]:
    """The results of all these problems, in order."""
    if processes == 1:
        return [examiner(seed) for seed in seeds]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return list(pool.imap(examiner, seeds, chunksize=16))


def are_false(least: int, seeds: range, examiner: Any = check) -> bool:
    """Whether at least so many of these problems have a false claim; the rest is not run."""
    false = (seed for seed in seeds if examiner(seed).violated)
    return len(list(itertools.islice(false, least))) == least


def summary(results: list[Result]) -> str:
    """Problems, looks, claims and what is false."""
    false = [r for r in results if r.violated]
    lines = [
        f"{len(results)} problems, {sum(r.looks for r in results)} looks, "
        f"{sum(r.claims for r in results)} claims, {sum(r.met for r in results)} proven to 0.01, "
        f"{len(false)} problems with a false claim"
    ]
    lines += [f"  --seed {r.seed} ({r.kind}): {r.violated[0]}" for r in false[:20]]
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, help="only this problem, in words")
    parser.add_argument("--explicit", action="store_true", help="with an explicit matrix")
    parser.add_argument("--given", action="store_true", help="components that were given")
    asked = parser.parse_args()
    examiner = {
        (False, False): check,
        (True, False): check_explicit,
        (False, True): check_given,
        (True, True): check_given_matrix,
    }[asked.explicit, asked.given]
    if asked.seed is not None:
        print(problem(asked.seed))
        results = [examiner(asked.seed)]
        print(*results[0].violated, sep="\n")
    else:
        seeds = range(asked.first_seed, asked.first_seed + asked.problems)
        results = run(seeds, asked.processes, examiner)
        print(Counter(r.kind.split()[0] for r in results))
    print(summary(results))
    return int(any(r.violated for r in results))


if __name__ == "__main__":
    sys.exit(main())
