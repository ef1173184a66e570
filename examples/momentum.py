"""A priming of one's own, for `primedpca race --priming examples/momentum.py:Momentum`."""

from dataclasses import dataclass
from typing import NamedTuple

from primedpca.priming import BasePriming, orthonormalise, random_basis


class State(NamedTuple):
    older: object
    basis: object


@dataclass(frozen=True)
class Momentum(BasePriming):
    """Subspace iteration with momentum: V <- orth(C V - beta V_before)."""

    beta: float = 0.1
    visits = "whole"

    def init(self, like, n_directions, seed, start=None):
        basis = random_basis(like, n_directions, seed, start)
        return State(basis * 0, basis)

    def step(self, state, data):
        new = data.covariance_product(state.basis) - self.beta * state.older
        return State(state.basis, orthonormalise(new)[0])

    def directions(self, state, data):
        return state.basis
