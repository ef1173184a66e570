"""Findings about rows: those far from all others, and groups that are clearly apart.

Both are descriptions, not tests of a hypothesis, and are tuned to be silent on data without such
rows: rows of one normal distribution are flagged in fewer than one report in twenty.
"""

from typing import NamedTuple

import numpy as np

from primedpca.monitoring import Statistics

EXPECTED = 0.01  # rows flagged by chance in a whole table of normal rows, for each statistic
FEWEST = 20  # rows; of fewer, neither outliers nor groups are distinguished
MOST_SEEN = 4000  # rows in which groups are looked for, spread evenly over the data
MOST_GROUPS = 8
SMALLEST = 0.05  # fraction of the rows that a group has at least
DEEPEST = 0.25  # density between two groups, relative to the lower of their peaks
GRID = 256  # points at which a density is computed


class Outliers(NamedTuple):
    """Rows that stand out, farthest first.

    Attributes
    ----------
    rows : ndarray of int
        Indices from 0.
    inside, beside : ndarray of bool
        Whether each is far out within the span of the components (T²), and far from it (SPE).
    """

    rows: np.ndarray
    inside: np.ndarray
    beside: np.ndarray


def outliers(statistics: Statistics) -> Outliers:
    """Find rows whose T² or SPE is far above that of the others.

    The cube root of a sum of squares is nearly normal (Wilson & Hilferty 1931).  Median and
    quartiles of the cube roots give its centre and spread, which outliers cannot inflate.
    """
    inside, beside = (_excess(values) for values in statistics)
    worst = np.maximum(inside, beside)
    rows = np.flatnonzero(worst > 0)
    rows = rows[np.argsort(-worst[rows], kind="stable")]
    return Outliers(rows, inside[rows] > 0, beside[rows] > 0)


def _excess(values: np.ndarray) -> np.ndarray:
    """Return by how many spreads each value is beyond the limit; negative below it."""
    from scipy.special import ndtri

    n = values.size
    if n < FEWEST:
        return np.full(n, -1.0)
    roots = np.cbrt(values)
    middle, upper = np.quantile(roots, [0.5, 0.75])
    # The upper half only: it decides, and the lower half of few squares is not normal.
    spread = (upper - middle) / ndtri(0.75)
    if not spread > 0:  # more than half are equal, such as the SPE of a full decomposition
        return np.full(n, -1.0)
    # A quartile of few rows is uncertain, so the limit of small tables is wider.
    limit = -ndtri(EXPECTED / n) * (1 + 4 / np.sqrt(n))
    return np.asarray((roots - middle) / spread - limit)


def groups(scores: np.ndarray) -> np.ndarray | None:
    """Divide rows into groups that are clearly apart in the space of these scores.

    A group is split in two where the density along some direction has a deep valley.

    Parameters
    ----------
    scores : ndarray of shape (n, m)
        Without outliers.

    Returns
    -------
    ndarray of int of shape (n,) or None
        Group of each row from 0, the largest first; None if no groups are evident.
    """
    n = scores.shape[0]
    if n < 2 * FEWEST:
        return None
    deviations = scores.std(axis=0)
    rows = scores[:, deviations > 1e-9 * deviations.max()]
    rows = rows / rows.std(axis=0)
    found, waiting = np.zeros(n, dtype=np.int64), [0]
    while waiting and found.max() < MOST_GROUPS - 1:
        here = np.flatnonzero(found == waiting[0])
        side = _split(rows[here], max(FEWEST, int(SMALLEST * n)))
        if side is None:
            waiting.pop(0)
        else:
            waiting.append(int(found.max()) + 1)
            found[here[side]] = waiting[-1]
    if not found.any():
        return None
    order = np.argsort(-np.bincount(found), kind="stable")
    return np.asarray(np.argsort(order)[found])


def _split(rows: np.ndarray, fewest: int) -> np.ndarray | None:
    """Return which rows are beyond the deepest valley that is found, or None."""
    n, m = rows.shape
    step = -(-n // MOST_SEEN)
    seen, best, where = rows[::step], DEEPEST, None
    fewest = max(FEWEST, fewest // step) if n >= 2 * fewest else n
    directions = list(np.eye(m))
    for _ in range(2):
        for direction in directions:
            depth, place = _valley(seen @ direction, fewest)
            if depth < best:
                best, where = depth, (direction, place)
        if where is None:
            return None
        directions = [_discriminant(seen, seen @ where[0] > where[1])]
    assert where is not None
    return np.asarray(rows @ where[0] > where[1])


def _discriminant(rows: np.ndarray, side: np.ndarray) -> np.ndarray:
    """Return Fisher's direction, along which the two sides are farthest apart."""
    parts = [rows[side], rows[~side]]
    within = sum(np.cov(part.T, bias=True).reshape(2 * (rows.shape[1],)) for part in parts)
    apart = parts[0].mean(axis=0) - parts[1].mean(axis=0)
    return np.asarray(np.linalg.lstsq(within, apart, rcond=1e-9)[0])


def _valley(values: np.ndarray, fewest: int) -> tuple[float, float]:
    """Return the depth of the deepest valley of the density, and its place.

    The depth is the density in the valley divided by that of the lower of the peaks on its two
    sides, each of which has at least ``fewest`` values.
    """
    n, ordered = values.size, np.sort(values)
    if n < 2 * fewest or not ordered[-1] > ordered[0]:
        return 1.0, 0.0
    low, high = np.quantile(ordered, [0.25, 0.75])
    spread = min(float(values.std()), float(high - low) / 1.34) or float(values.std())
    width = 0.7 * spread * n**-0.2
    edge = 3 * width
    ends = np.linspace(ordered[0] - edge, ordered[-1] + edge, 8 * GRID + 1)
    counts = np.histogram(ordered, ends)[0]
    reach = np.arange(-4 * width, 4 * width + ends[1] - ends[0], ends[1] - ends[0])
    density = np.convolve(counts, np.exp(-0.5 * (reach / width) ** 2), mode="same")
    left, right = np.maximum.accumulate(density), np.maximum.accumulate(density[::-1])[::-1]
    depth = density / np.maximum(np.minimum(left, right), 1e-300)
    before = np.cumsum(counts)
    depth[(before < fewest) | (n - before < fewest)] = 1.0
    # Of an empty stretch, the middle.
    flat = np.flatnonzero(depth <= depth.min() + 1e-9)
    place = int(flat[flat.size // 2])
    return float(depth[place]), float(ends[place + 1])
