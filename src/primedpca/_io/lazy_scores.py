"""Scores of a Dask array as a lazy Dask array."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import to_numpy, work_dtype
from primedpca._operator.operator import Centred
from primedpca.sources.memory.dask_array import DaskSource, as_block


class Seen(NamedTuple):
    """Parameters of a fitted model that turn rows into scores.

    Attributes
    ----------
    weights : ndarray of shape (k, d)
        Factors of the columns, one row for each score.
    mean : ndarray of shape (d,)
        Subtracted from each row.
    scale : ndarray of shape (d,) or None
        Divisor of each column, if columns are scaled.
    missing : {"error", "mean"}
        Treatment of missing values.
    fill : ndarray of shape (d,) or None
        What replaces them, if the model knows it.
    """

    weights: np.ndarray
    mean: np.ndarray
    scale: np.ndarray | None
    missing: str
    fill: np.ndarray | None

    def columns(self, start: int, stop: int) -> Seen:
        """Return the parameters of columns ``start:stop``."""
        scale = None if self.scale is None else self.scale[start:stop]
        fill = None if self.fill is None else self.fill[start:stop]
        mean, weights = self.mean[start:stop], self.weights[:, start:stop]
        return self._replace(weights=weights, mean=mean, scale=scale, fill=fill)


def lazy_scores(x: Any, seen: Seen) -> Any:
    """Return the scores ``M V`` of a Dask array as a lazy Dask array.

    Parameters
    ----------
    x : dask.array.Array of shape (n, d)
        Data.  The contributions of chunks of columns are added.
    seen : Seen
        Parameters of the fitted model.

    Returns
    -------
    dask.array.Array of shape (n, k)
        Scores with the row chunks of ``x``.
    """
    import dask.array as da
    from dask import delayed

    DaskSource(x)  # raises for unsupported arrays now, not when the scores are computed
    kind, k = np.dtype(work_dtype(x.dtype)), seen.weights.shape[0]
    edges = np.cumsum([0, *x.chunks[1]]).tolist()
    # One delayed object for each chunk of columns: the graph holds the model once, not per chunk.
    models = [delayed(seen.columns(a, b), traverse=False) for a, b in pairwise(edges)]
    share, total = delayed(_share), delayed(_total)
    start, rows = 0, []
    for size, chunks in zip(x.chunks[0], x.to_delayed(), strict=True):
        shares = [share(chunk, model) for chunk, model in zip(chunks, models, strict=True)]
        rows.append(da.from_delayed(total(shares, start), (size, k), dtype=kind))
        start += size
    return da.concatenate(rows)


def _share(chunk: Any, seen: Any) -> np.ndarray:
    """Return the contribution of one chunk's columns to the scores of its rows."""
    weights, *prepared = seen  # Dask may have turned the named tuple into a tuple
    if 0 in chunk.shape:
        return np.zeros((chunk.shape[0], weights.shape[0]), work_dtype(chunk.dtype))
    data = Centred.given(as_block(chunk, 0), *prepared)
    return to_numpy(data.forward(data.like.asarray(weights.T)))


def _total(shares: list[np.ndarray], start: int) -> np.ndarray:
    """Add the contributions of all chunks of columns, always from left to right."""
    scores = sum(shares[1:], start=shares[0])
    if not np.isfinite(scores).all():
        row = start + int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
        raise ValueError(
            f"Input X contains NaN, infinity or numbers too large to multiply in row {row} "
            "(counted from 0). Replace them, or fit with `missing`='mean' if they are missing."
        )
    return scores
