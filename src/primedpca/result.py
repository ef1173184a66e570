"""Results of a fit: decompositions, snapshots, certificates, plans and statuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.html import angle_plot, bar, block, bound_markup, paragraph, table
from primedpca._core.outward_rounding import round_down, round_up
from primedpca._core.parameters import is_whole
from primedpca._core.wording import (
    angle_words,
    certainty_words,
    count_words,
    duration,
    numbered,
    size,
)
from primedpca.protocols import Array

__all__ = ["Certificate", "Cluster", "Decomposition", "DivergenceError", "Plan", "Snapshot"]
__all__ += ["Status", "Way"]


class Status(Enum):
    """Outcome of a fit; the value is the sentence that the user reads."""

    EXACT = "Full decomposition: nothing was approximated. Only ties and rounding remain."
    CONVERGED = "Converged: the estimated remaining change is below `tol` (not a proof)."
    FINISHED = "The priming ended and its span was refined. Set `certificate` to bound the error."
    CERTIFIED = (
        "Each component is proven to be within `tol` of the true one. Components that are not "
        "distinguished are proven as a subspace, and components with no variance need no proof."
    )
    NOT_CERTIFIED = (
        "`max_passes` was reached before every component was proven to be within `tol` of the "
        "true one. Increase `max_passes` or `tol`, or request more components if variances are "
        "tied beyond the last one."
    )
    UNPROVEN = (
        "The components have settled to within `tol` by their own estimate, but variances beyond "
        "the last one are so close to it that proving that none was missed would cost more than "
        "the fit. Request a number of components after which the variances fall, or use "
        "`priming`='exact' for a proof by a full decomposition."
    )
    FLOOR = (
        "Rounding error was reached before every component was proven to be within `tol` of the "
        "true one, so more passes would not help. Increase `tol`, request more components if "
        "variances are tied beyond the last one, or use float64 data if they are float32."
    )
    STALLED = (
        "Rounding error was reached before the components converged to `tol`, so more passes "
        "would not help. Increase `tol`, or use float64 data if they are float32."
    )
    MAX_PASSES = "`max_passes` ended the fit. Increase it, `tol` or `extra_components`."
    STOPPED = "A callback stopped the fit before the components were proven or converged."
    STREAMED = (
        "The rows were seen once, in a stream, and not every component is proven to be within "
        "`tol` of the true one. If the rows can be read again, `fit` with `warm_start`=True "
        "continues from here."
    )

    def __str__(self) -> str:
        return self.value


class DivergenceError(ArithmeticError):
    """A stochastic priming overflowed; the message names a learning rate to try."""


USEFUL = math.pi / 8  # radians; a larger bound is not worth reporting as proven
MOST_ROWS = 10  # of a table in a notebook
MOST_GROUPS = 5  # clusters with a sentence each; more than these share one


class Cluster(NamedTuple):
    """Components ``start:stop`` (from 0) that a certificate bounds only as a subspace."""

    start: int
    stop: int
    angle_bound: float

    @property
    def is_proven(self) -> bool:
        """Whether the bound on the subspace is small enough to be useful."""
        return self.angle_bound < USEFUL


@dataclass(frozen=True)
class Certificate:
    """Proven bounds on the error of each component.

    ``str(certificate)`` says the same in sentences, which count components from 1.

    Attributes
    ----------
    angle_bounds : ndarray of shape (k,)
        Largest possible angle between each component and the true one, in radians; pi/2 where
        nothing is proven about the single vector.
    eigenvalue_bounds : ndarray of shape (k, 2)
        Interval that contains each true variance.
    clusters : list of Cluster
        Runs of components that this certificate does not distinguish, possibly reaching past
        ``k``; the angle bounds the whole subspace.
    kind : {"exact", "deterministic", "probabilistic"}
    failure_probability : float
        Probability that any of these bounds is false; 0 unless probabilistic.
    zero : ndarray of bool of shape (k,)
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
        """Mask of the components that belong to a cluster, ``(k,)``."""
        found = np.zeros(self.angle_bounds.size, dtype=bool)
        for start, stop, _ in self.clusters:
            found[start:stop] = True
        return found

    @property
    def single(self) -> np.ndarray:
        """Mask of the components with variance that are in no cluster, ``(k,)``."""
        mask: np.ndarray = ~self.zero & ~self.grouped
        return mask

    @property
    def claims(self) -> bool:
        """Whether anything useful is proven."""
        near = self.single & (self.angle_bounds < USEFUL)
        return bool((near | self.zero).any()) or any(run.is_proven for run in self.clusters)

    def counted_bounds(self) -> np.ndarray:
        """Return the bound that decides whether each component meets ``tol``, ``(k,)``.

        It is the component's own bound, or that of its cluster's subspace if that is smaller (also
        where the cluster reaches past ``k``); it is 0 where there is no variance.
        """
        bounds = np.where(self.zero, 0.0, self.angle_bounds)
        for start, stop, angle in self.clusters:
            bounds[start:stop] = np.minimum(bounds[start:stop], angle)
        return bounds

    def met(self, tol: float) -> np.ndarray:
        """Return which components are proven to ``tol``, by :meth:`counted_bounds`, ``(k,)``."""
        return self.counted_bounds() <= tol

    def first(self, k: int) -> Certificate:
        """Return the certificate of the first ``k`` components."""
        return replace(
            self,
            angle_bounds=self.angle_bounds[:k],
            eigenvalue_bounds=self.eigenvalue_bounds[:k],
            clusters=[run for run in self.clusters if run.start < k],
            zero=self.zero[:k],
        )

    def rounded(self, angle: float) -> Certificate:
        """Return the certificate of components rotated by at most ``angle / 2``, as by a cast.

        All ``m`` vectors of a cluster may rotate alike, and their span by ``sqrt(m)`` times that.
        """
        turned = np.minimum(self.angle_bounds + angle, np.pi / 2)
        runs = []
        for start, stop, bound in self.clusters:
            # sqrt(m) * angle / 2, but not less than what is added for a single vector.
            more = angle * max(1.0, math.sqrt(stop - start) / 2)
            runs.append(Cluster(start, stop, min(bound + more, np.pi / 2)))
        return replace(self, angle_bounds=turned, clusters=runs)

    def streak(self, threshold: float) -> int:
        """Return how many leading components are proven within ``threshold`` radians."""
        wrong = np.flatnonzero(self.angle_bounds > threshold)
        return int(wrong[0]) if wrong.size else self.angle_bounds.size

    def __str__(self) -> str:
        return " ".join(certificate_sentences(self))

    def _repr_html_(self) -> str:
        """The sentences, a plot of the bounds and a table, for notebooks."""
        counted, low, high = self.counted_bounds(), *self.eigenvalue_bounds.T
        rows = [
            [
                str(i + 1),
                bound_markup(counted[i]),
                f"{round_down(low[i], 6):.6g} to {round_up(high[i], 6):.6g}",
            ]
            for i in range(min(counted.size, MOST_ROWS))
        ]
        if counted.size > MOST_ROWS:
            rows.append(["…", count_words(counted.size - MOST_ROWS, "more component"), ""])
        shown = table(["component", "proven within", "variance"], rows) if rows else ""
        return block(paragraph(str(self)), angle_plot(self.angle_bounds, counted), shown)


