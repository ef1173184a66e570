"""The numbers of the paper's tables 1 and 2: seconds to a streak of 16.

Table 1 holds the rows of table 2 without extra directions, at pi/8 and pi/32.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from primedpca_paper.datasets import SETS

__all__ = ["ABSTRACT", "Published", "published"]

#: The speed-ups that the abstract reports.
ABSTRACT = {"eigengame": 10.5, "oja": 7.2}


class Published(NamedTuple):
    """Mean and spread in seconds; NaN for the paper's "n.a."."""

    mean: float
    spread: float


#: Method and ``l``, then the sets in the order of :data:`SETS`, under each V.
TABLE = """
pi/8
eigengame    alone 4.55±0.67    12.24±4.14   9.33±3.64    15.79±8.33   7.54±2.19
eigengame    0     3.48±0.87    4.04±2.30    2.21±0.59    5.02±0.73    3.81±1.37
eigengame    2     0.89±0.58    1.64±0.62    1.15±0.37    3.17±1.54    1.66±0.54
eigengame    4     0.27±0.11    1.10±0.20    0.78±0.43    2.45±0.91    1.24±0.62
oja          alone 0.23±0.09    0.32±0.18    n.a.         n.a.         5.67±2.15
oja          0     0.08±0.03    0.11±0.09    11.53±5.74   n.a.         2.68±1.71
oja          2     0.05±0.01    0.03±0.01    8.03±3.32    14.38±7.24   1.07±0.30
oja          4     0.05±0.01    0.04±0.00    6.83±0.86    11.58±2.02   0.91±0.14
power_method alone 0.21±0.01    0.67±0.07    6.32±0.80    9.63±1.13    4.47±0.38
power_method 0     0.23±0.01    0.68±0.07    6.33±0.80    9.63±1.13    4.48±0.38
pi/32
eigengame    alone 5.81±0.83    n.a.         n.a.         28.37±10.09  n.a.
eigengame    0     4.58±0.95    7.45±3.00    3.44±0.57    6.92±0.79    6.57±2.31
eigengame    2     2.35±0.61    2.92±0.93    2.18±0.57    5.09±1.42    3.18±0.38
eigengame    4     0.80±0.34    1.94±0.44    1.58±0.57    4.61±1.10    2.59±0.59
oja          alone 0.34±0.09    0.58±0.24    n.a.         n.a.         10.03±2.98
oja          0     0.15±0.05    0.19±0.10    19.74±7.31   n.a.         4.54±1.98
oja          2     0.09±0.02    0.05±0.01    13.07±4.45   26.32±9.60   1.90±0.43
oja          4     0.07±0.01    0.05±0.01    11.96±1.44   18.97±3.80   1.61±0.21
power_method alone 0.22±0.01    n.a.         6.38±0.80    9.73±1.13    4.52±0.38
power_method 0     0.23±0.01    0.69±0.07    6.38±0.80    9.74±1.13    4.54±0.38
pi/128
eigengame    alone n.a.         n.a.         n.a.         n.a.         n.a.
eigengame    0     n.a.         n.a.         n.a.         n.a.         n.a.
eigengame    2     3.05±0.71    4.84±1.57    n.a.         n.a.         n.a.
eigengame    4     1.60±0.35    2.93±0.63    n.a.         n.a.         n.a.
oja          alone 0.46±0.10    0.92±0.29    n.a.         n.a.         n.a.
oja          0     0.23±0.06    0.29±0.11    29.88±8.00   n.a.         n.a.
oja          2     0.14±0.03    0.07±0.02    19.45±4.69   40.01±11.90  n.a.
oja          4     0.09±0.01    0.06±0.01    17.60±1.71   27.88±4.82   n.a.
power_method alone 0.22±0.01    n.a.         n.a.         n.a.         n.a.
power_method 0     0.23±0.01    0.69±0.07    6.46±0.80    9.80±0.94    6.39±0.58
"""


def _read(table: str) -> dict[tuple[int, str, str], list[Published]]:
    found, denominator = {}, 0
    for line in table.split("\n"):
        if line.startswith("pi/"):
            denominator = int(line.removeprefix("pi/"))
        elif line:
            method, extra, *cells = line.split()
            found[denominator, method, extra] = [_cell(cell) for cell in cells]
    return found


def _cell(cell: str) -> Published:
    if cell == "n.a.":
        return Published(math.nan, math.nan)
    mean, spread = cell.split("±")
    return Published(float(mean), float(spread))


_ROWS = _read(TABLE)


def published(dataset: str, method: str, extra: int | None, threshold: float) -> Published | None:
    """Return the paper's number, or ``None`` if the paper has no such row.

    Examples
    --------
    >>> import math
    >>> from primedpca_paper.published import published
    >>> published("mnist", "eigengame", 4, math.pi / 8).mean
    0.78
    """
    row = _ROWS.get((round(math.pi / threshold), method, "alone" if extra is None else str(extra)))
    return row[SETS.index(dataset)] if row and dataset in SETS else None
