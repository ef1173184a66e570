"""Output that is replaced in place in notebooks: JupyterLab, Notebook, VS Code, Colab."""

import sys
import time
from typing import Any

__all__ = ["InPlace", "in_notebook"]

PAUSE = 0.1  # seconds between updates; a front end redraws no faster


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows HTML.

    IPython on a terminal is not: its shell is of another class.
    """
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    shell = None if ipython is None else ipython.get_ipython()
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


class InPlace:
    """HTML below the cell that runs, which each update replaces."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._last = 0.0

    def show(self, html: str, last: bool = False) -> None:
        """Show ``html``; updates that follow too soon are left out, except the last."""
        now = time.monotonic()
        if self._handle is not None and not last and now - self._last < PAUSE:
            return
        self._last = now
        from IPython.display import HTML, display

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))