def certificate_sentences(certificate: Certificate | None, tol: float | None = None) -> list[str]:
    """Say what is proven, what is not, and with what probability.

    Parameters
    ----------
    certificate : Certificate or None
    tol : float, optional
        Requested angle in radians; components that miss it get a sentence of their own.

    Returns
    -------
    list of str
        Sentences that can stand alone, the most important first.  They count components from 1.
    """
    if certificate is None:
        return ["Nothing is proven: no certificate was made."]
    if certificate.angle_bounds.size == 0:
        return ["There are no components yet: a single row has no variance."]
    single, bounds = certificate.single, certificate.angle_bounds
    near = single & (bounds < USEFUL)
    met = near & (bounds <= (USEFUL if tol is None else tol))
    said = [_within(part, bounds) for part in (met, near & ~met) if part.any()]
    said += _clusters(certificate)
    if certificate.zero.any():
        verb = "have" if certificate.zero.sum() > 1 else "has"
        said.append(f"{numbered(certificate.zero)} {verb} no variance above rounding error.")
    if (single & ~near).any():
        said.append(f"Nothing useful is proven about {numbered(single & ~near).lower()}.")
    return said + ([_how_certain(certificate)] if certificate.claims else [])


def _within(which: np.ndarray, bounds: np.ndarray) -> str:
    several = which.sum() > 1
    proven, true = ("are each", "ones") if several else ("is", "one")
    worst = angle_words(float(bounds[which].max()))
    return f"{numbered(which)} {proven} proven to be within {worst} of the true {true}."


def _clusters(certificate: Certificate) -> list[str]:
    """Write a sentence for each cluster, or one for all that are alike if there are many."""
    k, said = certificate.angle_bounds.size, []
    for proven in (True, False):
        runs = [run for run in certificate.clusters if run.is_proven is proven]
        whole = [run for run in runs if run.stop <= k]
        if len(whole) > MOST_GROUPS:
            runs = [run for run in runs if run.stop > k]
            said.append(_alike(whole, k))
        said += [_together(run, k) for run in runs]
    return said


