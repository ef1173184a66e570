"""The main path of every fit and audit: prime, refine, let a certifier look, decide to stop.

A fit runs through one or more stages (the paper's Algorithm 1, then the proof): the priming that
was planned; block Krylov from its directions, where the proof is not made on the way; a full
decomposition, where that has become cheaper than to go on.  :func:`follow` is the loop of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from primedpca._certify.certifiers import (
    Certifier,
    ExactCertifier,
    NoCertifier,
    ProbeCertifier,
    Proof,
    SketchCertifier,
    refined,
)
from primedpca._certify.checked import CheckedCertifier
from primedpca._certify.checks import RIDES
from primedpca._certify.explicit import ExplicitCertifier
from primedpca._core.arrays import work_dtype
from primedpca._core.chain import given_back
from primedpca._core.orthonormal import basis_of, orthonormalise
from primedpca._core.process import one_blas_thread
from primedpca._operator.operator import Centred
from primedpca._operator.scaling import decomposition, in_unit_of_data
from primedpca._planning.costs import FALLS_AT, FALLS_BY
from primedpca._solve.history import Listener, silent
from primedpca._solve.prime import passes_of, steps
from primedpca._solve.refine import refine_span
from primedpca.priming import OWN, BlockKrylov, Exact, check_change, check_refined
from primedpca.priming.block_krylov import fall
from primedpca.priming.extra_directions import best_extra
from primedpca.protocols import Array, Priming
from primedpca.result import Certificate, Decomposition, Plan, Snapshot, Solution, Status

__all__ = ["Goal", "Stage", "Step", "exact_stage", "follow", "may_check", "solve"]

#: Tolerance down to which a full decomposition whose only shortfall is ties counts as exact.
COARSE = math.pi / 1024
#: Angle in radians below which float32 products are too coarse for a proof.
FINE = 1e-5
#: Passes that follow the last step: mapping left vectors, proofs from either side.
LEFT_MAP, LEFT_PROOF, RIGHT_PROOF = 2, 6, 2
#: Angle in radians to which fewer than a quarter of the components are known, two fifths of the
#: expected steps into a fit, where a spectrum is flat.
ROUGH = 0.1
#: Steps with an explicit matrix, which read no data: more than there can be.
ENDLESS = 10**6
#: Bounds that passes can divide by less than this are near enough to those of rounding alone.
SLIGHT = 4.0
#: Errors of variances, relative to what is left of the total, up to which that is known well
#: enough; and of fits in float32 without a proof, in the total variance.
KNOWN, COARSEST = 100.0, 1000 * 2.0**-23
#: Failure probability below which quantiles of the random vectors that check could underflow.
RARE = 1e-100


class Goal(NamedTuple):
    """Parameters of the estimator that the main path acts on, by the same names."""

    tol: float = math.pi / 1024
    max_passes: int = 100
    batch_size: int = 1000
    refine_share: float = 1.0
    failure_probability: float = 1e-6
    seed: int = 0
    proven: bool = True


@dataclass(frozen=True)
class Stage:
    """A run of one priming, and the certifier that looks at its steps.

    Attributes
    ----------
    priming : Priming
    n_directions, max_passes, seed : int
    certifier : Certifier
        Its ``operator`` is what the priming works on.
    start : array of shape (d, q), optional
        Directions to start from.
    batch_size : int
    steps, seconds
        Of the stages before.
    adapt : callable, optional
        Chooses another number of directions by the variances after two steps.
    costs : tuple of int, optional
        Passes of a step, and those of what follows the last one: refinement and proof.  Without
        it, ``max_passes`` counts steps.
    """

    priming: Priming
    n_directions: int
    max_passes: int
    seed: int
    certifier: Certifier
    start: Array | None = None
    batch_size: int = 1000
    steps: int = 0
    seconds: float = 0.0
    adapt: Callable[[np.ndarray], int] | None = None
    costs: tuple[int, int] | None = None

    def snapshots(self) -> Iterator[Snapshot]:
        """The steps, through every run of the priming that the stage takes."""
        stage: Stage | None = self
        while stage is not None:
            following: Stage | None = None
            begun = stage.certifier.operator.passes
            for last in steps(
                stage.certifier.operator,
                stage.priming,
                stage.n_directions,
                stage.max_passes,
                stage.seed,
                stage.start,
                stage.batch_size,
                stage.costs,
            ):
                passed, spent = stage.steps + last.step, stage.seconds + last.seconds
                yield replace(last, step=passed, seconds=spent) if stage.steps else last
                following = None if stage.adapt is None else stage._adapted(last, stage.adapt)
                if following is not None:
                    break
            following = following or stage._widened(last)
            if following is not None:
                left = stage.max_passes - math.ceil(last.passes - begun)
                following = replace(following, max_passes=left)
            stage = following

    def _adapted(self, last: Snapshot, adapt: Callable[[Any], int]) -> Stage | None:
        """The stage with as many directions as pay by the spectrum seen, if that is another."""
        if not last.step == 2 < self.max_passes:
            return None
        p = adapt(self.priming.variances(last.state))
        if p == self.n_directions:
            return None
        return self._after(last, n_directions=p, start=last.directions[:, :p], adapt=None)

    def _widened(self, last: Snapshot) -> Stage | None:
        """Block Krylov beside an invariant span, which can miss whole eigenvectors."""
        priming: Any = self.priming
        d = self.certifier.operator.shape[1]
        if not self.certifier.needs_all:
            return None
        used = last.state.projected.shape[0]
        if not priming.finished(last.state) or used >= d or last.step >= self.max_passes:
            return None
        start = priming.refined(last.state._replace(n_directions=used), self.certifier.operator)[0]
        p = min(used + (priming.block_size or self.n_directions), d)
        return self._after(
            last, n_directions=p, start=start, priming=replace(priming, block_size=p)
        )

    def _after(self, last: Snapshot, **changes: Any) -> Stage:
        return replace(
            self,
            steps=self.steps + last.step,
            seconds=self.seconds + last.seconds,
            **changes,
        )


class Step(NamedTuple):
    """State of a stage: the priming, the proof so far, and the row of the history."""

    stage: Stage
    snapshot: Snapshot
    proof: Proof | None
    row: dict[str, Any]


def follow(
    stage: Stage, stop: Callable[[Step], bool], row: Callable[..., dict[str, Any]] = lambda *_: {}
) -> Step:
    """Run a stage until ``stop`` says so: the only loop of the library.

    Parameters
    ----------
    stage : Stage
    stop : callable
        Called with every Step; records it and decides.
    row : callable, optional
        ``row(stage, snapshot, proof)`` is the row of the history.
    """
    for snapshot in stage.snapshots():
        proof = stage.certifier.look(snapshot)
        step = Step(stage, snapshot, proof, row(stage, snapshot, proof))
        if stop(step):
            break
        stage.certifier.go_on()
    return step._replace(proof=step.proof or stage.certifier.conclude(snapshot))


def solve(
    data: Centred,
    plan: Plan,
    goal: Goal,
    *,
    start: Array | None = None,
    progress: Listener = silent,
    begun: ExplicitCertifier | None = None,
) -> Solution:
    """Find the components that the plan asks for and, if ``goal.proven``, prove their accuracy.

    Block Krylov, and a full decomposition where that saves time, run in the arithmetic of the
    data, and a few float64 columns check them.  Other full decompositions and Frequent Directions
    run in float64, and so does block Krylov after any other priming, or where float32 is too
    coarse for ``goal.tol``.  ``begun`` is a certifier of the planned priming that has a matrix.
    """
    fit = _Fit(data if plan.room is None else data.view(room=plan.room), plan, goal, progress)
    with one_blas_thread, given_back():
        first = fit.first(start) if begun is None else fit.on_matrix(plan.priming, begun)
        step = follow(first, fit.stop, fit.row)
        while (stage := fit.next(step)) is not None:
            step = follow(stage, fit.stop, fit.row)
        return fit.solution(step)


def cast_error(data: Centred) -> float:
    """Return the angle by which casting rotates a component, at most."""
    return 0.0 if work_dtype(data.source.dtype) == "float64" else 2.0**-23


def may_check(data: Centred, goal: Goal) -> bool:
    """Whether random vectors may check float32, and it is not too coarse for the tolerance."""
    cast = cast_error(data)
    fine = bool(cast) and max(goal.tol - cast, cast) < FINE
    return goal.failure_probability >= RARE and not fine


class _Fit:
    """The stages of one fit, when each of them ends, and what it comes to."""

    #: Whether the components were refined in the whole space.
    whole = False

    def __init__(self, data: Centred, plan: Plan, goal: Goal, progress: Listener) -> None:
        if plan.priming.traits.certifier == "probes":
            data = data.implicitly_centred()
        self.data, self.plan, self.goal = data, plan, goal
        self.wide = data.in_float64() if goal.proven else data
        journal = data.engine.journal
        self.history: list[dict[str, Any]] = [] if journal is None else journal.history
        self._progress, self._told, self.stopped = progress, 0.0, False
        self.cast = cast_error(data)
        self.reach = max(goal.tol - self.cast, self.cast)
        self.may_check = may_check(data, goal)
        self.met = self.settled = self.floor = self.flat = False
        # Values of the last proof that rounding may have ended, and the number of such proofs.
        self._values, self._looks_at_rounding = np.zeros(0), 0

    # -- stages ------------------------------------------------------------------------------

    def first(self, start: Array | None) -> Stage:
        """The priming that was planned."""
        plan, goal = self.plan, self.goal
        kind = plan.priming.traits.certifier if goal.proven else None
        if kind == "exact":
            return exact_stage(self.wide, plan.n_components)
        if kind == "probes":
            return self._checked(plan.priming, start)
        certifier: Certifier = NoCertifier(self.data)
        if kind == "sketch":
            k = int(plan.n_components)
            certifier = SketchCertifier(self.wide, k, plan.n_directions, self.reach)
        adapts = plan.overhead is not None and plan.priming.traits.adaptive
        return Stage(
            plan.priming,
            plan.n_directions,
            ENDLESS if _is_explicit(plan.priming) else goal.max_passes,
            goal.seed,
            certifier,
            start,
            goal.batch_size,
            adapt=self._directions_that_pay if adapts else None,
            costs=self._costs(plan.priming, False),
        )

    def _directions_that_pay(self, variances: np.ndarray) -> int:
        k, overhead = int(self.plan.n_components), self.plan.overhead or 0.0
        extra = best_extra(variances, k, "subspace_iteration", overhead=overhead)
        return min(k + extra, *self.data.shape)

    def _costs(self, priming: Priming, proven: bool) -> tuple[int, int]:
        """Passes of a step, and of what follows the last one.

        Left vectors are mapped to the right, and refined there; a proof multiplies what was found
        in float64.
        """
        each = passes_of(priming, self.data)
        if isinstance(priming, BlockKrylov) and priming.side == "left":
            return each, LEFT_PROOF if proven else LEFT_MAP
        # Block Krylov knows the components in its span; others are refined in one pass.
        return each, RIGHT_PROOF if proven else int(not isinstance(priming, BlockKrylov))

    def _checked(self, priming: BlockKrylov, start: Array | None, spent: float = 0.0) -> Stage:
        """Block Krylov as without a certificate, and a few columns in float64 that check it."""
        plan, goal = self.plan, self.goal
        explicit = _is_explicit(priming)
        failure = max(0.0, goal.failure_probability - spent)
        if not self.may_check and explicit and priming.side == "left":
            return exact_stage(self.wide, plan.n_components)
        if not self.may_check:
            block = None if explicit else priming.block_size
            plain = replace(priming, side="right", explicit=False, block_size=block)
            return self._krylov(plain, goal.max_passes, start)
        priming = replace(priming, keep_images=False)  # right vectors are made in float64
        certifier = (ExplicitCertifier if explicit else CheckedCertifier)(
            self.data,
            self.wide,
            priming,
            plan.n_components,
            failure,
            goal.seed,
            self.reach,
            start,
            max(1, goal.max_passes - self._costs(priming, True)[1]),
        )
        most = ENDLESS if explicit else goal.max_passes
        costs = self._costs(priming, True)
        return Stage(priming, plan.n_directions, most, goal.seed, certifier, start, costs=costs)

    def on_matrix(self, priming: BlockKrylov, certifier: ExplicitCertifier) -> Stage:
        """Block Krylov with the matrix that a certifier has already."""
        seed, costs = self.goal.seed, self._costs(priming, True)
        return Stage(priming, self.plan.n_directions, ENDLESS, seed, certifier, costs=costs)

    def _krylov(
        self,
        priming: BlockKrylov,
        max_passes: int,
        start: Array | None,
        before: dict[str, Any] | None = None,
        missed: Any = None,
        spent: float = 0.0,
    ) -> Stage:
        plan, goal = self.plan, self.goal
        failure, seed = max(0.0, goal.failure_probability - spent), goal.seed
        wanted = plan.n_components
        n, d = self.data.shape
        small = plan.patience is not None and d <= n  # a full decomposition was an alternative
        certifier = ProbeCertifier(
            self.wide, priming, wanted, failure, seed, start, missed, small=small
        )
        costs = self._costs(priming, True)
        stage = Stage(priming, plan.n_directions, max_passes, seed, certifier, start, costs=costs)
        return stage if before is None else _behind(stage, before)

    def next(self, step: Step) -> Stage | None:
        """The stage that follows, if what was found is not enough and another can do more."""
        plan, goal, stage = self.plan, self.goal, step.stage
        traits = stage.priming.traits
        if step.proof is not None:  # it may have been made after the last step
            self.met = step.proof.counted and bool(step.proof.certificate.met(self.reach).all())
        # Of a priming of the user's own, block Krylov completes the span where it follows.
        last = not (goal.proven or self.stopped or isinstance(stage.priming, OWN))
        if last or traits.user_directions:
            _check_rank(step.snapshot, plan)
        if isinstance(stage.certifier, ExplicitCertifier):
            if self.met or (self.stopped and step.proof is not None):
                return None
            return _behind(exact_stage(self.wide, plan.n_components), step.row)
        if self.flat:
            return self._on_a_matrix(step)
        if goal.proven and (step.proof is None or stage.certifier.exhausted):
            limit = goal.max_passes
            # Primings that do not estimate their change always run to their end.
            estimates = stage.priming.change(step.snapshot.state) is not None
            if estimates or traits.certifier == "sketch":
                limit = max(1, limit - round(self.data.passes))
            missed = None
            if isinstance(stage.certifier, SketchCertifier):
                missed = stage.certifier.missed
            spent = stage.certifier.spent if isinstance(stage.certifier, CheckedCertifier) else 0.0
            krylov = BlockKrylov(max_basis=plan.max_basis)
            if isinstance(stage.priming, BlockKrylov):
                krylov = replace(stage.priming, side="right", keep_images=False)
            # If float32 cannot hold the scale of the data, there are no directions to go on from.
            known = not isinstance(stage.certifier, CheckedCertifier) or stage.certifier.sound
            start = step.snapshot.directions if known else None
            return self._krylov(krylov, limit, start, step.row, missed, spent)
        done = self.settled or self.met or self.stopped or stage.certifier.hopeless
        done = done or (goal.proven and self.floor)
        if done or not self._spent(step):
            return None
        if goal.proven:
            return _behind(exact_stage(self.wide, plan.n_components), step.row)
        k = int(plan.n_components)
        return _behind(Stage(Exact(), k, 1, goal.seed, NoCertifier(self.data)), step.row)

    def _on_a_matrix(self, step: Step) -> Stage:
        """Block Krylov with an explicit matrix, in place of many more passes."""
        priming = next(way.priming for way in self.plan.ways if _is_explicit(way.priming))
        if isinstance(step.stage.certifier, CheckedCertifier):
            return _behind(self._checked(priming, None, step.stage.certifier.spent), step.row)
        k, seed = self.plan.n_directions, self.goal.seed
        return _behind(Stage(priming, k, ENDLESS, seed, NoCertifier(self.data)), step.row)

    # -- steps -------------------------------------------------------------------------------

    def row(self, stage: Stage, snapshot: Snapshot, proof: Proof | None) -> dict[str, Any]:
        """The row of the history after a step."""
        row: dict[str, Any] = {"step": snapshot.step, "passes": snapshot.passes}
        row["seconds"] = snapshot.seconds
        k, priming = self.plan.n_components, stage.priming
        change = priming.change(snapshot.state)
        if change is not None and not isinstance(k, float):
            change = change if isinstance(priming, OWN) else check_change(change, k)
            largest = float(change[:k].max())
            if np.isfinite(largest):
                row["change"] = largest
            variances = priming.variances(snapshot.state)
            if proof is None and variances is not None and variances.size:
                row["variances"] = in_unit_of_data(self.data, np.maximum(variances[:k], 0.0))
        if proof is not None and proof.evidence is not None:
            row["angle_bounds"] = proof.certificate.angle_bounds.copy()  # rows may be changed
            row["counted_bounds"] = proof.certificate.counted_bounds()
            found = proof.evidence.values[: proof.certificate.angle_bounds.size]
            row["variances"] = in_unit_of_data(self.wide, np.maximum(found, 0.0))
        return row

    def stop(self, step: Step) -> bool:
        """Record a step, notify the listener, which may end the fit, and decide on the stage."""
        proof, traits, row = step.proof, step.stage.priming.traits, step.row
        self.met = self.settled = False
        self.history.append(row)
        # Mini-batches are reported when the passes are 1.5 times those last reported.
        rarely = self.plan.priming.visits == "batches" and "angle_bounds" not in row
        if int(row["passes"]) > int((1.5 if rarely else 1.0) * self._told):
            self._told = row["passes"]
            find = partial(self._so_far, step) if proof is None else proof.find
            self.stopped |= bool(self._progress(self.history, find))
        # Checks bound what the arithmetic has done, and end by themselves.
        checked = isinstance(step.stage.certifier, CheckedCertifier)
        if proof is None:
            self.settled = row.get("change", np.inf) <= self.goal.tol
            self.settled &= not step.stage.certifier.needs_all
            self.floor = not checked and not self.settled and self._at_floor()
        else:
            self.met = proof.counted and bool(proof.certificate.met(self.reach).all())
            self.floor = not checked and (traits.certifier == "exact" or self._at_rounding(proof))
        certifier = step.stage.certifier
        done = self.settled or self.floor or self.met or certifier.exhausted or certifier.hopeless
        done = done or self.stopped
        self.flat = not done and self._is_flat(step)
        return done or self.flat or self._spent(step)

    def _so_far(self, step: Step) -> Decomposition | None:
        """Return the components after a step, or None if they would cost a pass."""
        priming, k = step.stage.priming, self.plan.n_components
        known = isinstance(priming, BlockKrylov) and priming.side == "right"
        if not known or isinstance(k, float) or step.snapshot.state.variances.size < k:
            return None
        return refined(self.data, priming, step.snapshot, k)

    def _is_flat(self, step: Step) -> bool:
        """Whether the spectrum is flat, so that a matrix costs less than many more passes.

        A random start shows it soon.  From any start, few components are then known at the step
        when many should be.
        """
        state, plan, stage = step.snapshot.state, self.plan, step.stage
        now, early = step.snapshot.step, plan.early
        if early is None or now > early or now not in (FALLS_AT, early):
            return False
        if _is_explicit(stage.priming):
            return False
        if self.goal.proven and not isinstance(stage.certifier, CheckedCertifier):
            return False
        if now == early:
            known = state.change[: int(plan.n_components)] < ROUGH
            return bool(4 * known.sum() < known.size)
        if not isinstance(stage.priming, BlockKrylov) or stage.priming.side == "left":
            return False  # from the left, the first block has been multiplied already
        fresh = stage.start is None and len(state.basis) == now
        return fresh and fall(state, int(plan.n_components)) < FALLS_BY

    def _spent(self, step: Step) -> bool:
        """Whether a full decomposition would have been cheaper than going on."""
        if self.plan.patience is None or step.stage.priming.traits.certifier == "exact":
            return False
        if _is_explicit(step.stage.priming):  # ends in a full decomposition by itself
            return False
        return step.snapshot.step >= self.plan.patience

    def _at_rounding(self, proof: Proof) -> bool:
        """Whether only rounding keeps components from the tolerance, and passes gain nothing more.

        Ritz values of small components may still grow, and random vectors still sharpen bounds.
        """
        gain, before = proof.gain(self.reach), self._values
        if proof.evidence is None or math.isinf(gain):
            return False
        self._values = proof.evidence.values[: proof.certificate.angle_bounds.size]
        e = 4 * proof.evidence.rounding
        if self._values.size != before.size or (self._values > 1.1 * before + e).any():
            return False
        self._looks_at_rounding += 1
        return gain < SLIGHT or self._looks_at_rounding > RIDES

    def _at_floor(self) -> bool:
        """Whether the change has come near to rounding and has not fallen in five passes."""
        if len(self.history) < 8:
            return False
        changes: list[float] = [row["change"] for row in self.history if "change" in row]
        if len(changes) < 8:
            return False
        before, lately = min(changes[:-5]), min(changes[-5:])
        eps = float(self.data.like.xp.finfo(self.data.like.dtype).eps)
        return before < 1e4 * eps and lately > 0.99 * before

    # -- the end -----------------------------------------------------------------------------

    def solution(self, step: Step) -> Solution:
        """The components, in the type of the data, and how the fit ended."""
        if step.proof is None:
            found = self._refined(step)
            # The estimate of a share of the rows is coarser than float32.
            if (
                self.cast
                and self.goal.refine_share == 1.0
                and found.explained_variance.sum() >= (1 - COARSEST) * found.total_variance
            ):
                found = self._with_remainder(found, step, math.inf)
            return Solution(found, self._status(step), self.data.passes, self.history)
        found, certificate, counted = self._proven(step, step.proof)
        if self.cast:
            data = self.data
            certificate = certificate.rounded(self.cast)
            found = replace(
                found,
                components=data.narrow(found.components),
                mean=data.narrow(found.mean),
                scale=None if found.scale is None else data.narrow(found.scale),
                fill=None if found.fill is None else data.narrow(found.fill),
            )
            if found.explained_variance.sum() >= (1 - COARSEST) * found.total_variance:
                # Only checked iterations have computed variances in float32.
                checked = isinstance(step.stage.certifier, CheckedCertifier)
                low, high = certificate.eigenvalue_bounds.T
                error = KNOWN * float(np.sum(high - low)) if checked else 0.0
                found = self._with_remainder(found, step, error)
        status = Status.STOPPED if self.stopped else Status.NOT_CERTIFIED
        status = Status.UNPROVEN if step.stage.certifier.hopeless else status
        status = Status.FLOOR if self.floor else status
        exact = step.stage.priming.traits.certifier == "exact" and self.goal.tol >= COARSE
        if counted and certificate.met(self.goal.tol).all():
            status = Status.CERTIFIED
        elif counted and exact and _is_sharp(found, certificate):
            status = Status.EXACT  # only ties, and variances that are lost in rounding
        evidence = step.proof.evidence
        if evidence is not None and evidence.values.size < found.explained_variance.size:
            found, certificate = _without_padding(step, evidence.values.size, found, certificate)
        return Solution(found, status, self.data.passes, self.history, certificate)

    def _with_remainder(self, found: Decomposition, step: Step, error: float) -> Decomposition:
        """Return float32 components with the variance outside them, known in float64.

        If the total less the variances does not exceed ``error``, both are computed again in
        float64, unless that would be more passes than the user allows.
        """
        rest = found.total_variance - float(found.explained_variance.sum())
        if not found.total_variance > 0:
            return found
        if found.components.shape[0] >= min(self.data.shape):
            return found if error else replace(found, left_out=0.0)
        if rest <= error:
            wide = self.wide if self.goal.proven else self.data.in_float64()
            moments = wide.frame.mean is None and (wide.standardise or wide.missing == "mean")
            most = math.inf if step.stage.priming.traits.own_end else self.goal.max_passes
            if self.data.passes + 1 + moments > most:
                return found
            basis = wide.like.xp.asarray(wide.wide(found.components.T), copy=True)
            basis, _ = orthonormalise(basis)
            inside = float(np.trace(wide.projected_covariance(basis)))
            rest = float(in_unit_of_data(wide, np.float64(wide.total - inside)))
        return replace(found, left_out=rest)

    def _proven(self, step: Step, proof: Proof) -> tuple[Decomposition, Certificate, bool]:
        priming, certificate = step.stage.priming, proof.certificate
        checked = isinstance(step.stage.certifier, CheckedCertifier)
        if checked or priming.traits.certifier != "probes" or proof.evidence is None:
            return proof.find(), certificate, proof.counted
        # A span that nothing more comes out of has tied variances, which no pass resolves.
        self.floor |= self.met and self.reach > self.goal.tol
        self.floor |= priming.finished(step.snapshot.state)
        k, counted = certificate.angle_bounds.size, proof.counted
        if isinstance(self.plan.n_components, float):  # never pad a fractional `n_components`
            # The basis may be too small for the number that is proven to be needed.
            counted &= k <= proof.evidence.values.size
            k = min(k, proof.evidence.values.size, *self.data.shape)  # a block may be wider
        found = refined(self.wide, priming, step.snapshot, k)
        return found, certificate.first(k), counted

    def _refined(self, step: Step) -> Decomposition:
        k, share = int(self.plan.n_components), self.goal.refine_share
        known = None
        if share == 1.0:
            known = step.stage.priming.refined(step.snapshot.state, self.data)
        if known is None:
            basis = basis_of(step.snapshot.directions)
            self.whole = basis.shape[1] == self.data.shape[1]
            return refine_span(self.data, basis, k, self.goal.seed, share)
        if not isinstance(step.stage.priming, OWN):
            known = check_refined(known, k, self.data.like)
        basis, variances = known
        self.whole = basis.shape[1] == self.data.shape[1]
        return decomposition(self.data, basis[:, :k], variances)

    def _status(self, step: Step) -> Status:
        priming, share = step.stage.priming, self.goal.refine_share
        if priming.traits.certifier == "exact":
            return Status.EXACT if share == 1.0 else Status.FINISHED
        if self.stopped and not (self.settled or priming.finished(step.snapshot.state)):
            return Status.STOPPED
        if self.whole:  # refining in the whole space is exact, if it uses all rows
            return Status.CONVERGED if share == 1.0 else Status.FINISHED
        first = priming.unsettled(step.snapshot.state)
        if priming.change(step.snapshot.state) is not None:
            short = not self.settled
        elif first is None:
            return Status.FINISHED
        else:  # those beyond k do not matter
            short = 0 < first <= self.plan.n_components
        if not short:
            coarse = priming.traits.tolerance > self.goal.tol
            return Status.FINISHED if coarse else Status.CONVERGED
        if self.floor:
            return Status.STALLED
        return Status.STOPPED if self.stopped else Status.MAX_PASSES


def _is_explicit(priming: Priming) -> bool:
    """Whether a priming multiplies an explicit matrix, so that its steps are not passes."""
    return isinstance(priming, BlockKrylov) and priming.explicit


def exact_stage(wide: Centred, wanted: int | float) -> Stage:
    """A full decomposition in float64 with its certificate."""
    certifier = ExactCertifier(wide, wanted)
    return Stage(Exact(), certifier.count + 1, 1, 0, certifier)


def _behind(stage: Stage, row: dict[str, Any]) -> Stage:
    """The stage with its steps and seconds counted on from a row of the history."""
    return replace(stage, steps=row["step"], seconds=row["seconds"])


def _is_sharp(found: Decomposition, certificate: Certificate) -> bool:
    """Whether rounding leaves the variances known to a small part of their sum."""
    low, high = certificate.eigenvalue_bounds.T
    return bool((high - low <= 1e-6 * found.total_variance).all())


def _without_padding(
    step: Step, p: int, found: Decomposition, certificate: Certificate
) -> tuple[Decomposition, Certificate]:
    """Leave out vectors beyond the ``p`` of a basis that has not come to the wanted number.

    Beyond the rank of the data they stay: there any vectors will do.
    """
    if step.stage.priming.finished(step.snapshot.state) or certificate.zero[p:].all():
        return found, certificate
    parts = found.components[:p], found.explained_variance[:p]
    found = replace(found, components=parts[0], explained_variance=parts[1])
    return found, certificate.first(p)


def _check_rank(snapshot: Snapshot, plan: Plan) -> None:
    rank = basis_of(snapshot.directions).shape[1]
    if rank < plan.n_components:
        raise ValueError(
            f"The directions of `priming` span {rank} dimensions, too few for "
            f"`n_components`={plan.n_components}. Give more, or lower it."
        )
