"""Certifier of an explicit matrix: block Krylov on it, a bound on the rest, a check of both.

The covariance or Gram matrix of float32 products has some error, which the same pass shows to a
few random vectors.  Block Krylov then multiplies the matrix instead of the data; the vectors check
that as well.  A few products of these vectors with the matrix bound what was missed or, on a flat
spectrum, a Cholesky factorisation in the same arithmetic; see docs/certificates.md, section 9.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from primedpca._certify.bounds import UNIT, Evidence, spectral_norm, upper
from primedpca._certify.certifiers import Proof
from primedpca._certify.checked import FEW, CheckedCertifier, Mapped
from primedpca._certify.checks import Check, Findings, tau
from primedpca._certify.given import Beside, Found
from primedpca._certify.inertia import factorised, times_square
from primedpca._core.arrays import is_numpy_array, to_numpy
from primedpca._core.orthonormal import (
    combine,
    complete,
    multiplied,
    orthonormalise,
    small_eigh,
)
from primedpca._operator.operator import Centred
from primedpca.priming.block_krylov import KrylovState, looked
from primedpca.protocols import Array
from primedpca.result import Snapshot

__all__ = ["ExplicitCertifier", "GivenMatrixCertifier"]

#: Residual of a Ritz vector, in its Ritz value, from which it counts as settled.
SETTLED = 1e-2
#: Ritz vectors beyond the wanted ones among which the widest gap is looked for.
MORE = 16
#: Directions of residuals that are shorter than this part of the top variance count as errors.
FLOOR = 1e-10
#: A ride costs as much as this part of the order of a matrix adds to its factorisation.
ORDER = 256
#: Part of the tolerance that must be within reach before the matrix is factorised.
NEAR = 0.8
#: Columns, and the fewest and most steps, that estimate the largest variance beside components.
WIDTH, LEAST, STEPS = 12, 3, 16
#: Growth of that estimate in a step, in its distance from the last given component, at the end.
CLOSE = 0.2
#: Positions of ``sigma`` between the two, tried in this order.
POSITIONS = (0.4, 0.8)


class CheckedSquare:
    """Operator whose smaller matrix is made together with the images of a check.

    Parameters
    ----------
    data : Centred
        The data in their own arithmetic.
    check : Check
        Its vectors are multiplied in float64.

    Attributes
    ----------
    sound : bool
        Whether the arithmetic of the data holds the matrix.
    square : array of shape (m, m)
        The matrix in float64, as it was added up.
    """

    def __init__(self, data: Centred, check: Check) -> None:
        self.data, self.wide, self.check, self.sound = data, check.wide, check, False
        self.square: Array = None
        self.like, self.shape, self.engine = data.like, data.shape, data.engine
        self.narrow = data.narrow

    @property
    def passes(self) -> float:
        """Number of passes over the data so far."""
        return self.wide.passes

    def covariance(self) -> Array:
        """Return ``M^T M / n``, or ``M M^T / n`` on the left side, in the data's arithmetic.

        It is made once.
        """
        if self.square is not None:
            return self.narrow(self.square)
        wide, check, xp = self.wide, self.check, self.like.xp
        right = check.side == "right"
        if wide.squares_at_once and right == (self.shape[1] <= self.shape[0]):
            square, z = wide.checked_square(check.omega)
            check.receive(z)
            # Of the projections of Gram matrices.
            check.unit_error += 4 * (square.shape[0] + 4) * UNIT * wide.total
        else:
            check.multiply(check.omega[:, :0])
            square = wide.covariance() if right else wide.gram()
        if is_numpy_array(square) and square.flags.f_contiguous:
            square = square.T  # it is symmetric, and products with rows are twice as fast
        self.square, square = square, self.narrow(square)
        self.sound = bool(xp.all(xp.isfinite(square)))
        return square

    gram = covariance

    def forward(self, vectors: Array) -> Array:
        """Return ``M V``."""
        return self.narrow(self.wide.forward(self.wide.wide(vectors)))

    def adjoint(self, left: Array) -> Array:
        """Return ``M^T U``."""
        return self.narrow(self.wide.adjoint(self.wide.wide(left)))


class ExplicitCertifier(CheckedCertifier):
    """Certifier of block Krylov that multiplies an explicit matrix, in any arithmetic.

    Once the components have settled, rides or a factorisation bound an eigenvalue behind them,
    which holds for all later steps.  Only the leading Ritz vectors, up to that eigenvalue,
    take part in the proof.
    """

    #: Vectors of its own: those of an iteration before it have seen its choices.
    stream = 9
    multiplies = CheckedSquare

    def __init__(self, data: Centred, wide: Centred, *options: Any) -> None:
        super().__init__(data, wide, *options)
        # Bounds on the eigenvalues by the factorisation, infinity but for the last.
        self._known = np.zeros(0)

    @property
    def sound(self) -> bool:
        """Whether the arithmetic of the data holds the matrix."""
        return bool(self.operator.sound)

    def look(self, snapshot: Snapshot) -> Proof | None:
        """Return the proof after this step, or None if it is too early for one."""
        ended = self.priming.finished(snapshot.state)
        self._changes.append(0.0)
        if not self.sound or snapshot.state.variances.size == 0:
            self.exhausted = not self.sound or ended
            return None
        state = looked(snapshot.state)
        k = self._count(state)
        settled = state.change.size < k or float(state.change[:k].max()) <= self.tol
        if not ended and (not settled or state.variances.size <= k):
            return None
        return self._proof(state, k, ended)

    def conclude(self, snapshot: Snapshot) -> Proof | None:
        """Return a proof of what was found, however little that is."""
        if not self.sound or snapshot.state.variances.size == 0:
            return None
        state = looked(snapshot.state)
        return self._proof(state, min(self._count(state), state.variances.size), True)

    def _proof(self, state: KrylovState, k: int, last: bool) -> Proof | None:
        """Bound an eigenvalue, if that was not done and is worth its price, and prove."""
        full = state.projected.shape[0] >= self.check.z.shape[0]
        # Whether there is a look depends on the random vectors, so that every step counts.
        self._share()
        if not self._known.size and not full:
            self._bound(state, k, last)
        j = self._known.size - 1
        if full or j < 0 or j > state.variances.size:
            j = state.variances.size if full or last else 0
        if not j:
            return None
        # What holds outside of another basis, as that of an earlier look, does not hold here.
        self._ceiling, self._restarted = self._known, True
        tried = self._tried
        proof = self._prove(_leading(state, j, self.operator.square, self.wide), k, full, last)
        met = proof is not None and proof.counted and bool(proof.certificate.met(self.tol).all())
        # A pass in float64, or half a one, was not enough: the matrix is too coarse.
        self.exhausted = not met and (last or self._tried != tried)
        return proof

    def _bound(self, state: KrylovState, k: int, last: bool) -> None:
        """Bound an eigenvalue by a few rides or a factorisation, if the proof would then be near.

        All choices follow from the Ritz values alone; the sequence of rides and factorisations
        that would be made does not depend on the random vectors.
        """
        values, sizes = state.variances, np.linalg.norm(state.residual, axis=0)
        settled = int(np.argmax(np.append(sizes > SETTLED * values, True)))
        p = min(settled, k + MORE, values.size)
        if p <= k or state.step < self._attempts:
            return
        # A wide gap, and far from the last component: its angle needs that distance.
        gaps, distances = values[k - 1 : p - 1] - values[k:p], values[k - 1] - values[k:p]
        j = k + int(np.argmax(gaps * distances))
        high, low = float(values[j - 1]), float(values[j])
        # What the Ritz value lacks of the eigenvalue is of second order in its residual.
        close = float(sizes[j]) < 0.2 * (high - low)
        for position, first in ((0.25 if close else 0.5, True), (0.8, False)):
            sigma = low + position * (high - low)
            # Whether the angles that could be proven then are small enough, in first order.
            ahead = (values[:k] - sigma) * NEAR * self.tol
            if not last and bool((sizes[:k] > ahead).any()):
                return
            found = self._ridden(state, k, j) if first else math.inf
            if not found < (sigma + high) / 2:
                found = self._factorise(state, j, sigma)
            if found < high:
                self._known = np.append(np.full(j, np.inf), found)
                return
        # Again when the basis has grown.
        self._attempts = state.step + state.step // 4 + 1

    def _ridden(self, state: KrylovState, k: int, j: int) -> float:
        """Return a bound on the eigenvalue after the first ``j`` from a few rides, or infinity.

        Where the spectrum falls, they cost less than a factorisation.
        """
        rides, order = self._rides(state, k) + 1, state.projected.shape[0]
        dear = rides > FEW or self.check.z.shape[0] < ORDER * (rides + 1)
        if dear or state.variances.size < order:
            return math.inf
        self._depart(state, self._edge(state, k))
        assert self._riders is not None
        for _ in range(rides):
            self._riders.ride(multiplied(state.square, self._riders.board(state.square.dtype)))
        share = self._share_of_departure()
        seed = (self._seed, 10, self._departures, self._origin)
        findings = self.check.look(state, share / 2, seed)
        evidence = self._evidence(state, findings, k, share, False)
        # They have shown what this basis misses; the proof is of the leading Ritz vectors.
        self._riders, self._best, self._at = None, math.inf, 0
        return math.inf if evidence is None else float(upper(evidence)[j])

    def _factorise(self, state: KrylovState, j: int, sigma: float) -> float:
        """Return a bound on the eigenvalue after the first ``j``, or infinity.

        For any ``W`` of ``j`` columns, any ``L`` and ``K = C - sigma I - W W^T + L L^T``,
        ``C <= (sigma + |K|) I + W W^T`` and so ``lambda_{j+1} <= sigma + |K|`` (Weyl).  ``K`` does
        not depend on ``Omega``, and ``K Omega`` is known.
        """
        check, data = self.check, self.wide
        vectors = combine(state.basis, state.turn[:, :j], data.like)
        factor = vectors * data.like.asarray(np.sqrt(np.maximum(state.variances[:j], 0.0)))
        factor = self.operator.narrow(factor)
        triangle = factorised(state.square, factor, sigma)
        share = self._share_of_departure()
        if triangle is None:
            return math.inf
        product, size = times_square(triangle, check.omega)
        factor = data.wide(factor)
        rest = check.z - sigma * check.omega - factor @ (factor.T @ check.omega) + product
        size += float(data.like.xp.linalg.vector_norm(factor)) ** 2 + sigma
        noise = 1.01 * check.unit_error + 4 * (rest.shape[0] + j + 4) * UNIT * size
        noise = noise * check.norm + 4 * UNIT * check.norm_z
        return float(sigma + (spectral_norm(to_numpy(rest)) + noise) / tau(check.s, share))

    def _refined(
        self, state: KrylovState, findings: Findings, evidence: Evidence, k: int, share: float
    ) -> Mapped | None:
        """Refine the leading Ritz vectors by a pass in float64, once."""
        self._tried = state.step
        return super()._refined(state, findings, evidence, k, share)


class GivenMatrixCertifier(ExplicitCertifier):
    """Certifier of given components, by the covariance matrix and one factorisation of it.

    If the matrix without the given components is below their last variance, they are the leading
    ones, and their residuals bound their errors.
    """

    def audit(self, vectors: Array) -> Proof | None:
        """Return the proof of the Ritz vectors in the span of the components, or None.

        Parameters
        ----------
        vectors : array of shape (d, k)
            The components, in float64, which do not depend on the random vectors.
        """
        with np.errstate(all="ignore"):  # what float32 does not hold is found below
            square, k = self.operator.covariance(), vectors.shape[1]
            self._changes.append(0.0)
            if not self.sound:
                return None
            state = self.priming.init(self.wide.like, k, self._seed)
            state = state._replace(basis=(vectors,), turn=np.eye(k), square=square)
            state = _leading(state, k, self.operator.square, self.wide)
            last, low = float(state.variances[-1]), self._below(state)
        # The angles that could be proven in the middle of the gap, in first order.
        ahead = NEAR * self.tol * (state.variances - (low + last) / 2)
        if low >= last or bool((np.linalg.norm(state.residual, axis=0) > ahead).any()):
            return None
        self._share()  # whether or not the look is made
        for position in POSITIONS:
            found = self._factorise(state, k, low + position * (last - low))
            if found < last:
                # All of them count: the shares of a fit that follows may not depend on this.
                self._departures = len(POSITIONS)
                self._ceiling, self._restarted = np.append(np.full(k, np.inf), found), True
                proof = self._prove(state, k, False, True)
                # These bounds are of a basis that a fit which follows does not have.
                self._best, self._at, self._ceiling = math.inf, 0, np.zeros(0)
                self._restarted, self._tried = False, -3
                return proof
        return None

    def _below(self, given: KrylovState) -> float:
        """Estimate the largest eigenvalue beside the given components by a few steps on a block."""
        k, block = given.variances.size, self.operator.narrow(given.basis[0])
        like = replace(self.operator.like, n_features=block.shape[0])
        width = min(WIDTH, like.n_features - k)
        if not width:
            return 0.0
        newest = complete(block, like, k + width, (self._seed, 12, 1))[:, k:]
        state = given._replace(basis=(block,), newest=newest, coupling=np.zeros((width, 0)), step=1)
        priming = Beside(block_size=width, explicit=True)
        last, found = float(given.variances[-1]), 0.0
        while state.step <= STEPS and state.newest.shape[1]:
            state, before = priming.step(state, self.operator), found
            found = float(Found.beside(state, k).values[0])
            if state.step > LEAST and found - before < CLOSE * (last - found):
                break
        return found


def _leading(state: KrylovState, j: int, square: Array, wide: Centred) -> KrylovState:
    """Return the state whose basis are the first ``j`` Ritz vectors, computed again in float64.

    Products with a small matrix are cheap: what the iteration has rounded is corrected, and only
    the errors of the matrix itself are left.
    """
    basis, _ = orthonormalise(combine(state.basis, state.turn[:, :j], wide.like))
    images = multiplied(square, basis)
    inside = to_numpy(basis.T @ images)
    values, turn = small_eigh((inside + inside.T) / 2)
    rotation = wide.like.asarray(turn)
    vectors = basis @ rotation
    rest = images @ rotation - vectors * wide.like.asarray(values)
    sizes, apart = small_eigh(to_numpy(rest.T @ rest))
    kept = np.sqrt(sizes) > FLOOR * max(float(values[0]), 0.0)
    sizes, apart = np.sqrt(sizes[kept]), apart[:, kept]
    residual = sizes[:, None] * apart.T
    return state._replace(
        basis=(vectors,),
        newest=rest @ wide.like.asarray(apart / sizes),
        projected=np.diag(values),
        coupling=residual,
        variances=values,
        turn=np.eye(values.size),
        residual=residual,
    )
