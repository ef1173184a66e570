"""Algorithms that find the initial directions: one file each, and the registry of their names.

To add one, write a frozen dataclass that inherits :class:`BasePriming`, with the members of
:class:`primedpca.protocols.Priming`, and add a line to the registry.  See :doc:`/add_a_priming`.
"""

from __future__ import annotations

from typing import Any

from primedpca.priming.base import BasePriming, UserPriming
from primedpca.priming.block_krylov import BlockKrylov
from primedpca.priming.eigengame import EigenGame
from primedpca.priming.exact import Exact
from primedpca.priming.frequent_directions import FrequentDirections
from primedpca.priming.krasulina import Krasulina
from primedpca.priming.mu_eigengame import MuEigenGame
from primedpca.priming.oja import Oja
from primedpca.priming.power_method import PowerMethod
from primedpca.priming.subspace_iteration import SubspaceIteration
from primedpca.priming.user_directions import FromFunction, Given, check_directions
from primedpca.protocols import Priming

__all__ = [
    "REGISTRY",
    "BasePriming",
    "BlockKrylov",
    "EigenGame",
    "Exact",
    "FrequentDirections",
    "Given",
    "Krasulina",
    "MuEigenGame",
    "Oja",
    "PowerMethod",
    "SubspaceIteration",
    "as_priming",
    "check_directions",
]

#: The names that ``priming=`` and the command line take: the file names.
REGISTRY: dict[str, type[Any]] = {
    "block_krylov": BlockKrylov,
    "eigengame": EigenGame,
    "exact": Exact,
    "frequent_directions": FrequentDirections,
    "krasulina": Krasulina,
    "mu_eigengame": MuEigenGame,
    "oja": Oja,
    "power_method": PowerMethod,
    "subspace_iteration": SubspaceIteration,
}


def as_priming(priming: Any) -> Priming:
    """Return the priming that ``priming`` stands for.

    Parameters
    ----------
    priming : str, Priming, callable or array of shape (d, q)
        A name of the registry, an object with the methods of a Priming, a function
        ``(X, n_directions) -> directions``, or the directions themselves.
    """
    if isinstance(priming, str):
        if priming not in REGISTRY:
            names = ", ".join(sorted(REGISTRY))
            raise ValueError(
                f"`priming`={priming!r} is not known here; use one of: {names} (PrimedPCA takes "
                "'auto' as well)."
            )
        made: Priming = REGISTRY[priming]()
        return made
    if isinstance(priming, type):
        raise TypeError(f"`priming` is the class {priming.__name__}; make an instance of it first.")
    if isinstance(priming, BasePriming):
        return priming  # type: ignore[return-value]
    # The one place that adapts what users bring.
    if all(hasattr(priming, name) for name in ("visits", "init", "step", "directions")):
        return UserPriming(priming)
    if callable(priming):
        return FromFunction(priming)
    if hasattr(priming, "shape"):
        return Given(priming)
    raise TypeError(
        f"`priming` is a {type(priming).__name__}; pass a name, an object with the methods "
        "visits, init, step and directions, a function, or an array of directions."
    )
