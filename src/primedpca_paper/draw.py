"""Draw any table or figure from a results folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from primedpca_paper.claims import claims_files
from primedpca_paper.comparison import comparison_files
from primedpca_paper.figures import APPENDIX, appendix_figure, figure_1, figure_2, figure_3
from primedpca_paper.headline import headline_files
from primedpca_paper.records import Records, write_whole
from primedpca_paper.tables import settings_files, table_files
from primedpca_paper.traces import Results

__all__ = ["TARGETS", "draw", "draw_results"]

TEXTS: dict[str, Callable[[Results], dict[str, str]]] = {
    "table-1": lambda results: table_files("table-1", results) | settings_files(results),
    "table-2": lambda results: table_files("table-2", results) | settings_files(results),
    "headline": lambda results: headline_files(results) | comparison_files(results),
    "figure-2": claims_files,
}
FIGURES: dict[str, Callable[[Results, Path], list[Path]]] = {
    "figure-1": figure_1,
    "figure-2": figure_2,
    "figure-3": figure_3,
}
TARGETS = ("table-1", "table-2", "headline", *FIGURES, *APPENDIX)


def draw(target: str, records: Records, selection: Records | None, out: Path) -> list[Path]:
    """Draw one table or figure.

    Parameters
    ----------
    target : str
        One of :data:`TARGETS`.
    records : Records
        Timed runs.
    selection : Records or None
        Runs of the grid, from which the best settings are chosen.  Without them every priming
        must have been run at one setting only.
    out : Path
        Folder to write to.  Files of the same names are replaced.

    Returns
    -------
    list of Path
        The files that were written.  They name the sets and methods that were not run.
    """
    if target not in TARGETS:
        raise ValueError(f"`target`={target!r} must be one of {', '.join(TARGETS)}.")
    return draw_results(target, Results(records, selection), out)


def draw_results(target: str, results: Results, out: Path) -> list[Path]:
    """Draw one target from results that were read before, as :func:`draw` does."""
    paths = []
    texts = TEXTS[target](results) if target in TEXTS else {}
    for name, text in texts.items():
        write_whole(out / name, text)
        paths.append(out / name)
    if target in FIGURES:
        paths += FIGURES[target](results, out)
    elif target in APPENDIX:
        paths += appendix_figure(target, results, out)
    return paths
