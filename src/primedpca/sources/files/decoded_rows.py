"""Shared parts of images and videos: rows decoded when read, and kept while they fit."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from primedpca._core.threads import renewed_after_fork
from primedpca._core.units import as_bytes
from primedpca.protocols import Block
from primedpca.sources.base import MemorySource, cut_evenly

__all__ = ["DecodedRows", "check_shrink", "pillow", "shrunk"]

BLOCK_BYTES = 2**25  # decoded; as float64 eight times as much


def pillow() -> Any:
    """Pillow's ``Image`` module."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "Reading images needs Pillow: pip install 'primedpca[images]'."
        ) from error
    return Image


def check_shrink(shrink: Any) -> int:
    """Return the factor that both sides are divided by, if it is valid."""
    if not isinstance(shrink, int) or isinstance(shrink, bool) or shrink < 1:
        raise ValueError(f"`shrink`={shrink!r} must be a whole number, at least 1.")
    return shrink


class DecodedRows(MemorySource):
    """Rows that take decoding; those decoded first are kept while they fit into the cache.

    Nothing is ever evicted from the cache: a pass in order over more rows than fit would evict
    every row just before it is needed again.

    Attributes
    ----------
    image_shape : (height, width, channels)
        A row is an image, flattened in this order.
    """

    image_shape: tuple[int, int, int]
    read_rate = 2.5e8
    library = "numpy"

    def _begin(self, image_shape: tuple[int, int, int], dtype: Any, cache: Any) -> None:
        """Set the shape and type of a row; rows can be kept from now on."""
        self.image_shape, self.dtype = image_shape, np.dtype(dtype)
        self._row_bytes = int(np.prod(image_shape)) * self.dtype.itemsize
        room = as_bytes(cache, "cache") if cache else 0.0
        self._places = room // self._row_bytes
        self._kept: dict[int, np.ndarray] = {}
        self._renew()
        renewed_after_fork(self)

    def _renew(self) -> None:
        """Make a lock that no thread of the parent process holds."""
        self._lock = threading.Lock()

    def _end(self, n: int) -> None:
        """Set the number of rows."""
        self.shape = (n, int(np.prod(self.image_shape)))
        self.cache_bytes = int(min(self._places, n)) * self._row_bytes
        self.blocks = cut_evenly(n, max(1, BLOCK_BYTES // self._row_bytes))

    @abstractmethod
    def _decode(self, numbers: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield these rows (ascending), each ``(d,)`` with its number, as they are decoded."""

    def _keep(self, number: int, row: np.ndarray) -> None:
        """Keep a row if there is room."""
        row.flags.writeable = False
        with self._lock:
            if len(self._kept) < self._places:
                self._kept[number] = row

    def _rows(self, numbers: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield these rows, from the cache or decoded, in any order."""
        absent = []
        for number in numbers:
            row = self._kept.get(number)
            if row is None:
                absent.append(number)
            else:
                yield number, row
        for number, row in self._decode(sorted(absent)):
            self._keep(number, row)
            yield number, row

    def read(self, i: int) -> Block:
        """The block; a single row without a copy."""
        start, stop = self.blocks[i]
        if stop == start + 1:
            ((_, row),) = self._rows([start])
            return row[None]
        return self._filled(np.arange(start, stop))

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number, each decoded once; no others are decoded."""
        return self._filled(np.asarray(index))

    def _filled(self, index: np.ndarray) -> np.ndarray:
        out = np.empty((index.size, self.shape[1]), self.dtype)
        for number, row in self._rows(np.unique(index).tolist()):
            out[index == number] = row
        out.flags.writeable = False
        return out

    def __getstate__(self) -> dict[str, Any]:
        """State without the cached rows: another process decodes its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"} | {
            "_kept": {}
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._renew()
        renewed_after_fork(self)

    def __repr__(self) -> str:
        n, (h, w, c) = self.shape[0], self.image_shape
        return f"{type(self).__name__}({n} x {h} x {w} x {c}, {self.dtype.name})"


def shrunk(image: Any, shrink: int) -> np.ndarray:
    """A Pillow image as an array ``(height, width, channels)``; ``shrink`` averages squares."""
    values = np.asarray(image if shrink == 1 else image.reduce(shrink))
    return values.reshape(*values.shape[:2], -1)
