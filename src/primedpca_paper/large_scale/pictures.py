"""Figures of the large-scale experiments, drawn from results folders alone."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.outward_rounding import degrees_up
from primedpca.plots.components import contrast, displayable
from primedpca_paper.large_scale.curves import (
    Curve,
    component_colours,
    draw_streaks,
    draw_variances,
)
from primedpca_paper.large_scale.results import Evaluation, RunFolder, runs_in
from primedpca_paper.large_scale.thumbnails import shown
from primedpca_paper.records import streak_of
from primedpca_paper.style import save

__all__ = ["draw_figure_4", "draw_figure_5", "draw_lobsters"]

#: Name and line style of each method.
LINES: dict[str, tuple[str, Any]] = {
    "ppca": ("pPCA", "-"),
    "ppca_share": ("pPCA, refined with {rows} of the rows", ":"),
    "eigengame": ("EigenGame", "--"),
}
NAMES = {"eigengame": "EigenGame", "ppca": "pPCA"}
THRESHOLD, THRESHOLD_WORDS = np.pi / 8, "π/8"


def draw_figure_4(folder: str | Path, out: str | Path) -> list[Path]:
    """Draw captured variance during training, raw and normalised, and correct streaks.

    Parameters
    ----------
    folder : path
        A results folder, or a folder of several; each run is a row of panels.
    out : path
        Path of the figure without its suffix; ``.png`` and ``.pdf`` files are written.

    Returns
    -------
    list of Path
        The files that were written.
    """
    runs = [run for run in runs_in(Path(folder)) if run.rows()]
    if not runs:
        raise FileNotFoundError(f"{folder} does not hold a finished training run.")
    figure = _figure((9.6, 2.75 * len(runs) + 0.65))
    axes = figure.subplots(len(runs), 3, squeeze=False, width_ratios=(1, 1, 0.85))
    for row, run in zip(axes, runs, strict=True):
        _panels(row, run)
    _legend(figure, runs)
    return save(figure, Path(out), 200)


def _panels(axes: Any, run: RunFolder) -> None:
    rows, k = run.rows(), int(run.settings["n_components"])
    certified = None if run.certified is None else np.array(run.certified["explained_variance"])
    curves = {method: _curve(rows, method, style) for method, (_, style) in LINES.items()}
    draw_variances(axes[0], curves, certified=certified)
    few = {method: curve for method, curve in curves.items() if method != "ppca_share"}
    draw_variances(axes[1], few, divide=True)
    streaks = {
        name: (curves[method].steps, _streaks(rows, method), style)
        for method, (name, style) in LINES.items()
    }
    draw_streaks(axes[2], streaks, k)
    n, d = run.settings["shape"]
    titles = (
        # A name that is wider than its panel would run into the next title.
        "\n".join(textwrap.wrap(f"{run.settings['name']}: n = {n:,}, d = {d:,}", 48)),
        "divided by the mean of the last five points",
        f"within {THRESHOLD_WORDS} of the certified components",
    )
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, loc="left", fontsize=8)
        axis.tick_params(labelsize=7.5)
        axis.xaxis.label.set_size(8)
        axis.yaxis.label.set_size(8)


def _by_seed(rows: list[Evaluation], method: str) -> list[list[Evaluation]]:
    chosen = [row for row in rows if row.method == method]
    seeds = sorted({row.seed for row in chosen})
    return [[row for row in chosen if row.seed == seed] for seed in seeds]


def _curve(rows: list[Evaluation], method: str, style: str) -> Curve:
    runs = _by_seed(rows, method)
    steps = np.array([row.step for row in runs[0]])
    return Curve(steps, np.array([[row.variances for row in run] for run in runs]), style)


def _streaks(rows: list[Evaluation], method: str) -> np.ndarray:
    runs = _by_seed(rows, method)
    return np.array([[streak_of(row.angles, THRESHOLD) for row in run] for run in runs])


def _legend(figure: Any, runs: list[RunFolder]) -> None:
    from matplotlib.lines import Line2D

    k = max(int(run.settings["n_components"]) for run in runs)
    shares = {run.settings["share"] for run in runs}
    rows = f"{min(shares):.0%}" if len(shares) == 1 else "some"
    lines = [
        Line2D([], [], color="black", linestyle=style, label=name.format(rows=rows))
        for name, style in LINES.values()
    ]
    mark: dict[str, Any] = {"marker": "<", "linestyle": "none", "markersize": 4.5, "color": "0.3"}
    lines.append(Line2D([], [], label="certified variance", **mark))
    lines += [
        Line2D([], [], color=colour, linewidth=3, label=f"{i + 1}")
        for i, colour in enumerate(component_colours(k))
    ]
    figure.legend(
        handles=lines,
        loc="outside lower center",
        ncols=len(lines),
        frameon=False,
        handlelength=1.6,
        columnspacing=0.9,
        fontsize=7.5,
    )


def draw_figure_5(folder: str | Path, out: str | Path) -> list[Path]:
    """Draw examples of the data set and its mean; ``folder`` and ``out`` as for figure 4.

    Of several runs, the first one whose rows are images is drawn.
    """
    arrays = _with_images(Path(folder)).arrays("images")
    pictures = [*arrays["examples"], arrays["mean"]]
    titles = [*(f"image {number + 1}" for number in arrays["numbers"]), "mean of the data set"]
    h, w = pictures[0].shape[:2]
    figure = _figure((9.6, 9.6 / len(pictures) * h / w + 0.2))
    axes = figure.subplots(1, len(pictures))
    for axis, picture, letter, title in zip(axes, pictures, "abcdefgh", titles, strict=False):
        axis.imshow(displayable(picture))
        axis.set_axis_off()
        words = f"({letter}) {title}"
        axis.text(0.5, -0.04, words, transform=axis.transAxes, ha="center", va="top", fontsize=9)
    return save(figure, Path(out), 140)


def draw_lobsters(folder: str | Path, out: str | Path) -> list[Path]:
    """Draw components as images, positive and negative parts, during training and certified.

    ``folder`` and ``out`` are as for figure 4.  Each vector has the sign that agrees with the
    certified component and a scale of its own; the number in the corner is its angle to the
    certified component.
    """
    run = _with_images(Path(folder), "pictures")
    pictures = run.arrays("pictures")
    truth = shown(run.arrays("certified_pictures"), "certified")
    angles = {
        (r.method, r.step): r.angles for r in run.rows() if r.seed == run.settings["seeds"][0]
    }
    steps = sorted({int(name.split()[1]) for name in pictures})
    blocks = [(method, step) for step in steps for method in ("eigengame", "ppca")]
    k, h, w = truth.shape[:3]
    cell = 9.6 / k
    figure = _figure((9.6, (2 * cell * h / w + 0.3) * (len(blocks) + 1)), tight=False)
    parts = figure.subfigures(len(blocks) + 1, 1)
    for part, (method, step) in zip(parts, blocks, strict=False):
        vectors = _agreeing(shown(pictures, f"{method} {step}"), truth)
        _pair_of_rows(part, vectors, f"{NAMES[method]}, after {step} steps", angles[method, step])
    bounds = run.certified["angle_bounds"] if run.certified else np.full(k, np.nan)
    _pair_of_rows(parts[-1], truth, "certified", np.array(bounds), True)
    return save(figure, Path(out), max(100, w / cell))  # a pixel of the data for each pixel


def _pair_of_rows(
    part: Any, vectors: np.ndarray, title: str, angles: np.ndarray, proven: bool = False
) -> None:
    axes = part.subplots(
        2,
        vectors.shape[0],
        gridspec_kw={"wspace": 0.03, "hspace": 0.05, "top": 0.85, "bottom": 0.02},
    )
    part.subplots_adjust(left=0.025, right=0.998)
    part.suptitle(title, fontsize=9, x=0.025, y=0.96, ha="left", va="top")
    for sign, row, symbol in ((1, axes[0], "+"), (-1, axes[1], "−")):
        row[0].text(-0.1, 0.5, symbol, transform=row[0].transAxes, ha="center", va="center")
        for axis, vector in zip(row, vectors, strict=True):
            image = displayable(contrast(sign * vector, vector))
            axis.imshow(image, interpolation="none")
            axis.set_axis_off()
    for axis, angle in zip(axes[0], angles, strict=True):
        words = _degrees(angle, proven)
        axis.text(0.03, 0.95, words, transform=axis.transAxes, va="top", color="white", fontsize=6)


def _degrees(angle: float, proven: bool) -> str:
    """Return an angle in degrees; measured ones are known to 0.1, see :class:`Measured`."""
    degrees = np.degrees(angle)
    if proven:
        return f"≤ {degrees_up(angle, 1):.1g}°"
    if degrees < 0.1:
        return "< 0.1°"
    return f"{degrees:.0f}°" if degrees >= 9.5 else f"{degrees:.1f}°"


def _agreeing(vectors: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the vectors with the signs of the true ones."""
    along = (vectors * truth).sum(axis=(1, 2, 3), keepdims=True)
    return np.where(along < 0, -vectors, vectors)


def _with_images(folder: Path, name: str = "images") -> RunFolder:
    for run in runs_in(folder):
        if (run.path / f"{name}.npz").is_file():
            return run
    raise FileNotFoundError(f"{folder} does not hold a finished run whose rows are images.")


def _figure(size: tuple[float, float], tight: bool = True) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Drawing needs Matplotlib: pip install 'primedpca[plots]'.") from error
    return Figure(figsize=size, layout="constrained" if tight else None)
