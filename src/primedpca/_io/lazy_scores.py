"""Scores of a Dask array as a Dask array, which nobody has computed yet."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import to_numpy, work_dtype
from primedpca._operator.operator import Centred
from primedpca.sources.memory.dask_array import DaskSource, as_block

__all__ = ["Seen", "lazy_scores"]


class Seen(NamedTuple):
    """How a fitted model sees rows, and what it multiplies them with.

    Attributes
    ----------
    weights : ndarray of shape (k, d)
    mean : ndarray of shape (d,)
    scale : ndarray of shape (d,) or None
    missing : str
    """

    weights: np.ndarray
    mean: np.ndarray
    scale: np.ndarray | None
    missing: str

    def columns(self, start: int, stop: int) -> Seen:
        """Of some neighbouring columns."""
        scale = None if self.scale is None else self.scale[start:stop]
        mean, weights = self.mean[start:stop], self.weights[:, start:stop]
        return self._replace(weights=weights, mean=mean, scale=scale)


def lazy_scores(x: Any, seen: Seen) -> Any:
    """``M V`` of a Dask array, chunk by chunk.

    Parameters
    ----------
    x : dask.array.Array of shape (n, d)
        Its chunks of rows stay as they are; shares of chunks side by side are added up.
    seen : Seen

    Returns
    -------
    dask.array.Array of shape (n, k)
    """
    import dask.array as da
    from dask import delayed

    DaskSource(x)  # refuses what cannot be read
    kind, k = np.dtype(work_dtype(x.dtype)), seen.weights.shape[0]
    edges = np.cumsum([0, *x.chunks[1]]).tolist()
    # Delayed by themselves, so that the graph holds each once and not for every chunk.
    models = [delayed(seen.columns(a, b), traverse=False) for a, b in pairwise(edges)]
    share, total = delayed(_share), delayed(_total)
    start, rows = 0, []
    for size, chunks in zip(x.chunks[0], x.to_delayed(), strict=True):
        shares = [share(chunk, model) for chunk, model in zip(chunks, models, strict=True)]
        scores = total(shares, start)
        rows.append(da.from_delayed(scores, (size, k), dtype=kind))
        start += size
    return da.concatenate(rows)


def _share(chunk: Any, seen: Any) -> np.ndarray:
    """What the columns of one chunk add to the scores of its rows."""
    weights, mean, scale, missing = seen  # a graph may hold it as a plain tuple
    if 0 in chunk.shape:
        return np.zeros((chunk.shape[0], weights.shape[0]), work_dtype(chunk.dtype))
    data = Centred.given(as_block(chunk, 0), mean, scale, missing)
    return to_numpy(data.forward(data.like.asarray(weights.T)))


def _total(shares: list[np.ndarray], start: int) -> np.ndarray:
    """Shares of chunks side by side, from left to right."""
    scores = shares[0]
    for share in shares[1:]:
        scores = scores + share
    if not np.isfinite(scores).all():
        row = start + int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
        raise ValueError(
            f"Input X contains NaN, infinity or numbers too large to multiply in row {row}; "
            "replace them, or fit with `missing`='mean' if they are missing."
        )
    return scores
