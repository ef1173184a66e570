"""What a fit hands over: the components, how it ended, and what it could not do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from primedpca.outward import round_up
from primedpca.result import Certificate, Decomposition, Status

__all__ = ["Solution"]

#: What no more passes would change, and what was asked for: nothing to warn of.
QUIET = (Status.EXACT, Status.FINISHED, Status.STOPPED)


@dataclass(frozen=True)
class Solution:
    """A decomposition, how it was reached, and what happened on the way."""

    decomposition: Decomposition
    status: Status
    passes: float
    history: list[dict[str, Any]]
    certificate: Certificate | None = None

    @property
    def converged(self) -> bool:
        """Whether all are proven or, without a certificate, exact or settled."""
        if self.certificate is None and self.status is Status.EXACT:
            return True
        return self.status in (Status.CERTIFIED, Status.CONVERGED)

    @property
    def warns(self) -> bool:
        """Whether it ended short of what was asked for, and could be helped."""
        return not (self.converged or self.status in QUIET)

    def first(self, k: int, tol: float) -> Solution:
        """How it ended for the first ``k`` components, where only these are kept."""
        if self.certificate is None or k >= self.certificate.angle_bounds.size:
            return self
        proof, status = self.certificate.first(k), self.status
        if proof.met(tol).all():
            status = Status.CERTIFIED
        elif status is Status.CERTIFIED:
            status = Status.EXACT if proof.kind == "exact" else Status.CUT
        return replace(self, certificate=proof, status=status)

    def shortfall(self, tol: float) -> str:
        """The status, and the components that are not proven."""
        if self.certificate is None:
            return str(self.status)
        short = np.flatnonzero(~self.certificate.met(tol))
        if short.size == 0:
            return f"{self.status} How many components are needed is not proven."
        names = ", ".join(map(str, short[:8])) + (" ..." if short.size > 8 else "")
        words = f"{self.status} Not proven: component(s) {names}, counted from 0."
        bound = float(self.certificate.counted_bounds()[short].max())
        near = f"{words} They are within {round_up(bound):.2g} rad."
        return near if bound < np.pi / 2 else words
