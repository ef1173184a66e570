"""How a command gets on, on a terminal: components and bounds, passes, speed, time left."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from primedpca.cli.printing import angle, duration, size, to_terminal
from primedpca.cli.summary import bound_cells, empty_table

if TYPE_CHECKING:
    from rich.console import Console, Group

__all__ = ["read_through", "watched"]


@contextmanager
def watched(model: Any, verbose: bool) -> Iterator[None]:
    """Show how the fit of ``model`` goes, on the error stream: a table, lines, or nothing.

    A terminal that can be drawn on gets a live table; ``verbose`` prints a line for every pass
    anywhere else.  The model is left as it was.
    """
    from primedpca._solve.history import line
    from primedpca.engines import LocalEngine
    from primedpca.engines.counted import CountedEngine

    console = to_terminal(stderr=True)
    if verbose or console.is_dumb_terminal or not console.is_terminal:
        quiet = not (verbose or console.is_terminal)
        model.verbose = 0 if quiet else lambda row: print(line(row, model.tol), file=sys.stderr)
        try:
            yield
        finally:
            model.verbose = 0
        return
    from rich.live import Live

    table = LiveTable(console, model)
    model.verbose, model.engine = table.tell, CountedEngine(LocalEngine(), table.count)
    try:
        with Live(
            get_renderable=table.render, console=console, transient=True, refresh_per_second=8
        ):
            yield
    finally:
        model.verbose, model.engine = 0, None


@contextmanager
def read_through(source: Any) -> Iterator[Any]:
    """The source, with a bar on the error stream while its blocks are read once.

    Where there is no terminal that can be drawn on, it is the source itself.
    """
    console = to_terminal(stderr=True)
    if console.is_dumb_terminal or not console.is_terminal:
        yield source
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    from primedpca.sources.wrappers.adapted import Watched

    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress("reading", *columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(source.blocks))
        yield Watched(source, lambda seen: progress.update(task, completed=seen))


class LiveTable:
    """What is known by now, drawn whenever it is asked for.

    Parameters
    ----------
    console : Console
    model : PrimedPCA
        Being fitted; its plan is looked at as soon as it is made.
    """

    def __init__(self, console: Console, model: Any) -> None:
        self.console, self.model = console, model
        self._begun = time.monotonic()
        self._row: dict[str, Any] = {"passes": 0.0}
        self._lock = threading.Lock()
        self._bytes, self._done, self._blocks = 0, 0, 1

    def tell(self, row: dict[str, Any]) -> None:
        """A pass has ended."""
        self._row = row

    def count(self, taken: int, blocks: int) -> None:
        """A block was worked on, one of ``blocks`` in its pass."""
        with self._lock:
            self._bytes += taken
            self._done, self._blocks = self._done + 1, blocks

    def render(self) -> Group:
        """The state as something to draw."""
        from rich.console import Group
        from rich.text import Text

        from primedpca._solve.history import counted_bounds

        row = dict(self._row)
        table = empty_table(self.console, "variance", "bound now")
        bounds, variances, tol = counted_bounds(row), row.get("variances", ()), self.model.tol
        shown = len(variances)
        room = max(3, self.console.height - 6)
        cells = bound_cells(row.get("angle_bounds"), bounds, tol, min(shown, room))
        for i, cell in enumerate(cells):
            table.add_row(str(i + 1), f"{variances[i]:.4g}", cell)
        proven = 0 if bounds is None else int((bounds <= tol).sum())
        parts: list[Any] = [table] if shown else []
        if shown > room:
            parts.append(Text(f"... and {shown - room} more", "dim"))
        if bounds is not None:
            style = "green" if proven == len(bounds) else "yellow"
            parts.append(Text(f"{proven} of {len(bounds)} proven", style))
        going = bounds is None or proven < len(bounds)
        return Group(*parts, Text(self._speed(row, going), "dim"))

    def _speed(self, row: dict[str, Any], going: bool) -> str:
        elapsed = time.monotonic() - self._begun
        words = [f"pass {row['passes']:.0f}", duration(elapsed)]
        if self._bytes:
            words.append(f"{size(self._bytes / max(elapsed, 1e-3))}/s")
        if "change" in row:
            words.append(f"changing by {angle(row['change'])}")
        done = row["passes"] + (self._done % self._blocks) / self._blocks
        plan = getattr(self.model, "plan_", None)
        if going and plan is not None and done and elapsed > 1:
            planned = plan.ways[0].passes if plan.ways else 0.0
            word, passes = "about", planned
            if done >= planned:
                word, passes = "at most", max(float(self.model.max_passes), done)
            words.append(f"{word} {duration(elapsed * (passes / done - 1))} left")
        return ", ".join(words)
