"""What comes out: decompositions, snapshots, plans, and statuses with the words users read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.outward_rounding import round_up
from primedpca.protocols import Array, State

__all__ = [
    "Certificate",
    "Cluster",
    "Decomposition",
    "DivergenceError",
    "Plan",
    "Snapshot",
    "Status",
]


class Status(Enum):
    """How a fit ended; the value is the sentence the user reads."""

    EXACT = (
        "A full decomposition was made: nothing was approximated, and what ties and rounding leave "
        "open no other way would tell."
    )
    CONVERGED = "What the priming still expects to change in the components fell to `tol`."
    FINISHED = (
        "The priming came to its end and its span was refined; how right the components are is "
        "not known: ask for a `certificate`."
    )
    CERTIFIED = (
        "Every component is proven to lie within `tol` of the truth: itself, or the span of the "
        "group in which it is not told apart; where there is no variance, nothing is to be proven."
    )
    NOT_CERTIFIED = (
        "`max_passes` were used up before every component was proven to lie within `tol` of the "
        "truth; raise `max_passes` or `tol`, or ask for more components if variances are tied "
        "beyond the last."
    )
    FLOOR = (
        "Rounding was reached before every component was proven to lie within `tol` of the "
        "truth, and more passes would not help; give the data in float64 if they are not, raise "
        "`tol`, or ask for more components if variances are tied beyond the last."
    )
    STALLED = (
        "Rounding was reached before the components settled to `tol`, and more passes would not "
        "help; give the data in float64 if they are not, or raise `tol`."
    )
    MAX_PASSES = (
        "`max_passes` were used up before the components settled; raise `max_passes`, raise "
        "`tol`, or give more `extra_components`."
    )
    STOPPED = (
        "A callback ended the fit before the components were proven, or settled, to `tol`; fit "
        "without it to go on."
    )
    STREAMED = (
        "Rows were seen once, as they came, and not every component is proven to lie within "
        "`tol` of the truth; if they can be read again, `fit` with `warm_start`=True goes on."
    )

    def __str__(self) -> str:
        return self.value


class DivergenceError(ArithmeticError):
    """A stochastic priming left the range of numbers; the message names a rate to try."""


USEFUL = math.pi / 8  # a bound above this tells nobody anything


def _runs(numbers: np.ndarray) -> str:
    """``0, 3 to 7, 9``."""
    parts = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ", ".join(f"{p[0]} to {p[-1]}" if p.size > 1 else str(p[0]) for p in parts)


class Cluster(NamedTuple):
    """Components ``start:stop`` that a certificate bounds by their span: it tells no two apart."""

    start: int
    stop: int
    angle_bound: float

    @property
    def is_proven(self) -> bool:
        """Whether anything useful is known of the span."""
        return self.angle_bound < USEFUL


@dataclass(frozen=True)
class Certificate:
    """How wrong, at most, each component is.

    Attributes
    ----------
    angle_bounds : ndarray of shape (k,)
        The angle between each component and the true one, in radians; pi/2 where nothing is
        proven of the single vector.
    eigenvalue_bounds : ndarray of shape (k, 2)
        Between which numbers each true variance lies.
    clusters : list of Cluster
        Runs of components that this certificate does not tell apart, past ``k`` if need be; the
        angle is that of their spans.
    kind : {"exact", "deterministic", "probabilistic"}
    failure_probability : float
        The probability that any of this is false; 0 unless probabilistic.
    zero : ndarray of shape (k,)
        Whether the true variance is at most 1e-9 of the total and rounding cannot distinguish it
        from zero.
    """

    angle_bounds: np.ndarray
    eigenvalue_bounds: np.ndarray
    clusters: list[Cluster]
    kind: str
    failure_probability: float
    zero: np.ndarray

    @property
    def grouped(self) -> np.ndarray:
        """Which components belong to a cluster, ``(k,)``."""
        found = np.zeros(self.angle_bounds.size, dtype=bool)
        for start, stop, _ in self.clusters:
            found[start:stop] = True
        return found

    @property
    def single(self) -> np.ndarray:
        """Which components stand for themselves: of some variance, in no cluster, ``(k,)``."""
        return ~self.zero & ~self.grouped

    @property
    def claims(self) -> bool:
        """Whether anything useful is proven."""
        near = self.single & (self.angle_bounds < USEFUL)
        return bool((near | self.zero).any()) or any(run.is_proven for run in self.clusters)

    def counted_bounds(self) -> np.ndarray:
        """The bound that counts of each component, ``(k,)``.

        Its own, or that of its cluster's span if that is smaller, also where the cluster reaches
        past ``k``; 0 where there is no variance.
        """
        bounds = np.where(self.zero, 0.0, self.angle_bounds)
        for start, stop, angle in self.clusters:
            bounds[start:stop] = np.minimum(bounds[start:stop], angle)
        return bounds

    def met(self, tol: float) -> np.ndarray:
        """Which components are proven to ``tol``, by :meth:`counted_bounds`, ``(k,)``."""
        return self.counted_bounds() <= tol

    def first(self, k: int) -> Certificate:
        """The same for the first ``k`` components only."""
        return replace(
            self,
            angle_bounds=self.angle_bounds[:k],
            eigenvalue_bounds=self.eigenvalue_bounds[:k],
            clusters=[run for run in self.clusters if run.start < k],
            zero=self.zero[:k],
        )

    def rounded(self, angle: float) -> Certificate:
        """The same for components that were turned by half of ``angle`` at most, as by a cast.

        All ``m`` vectors of a cluster may be turned alike, their span by ``sqrt(m)`` of that.
        """
        turned = np.minimum(self.angle_bounds + angle, np.pi / 2)
        runs = []
        for start, stop, bound in self.clusters:
            more = angle * max(1.0, math.sqrt(stop - start) / 2)
            runs.append(Cluster(start, stop, min(bound + more, np.pi / 2)))
        return replace(self, angle_bounds=turned, clusters=runs)

    def __str__(self) -> str:
        k, single = self.angle_bounds.size, self.single
        near = single & (self.angle_bounds < USEFUL)
        verb = "is" if near.sum() == 1 else "are"
        words = [f"{near.sum()} of {k} component{'s' * (k != 1)} {verb} proven"]
        if near.any():
            worst = round_up(self.angle_bounds[near].max())
            words[0] += f", each within {worst:.2g} rad of the truth or less"
        words += [_together(run, k) for run in self.clusters]
        if self.zero.any():
            verb = "has" if self.zero.sum() == 1 else "have"
            words.append(f"{_runs(np.flatnonzero(self.zero))} {verb} no variance")
        if (single & ~near).any():
            words.append(f"nothing useful is proven of {_runs(np.flatnonzero(single & ~near))}")
        whole = "; ".join(words) + " (counted from 0)"
        if self.kind == "probabilistic" and self.claims:
            whole += f". Wrong with probability {round_up(self.failure_probability, 1):.1g} at most"
        return whole + "."

    def streak(self, threshold: float) -> int:
        """How many leading components are proven within ``threshold`` of the truth."""
        wrong = np.flatnonzero(self.angle_bounds > threshold)
        return int(wrong[0]) if wrong.size else self.angle_bounds.size


def _together(run: Cluster, k: int) -> str:
    """What is proven of a cluster, and how much of it is among the first ``k``."""
    name = f"{_runs(np.arange(run.start, run.stop))} are not told apart"
    if run.stop > k:
        name += f" (only {_runs(np.arange(run.start, k))} kept)"
    if not run.is_proven:
        return f"{name}, and nothing useful is proven of their span"
    return f"{name}; their span is proven within {round_up(run.angle_bound):.2g} rad"


@dataclass(frozen=True)
class Decomposition:
    """Principal components and what belongs to them.

    Attributes
    ----------
    components : array of shape (k, d)
        Orthonormal rows, sorted by variance, signs fixed.
    explained_variance : ndarray of shape (k,)
        Variances in float64, divided by ``n - 1``.
    mean : array of shape (d,)
    scale : array of shape (d,) or None
        What the centred columns were divided by.
    total_variance : float
        The sum of all ``d`` variances; NaN where only a share of the rows was read.
    n_samples : float
        The number of rows, or the sum of their weights.
    """

    components: Array
    explained_variance: np.ndarray
    mean: Array
    scale: Array | None
    total_variance: float
    n_samples: float

    @property
    def singular_values(self) -> np.ndarray:
        """Singular values of the centred data, ``(k,)``."""
        return np.sqrt(self.explained_variance) * math.sqrt(self.n_samples - 1)


@dataclass(frozen=True)
class Snapshot:
    """Where a priming stands after a step.

    Attributes
    ----------
    step : int
    passes : float
        How often the data have been read, a mini-batch counting as its share of the rows.
    seconds : float
        Time spent in the steps; what is done between two snapshots does not count.
    state : State
        The priming's own state: arrays and numbers.
    """

    step: int
    passes: float
    seconds: float
    state: State
    find: Callable[[], Array]

    @cached_property
    def directions(self) -> Array:
        """The directions found so far, ``(d, <= p)``; looked up when first asked for."""
        return self.find()


@dataclass(frozen=True)
class Plan:
    """What would be done, and why.

    Attributes
    ----------
    priming : object
        A :class:`~primedpca.protocols.Priming`.
    n_components : int or float
        ``k``, or the share of the variance that the components are to hold.
    n_directions : int
        ``p = k + l``; for a share, the most that there can be.
    reason : str
    ways : tuple of Way
        What was weighed, the cheapest first, where the choice was the planner's.
    overhead : float, optional
        What a pass costs whatever its width, in columns, where the number of extra directions
        may still change with the spectrum that is seen.
    patience : int, optional
        Steps after which a full decomposition would have been cheaper, and is made.
    room : float, optional
        Bytes of rows that a full decomposition may hold, where wide data are read in rows.
    max_basis : int, optional
        Columns that the proof may keep after a priming that is not block Krylov.
    """

    priming: Any
    n_components: int | float
    n_directions: int
    reason: str
    ways: tuple[Any, ...] = ()
    overhead: float | None = None
    patience: int | None = None
    room: float | None = None
    max_basis: int | None = None

    def __str__(self) -> str:
        name = self.ways[0].name if self.ways else type(self.priming).__name__
        if isinstance(self.n_components, float):
            share = f"{100 * self.n_components:g} % of the variance"
            return f"The fewest components that hold {share} by {name}: {self.reason}."
        extra = self.n_directions - self.n_components
        beside = f" and {extra} extra direction{'s' * (extra != 1)}" if extra else ""
        one = self.n_components == 1
        return f"{self.n_components} component{'s' * (not one)}{beside} by {name}: {self.reason}."
