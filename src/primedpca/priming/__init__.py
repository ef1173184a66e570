"""Algorithms that find the initial directions: one file each, and the registry of their names.

To add an algorithm, write a frozen dataclass that inherits :class:`BasePriming` and add a line to
the registry.  See :doc:`/add_a_priming`.
"""

from __future__ import annotations

from typing import Any

from primedpca._core.orthonormal import orthonormalise, random_basis
from primedpca.priming.base import BasePriming, UserPriming
from primedpca.priming.block_krylov import BlockKrylov
from primedpca.priming.eigengame import EigenGame
from primedpca.priming.exact import Exact
from primedpca.priming.extra_directions import best_extra
from primedpca.priming.frequent_directions import FrequentDirections
from primedpca.priming.krasulina import Krasulina
from primedpca.priming.mu_eigengame import MuEigenGame
from primedpca.priming.oja import Oja
from primedpca.priming.power_method import PowerMethod
from primedpca.priming.subspace_iteration import SubspaceIteration
from primedpca.priming.user_directions import (
    FromFunction,
    Given,
    check_change,
    check_directions,
    check_refined,
)
from primedpca.protocols import Priming

__all__ = [
    "OWN",
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
    "best_extra",
    "check_change",
    "check_directions",
    "check_refined",
    "orthonormalise",
    "random_basis",
]

#: The names that ``priming=`` and the command line accept; each is the name of a file here.
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

#: The library's own algorithms, whose results, and those of subclasses, need no checks.
OWN = tuple(REGISTRY.values())
#: The values of ``visits`` of a priming.
VISITS = ("whole", "batches", "rows")


def as_priming(priming: Any) -> Priming:
    """Return the Priming object for the estimator's parameter ``priming``.

    Parameters
    ----------
    priming : str, Priming, callable or array of shape (d, q)
        A name in the registry, an object with the members of a Priming, a function
        ``(X, n_directions) -> directions``, or the directions themselves.

    Returns
    -------
    Priming
        An object without the optional members is wrapped so that it has their defaults.
    """
    if isinstance(priming, str):
        if priming not in REGISTRY:
            names = ", ".join(sorted(REGISTRY))
            raise ValueError(
                f"Unknown `priming`={priming!r}. Use one of {names}; PrimedPCA also accepts 'auto'."
            )
        made: Priming = REGISTRY[priming]()
        return made
    if isinstance(priming, type):
        raise TypeError(
            f"`priming` is the class {priming.__name__}. Pass an instance, {priming.__name__}()."
        )
    whole = all(hasattr(priming, name) for name in ("visits", "init", "step", "directions"))
    if whole and priming.visits not in VISITS:
        raise ValueError(
            f"`visits` of the priming {type(priming).__name__} is {priming.visits!r}. Set it to "
            f"one of {', '.join(map(repr, VISITS))}."
        )
    if isinstance(priming, BasePriming):
        return priming  # type: ignore[return-value]
    # Users' objects are adapted here only, so that all other code can rely on every member.
    if whole:
        return UserPriming(priming)
    if callable(priming):
        return FromFunction(priming)
    if hasattr(priming, "shape"):
        return Given(priming)
    raise TypeError(
        f"Unsupported type for `priming`: {type(priming).__name__}. Pass a name, an object with "
        "the members visits, init, step and directions, a function, or an array of directions."
    )