def _alike(runs: list[Cluster], k: int) -> str:
    """Describe many clusters, of which all are proven or none is."""
    which = np.zeros(k, dtype=bool)
    for start, stop, _ in runs:
        which[start:stop] = True
    proven = "but nothing useful is proven about the subspaces of these groups"
    if runs[0].is_proven:
        worst = angle_words(max(run.angle_bound for run in runs))
        proven = f"and each group is proven as a subspace, within {worst} of the true one"
    return (
        f"{numbered(which)} form {len(runs)} groups, within which they are not distinguished, "
        f"{proven}."
    )


def _together(run: Cluster, k: int) -> str:
    """Describe one cluster, of which a part may lie beyond the ``k`` components that were kept."""
    place = np.arange(run.stop)
    space = "plane" if run.stop - run.start == 2 else "subspace"
    proven = f"but nothing useful is proven about their common {space}"
    if run.is_proven:
        proven = f"but proven as a {space}, within {angle_words(run.angle_bound)} of the true one"
    said = f"{numbered(place >= run.start)} are not distinguished, {proven}."
    if run.stop > k:
        were = "was" if run.stop == k + 1 else "were"
        said += (
            f" {numbered(place >= k)} {were} not kept; request {run.stop} components to have the "
            f"whole {space}."
        )
    return said


def _how_certain(certificate: Certificate) -> str:
    if certificate.kind == "exact":
        return "These bounds come from a full decomposition, include rounding, and are certain."
    if certificate.kind == "deterministic":
        return "These bounds are certain: no probability is involved."
    certainty = certainty_words(certificate.failure_probability)
    return (
        f"All of this holds together with probability {certainty} or more, for any data: only the "
        "test vectors that the library drew are random."
    )


@dataclass(frozen=True)
class Decomposition:
    """Principal components with their variances, mean and scale.

    Attributes
    ----------
    components : array of shape (k, d)
        Orthonormal rows, sorted by variance, signs fixed.
    explained_variance : ndarray of shape (k,)
        Variances in float64, divided by ``n - 1``.
    mean : array of shape (d,)
    scale : array of shape (d,) or None
        Divisor of each centred column.
    total_variance : float
        Sum of all ``d`` variances; NaN where only a part of the rows was read.
    n_samples : float
        Number of rows, or the sum of their weights.
    fill : array of shape (d,), optional
        What replaced missing values, where that is not ``mean``: rows that are not centred.
    deviations : ndarray of shape (>= k,), optional
        Square roots of the variances, where a variance is below the range of float64.
    total_deviation : float
        Square root of the total variance, where ``deviations`` are given.
    left_out : float
        Sum of the variances outside the components, where it is known to more digits than float32
        holds of the total; NaN elsewhere.
    """

    components: Array
    explained_variance: np.ndarray
    mean: Array
    scale: Array | None
    total_variance: float
    n_samples: float
    fill: Array | None = None
    deviations: np.ndarray | None = None
    total_deviation: float = math.nan
    left_out: float = math.nan

    @property
    def singular_values(self) -> np.ndarray:
        """Singular values of the centred data, ``(k,)``."""
        k, roots = self.explained_variance.size, self.deviations
        roots = np.sqrt(self.explained_variance) if roots is None else roots[:k]
        values: np.ndarray = roots * math.sqrt(self.n_samples - 1)
        return values


#: Statuses in which the fit ended as the user requested, so that no warning is needed.
QUIET = (Status.FINISHED, Status.STOPPED)


@dataclass(frozen=True)
class Solution:
    """Result of a fit.

    Attributes
    ----------
    decomposition : Decomposition
    status : Status
        Reason why the fit ended.
    passes : float
        Number of passes over the data.
    history : list of dict
        One row for each recorded step.
    certificate : Certificate, optional
        ``None`` if nothing was to be proven.
    """

    decomposition: Decomposition
    status: Status
    passes: float
    history: list[dict[str, Any]]
    certificate: Certificate | None = None

    @property
    def converged(self) -> bool:
        """Whether the result is exact, proven or converged.

        It is False for a priming that made its fixed number of steps, which has no such test.
        """
        return self.status in (Status.EXACT, Status.CERTIFIED, Status.CONVERGED)

    @property
    def warns(self) -> bool:
        """Whether the fit fell short of the request, so that the user should be warned."""
        return not (self.converged or self.status in QUIET)

    def first(self, k: int) -> Solution:
        """Return the solution with a certificate of the first ``k`` components only."""
        if self.certificate is None:
            return self
        return replace(self, certificate=self.certificate.first(k))

    def shortfall(self, tol: float, n_components: Any = None) -> str:
        """Describe the status and the components that are missing or not proven, counted from 1.

        Parameters
        ----------
        tol : float
            Angle to prove, in radians.
        n_components : int, optional
            Number of components that were requested; anything else is ignored.
        """
        found = self.decomposition.explained_variance.size
        fewer = is_whole(n_components) and found < n_components
        missing = f" Found {found} of {n_components} components." * fewer
        if self.certificate is None:
            return f"{self.status}{missing}"
        short = ~self.certificate.met(tol)
        if not short.any():
            return f"{self.status}{missing or ' The number of components is not proven.'}"
        words = f"{self.status} Not proven: {numbered(short, most=8).lower()}"
        bound = float(self.certificate.counted_bounds()[short].max())
        near = f", only to be within {round_up(bound):.2g} rad" if bound < np.pi / 2 else ""
        return f"{words}{near}.{missing}"


