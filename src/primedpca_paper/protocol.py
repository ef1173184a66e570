"""The protocol of the paper's section 5, with our choices where the paper gives none.

Everything that determines the numbers of the tables is here; ``docs/reproduce.md`` gives reasons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from primedpca.priming import EigenGame, Oja, PowerMethod
from primedpca.sources.base import cut_evenly
from primedpca_paper.datasets import SETS

__all__ = [
    "BATCH",
    "EXTRAS",
    "METHODS",
    "N_COMPONENTS",
    "OURS",
    "PAPERS",
    "SETS",
    "THRESHOLDS",
    "Protocol",
    "epoch_of",
    "priming_of",
]

N_COMPONENTS = 16
EXTRAS = (0, 2, 4)
BATCH = 1000
MOMENTUM = 0.9
#: V = pi/8, ..., pi/1024.
THRESHOLDS = tuple(math.pi / 2**i for i in range(3, 11))

#: The paper's primings and their grids of settings: learning rates, and epsilon of the power
#: method.
PAPERS: dict[str, tuple[float, ...]] = {
    "eigengame": tuple(10.0**-i for i in range(7)),
    "oja": tuple(10.0**-i for i in range(3, 7)),
    "power_method": tuple(10.0**-i for i in range(3, 8)),
}
#: Methods added here: block Krylov with a target angle, the same certified, and a full
#: decomposition.
OURS = ("block_krylov", "certified", "exact")
METHODS = (*PAPERS, *OURS)

#: Length of a run: mini-batches, and passes of the power method.
STEPS: dict[str, tuple[int, int]] = {
    "exponential": (10_000, 10_000),
    "linear": (10_000, 10_000),
    "mnist": (20_000, 10_000),
    "cifar10": (20_000, 10_000),
    "nips": (10_000, 10_000),
}

#: The two best settings of each grid in the full tables, the best one first.
QUICK_SETTINGS: dict[tuple[str, str], tuple[float, ...]] = {
    ("exponential", "eigengame"): (1e-4, 1e-5),
    ("linear", "eigengame"): (1e-5, 1e-4),
    ("mnist", "eigengame"): (1e-2, 1e-3),
    ("cifar10", "eigengame"): (1e-3, 1e-2),
    ("nips", "eigengame"): (1e-4, 1e-3),
    ("exponential", "oja"): (1e-4, 1e-5),
    ("linear", "oja"): (1e-4, 1e-5),
    ("mnist", "oja"): (1e-3, 1e-4),
    ("cifar10", "oja"): (1e-3, 1e-4),
    ("nips", "oja"): (1e-4, 1e-5),
    **{(name, "power_method"): (1e-3, 1e-4) for name in SETS},
}
#: Length of a run that takes two cores a few minutes, in the same units.  The power method needs
#: about a thousand passes on CIFAR-10 and NIPS, too many here: a few show its beginning.
QUICK_STEPS: dict[str, tuple[int, int]] = {
    "exponential": (4000, 4000),
    "linear": (4000, 4000),
    "mnist": (1500, 1000),
    "cifar10": (1000, 100),
    "nips": (300, 200),
}


@dataclass(frozen=True)
class Protocol:
    """Settings, steps and repeats of the runs.

    Attributes
    ----------
    repeats : int
        Number of runs of every setting, with seeds 0, 1, ...
    settings : dict of (set, method) to tuple of float
        Grid of each priming.
    steps : dict of (set, method) to int
        Length of a run.
    n_evaluations : int, default=60
        Number of logarithmically spaced evaluations; the ends of epochs next to them are added.
    quick : bool, default=False
        Whether this is the shortened protocol.
    """

    repeats: int
    settings: dict[tuple[str, str], tuple[float, ...]]
    steps: dict[tuple[str, str], int]
    n_evaluations: int = 60
    quick: bool = False

    @classmethod
    def full(cls, repeats: int = 10) -> Protocol:
        """Return the paper's protocol."""
        pairs = [(name, method) for name in SETS for method in PAPERS]
        return cls(
            repeats,
            {pair: PAPERS[pair[1]] for pair in pairs},
            _by_pair(STEPS),
        )

    @classmethod
    def shortened(cls, repeats: int = 2) -> Protocol:
        """Return a protocol that takes minutes: the two best settings and fewer steps."""
        # An evaluation refines with all rows, which takes longer than the steps between two.
        return cls(repeats, QUICK_SETTINGS, _by_pair(QUICK_STEPS), n_evaluations=24, quick=True)

    def evaluations(self, name: str, method: str, per_epoch: int = 1) -> np.ndarray:
        """Return the steps after which a run is evaluated.

        They are spaced logarithmically, and each is followed by the next end of an epoch of
        ``per_epoch`` steps: mini-batches of one permutation do not repeat a row, so that their
        errors cancel at its end, and evaluations elsewhere see another accuracy.
        """
        last = self.steps[name, method]
        spaced = np.geomspace(1, last, self.n_evaluations).round()
        ends = np.minimum(np.ceil(spaced / per_epoch), last // per_epoch) * per_epoch
        return np.unique(np.concatenate([spaced, ends[ends > 0]]))

    def described(self) -> dict[str, Any]:
        """Return what a results folder records of the protocol; runs that differ do not mix."""
        return {
            "quick": self.quick,
            "evaluations": f"{self.n_evaluations} log-spaced, and the next ends of epochs",
        }


def epoch_of(n_samples: int) -> int:
    """Return the number of mini-batches in an epoch.

    Examples
    --------
    >>> from primedpca_paper.protocol import epoch_of
    >>> epoch_of(60_000), epoch_of(5811)
    (60, 6)
    """
    return len(cut_evenly(n_samples, BATCH))


def _by_pair(steps: dict[str, tuple[int, int]]) -> dict[tuple[str, str], int]:
    return {
        (name, method): steps[name][method == "power_method"] for name in SETS for method in PAPERS
    }


def priming_of(method: str, setting: float, steps: int) -> Any:
    """Return the priming of this name at one setting of its grid."""
    if method == "power_method":
        return PowerMethod(epsilon=setting)
    rule = {"eigengame": EigenGame, "oja": Oja}[method]
    return rule(learning_rate=setting, steps=steps, momentum=MOMENTUM)
