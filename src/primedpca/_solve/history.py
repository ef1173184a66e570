"""Where a fit stands: a row for every step, and everybody who is told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from primedpca._core.outward_rounding import round_up
from primedpca.result import Decomposition

__all__ = ["Find", "Listener", "Record", "Row", "counted_bounds", "line", "silent"]

#: step, passes, seconds, and what is known by then: change, variances, angle_bounds and, of a
#: cluster its span's and of no variance 0, counted_bounds.
Row = dict[str, Any]
#: The components so far, where they cost no pass of their own, else None.
Find = Callable[[], Decomposition | None]
#: Called with the rows so far after every pass; an answer that is true ends the fit.
Listener = Callable[[list[Row], Find], Any]


def silent(history: list[Row], find: Find) -> bool:
    """A listener that does nothing."""
    return False


class Record:
    """The history of a fit, told to a listener once a pass.

    Parameters
    ----------
    history : list of dict
        Added to by every call.
    listener : callable
    rarely : bool
        Whether steps are mini-batches, of which fewer and fewer are told.

    Attributes
    ----------
    stopped : bool
        Whether the listener has asked for the end.
    """

    def __init__(self, history: list[Row], listener: Listener, rarely: bool) -> None:
        self.history, self.stopped = history, False
        self._listener, self._rarely, self._told = listener, rarely, 0.0

    def __call__(self, row: Row, find: Find = lambda: None) -> bool:
        """Keep the row, tell of it, and say whether the fit is to end."""
        self.history.append(row)
        often = 1.5 if self._rarely and "angle_bounds" not in row else 1.0
        if int(row["passes"]) > int(often * self._told):
            self._told = row["passes"]
            self.stopped |= bool(self._listener(self.history, find))
        return self.stopped


def line(row: Row, tol: float) -> str:
    """A row in words, on one line.

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
    """The bounds that count by then, ``(k,)``; of a history from before they were kept, its own."""
    known = row.get("counted_bounds", row.get("angle_bounds"))
    return None if known is None else np.asarray(known)
