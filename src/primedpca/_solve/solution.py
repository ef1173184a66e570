"""Result of the main loop: components, status, history and certificate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from primedpca._core.outward_rounding import round_up
from primedpca._core.wording import numbered
from primedpca.result import Certificate, Decomposition, Status

__all__ = ["Solution"]

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

    def shortfall(self, tol: float) -> str:
        """Describe the status and the components that are not proven, counted from 1.

        Parameters
        ----------
        tol : float
            Angle to prove, in radians.
        """
        if self.certificate is None:
            return str(self.status)
        short = ~self.certificate.met(tol)
        if not short.any():
            return f"{self.status} The number of components is not proven."
        words = f"{self.status} Not proven: {numbered(short, most=8).lower()}"
        bound = float(self.certificate.counted_bounds()[short].max())
        near = f", only to be within {round_up(bound):.2g} rad" if bound < np.pi / 2 else ""
        return f"{words}{near}."
