"""Block Krylov: every product with the data is kept, and the best of their span is taken."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from primedpca._core.arrays import is_numpy_array
from primedpca._core.orthonormal import (
    combine,
    complete,
    continued,
    draw,
    orthonormalise,
    random_basis,
    small_eigh,
)
from primedpca.priming.base import BasePriming
from primedpca.priming.checks import check_choice, check_count
from primedpca.priming.exact import right_vectors
from primedpca.protocols import Array, Like, PrimingTraits

__all__ = ["BlockKrylov", "KrylovState", "looked"]

NOTHING = np.zeros((0, 0))


class KrylovState(NamedTuple):
    """Where the iteration stands.

    ``basis`` are blocks ``(length, w)`` that have been multiplied with the data, ``newest`` is
    the one to be multiplied next; all are orthonormal together.  ``images`` is what ``M^T`` makes
    of each block of the left side, where that is kept.  ``projected`` is ``V^T C V`` and
    ``coupling`` what ties it to ``newest``.  ``variances`` and ``turn`` are its eigenvalues and
    eigenvectors, ``residual`` the small matrix whose columns are as long as the residuals,
    ``rest`` about the largest variance outside; they are empty until :func:`looked` at.
    Before the first step ``newest`` are directions to begin with, ``(d, q)``, or ``None``.
    """

    basis: tuple[Array, ...]
    images: tuple[Array, ...]
    newest: Array | None
    projected: np.ndarray
    coupling: np.ndarray
    variances: np.ndarray
    turn: np.ndarray
    residual: np.ndarray
    rest: float
    change: np.ndarray
    step: int
    n_directions: int
    seed: int


@dataclass(frozen=True)
class BlockKrylov(BasePriming):
    r"""Block Lanczos with full reorthogonalisation and thick restarts.

    From a random block :math:`Q_1` every step multiplies the newest block and takes out what
    the basis :math:`V = [Q_1, \dots, Q_j]` holds already, its neighbours twice,

    .. math:: Z = C Q_j, \qquad H = V^T Z, \qquad Z - V H = Q_{j+1} B,

    so that :math:`C V = V T + Q_{j+1} B E_j^T` with :math:`T = V^T C V`.  The eigenvectors of
    the small :math:`T = S \Theta S^T` give the Ritz vectors :math:`V s_i`, the best that the
    span of everything seen has to offer, and their residuals :math:`Q_{j+1} B s_i^{(j)}` without
    another look at the data.  A basis that has reached ``max_basis`` is cut back to its best
    vectors.

    Parameters
    ----------
    block_size : int, optional
        Vectors multiplied at a time; by default as many as directions are looked for.
    max_basis : int, optional
        The most vectors kept; by default twelve blocks and at least six times the directions.
    side : {"right", "left"}
        Whether to iterate with :math:`C` on vectors of length ``n_features``, or with
        :math:`M M^T / n` on vectors of length ``n_samples``, which costs one pass more in the
        end and a pass less in every step where the data are read in columns.
    keep_images : bool
        On the left side of data that are read in rows, keep what the first half of every step
        makes of the basis, ``n_features`` numbers a vector: that saves the pass in the end.

    References
    ----------
    G. Golub, R. Underwood, "The block Lanczos method for computing eigenvalues", 1977; K. Wu,
    H. Simon, "Thick-restart Lanczos method for large symmetric eigenvalue problems", 2000.
    """

    block_size: int | None = None
    max_basis: int | None = None
    side: Literal["right", "left"] = "right"
    keep_images: bool = False

    visits: ClassVar[Literal["whole"]] = "whole"
    traits: ClassVar[PrimingTraits] = PrimingTraits(certifier="probes", replayed=True)

    def __post_init__(self) -> None:
        check_count("block_size", self.block_size, optional=True)
        check_count("max_basis", self.max_basis, optional=True)
        check_choice("side", self.side, ("right", "left"))
        check_choice("keep_images", self.keep_images, (True, False))

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> KrylovState:
        """Nothing yet but what to begin with: the left side does not know its length here."""
        none, empty, still = NOTHING, np.zeros(0), np.full(n_directions, np.inf)
        return KrylovState(
            (), (), start, none, none, empty, none, none, np.inf, still, 0, n_directions, seed
        )

    def step(self, state: KrylovState, data: Any) -> KrylovState:
        """One multiplication of the newest block with all the data."""
        newest = state.newest if state.step else self._first_block(state, data)
        images = state.images
        if self.side == "right":
            z = data.covariance_product(newest)
        elif self.keep_images and data.source.axis == 0:
            images = (*images, _shelved(data.adjoint(newest), images, self._limit(state)))
            z = data.forward(images[-1])
            z /= data.weight
        else:
            z = data.gram_product(newest)
        basis = (*state.basis, newest)
        # C is symmetric: what it makes of a block lies in that, the one before and the next.
        near = range(max(0, len(basis) - 2), len(basis))
        newest, held, coupling = continued(z, basis, near)
        done = state.projected.shape[0]
        projected = np.zeros((held.shape[0], held.shape[0]))
        projected[:done, :done] = state.projected
        projected[:, done:] = held
        projected[done:, :] = held.T
        state = state._replace(basis=basis, images=images, step=state.step + 1)
        state = state._replace(projected=projected, coupling=coupling, turn=NOTHING)
        if projected.shape[0] >= min(state.n_directions, newest.shape[0]):
            state = looked(state)  # before, it cannot have converged
        return self._go_on(state, newest, data)

    def _first_block(self, state: KrylovState, data: Any) -> Array:
        like, start = _like(data, self.side), state.newest
        width = min(self.block_size or state.n_directions, like.n_features)
        if start is None and self.side == "right":
            return random_basis(like, width, state.seed)
        if self.side == "left":
            # The image of random vectors is ahead by half a step, and the pass learns the mean.
            if start is None:
                start = draw(data.like, min(width, data.shape[1]), state.seed)
            start = data.forward(start)
        assert start is not None
        width = min(max(width, start.shape[1]), like.n_features)
        return random_basis(like, width, state.seed, start)

    def _go_on(self, state: KrylovState, newest: Array, data: Any) -> KrylovState:
        """Choose what is multiplied next; cut the basis back if it has grown too large."""
        like, used = _like(data, self.side), state.projected.shape[0]
        wanted = self.block_size or state.n_directions
        if newest.shape[1] == 0 and used < min(state.n_directions, like.n_features):
            # The span is invariant and too narrow for what is asked for: go on elsewhere.
            width = min(wanted, like.n_features - used)
            whole = like.xp.concat(list(state.basis), axis=1)
            newest = complete(whole, like, used + width, (state.seed, state.step))[:, used:]
        if used + newest.shape[1] > self._limit(state) and newest.shape[1]:
            state = _cut_back(looked(state), like, state.n_directions + wanted)
        return state._replace(newest=newest)

    def _limit(self, state: KrylovState) -> int:
        """How many vectors are kept at most: room for two blocks beside the directions."""
        wanted = self.block_size or state.n_directions
        default = max(12 * wanted, 6 * state.n_directions)
        # Directions to begin with may be a wider block than is asked for.
        widest = max(wanted, 0 if state.newest is None else state.newest.shape[1])
        return max(self.max_basis or default, state.n_directions + 2 * widest)

    def directions(self, state: KrylovState, data: Any) -> Array:
        """The leading Ritz vectors."""
        return self.refined(state, data)[0]

    def refined(self, state: KrylovState, data: Any) -> tuple[Array, np.ndarray]:
        """The leading Ritz vectors ``(d, p)`` and their variances: nothing is left to refine."""
        state = looked(state)
        p = min(state.n_directions, state.variances.size)
        variances, turn = state.variances[:p], state.turn[:, :p]
        if state.images:
            return right_vectors(combine(state.images, turn, data.like), variances, data), variances
        vectors = combine(state.basis, turn, _like(data, self.side))
        if self.side == "left":
            vectors = right_vectors(data.adjoint(vectors), variances, data)
        return vectors, variances

    def change(self, state: KrylovState) -> np.ndarray:
        """About how far each direction is from the truth, ``(p,)``."""
        return state.change

    def variances(self, state: KrylovState) -> np.ndarray:
        """The Ritz values so far; none until the basis is wide enough."""
        return state.variances

    def finished(self, state: KrylovState) -> bool:
        """Whether the span is invariant: nothing new comes out of it."""
        return state.step > 0 and state.newest.shape[1] == 0  # type: ignore[union-attr]


def looked(state: KrylovState) -> KrylovState:
    """The state with its small problem solved."""
    order = state.projected.shape[0]
    if state.turn.shape[0] == order:
        return state
    variances, turn = small_eigh((state.projected + state.projected.T) / 2)
    done = order - state.coupling.shape[1]
    residual = state.coupling @ turn[done:]
    newest = state.projected[done:, done:]
    rest = float(np.linalg.eigvalsh((newest + newest.T) / 2)[-1])
    change = _angles(variances, residual, rest, state.n_directions)
    state = state._replace(variances=variances, turn=turn, residual=residual)
    return state._replace(rest=rest, change=change)


def _like(data: Any, side: str) -> Like:
    """What vectors of the side that is iterated on look like."""
    length = data.shape[1] if side == "right" else data.shape[0]
    return dataclasses.replace(data.like, n_features=length)


def _angles(variances: np.ndarray, residual: np.ndarray, rest: float, p: int) -> np.ndarray:
    """About how far each Ritz vector is from the truth, ``(p,)``.

    What a Ritz vector lacks lies outside the span, where the variances reach about as high as
    in the block that was newest: ``tan(angle) = |r| / (theta - rest)``.  What its neighbours
    lack turns it, too, in second order: the factor ``sqrt(1 + kappa^2)`` of the block bound, for
    neighbours nearer than a thousandth as if they were as far.
    """
    lengths = np.linalg.norm(residual, axis=0)
    sizes, theta = lengths[:p], variances[:p]
    apart = np.maximum(np.abs(theta[:, None] - variances), 1e-3 * theta[:, None])
    np.fill_diagonal(apart, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        turned = np.where(lengths > 0, lengths / apart, 0.0)
        reach = sizes * np.sqrt(1 + (turned**2).sum(axis=1))
    ahead = theta - rest
    found = np.where(ahead > 0, np.arctan2(reach, np.maximum(ahead, 0.0)), np.pi / 2)
    found = np.where(sizes == 0, 0.0, found)
    return np.concatenate([found, np.full(p - found.size, np.inf)])


def _shelved(image: Array, images: tuple[Array, ...], limit: int) -> Array:
    """``image`` at its place behind the others, in one large piece of memory.

    Systems hand out large pieces in large pages; in small ones, a thousand to an image, it would
    cost as much to touch them as to make it.
    """
    if not is_numpy_array(image):
        return image
    shelf = images[-1].base if images else None
    if shelf is None:  # none yet, or a basis was cut back: who has states of before has that one
        shelf = np.empty(image.shape[0] * limit, image.dtype)
    used = sum(other.size for other in images if other.base is shelf)
    if used + image.size > shelf.size:
        return image
    place = shelf[used : used + image.size].reshape(image.shape)
    place[...] = image
    return place


def _cut_back(state: KrylovState, like: Like, keep: int) -> KrylovState:
    """Keep the best Ritz vectors of a full basis (a thick restart)."""
    keep = min(keep, state.variances.size)
    turn = state.turn[:, :keep]
    images = (combine(state.images, turn, like),) if state.images else ()
    return state._replace(
        basis=(orthonormalise(combine(state.basis, turn, like))[0],),
        images=images,
        projected=np.diag(state.variances[:keep]),
        variances=state.variances[:keep],
        turn=np.eye(keep),
        residual=state.residual[:, :keep],
    )
