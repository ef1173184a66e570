"""Progress of a command on a terminal: components and bounds, passes, speed, time left."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from primedpca._core.wording import angle_words, duration, size
from primedpca.cli.printing import bound_cells, component_table, to_terminal


@contextmanager
def watched(model: Any, verbose: bool) -> Iterator[None]:
    """Show the progress of the fit of ``model`` on standard error: a table, lines, or nothing.

    A terminal that can move its cursor shows a live table.  Elsewhere, ``verbose`` or a terminal
    gets a line for every pass.  The parameters of the model are the defaults again afterwards,
    because a saved model must not refer to this process.
    """
    from primedpca._solve.history import line
    from primedpca.engines import LocalEngine
    from primedpca.engines.base import CountedEngine

    console = to_terminal(stderr=True)
    live: Any = nullcontext()
    if console.is_terminal and not (verbose or console.is_dumb_terminal):
        from rich.live import Live

        # The engine counts blocks, so that the table moves within a long pass, too.
        table = LiveTable(console, model)
        model.set_params(verbose=table.tell, engine=CountedEngine(LocalEngine(), table.count))
        look: dict[str, Any] = {"transient": True, "refresh_per_second": 8}
        live = Live(get_renderable=table.render, console=console, **look)
    elif verbose or console.is_terminal:
        model.set_params(verbose=lambda row: print(line(row, model.tol), file=sys.stderr))
    try:
        with live:
            yield
    finally:
        model.set_params(verbose=0, engine=None)


@contextmanager
def read_through(source: Any) -> Iterator[Any]:
    """Yield the source, with a progress bar on standard error while its blocks are read once.

    Without a terminal that can move its cursor, there is no bar.
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
    """The state of a fit, drawn on request.

    Parameters
    ----------
    console : Console
    model : PrimedPCA
        The model being fitted; the table shows the time left once ``plan_`` exists.
    """

    def __init__(self, console: Any, model: Any) -> None:
        self.console, self.model = console, model
        self._begun = time.monotonic()
        self._row: dict[str, Any] = {"passes": 0.0}
        self._lock = threading.Lock()
        self._bytes, self._done, self._blocks = 0, 0, 1

    def tell(self, row: dict[str, Any]) -> None:
        """Take the history row of a pass that has ended."""
        self._row = row

    def count(self, taken: int, blocks: int) -> None:
        """Count a block of ``taken`` bytes, one of ``blocks`` in its pass."""
        with self._lock:  # called by the threads that work on blocks
            self._bytes += taken
            self._done, self._blocks = self._done + 1, blocks

    def render(self) -> Any:
        """Return the state as a renderable of rich."""
        from rich.console import Group
        from rich.text import Text

        from primedpca._solve.history import counted_bounds

        row = dict(self._row)  # the fit may replace the row while this thread draws
        bounds, tol = counted_bounds(row), self.model.tol
        parts: list[Any] = []
        variances = [f"{value:.4g}" for value in row.get("variances", ())]
        room = max(3, self.console.height - 6)  # a taller table would scroll and leave traces
        cells = bound_cells(row.get("angle_bounds"), bounds, tol, min(len(variances), room))
        if cells:
            parts.append(component_table({"variance": variances}, "current bound", cells))
        if len(variances) > room:
            parts.append(Text(f"... and {len(variances) - room} more", "dim"))
        going = True
        if bounds is not None:
            proven = int((bounds <= tol).sum())
            going = proven < len(bounds)
            told = f"{proven} of {len(bounds)} proven"
            parts.append(Text(told, "yellow" if going else "green"))
        return Group(*parts, Text(self._speed(row, going), "dim"))

    def _speed(self, row: dict[str, Any], going: bool) -> str:
        elapsed = time.monotonic() - self._begun
        words = [f"pass {row['passes']:.0f}", duration(elapsed)]
        if self._bytes:
            words.append(f"{size(self._bytes / max(elapsed, 1e-3))}/s")
        if "change" in row:
            words.append(f"change {angle_words(row['change'])}")
        done = row["passes"] + (self._done % self._blocks) / self._blocks
        plan = getattr(self.model, "plan_", None)
        if going and plan is not None and done and elapsed > 1:  # an earlier guess would jump
            planned = plan.ways[0].passes if plan.ways else 0.0
            word, passes = "about", planned
            if done >= planned:
                word, passes = "at most", max(float(self.model.max_passes), done)
            words.append(f"{word} {duration(elapsed * (passes / done - 1))} left")
        return ", ".join(words)
