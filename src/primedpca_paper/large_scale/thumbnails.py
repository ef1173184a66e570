"""Rows and components as small images, for figures that are drawn later."""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca.protocols import Array
from primedpca_paper.large_scale.results import RunFolder

__all__ = ["Gallery", "shown", "shrunk"]

#: Approximate longer side of an image, in pixels.
PIXELS = 144
EXAMPLES = 3


class Gallery:
    """Collection of images; does nothing if rows are not images.

    Parameters
    ----------
    results : RunFolder
        Folder to write to.
    image_shape : (height, width, channels) or None
        Shape of a row as an image.
    """

    def __init__(self, results: RunFolder, image_shape: Any) -> None:
        self.results, self.image_shape = results, image_shape
        self.wanted = image_shape is not None
        self.pictures: dict[str, np.ndarray] = {}

    def keep_data(self, source: Any, mean: Array) -> None:
        """Write three evenly spaced rows and the mean of all rows, as uint8."""
        if not self.wanted:
            return
        n = source.shape[0]
        numbers = np.linspace(0, n - 1, min(EXAMPLES, n)).round().astype(int)
        rows = (*source.rows(numbers), mean)
        images = np.stack([shrunk(row, self.image_shape, 2 * PIXELS) for row in rows])
        found = np.clip(images.round(), 0, 255).astype(np.uint8)
        self.results.write_arrays("images", examples=found[:-1], mean=found[-1], numbers=numbers)

    def keep(self, name: str, components: Array) -> None:
        """Keep components ``(k, d)`` under the name of a method and a step.

        Entries are scaled to int8, with the largest at 127, because images show eight bits.
        """
        if not self.wanted:
            return
        pictures = np.stack([shrunk(row, self.image_shape) for row in components])
        peaks = np.maximum(np.abs(pictures).max(axis=(1, 2, 3)), np.finfo(np.float32).tiny)
        scaled = np.rint(127 * pictures / peaks[:, None, None, None])
        self.pictures[name] = scaled.astype(np.int8)
        if name == "certified":
            self.write(name + "_pictures")

    def write(self, name: str) -> None:
        """Write the collected images to ``NAME.npz`` and empty the collection."""
        self.results.write_arrays(name, **self.pictures)
        self.pictures = {}


def shown(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Return components as images ``(k, height, width, channels)``, scaled to at most 1."""
    return arrays[name].astype(np.float64) / 127


def shrunk(row: Array, image_shape: Any, pixels: int = PIXELS) -> np.ndarray:
    """Return a row as an image of at most ``pixels`` on its longer side, by block means."""
    h, w, c = image_shape
    image = to_numpy(row).reshape(h, w, c)
    side = max(1, -(-max(h, w) // pixels))
    high, wide = max(1, h // side), max(1, w // side)
    tall, broad = min(side, h), min(side, w)
    cut = image[: high * tall, : wide * broad]
    boxes = cut.reshape(high, tall, wide, broad, c)
    means: np.ndarray = boxes.mean(axis=(1, 3), dtype=np.float64)
    return means
