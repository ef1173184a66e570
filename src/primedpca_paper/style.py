"""Style of the figures: a colour for each priming, a mark for each number of directions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from primedpca._core.atomic_files import atomic_write
from primedpca.plots.canvas import BLUE, GREEN, RED
from primedpca_paper.protocol import OURS
from primedpca_paper.tables import NAMES
from primedpca_paper.traces import ALONE

__all__ = [
    *("COLOURS", "MARKS"),
    *("component_colours", "house_style", "legend_handles", "look", "save"),
]

#: Three of Okabe and Ito's colours, which colour-blind readers can distinguish.
COLOURS = {"eigengame": BLUE, "oja": RED, "power_method": GREEN}

#: Marks of single points: our own methods, and points where pPCA is below its priming.
MARKS: dict[str, dict[str, Any]] = {
    "block_krylov": {"marker": "*", "markersize": 9},
    "certified": {"marker": "s", "markersize": 5.5},
    "exact": {"marker": "v", "markersize": 6.5},
    "x": {"marker": "x", "markersize": 5, "markeredgewidth": 1.3},
    "+": {"marker": "+", "markersize": 6, "markeredgewidth": 1.3},
}
for _mark in MARKS.values():
    _mark["linestyle"] = ""
for _method in OURS:
    MARKS[_method] |= {"color": "black", "markeredgecolor": "white", "markeredgewidth": 0.5}

SETTINGS: Any = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "pdf.fonttype": 42,
}


def look(method: str, extra: int | None) -> dict[str, Any]:
    """Return a line's style: dashed for the priming alone, solid for pPCA, marks for ``l``."""
    style: dict[str, Any] = {"color": COLOURS[method], "linestyle": "-"}
    if extra is ALONE:
        return style | {"linestyle": (0, (4, 1.6)), "linewidth": 1.1}
    if extra:
        style |= {"marker": {2: "o", 4: "^"}[extra], "markersize": 3.5, "linewidth": 1.0}
        style |= {"markerfacecolor": "white", "markeredgewidth": 0.8}
    return style


def component_colours(count: int) -> list[Any]:
    """Return colours from dark to light, the first component darkest."""
    from matplotlib import colormaps

    last = max(count - 1, 1)
    return [colormaps["viridis"](0.88 * i / last) for i in range(count)]


@contextmanager
def house_style() -> Iterator[None]:
    """Apply the settings of these figures to axes made in the block."""
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise ImportError(
            "Figures need matplotlib. Install it with `pip install 'primedpca[plots]'`."
        ) from error
    with rc_context(SETTINGS):
        yield


def save(figure: Any, stem: Path, dpi: float = 180) -> list[Path]:
    """Write PNG and PDF files, with the same bytes for the same data; return their paths."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind, about in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
        path = stem.with_name(f"{stem.name}.{kind}")
        with atomic_write(path, overwrite=True) as draft:
            figure.savefig(draft, dpi=dpi, format=kind, metadata=about)
        figure.set_layout_engine("none")  # keep the layout: computing it takes most of the time
        paths.append(path)
    return paths


def legend_handles(lines: list[tuple[str, int | None]], axes: Any) -> list[Any]:
    """Return a handle for each line and for each kind of point that is on the axes."""
    from matplotlib.lines import Line2D

    names = {ALONE: "", 0: " + pPCA", 2: " + pPCA$_2$", 4: " + pPCA$_4$"}
    handles = [
        Line2D([], [], label=NAMES[method] + names[extra], **look(method, extra))
        for method, extra in lines
    ]
    there = {line.get_marker() for axis in axes.flat for line in axis.lines if is_point(line)}
    points = {method: NAMES[method] for method in OURS}
    points |= {"x": "below: (b) fails", "+": "below: other"}
    grey = {"color": "0.25"}
    return handles + [
        Line2D([], [], label=label, **grey | MARKS[name])
        for name, label in points.items()
        if MARKS[name]["marker"] in there
    ]


def is_point(line: Any) -> bool:
    """Return whether this is a single mark and not a curve."""
    linestyle: str = line.get_linestyle()
    return linestyle == "None"
