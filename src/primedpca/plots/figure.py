"""Figures that a notebook shows.  Imports Matplotlib, so import it only where one is made."""

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that a notebook shows when it is the last line of a cell, without pyplot."""

    def _repr_png_(self) -> tuple[bytes, dict[str, float]]:
        """Return the figure as a PNG for sharp screens, and its width and height on the page."""
        kept = io.BytesIO()
        self.savefig(kept, format="png", dpi=2 * self.dpi)
        width, height = self.get_size_inches() * self.dpi
        return kept.getvalue(), {"width": round(width), "height": round(height)}
