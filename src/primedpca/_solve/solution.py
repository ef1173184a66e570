"""What a fit hands over: the components, how it ended, and what it could not do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from primedpca._core.outward_rounding import round_up
from primedpca._core.wording import numbered
from primedpca.result import Certificate, Decomposition, Status

__all__ = ["Solution"]

#: What was asked for: nothing to warn of.
QUIET = (Status.FINISHED, Status.STOPPED)


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
        """Whether that was exact, proven, or settled; not if a priming just came to its end."""
        return self.status in (Status.EXACT, Status.CERTIFIED, Status.CONVERGED)

    @property
    def warns(self) -> bool:
        """Whether it ended short of what was asked for, and could be helped."""
        return not (self.converged or self.status in QUIET)

    def first(self, k: int) -> Solution:
        """The same where only the first ``k`` components are kept."""
        if self.certificate is None:
            return self
        return replace(self, certificate=self.certificate.first(k))

    def shortfall(self, tol: float) -> str:
        """Return the status and the components that are not proven, counted from 1."""
        if self.certificate is None:
            return str(self.status)
        short = ~self.certificate.met(tol)
        if not short.any():
            return f"{self.status} How many components are needed is not proven."
        words = f"{self.status} Not proven: {numbered(short, most=8).lower()}"
        bound = float(self.certificate.counted_bounds()[short].max())
        near = f", only to be within {round_up(bound):.2g} rad" if bound < np.pi / 2 else ""
        return f"{words}{near}."
