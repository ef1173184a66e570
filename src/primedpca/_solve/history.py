"""Fit history, with one row per step, and its listeners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from primedpca._core.outward_rounding import round_up
from primedpca.result import Decomposition

__all__ = ["Find", "Listener", "Record", "Row", "counted_bounds", "line", "silent"]

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


class Record:
    """Recorder of the history of a fit, which notifies a listener once per pass.

    Parameters
    ----------
    history : list of dict
        Every call appends a row.
    listener : callable
        Called with the history and a function that returns the components so far.
    rarely : bool
        Whether steps are mini-batches, which are reported at growing intervals.

    Attributes
    ----------
    stopped : bool
        Whether the listener has asked to end the fit.
    """

    def __init__(self, history: list[Row], listener: Listener, rarely: bool) -> None:
        self.history, self.stopped = history, False
        self._listener, self._rarely, self._told = listener, rarely, 0.0

    def __call__(self, row: Row, find: Find = lambda: None) -> bool:
        """Append a row, notify the listener if it is due, and return whether to end the fit."""
        self.history.append(row)
        # Growing intervals: at the earliest when the passes are 1.5 times those last reported.
        often = 1.5 if self._rarely and "angle_bounds" not in row else 1.0
        if int(row["passes"]) > int(often * self._told):
            self._told = row["passes"]
            self.stopped |= bool(self._listener(self.history, find))
        return self.stopped


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
