"""Block Krylov: keep every product with the data and take the best vectors of their span."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from primedpca._core import chain
from primedpca._core.arrays import dtype_name, is_numpy_array, is_torch_array, namespace
from primedpca._core.orthonormal import (
    LARGE,
    combine,
    complete,
    continued,
    draw,
    multiplied,
    orthonormalise,
    random_basis,
    small_eigh,
)
from primedpca._core.parameters import check_choice, check_count
from primedpca.priming.base import BasePriming
from primedpca.priming.exact import leading, right_vectors
from primedpca.protocols import Array, Like, Operator, PrimingTraits

__all__ = ["BlockKrylov", "KrylovState", "default_basis", "fall", "looked"]

NOTHING = np.zeros((0, 0))
#: A restart costs steps and ends a proof under way, so the basis may grow to this many bytes.
BASIS_BYTES = 2**29
#: With an explicit matrix a look costs more than a product: one after this part of the basis more.
LOOKS = 8
#: The same on a GPU, which decomposes a large matrix no faster than it makes a step.
LOOKS_THERE = 12
#: Angle in radians to which half of the directions are known some steps before the last.
ROUGH = 0.1
#: Ritz vectors beyond the directions wanted that are looked at.
MORE = 32
#: Columns to which its narrow blocks are joined.
JOINED = 64
#: A basis of this part of the dimensions costs as much as a full decomposition of the matrix.
PART = 3


class KrylovState(NamedTuple):
    """State of the iteration.

    Attributes
    ----------
    basis : tuple of arrays of shape (length, w)
        Blocks that have been multiplied with the data.  With ``newest``, all columns are
        orthonormal.
    images : tuple of arrays of shape (d, w)
        ``M^T`` times each block of the basis, where the left side keeps these products.
    newest : array of shape (length, w) or None
        The block to multiply next.  Before the first step: the warm start ``(d, q)`` or ``None``.
    projected : ndarray of shape (m, m)
        ``T = V^T C V``.
    coupling : ndarray of shape (b, w)
        ``B`` in ``C V = V T + Q B E^T``.
    variances, turn : ndarray of shape (m,) and (m, m)
        Eigenvalues and eigenvectors of ``projected``.  :func:`looked` computes these and the
        next three attributes.
    residual : ndarray of shape (b, m)
        Column i has the length of the residual of Ritz vector i.
    rest : float
        Estimate of the largest variance outside the span.
    change : ndarray of shape (p,)
        Estimated angle of each direction to the true component, in radians.
    step : int
        Steps made.
    n_directions : int
        Directions wanted, ``p``.
    seed : int
        Seed of the random first block.
    chain : Chain or None
        On a GPU: the buffers of the basis, while the steps run without a look by the host.
    square : array of shape (length, length) or None
        The covariance or Gram matrix, where it is explicit.
    """

    basis: tuple[Array, ...]
    images: tuple[Array, ...]
    newest: Any
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
    chain: Any = None
    square: Any = None

    @property
    def is_open(self) -> bool:
        """Whether the matrices of the last steps are still on the GPU."""
        return (
            self.chain is not None and self.projected.shape[0] < len(self.basis) * self.chain.width
        )

    @property
    def is_looked(self) -> bool:
        """Whether the eigenproblem of the last step has been solved."""
        return bool(self.turn.shape[0] == self.projected.shape[0])


@dataclass(frozen=True)
class BlockKrylov(BasePriming):
    r"""Block Lanczos with full reorthogonalisation and thick restarts.

    From a random block :math:`Q_1` every step multiplies the newest block and subtracts from the
    product its projection onto the basis :math:`V = [Q_1, \dots, Q_j]`, for the two newest blocks
    twice,

    .. math:: Z = C Q_j, \qquad H = V^T Z, \qquad Z - V H = Q_{j+1} B,

    so that :math:`C V = V T + Q_{j+1} B E_j^T` with :math:`T = V^T C V`.  The eigenvectors of
    the small :math:`T = S \Theta S^T` give the Ritz vectors :math:`V s_i`, the principal
    components within the span, and their residuals :math:`Q_{j+1} B s_i^{(j)}` without another
    pass.  When the basis has reached ``max_basis`` vectors, it is restarted from its leading
    Ritz vectors.

    Parameters
    ----------
    block_size : int or None, default=None
        Number of vectors multiplied in one step.  ``None`` means the number of directions wanted.
    max_basis : int or None, default=None
        Maximum number of vectors kept.  ``None`` means as many as 512 MiB hold, but no fewer than
        twelve blocks and six times the number of directions.  A smaller basis needs less memory
        and, on slow spectra, more steps.
    side : {"right", "left"}, default="right"
        ``"right"`` iterates with :math:`C` on vectors of length ``n_features``; ``"left"`` with
        :math:`M M^T / n` on vectors of length ``n_samples``, which takes one more pass at the
        end, and one pass less in every step where the data are read in columns.
    keep_images : bool, default=False
        With ``side="left"`` and data read in rows, whether to keep :math:`M^T` times every basis
        vector.  This saves the last pass and takes ``n_features`` numbers a vector.
    first_look : int, default=1
        On a GPU, the first step after which the small eigenproblem is solved on the host.  Earlier
        steps run without waiting for it.
    explicit : bool, default=False
        Whether to form the matrix of ``side``, the covariance or the Gram matrix, in the first
        step, and to multiply this matrix instead of the data: one pass in all, and one more from
        the left.  A step then makes several products while few directions are known or the basis
        is large.  A basis of a third of the dimensions, or of ``max_basis`` vectors, is replaced
        by a full decomposition.

    References
    ----------
    G. Golub, R. Underwood, "The block Lanczos method for computing eigenvalues", 1977; K. Wu,
    H. Simon, "Thick-restart Lanczos method for large symmetric eigenvalue problems", 2000.
    """

    block_size: int | None = None
    max_basis: int | None = None
    side: Literal["right", "left"] = "right"
    keep_images: bool = False
    first_look: int = 1
    explicit: bool = False

    visits: ClassVar[Literal["whole"]] = "whole"
    traits: ClassVar[PrimingTraits] = PrimingTraits(certifier="probes", replayed=True)

    def __post_init__(self) -> None:
        check_count("block_size", self.block_size, optional=True)
        check_count("max_basis", self.max_basis, optional=True)
        check_choice("side", self.side, ("right", "left"))
        check_choice("keep_images", self.keep_images, (True, False))
        check_count("first_look", self.first_look)
        check_choice("explicit", self.explicit, (True, False))

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> KrylovState:
        """Return an empty state; the first step draws the block, when ``n_samples`` is known."""
        none, empty, still = NOTHING, np.zeros(0), np.full(n_directions, np.inf)
        return KrylovState(
            (), (), start, none, none, empty, none, none, np.inf, still, 0, n_directions, seed
        )

    def step(self, state: KrylovState, data: Operator) -> KrylovState:
        """Multiply the newest block with all the data."""
        if not state.step:
            state = self._begun(state, data)
        if not self.explicit:
            return self._extended(state, data)
        # While few directions are known at all, none of the next products is the last.
        far = 2 * int((state.change < ROUGH).sum()) < state.n_directions
        for _ in range((1 + state.step // LOOKS) * (2 if far else 1)):
            length, used = state.newest.shape[0], state.projected.shape[0]
            full = used + state.newest.shape[1] > self._limit(state, _like(data, self.side))
            if (full or used * PART > length) and length > state.n_directions:
                return _decomposed(state)
            state = self._extended(state, data)
            if self.finished(state):
                break
        state = state._replace(basis=_joined(state.basis))
        return looked(state) if _is_wide(state) else state

    def _extended(self, state: KrylovState, data: Operator) -> KrylovState:
        """Multiply the newest block once."""
        if state.chain is None:
            return self._careful_step(state, data)
        if state.chain.is_full:
            state = self.closed(state, data)
            own = tuple(data.like.xp.asarray(block, copy=True) for block in state.basis)
            newest = data.like.xp.asarray(state.newest, copy=True)
            return self._careful_step(state._replace(basis=own, newest=newest, chain=None), data)
        z, _ = self._product(state, data)
        state.chain.extend(z)
        basis, newest = (*state.basis, state.newest), state.chain.block(len(state.basis) + 1)
        state = state._replace(basis=basis, newest=newest, step=state.step + 1)
        return self.closed(state, data) if state.step >= self.first_look else state

    def _begun(self, state: KrylovState, data: Operator) -> KrylovState:
        """Return the state with its first block, in a chain where that is of use."""
        like = _like(data, self.side)
        if self.explicit:
            square = data.covariance() if self.side == "right" else data.gram()
            state = state._replace(square=data.narrow(square))
        width = min(self.block_size or state.n_directions, like.n_features)
        roomy = self._limit(state, like) >= chain.STEPS * width and not self.keep_images
        roomy &= like.device != "cpu"  # NumPy's name of it
        if not (roomy and state.newest is None and chain.suits(like, width)):
            return state._replace(newest=self._first_block(state, data))
        if self.side == "right" or self.explicit:
            first = draw(like, width, state.seed, there=True)
        else:
            few = min(width, data.shape[1])
            first = data.forward(draw(data.like, few, state.seed, there=True))
        made = chain.Chain(like, first)
        return state._replace(newest=made.block(0), chain=made)

    def closed(self, state: KrylovState, data: Operator) -> KrylovState:
        """Return the state with the matrices of all its steps on the host.

        If a step on the GPU met columns that were nearly dependent, all are made again with care.
        """
        if not state.is_open:
            return state
        found = state.chain.matrices(len(state.basis))
        if found is None:
            first = data.like.xp.asarray(state.basis[0], copy=True)
            steps = len(state.basis)
            state = self.init(data.like, state.n_directions, state.seed)._replace(
                newest=first, step=state.step - steps, square=state.square
            )
            for _ in range(steps):
                state = self._careful_step(state, data)
                if self.finished(state):
                    break
            return state
        state = state._replace(projected=found[0], coupling=found[1], turn=NOTHING)
        return looked(state) if _is_wide(state) else state

    def _product(self, state: KrylovState, data: Operator) -> tuple[Array, tuple[Array, ...]]:
        """Multiply the newest block; return the product and the images."""
        newest, images = state.newest, state.images
        if state.square is not None:
            return multiplied(state.square, newest), images
        if self.side == "right":
            return data.covariance_product(newest), images
        if self.keep_images and data.source.axis == 0:
            images = (*images, _shelved(data.adjoint(newest), images, 12 * newest.shape[1]))
            z = data.forward(images[-1])
            z /= data.weight  # inside the library, covariances are divided by the sum of weights
            return z, images
        return data.gram_product(newest), images

    def _careful_step(self, state: KrylovState, data: Operator) -> KrylovState:
        """Multiply the newest block; look at every step for columns that are rounding."""
        z, images = self._product(state, data)
        basis = (*state.basis, state.newest)
        # C is symmetric, so C Q_j lies in the span of Q_(j-1), Q_j and Q_(j+1), up to rounding.
        near = range(max(0, len(basis) - 2), len(basis))
        newest, held, coupling = continued(z, basis, near)
        done = state.projected.shape[0]
        projected = np.zeros((held.shape[0], held.shape[0]))
        projected[:done, :done] = state.projected
        # T is symmetric: the new rows are the transpose of the new columns.
        projected[:, done:] = held
        projected[done:, :] = held.T
        state = state._replace(basis=basis, images=images, step=state.step + 1)
        state = state._replace(projected=projected, coupling=coupling, turn=NOTHING)
        if not self.explicit and _is_wide(state):
            last = newest.shape[1] == 0
            state = looked(state) if last or _is_worth_a_look(state) else state
        return self._go_on(state, newest, data)

    def _first_block(self, state: KrylovState, data: Operator) -> Array:
        like, start = _like(data, self.side), state.newest
        width = min(self.block_size or state.n_directions, like.n_features)
        if start is None and (self.side == "right" or self.explicit):
            return random_basis(like, width, state.seed)
        if self.side == "left":
            # M times random vectors is half a step ahead of random vectors, and the pass that
            # multiplies them also computes the mean.
            if start is None:
                start = draw(data.like, min(width, data.shape[1]), state.seed)
            start = data.forward(start)
        assert start is not None
        width = min(max(width, start.shape[1]), like.n_features)
        return random_basis(like, width, state.seed, start)

    def _go_on(self, state: KrylovState, newest: Array, data: Operator) -> KrylovState:
        """Choose the block to multiply next; restart if the basis has grown too large."""
        like, used = _like(data, self.side), state.projected.shape[0]
        wanted = self.block_size or state.n_directions
        narrow, width = newest.shape[1], min(wanted, like.n_features - used)
        short = narrow == 0 and used < min(state.n_directions, like.n_features)
        if short or (state.step == 1 and narrow < width):
            # The span is invariant but too narrow (data of low rank), or nearly so (a good start):
            # continue with random vectors.
            whole = like.xp.concat([*state.basis, newest], axis=1)
            newest = complete(whole, like, used + width, (state.seed, state.step))[:, used:]
            # Nothing comes out of the span along these vectors.
            more = ((0, width - narrow), (0, 0))
            coupling, residual = (
                np.pad(x[:narrow], more) for x in (state.coupling, state.residual)
            )
            state = state._replace(coupling=coupling, residual=residual)
        full = used + newest.shape[1] > self._limit(state, like)
        if full and newest.shape[1] and not self.explicit:
            # One block more than wanted: the extra Ritz vectors preserve some of the convergence.
            state = _cut_back(looked(state), like, state.n_directions + wanted)
        return state._replace(newest=newest)

    def _limit(self, state: KrylovState, like: Like) -> int:
        """Return the maximum number of basis vectors: at least the directions and two blocks."""
        wanted = self.block_size or state.n_directions
        each = like.n_features * (8 if "64" in dtype_name(like.dtype) else 4)
        most = self.max_basis or default_basis(wanted, state.n_directions, each)
        # A warm start may be wider than a block.
        widest = max(wanted, 0 if state.newest is None else state.newest.shape[1])
        return max(most, state.n_directions + 2 * widest)

    def directions(self, state: KrylovState, data: Operator) -> Array:
        """Return the leading Ritz vectors."""
        return self.refined(state, data)[0]

    def refined(self, state: KrylovState, data: Operator) -> tuple[Array, np.ndarray]:
        """Return the leading Ritz vectors ``(d, p)`` and their variances."""
        state = looked(self.closed(state, data))
        p = min(state.n_directions, state.variances.size)
        variances, turn = state.variances[:p], state.turn[:, :p]
        if state.images:
            return right_vectors(combine(state.images, turn, data.like), variances, data), variances
        vectors = combine(state.basis, turn, _like(data, self.side))
        if self.side == "left":
            vectors = right_vectors(data.adjoint(vectors), variances, data)
        return vectors, variances

    def change(self, state: KrylovState) -> np.ndarray:
        """Return the estimated angle of each direction to the true component, ``(p,)``."""
        return state.change

    def variances(self, state: KrylovState) -> np.ndarray:
        """Return the Ritz values; empty until the basis holds ``n_directions`` vectors."""
        return state.variances

    def finished(self, state: KrylovState) -> bool:
        """Whether the span is invariant, so that further products add nothing."""
        return state.step > 0 and state.newest.shape[1] == 0


def default_basis(block: int, n_directions: int, each: int) -> int:
    """Return the number of vectors, of ``each`` bytes, at which a basis is restarted."""
    return max(12 * block, 6 * n_directions, BASIS_BYTES // each)


def _joined(basis: tuple[Array, ...]) -> tuple[Array, ...]:
    """Join all blocks but the last two to some 64 columns each: many narrow ones cost time."""
    if len(basis) < 3:
        return basis
    *old, before, last = basis
    joined: list[Array] = []
    for block in old:
        if joined and joined[-1].shape[1] + block.shape[1] <= JOINED:
            joined[-1] = namespace(block).concat([joined[-1], block], axis=1)
        else:
            joined.append(block)
    return (*joined, before, last)


def _is_wide(state: KrylovState) -> bool:
    """Whether the basis is wide enough for a look: a narrower one cannot have converged."""
    return bool(state.projected.shape[0] >= min(state.n_directions, state.basis[0].shape[0]))


def _is_worth_a_look(state: KrylovState) -> bool:
    """Whether the basis has grown enough since the last look: on a GPU, large ones are rare."""
    order, block = state.projected.shape[0], state.basis[0]
    if order < LARGE or not (is_torch_array(block) and block.is_cuda):
        return True
    return bool(LOOKS_THERE * (order - state.variances.size) >= order)


def _decomposed(state: KrylovState) -> KrylovState:
    """Return the leading eigenvectors of the explicit matrix as a basis that is finished."""
    wanted = min(state.n_directions + max(8, state.n_directions // 4), state.square.shape[0])
    xp = namespace(state.square)
    values, vectors = leading(lambda: xp.astype(state.square, xp.float64), wanted)
    found = (values, np.eye(wanted), np.zeros((0, wanted)), float(values[-1]))
    return KrylovState(
        (vectors,),
        (),
        vectors[:, :0],
        np.diag(values),
        np.zeros((0, wanted)),
        *found,
        np.zeros(state.n_directions),
        state.step + 1,
        state.n_directions,
        state.seed,
        square=state.square,
    )


def looked(state: KrylovState) -> KrylovState:
    """Return the state with the eigenproblem of ``projected`` solved."""
    order = state.projected.shape[0]
    if state.turn.shape[0] == order:
        return state
    part = state.n_directions + MORE
    few = part if state.square is not None and 4 * part <= order else None
    # The newest diagonal block is symmetric only up to rounding.
    block = state.basis[0]
    there = block.device if is_torch_array(block) and block.is_cuda else None
    variances, turn = small_eigh((state.projected + state.projected.T) / 2, few, there)
    done = order - state.coupling.shape[1]
    # C V S = V S Theta + Q B E^T S: the residuals are Q times this matrix, and Q is orthonormal.
    residual = state.coupling @ turn[done:]
    # The newest block is orthogonal to the earlier ones: its variances estimate those outside.
    newest = state.projected[done:, done:]
    rest = float(np.linalg.eigvalsh((newest + newest.T) / 2)[-1])
    # Squared residuals of all Ritz vectors together, less those at hand.
    others = float(np.sum(state.coupling**2) - np.sum(residual**2)) if few else 0.0
    change = _angles(variances, residual, rest, state.n_directions, others)
    state = state._replace(variances=variances, turn=turn, residual=residual)
    return state._replace(rest=rest, change=change)


def fall(state: KrylovState, k: int) -> float:
    """Estimate the part by which the variances fall from the k-th to the 2k-th.

    Gauss quadrature: the part of a random first block that lies along a Ritz vector, times the
    dimension, is the number of variances that its Ritz value stands for.  After three steps the
    estimate is within 0.1 where the variances fall slowly.  It needs a basis that has not been
    restarted.
    """
    length, width = state.basis[0].shape
    values, vectors = np.linalg.eigh((state.projected + state.projected.T) / 2)
    weights = (vectors[:width] ** 2).sum(axis=0)[::-1] * (length / width)
    ends = np.interp([k, 2 * k], np.cumsum(weights) - weights / 2, values[::-1])
    return 1.0 - float(ends[1] / ends[0]) if ends[0] > 0 else 1.0


def _like(data: Operator, side: str) -> Like:
    """Library, device, dtype and length of the vectors of ``side``."""
    length = data.shape[1] if side == "right" else data.shape[0]
    return dataclasses.replace(data.like, n_features=length)


def _angles(
    variances: np.ndarray, residual: np.ndarray, rest: float, p: int, others: float = 0.0
) -> np.ndarray:
    """Estimate the angle between each Ritz vector and the true component, ``(p,)``.

    The error of a Ritz vector lies outside the span, where the largest variance is estimated by
    that of the last block multiplied: ``tan(angle) = |r| / (theta - rest)``.  Residuals of other
    Ritz vectors enter in second order, by the factor ``sqrt(1 + kappa^2)`` of the block bound;
    gaps below a thousandth of ``theta`` are taken as a thousandth.  ``others`` is the sum of the
    squared residuals of Ritz vectors that follow the last one.
    """
    lengths = np.linalg.norm(residual, axis=0)
    sizes, theta = lengths[:p], variances[:p]
    apart = np.maximum(np.abs(theta[:, None] - variances), 1e-3 * theta[:, None])
    np.fill_diagonal(apart, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        turned = np.where(lengths > 0, lengths / apart, 0.0)
        more = np.where(others > 0, others / apart[:, -1] ** 2, 0.0)
        reach = sizes * np.sqrt(1 + (turned**2).sum(axis=1) + more)
    ahead = theta - rest
    found = np.where(ahead > 0, np.arctan2(reach, np.maximum(ahead, 0.0)), np.pi / 2)
    found = np.where(sizes == 0, 0.0, found)
    return np.concatenate([found, np.full(p - found.size, np.inf)])


def _shelved(image: Array, images: tuple[Array, ...], limit: int) -> Array:
    """Copy ``image`` behind the others into one large allocation.

    The system backs a large allocation with large pages.  With small pages, a thousand to an
    image, the page faults would cost as much as computing the image.
    """
    if not is_numpy_array(image):
        return image
    shelf = images[-1].base if images else None
    if shelf is None:  # first image, or a restart: states from before it still use the old one
        shelf = np.empty(image.shape[0] * limit, image.dtype)
    used = sum(other.size for other in images if other.base is shelf)
    if used + image.size > shelf.size:
        return image
    place = shelf[used : used + image.size].reshape(image.shape)
    place[...] = image
    return place


def _cut_back(state: KrylovState, like: Like, keep: int) -> KrylovState:
    """Keep the leading ``keep`` Ritz vectors of a full basis (a thick restart)."""
    keep = min(keep, state.variances.size)
    turn = state.turn[:, :keep]
    images = (combine(state.images, turn, like),) if state.images else ()
    return state._replace(
        # Orthonormalised again, because rounding would add up over restarts.
        basis=(orthonormalise(combine(state.basis, turn, like))[0],),
        images=images,
        # Ritz vectors diagonalise C within their span.
        projected=np.diag(state.variances[:keep]),
        coupling=state.residual[:, :keep],
        variances=state.variances[:keep],
        turn=np.eye(keep),
        residual=state.residual[:, :keep],
    )
