"""Base of the stochastic primings: SGD with Nesterov momentum on shuffled mini-batches.

Each algorithm uses the data only through ``Z = C V``, with ``C = M^T M / n`` of the mini-batch,
and the small matrix ``G = V^T Z``.  The algorithms differ in the ascent direction ``g`` that they
compute from these and in how they normalise ``V``.  With momentum ``m`` and rate ``eta``

    u <- m u + g(V),    V <- keep(V + eta (g(V) + m u)),

which is Nesterov's method in the form of PyTorch's ``SGD(nesterov=True)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._core.orthonormal import orthonormalise, random_basis
from primedpca._core.parameters import check_choice, check_count, is_real
from primedpca.priming.base import BasePriming
from primedpca.protocols import Array, Like, Operator, PrimingTraits

__all__ = ["SGDState", "Stochastic", "fitting_rate"]


#: Automatic learning rate times the largest variance.  From 0.03 to 0.3 all four algorithms
#: converge on steep, linear and real spectra; at 1 Sanger's rule diverges.
RELATIVE_RATE = 0.1


class SGDState(NamedTuple):
    """Vectors ``(d, p)``, their velocity, steps made, learning rate (0 until it is known)."""

    vectors: Array
    velocity: Array
    step: int
    rate: float


@dataclass(frozen=True, kw_only=True)
class Stochastic(BasePriming, ABC):
    """Base class of the stochastic primings; a subclass defines :meth:`ascent`.

    Parameters
    ----------
    learning_rate : float or "auto", default="auto"
        Factor of the ascent direction, in units of 1 / variance of the data: data twice as large
        need a quarter of the rate.  ``"auto"`` is 0.1 divided by the largest variance of the
        first mini-batch.
    steps : int, default=1000
        Number of mini-batches to visit.
    momentum : float, default=0.9
        Nesterov momentum, in [0, 1); 0 is plain SGD.
    schedule : {"constant", "1/t"}, default="constant"
        ``"1/t"`` multiplies the rate in step ``t`` by ``T / (T + t)`` with ``T = steps / 10``.
    """

    learning_rate: float | Literal["auto"] = "auto"
    steps: int = 1000
    momentum: float = 0.9
    schedule: Literal["constant", "1/t"] = "constant"

    visits: ClassVar[Literal["batches"]] = "batches"
    traits: ClassVar[PrimingTraits] = PrimingTraits(own_end=True)
    #: Whether :meth:`move` never waits for the host, so that a CUDA graph can replay it.
    replays: ClassVar[bool] = False

    def __post_init__(self) -> None:
        rate = self.learning_rate
        if not (isinstance(rate, str) and rate == "auto") and not (
            is_real(rate) and 0 < rate < np.inf
        ):
            raise ValueError(
                f"`learning_rate`={rate!r} must be positive and finite, or 'auto' to choose it "
                "from the data."
            )
        check_count("steps", self.steps)
        if not (is_real(self.momentum) and 0 <= self.momentum < 1):
            raise ValueError(f"`momentum`={self.momentum!r} must be a number in [0, 1).")
        check_choice("schedule", self.schedule, ("constant", "1/t"))

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> SGDState:
        """Return random orthonormal vectors with velocity 0."""
        vectors = random_basis(like, n_directions, seed, start)
        rate = 0.0 if self.learning_rate == "auto" else float(self.learning_rate)
        return SGDState(vectors, vectors * 0, 0, rate)

    def step(self, state: SGDState, data: Operator) -> SGDState:
        """Make one SGD step on a mini-batch."""
        v, u, t, rate = state
        rate = rate or fitting_rate(data, v)
        z = data.covariance_product(v)
        v, u = self.move(v, u, z, v.T @ z, self.rate_at(t, rate, data))
        return SGDState(v, u, t + 1, rate)

    def rate_at(self, step: int, rate: float, data: Operator) -> float:
        """Return the learning rate of a step, counted from 0, in the units of ``M``."""
        horizon = self.steps / 10
        eta = rate if self.schedule == "constant" else rate * horizon / (horizon + step)
        if self.learning_rate == "auto":
            return eta
        # The user's rate is in the units of the data, not of M.
        gain: float = data.frame.gain
        return eta / gain / gain

    def move(self, v: Array, u: Array, z: Array, g: Array, eta: Any) -> tuple[Array, Array]:
        """Return vectors and velocity after one step, from ``Z = C V`` and ``G = V^T Z``.

        Arrays may be stacks ``(..., d, p)`` of independent runs, and ``eta`` an array of rates.
        """
        ascent = self.ascent(v, z, g)
        u = self.momentum * u + ascent
        return self.keep(v + eta * (ascent + self.momentum * u)), u

    def directions(self, state: SGDState, data: Operator) -> Array:
        """Return the current vectors."""
        return state.vectors

    def finished(self, state: SGDState) -> bool:
        """Whether all steps are done."""
        return state.step >= self.steps

    def remedy(self, state: SGDState, data: Operator) -> str:
        """Return the end of the message: a learning rate to try, in the units of the data."""
        square = data.frame.gain * data.frame.gain
        rate = state.rate * square if self.learning_rate == "auto" else state.rate
        fitting = fitting_rate(data, random_basis(data.like, 1, 0)) * square
        other = "" if self.learning_rate == "auto" else " or 'auto'"
        return (
            f": `learning_rate`={rate:.3g} is too large for these data. Try "
            f"{min(rate / 10, fitting):.2g}{other}."
        )

    @abstractmethod
    def ascent(self, v: Array, z: Array, g: Array) -> Array:
        """Return the ascent direction ``(..., d, p)`` from ``V``, ``Z = C V``, ``G = V^T Z``."""

    def keep(self, v: Array) -> Array:
        """Return the vectors normalised after a step; the default leaves them unchanged."""
        return v


def fitting_rate(data: Operator, vectors: Array) -> float:
    """Return 0.1 divided by the largest variance of a batch.

    The variance is estimated in the span of ``vectors`` after two power iterations.
    """
    for _ in range(2):
        vectors = orthonormalise(data.covariance_product(vectors))[0]
    inside = to_numpy(vectors.T @ data.covariance_product(vectors)).astype(np.float64)
    if not np.isfinite(inside).all():
        return RELATIVE_RATE
    largest = float(np.linalg.eigvalsh((inside + inside.T) / 2)[-1])
    # A batch of equal rows has no variance, which rounding may leave slightly negative.
    return RELATIVE_RATE / (largest if largest > 0 else 1.0)
