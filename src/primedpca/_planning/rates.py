"""Speed of machines: seconds for a unit of each kind of work.

The rates were measured on a server.  Only their ratios decide which algorithm is cheapest, and
ratios differ little between machines.  ``python benchmarks/planner.py`` compares the estimates with
measured times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["CORE", "DEVICE", "Rates"]


@dataclass(frozen=True, eq=False)  # hashed by identity: plans of equal loads are kept
class Rates:
    """Seconds for a unit of work on one core or on a device.

    Dictionaries have the keys 4 and 8, the bytes of a number (float32, float64).

    Attributes
    ----------
    dense, sparse : dict of pairs
        For each entry of the data: to convert it, and to multiply it with one column and back
        (4 flops).
    square : dict
        For an entry of dense data and a column of the covariance or Gram matrix.
    counted : float or None
        The same for whole numbers of 8 bits, where their products are made exactly.
    pairs : float
        For a pair of stored entries of sparse data in the covariance or Gram matrix.
    add : float
        To add an entry of a block's result.
    basis : dict
        For a flop of orthogonalising tall matrices.
    small, full : float
        For ``m^3`` of an eigenproblem of order ``m``: all vectors of a small one, of a large one.
    few : pair of float
        For ``m^3`` and for ``m`` of an eigenproblem with a few vectors.
    factor : dict
        For ``m^3`` of a Cholesky factorisation.
    order : float
        For ``m`` of a large eigenproblem with all vectors: launches, one after the other.
    fit, step, proof : float
        Fixed cost of a fit, of a step, and of a step with a proof.
    """

    dense: dict[int, tuple[float, float]]
    sparse: dict[int, tuple[float, float]]
    square: dict[int, float]
    counted: float | None
    pairs: float
    add: float
    basis: dict[int, float]
    small: float
    full: float
    few: tuple[float, float]
    factor: dict[int, float]
    order: float
    fit: float
    step: float
    proof: float


CORE = Rates(
    dense={4: (1.1e-9, 0.042e-9), 8: (2.0e-9, 0.088e-9)},
    sparse={4: (1.7e-9, 0.55e-9), 8: (1.7e-9, 0.9e-9)},
    square={4: 0.012e-9, 8: 0.024e-9},
    counted=None,
    pairs=4e-9,
    add=1e-9,
    basis={4: 0.03e-9, 8: 0.06e-9},
    small=0.35e-9,
    full=0.16e-9,
    few=(0.045e-9, 16e-6),
    factor={4: 5e-12, 8: 10e-12},
    order=0.0,
    fit=0.35e-3,
    step=1e-3,
    proof=1e-2,
)
#: A data-centre GPU (measured on an H200): products run at the speed of its memory; kernel
#: launches and small problems are expensive.  Sparse Gram matrices are formed by the host.
DEVICE = replace(
    CORE,
    dense={4: (1.4e-12, 0.04e-12), 8: (1.4e-12, 0.05e-12)},
    sparse={4: (20e-12, 2e-12), 8: (30e-12, 3e-12)},
    counted=0.0036e-12,
    square={4: 0.05e-12, 8: 0.05e-12},
    add=1e-12,
    basis={4: 0.1e-12, 8: 0.2e-12},
    small=1e-9,
    full=1.2e-12,
    few=(0.5e-12, 4.5e-6),
    order=8e-6,
    fit=0.4e-3,
    step=0.4e-3,
    proof=8e-3,
)
