"""Rows of the history of a fit, one per step, and the functions that are told of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from primedpca._core.outward_rounding import round_up
from primedpca.result import Decomposition

__all__ = ["Find", "Listener", "Row", "counted_bounds", "line", "silent"]

#: A row has the keys ``step``, ``passes`` and ``seconds`` and, if known, ``change``, ``variances``,
#: ``angle_bounds`` and ``counted_bounds``.  The last are the bounds that decide convergence: for a
#: cluster, that of its subspace; 0 where there is no variance.
Row = dict[str, Any]
#: Returns the components so far, or None if they would cost a pass.
Find = Callable[[], Decomposition | None]
#: Called with the history after every pass; a true result ends the fit.
Listener = Callable[[list[Row], Find], Any]


def silent(history: list[Row], find: Find) -> bool:
    """Listener that does nothing."""
    return False


def line(row: Row, tol: float) -> str:
    """Format a row of the history as one line of text.

    Parameters
    ----------
    row : dict
    tol : float
        Angle in radians; the line says how many components are proven to be within it.

    Examples
    --------
    >>> line({"step": 2, "passes": 3.0, "seconds": 0.5, "change": 0.01}, 1e-3)
    'primedpca: step 2, 3.0 passes, 0.50 s, change 1.00e-02 rad'
    """
    words = [f"step {row['step']}, {row['passes']:.1f} passes, {row['seconds']:.2f} s"]
    if "change" in row:
        words.append(f"change {row['change']:.2e} rad")
    if "variances" in row and len(row["variances"]):
        words.append(f"variances {row['variances'][0]:.4g} to {row['variances'][-1]:.4g}")
    bounds = counted_bounds(row)
    if bounds is not None:
        met, worst = (bounds <= tol).sum(), float(bounds.max(initial=0.0))
        words.append(f"{met} of {bounds.size} proven within {round_up(tol):.2g} rad")
        if worst < np.pi / 2:
            words.append(f"all within {round_up(worst, 3):.2e} rad")
    return "primedpca: " + ", ".join(words)


def counted_bounds(row: Row) -> np.ndarray | None:
    """Return the bounds that decide convergence, ``(k,)`` in radians, or None.

    Histories from older versions have only ``angle_bounds``, which are then returned.
    """
    known = row.get("counted_bounds", row.get("angle_bounds"))
    return None if known is None else np.asarray(known)
