"""Some columns of another source, such as the highly variable genes of an ``.h5ad`` file."""

from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from primedpca.protocols import Block
from primedpca.sources import maps
from primedpca.sources.base import PartView, View, read_only


class Selected(PartView):
    """Some columns of a source, in a given order.

    Parameters
    ----------
    source : BlockSource
        With NumPy or SciPy blocks.
    index : ndarray of int of shape (m,)
        Columns to keep, counted from 0.  If the source is read by columns, in ascending order.
    """

    kept = (*View.kept, "headings", "library", "on_disk", "read_rate")

    def __init__(self, source: Any, index: np.ndarray) -> None:
        self.source, self.index = source, index
        self.shape = (source.shape[0], int(index.size))
        self.dtype, self.device, self.axis = source.dtype, source.device, source.axis
        self.map_name = source.traits.map_name
        if self.map_name is not None and index.size < source.shape[1]:
            # Totals of these columns alone would be other numbers: models compare the names.
            self.map_name = maps.of_columns(self.map_name, source.shape[1])
        self.blocks, self._owner = source.blocks, tuple(range(len(source.blocks)))
        if self.axis == 1:
            if (np.diff(index) <= 0).any():
                raise ValueError(f"{source!r} is read by columns: name them in ascending order.")
            # Blocks without a chosen column are never read.
            edges = np.searchsorted(index, [a for a, _ in source.blocks] + [source.shape[1]])
            held = [(i, b - a) for i, (a, b) in enumerate(pairwise(edges.tolist())) if a < b]
            self._owner = tuple(i for i, _ in held)
            self.blocks = tuple(pairwise(accumulate((size for _, size in held), initial=0)))

    @cached_property
    def feature_names(self) -> Any:
        """Names of the chosen columns."""
        names = self.source.traits.feature_names()
        return None if names is None else np.asarray(names, dtype=object)[self.index]

    @property
    def column_names(self) -> Any:
        """Labels of the chosen columns of a data frame."""
        labels = getattr(self.source, "column_names", None)
        return None if labels is None else [labels[j] for j in self.index]

    def read(self, i: int) -> Block:
        """The chosen columns of a block."""
        return self._chosen(i, self.source.read(self._owner[i]))

    def scan(self, start: int = 0) -> Iterator[tuple[int, Block]]:
        """Yield ``(i, block)`` in order."""
        if self.axis == 1:
            yield from super().scan(start)
            return
        for i, block in self.source.scan(start):
            yield i, self._chosen(i, block)

    def _chosen(self, i: int, block: Block) -> Block:
        if self.axis == 0:
            return read_only(block[:, self.index])
        start, stop = self.blocks[i]
        return read_only(block[:, self.index[start:stop] - self.source.blocks[self._owner[i]][0]])

    def __repr__(self) -> str:
        return f"Selected({self.source!r}, {self.shape[1]} of {self.source.shape[1]} columns)"