@dataclass(frozen=True)
class Snapshot:
    """State of a priming after a step.

    Attributes
    ----------
    step : int
        Number of steps taken so far.
    passes : float
        Number of passes over the data; a mini-batch counts as its fraction of the rows.
    seconds : float
        Time spent in the steps, without the time between snapshots.
    state : State
        The priming's own state: arrays and numbers.
    find : callable
        Computes ``directions``.
    """

    step: int
    passes: float
    seconds: float
    state: Any  # narrower than State: the named tuple that this priming declares
    find: Callable[[], Array]

    @property
    def directions(self) -> Array:
        """The directions found so far, ``(d, <= p)``; computed on first access."""
        # Not a cached_property: before Python 3.12, a fork in another thread may leave it locked.
        if "_directions" not in vars(self):
            vars(self)["_directions"] = self.find()
        return vars(self)["_directions"]


@dataclass(frozen=True)
class Way:
    """Algorithm with its estimated cost.

    Attributes
    ----------
    priming : Priming
        Algorithm with its options.
    steps : int
        Steps of the priming.
    passes : float
        Passes over the data.
    flops : float
        Floating-point operations.
    bytes : float
        Bytes read in all passes.
    memory : float
        Bytes of memory besides the data.
    seconds : float
        Time.
    room : float, default=2**31
        Bytes of rows held in memory at the same time, where the Gram matrix is formed from rows.
    """

    priming: Any
    steps: int
    passes: float
    flops: float
    bytes: float
    memory: float
    seconds: float
    room: float = 2.0**31

    @property
    def name(self) -> str:
        """Name of the algorithm in a sentence."""
        if self.priming.traits.certifier == "probes":
            side = "" if self.priming.side == "right" else " from the left"
            if self.priming.explicit:
                side = f" on the {'Gram' if side else 'covariance'} matrix"
            return f"block Krylov{side} with blocks of {self.priming.block_size}"
        return "a full decomposition"


@dataclass(frozen=True)
class Plan:
    """The chosen method, and why it was chosen.

    Attributes
    ----------
    priming : object
        A :class:`~primedpca.protocols.Priming`.
    n_components : int or float
        ``k``, or the fraction of the variance that the components must explain.
    n_directions : int
        ``p = k + l``; for a fraction, the largest possible number.
    reason : str
    ways : tuple of Way
        Methods that the planner compared, the cheapest first; empty if the user chose one.
    overhead : float, optional
        Fixed cost of a pass, in columns, where the number of extra directions may still change
        with the spectrum.
    patience : int, optional
        Number of steps after which a full decomposition would have been cheaper, and is made.
    room : float, optional
        Bytes of rows that a full decomposition may hold, where wide data are read in rows.
    max_basis : int, optional
        Columns that the proof may keep after a priming other than block Krylov.
    early : int, optional
        Step of block Krylov at which a flat spectrum is recognised, if the third step did not show
        it: an explicit matrix, one of the ``ways``, then takes over.
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
    early: int | None = None

    def __str__(self) -> str:
        name = self.ways[0].name if self.ways else type(self.priming).__name__
        if isinstance(self.n_components, float):
            wanted = f"Fewest components that explain {100 * self.n_components:g} % of the variance"
            return f"{wanted} by {name}: {self.reason}."
        extra = self.n_directions - self.n_components
        beside = f" and {count_words(extra, 'extra direction')}" if extra else ""
        return f"{count_words(self.n_components)}{beside} by {name}: {self.reason}."

    def _repr_html_(self) -> str:
        """The sentence, and the methods that were compared with bars of their times."""
        longest = max((way.seconds for way in self.ways), default=0.0) or 1.0
        rows = [
            [
                *(way.name, f"{way.passes:.0f}", size(way.bytes), size(way.memory)),
                *(duration(way.seconds), bar(way.seconds / longest, i == 0)),
            ]
            for i, way in enumerate(self.ways)
        ]
        head = ["method", "passes", "bytes read", "memory", "time", ""]
        return block(paragraph(str(self)), table(head, rows) if rows else "")
