"""Components of image data, drawn as images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca._core.wording import degrees
from primedpca.plots.canvas import check_component, fitted, new_figure, percent

__all__ = ["component_images", "contrast", "displayable"]

FIRST = 16  # components drawn by default
ACROSS = 8  # components side by side


def component_images(model: Any, shape: Any, components: Any = None, axes: Any = None) -> Any:
    """Draw components as images: positive loadings above, negative loadings below.

    Parameters
    ----------
    model : PrimedPCA
        Fitted to images, one per row.
    shape : tuple of int
        Height and width of an image in pixels and, for colours, the number of channels.
    components : sequence of int, optional
        Indices from 0, default=the first 16.
    axes : array of matplotlib.axes.Axes of shape (2, m), optional
        The first row is for positive parts, the second for negative parts.

    Returns
    -------
    ndarray of Axes of shape (2, m)

    Notes
    -----
    Each component has its own colour scale, which saturates for one loading in two hundred.
    """
    size = _image_shape(fitted(model), shape)
    count = model.components_.shape[0]
    asked = range(min(count, FIRST)) if components is None else components
    chosen = [check_component(model, i, "components") for i in asked]
    if not chosen:
        raise ValueError("`components` is empty. Pass at least one, or None for the first ones.")
    across = ACROSS if axes is None else len(chosen)
    axes = _grid(len(chosen), size) if axes is None else np.asarray(axes, dtype=object)
    if axes.shape != (2, len(chosen)):
        raise ValueError(
            f"`axes` has shape {axes.shape}, but {len(chosen)} components need (2, "
            f"{len(chosen)}): a row for positive parts and a row for negative parts."
        )
    for i, pair in zip(chosen, axes.T, strict=True):
        vector = model.components_[i].astype(np.float64).reshape(size)
        for sign, ax in zip((1, -1), pair, strict=True):
            ax.imshow(displayable(contrast(sign * vector, vector)), interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.grid(False)
            ax.spines[:].set_visible(False)
        pair[0].set_title(_title(model, i), fontsize="small")
    for name, row in zip(("+", "−"), axes[:, ::across], strict=True):
        for ax in row:
            ax.set_ylabel(name, rotation=0, ha="right", va="center")
    return axes


def _image_shape(model: Any, shape: Any) -> tuple[int, int, int]:
    d = model.components_.shape[1]
    sides = tuple(shape) if hasattr(shape, "__len__") else (shape,)
    whole = all(isinstance(side, (int, np.integer)) and side > 0 for side in sides)
    if len(sides) not in (2, 3) or not whole or math.prod(sides) != d:
        raise ValueError(
            f"`shape`={shape!r} must be (height, width) or (height, width, channels) whose "
            f"product is the {d} features of the model. Pass the shape of its images."
        )
    height, width, channels = (*sides, 1)[:3]
    return int(height), int(width), int(channels)


def _title(model: Any, i: int) -> str:
    """Return the number, the explained variance ratio, and the proven angle if there is one."""
    bounds = getattr(model, "angle_bounds_", None)
    ratio = percent(model, i)
    proven = f"\n≤ {degrees(bounds[i])}" if bounds is not None and bounds[i] < np.pi / 2 else ""
    return f"{i + 1}" + (f": {ratio}" if ratio else "") + proven


def _grid(count: int, size: tuple[int, int, int]) -> np.ndarray:
    """Return axes of shape (2, count), laid out in pairs of rows of at most eight."""
    across = min(count, ACROSS)
    bands = -(-count // across)
    width = 1.05 if count > 2 else 1.8
    height = width * float(np.clip(size[0] / size[1], 0.3, 3.0))
    figure = new_figure(width * across + 0.4, (2 * height + 0.5) * bands)
    parts = figure.subplots(2 * bands, across, squeeze=False)
    found = np.concatenate([parts[2 * b : 2 * b + 2] for b in range(bands)], axis=1)
    for ax in found[:, count:].flat:
        ax.remove()
    return found[:, :count]


def contrast(part: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Scale the part above zero to [0, 1]; one pixel in two hundred saturates."""
    top = np.quantile(np.abs(vector), 0.995)
    return np.clip(part / (top or np.abs(vector).max() or 1.0), 0.0, 1.0)


def displayable(picture: np.ndarray) -> np.ndarray:
    """Convert an image to RGB bytes: one channel is repeated, a fourth is dropped."""
    colours = picture[:, :, [0, 0, 0] if picture.shape[2] < 3 else [0, 1, 2]]
    return colours if colours.dtype == np.uint8 else np.rint(255 * colours).astype(np.uint8)
