"""Facts about the columns of the data, gathered block by block while they are read once."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from primedpca._core.arrays import is_sparse, to_numpy
from primedpca._core.wording import count_words
from primedpca.protocols import Block, DataSource
from primedpca.sources.wrappers.adapted import Watched

SLAB = 2**19  # entries of a dense block that are looked at together, in float64
MOST_ENTRIES = 2_000_000_000  # of larger data, nothing is gathered: it would take minutes
MOST_PRODUCTS = 5e9  # multiplications for correlations; of larger data, some rows are used
WIDEST = 3_000  # columns whose pairs are compared, and whose values are counted
MOST_IDS = 1_000_000  # rows in which numbers may be identifiers
CODES = 12  # up to so many different whole numbers in a column may be codes of classes
FEWEST = 30  # rows; of fewer, equal and distinct values mean nothing
SAME = 0.98  # absolute correlation from which two columns say nearly the same
#: Numbers that often stand for missing values, where they are the smallest or the largest of a
#: column, and at least this many standard deviations from its mean.
MARKS_BELOW, MARKS_ABOVE = (-99, -999, -9999, -99999, -999999), (9999, 99999, 999999)
APART = 2.0


@dataclass(frozen=True)
class Facts:
    """Facts about the columns, counted from 0.

    Attributes
    ----------
    missing : ndarray of int of shape (d,)
        Missing values of each column.
    constant : ndarray of bool of shape (d,)
        Whether a column has the same value in all rows.
    variances : ndarray of shape (d,)
        Variance of each column as stored, with missing values replaced by the mean.
    zeros : float
        Fraction of the entries that are zero.
    duplicates : list of tuple of int
        Groups of columns that are equal in every row; constant columns are left out.
    identifiers, counters : list of int
        Columns with a different whole number in every row; those that rise by one each row.
    codes : dict of int to list of float
        Columns with a few different whole numbers, and these numbers.
    pairs : list of (int, int, float)
        Pairs of different columns that are strongly correlated, the strongest first.
    paired_rows : int
        Rows that the correlations were computed from; 0 if they were not computed.
    marks : dict of int to int
        Columns whose smallest or largest value often stands for missing values, and this value.
    skipped : tuple of str
        Sentences that say what was not computed, and why.
    """

    missing: np.ndarray
    constant: np.ndarray
    variances: np.ndarray
    zeros: float
    duplicates: list[tuple[int, ...]]
    identifiers: list[int]
    counters: list[int]
    codes: dict[int, list[float]]
    pairs: list[tuple[int, int, float]]
    paired_rows: int
    marks: dict[int, int] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()


class Noted(Watched):
    """A source whose blocks are shown to a :class:`Gatherer` as they are read, each once."""

    def __init__(self, source: DataSource, gatherer: "Gatherer") -> None:
        super().__init__(source, lambda count: None)
        self._gatherer = gatherer

    def read(self, i: int) -> Block:
        """Block ``i``."""
        block = self.source.read(i)
        self._gatherer.note(i, block)
        return block

    def scan(self, start: int = 0) -> Iterator[tuple[int, Block]]:
        """Yield ``(i, block)`` in order."""
        for i, block in self.source.scan(start):
            self._gatherer.note(i, block)
            yield i, block


@dataclass
class _Codes:
    """Values of columns that may be identifiers or codes, as far as they still may be."""

    kept: dict[int, list[tuple[int, np.ndarray]]] = field(default_factory=dict)
    values: dict[int, set[float]] = field(default_factory=dict)


class Gatherer:
    """Sums over blocks that end in :class:`Facts`; blocks may come in any order.

    Memory is a few numbers per column, one slab of a block, a square of at most
    :data:`WIDEST` columns, and the values of columns that look like identifiers.

    Parameters
    ----------
    source : DataSource
    shift : ndarray of shape (d,)
        Approximate mean of each column, which keeps the sums of squares accurate.
    """

    def __init__(self, source: DataSource, shift: Any) -> None:
        (n, d), self.axis, self.blocks = source.shape, source.axis, source.blocks
        self.n, self.d, self._shift = n, d, np.array(shift, dtype=np.float64)
        self._lock, self._done = threading.Lock(), set[int]()
        self._missing = np.zeros(d, dtype=np.int64)
        self._low, self._high = np.full(d, np.inf), np.full(d, -np.inf)
        self._sums, self._squares, self._stored = np.zeros(d), np.zeros(d), 0
        self._whole = np.ones(d, dtype=bool)
        self._keys, self._live = np.zeros((d, 2), dtype=np.uint64), np.ones(d, dtype=bool)
        self._codes: _Codes | None = None
        stride = int(-(-n * d * d // MOST_PRODUCTS)) if self.axis == 0 and d <= WIDEST else 0
        self._stride, self._paired = stride, 0
        if stride:
            self._cross, self._cross_sums = np.zeros((d, d)), np.zeros(d)

    def note(self, i: int, block: Block) -> None:
        """Take a block into account, unless it has been before."""
        with self._lock:  # blocks are read by several threads
            if i in self._done:
                return
            self._done.add(i)
            start, stop = self.blocks[i]
            if is_sparse(block):
                columns = slice(0, self.d) if self.axis == 0 else slice(start, stop)
                self._sparse(0 if self.axis else start, columns, block)
                return
            rows = to_numpy(block)
            step = max(1, SLAB // max(1, self.d if self.axis == 0 else stop - start))
            if self.axis == 1:  # the same cut for all blocks, so that columns can be compared
                step = max(1, SLAB // max(end - begin for begin, end in self.blocks))
            for at in range(0, rows.shape[0], step):
                part = np.asarray(rows[at : at + step], dtype=np.float64)
                if self.axis == 0:
                    self._dense(start + at, slice(0, self.d), part, i % (self._stride or 1) == 0)
                else:
                    self._dense(at, slice(start, stop), part, False)

    def rest(self, source: DataSource) -> None:
        """Read the blocks that the pass has not shown, such as those of an array in memory."""
        for i in range(len(self.blocks)):
            if i not in self._done:
                self.note(i, source.read(i))

    def _dense(self, row: int, columns: slice, x: np.ndarray, paired: bool) -> None:
        gone = np.isnan(x)
        self._missing[columns] += gone.sum(axis=0)
        self._low[columns] = np.fmin(self._low[columns], np.fmin.reduce(x, axis=0))
        self._high[columns] = np.fmax(self._high[columns], np.fmax.reduce(x, axis=0))
        self._stored += int(np.count_nonzero(x))
        whole = self._whole[columns]
        whole[whole] = ((x[:, whole] == np.floor(x[:, whole])) | gone[:, whole]).all(axis=0)
        moved = np.where(gone, 0.0, x - self._shift[columns])
        self._sums[columns] += moved.sum(axis=0)
        self._squares[columns] += np.einsum("ij,ij->j", moved, moved)
        if self._stride and paired:
            with np.errstate(over="ignore", invalid="ignore"):  # such pairs are not compared
                self._cross += moved.T @ moved
            self._cross_sums += moved.sum(axis=0)
            self._paired += x.shape[0]
        if self.axis == 0 and self.d <= WIDEST and self.n >= FEWEST:
            self._look_for_codes(row, x)
        live = np.flatnonzero(self._live[columns])
        clean = np.where(gone, np.nan, x + 0.0)[:, live].T  # one NaN, and one zero
        self._hash(row, columns.start + live, map(np.ndarray.tobytes, np.ascontiguousarray(clean)))

    def _sparse(self, row: int, columns: slice, block: Any) -> None:
        from scipy.sparse import csc_array

        x = csc_array(block).astype(np.float64)
        x.sum_duplicates()
        counts, stored = np.diff(x.indptr), x.indptr[:-1]
        here = np.flatnonzero(counts)
        gone = np.add.reduceat(np.isnan(x.data), stored[here]) if here.size else np.zeros(0)
        self._missing[columns.start + here] += gone.astype(np.int64)
        self._stored += int(np.count_nonzero(x.data))
        for reduce, held in ((np.fmin, self._low), (np.fmax, self._high)):
            found = np.zeros(counts.size)  # entries that are not stored
            if here.size:
                found[here] = reduce.reduceat(x.data, stored[here])
            part = held[columns]
            part[:] = reduce(part, np.where(counts < x.shape[0], reduce(found, 0.0), found))
        self._whole[columns] = False
        known = x.copy()
        known.data = np.nan_to_num(known.data, nan=0.0)
        self._shift[:] = 0.0
        self._sums[columns] += known.sum(axis=0)
        self._squares[columns] += known.multiply(known).sum(axis=0)
        if self._stride:
            self._cross += (known.T @ known).toarray()
            self._cross_sums += known.sum(axis=0)
            self._paired += x.shape[0]
        live = columns.start + np.flatnonzero(self._live[columns])
        ends = x.indptr
        at = live - columns.start
        parts = (
            x.indices[ends[j] : ends[j + 1]].astype(np.int64).tobytes()
            + (x.data[ends[j] : ends[j + 1]] + 0.0).tobytes()
            for j in at
        )
        self._hash(row, live, parts)

    def _hash(self, row: int, columns: np.ndarray, parts: Any) -> None:
        """Add 128 bits for each column: equal columns have equal sums, others do not."""
        begin = row.to_bytes(8, "little")
        digests = b"".join(blake2b(begin + part, digest_size=16).digest() for part in parts)
        self._keys[columns] += np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)
        if self.axis == 0:  # all columns have seen the same rows: the different ones are done
            keys = self._keys[columns]
            _, back, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
            self._live[columns] = counts[back.ravel()] > 1

    def _look_for_codes(self, row: int, x: np.ndarray) -> None:
        """Keep what columns of whole numbers hold while it may be identifiers or codes."""
        if self._codes is None:
            every = np.flatnonzero(self._whole)
            ids = every if self.n <= MOST_IDS and x.shape[0] > CODES else every[:0]
            self._codes = _Codes({int(j): [] for j in ids}, {int(j): set() for j in every})
        for j in [j for j in self._codes.values if self._whole[j]]:
            seen = self._codes.values[j]
            seen.update(np.unique(x[~np.isnan(x[:, j]), j]).tolist())
            if len(seen) > CODES:
                del self._codes.values[j]
        for j, kept in list(self._codes.kept.items()):
            if self._whole[j] and np.unique(x[:, j]).size == x.shape[0]:
                kept.append((row, x[:, j].copy()))
            else:
                del self._codes.kept[j]

    def facts(self) -> Facts:
        """Return what was found, once every block was noted."""
        n, known = self.n, self.n - self._missing
        constant = ~(self._high > self._low) & (known > 0)
        means = self._sums / np.maximum(known, 1)
        squares = np.maximum(self._squares - known * means**2, 0.0)
        pairs, skipped = [], []
        if self._stride and self._paired > FEWEST:
            pairs = self._correlated(~constant)
        elif self.d > WIDEST or self.axis == 1:
            why = "too many" if self.d > WIDEST else "read in blocks of columns"
            skipped.append(f"Pairs of the {self.d:,} columns were not compared: they are {why}.")
        identifiers, counters = self._identifiers()
        codes = {} if self._codes is None else self._codes.values
        few = {
            j: sorted(codes[j])
            for j in codes
            if self._whole[j] and 1 < len(codes[j]) <= max(2, n // 10)
        }
        return Facts(
            missing=self._missing,
            constant=constant,
            variances=squares / max(n - 1, 1),
            zeros=1 - self._stored / max(1, n * self.d),
            duplicates=self._duplicates(constant) if n >= 2 else [],
            identifiers=identifiers,
            counters=counters,
            codes=few,
            pairs=pairs,
            paired_rows=self._paired,
            marks=self._marks(self._shift + means, np.sqrt(squares / np.maximum(known, 1))),
            skipped=tuple(skipped),
        )

    def _marks(self, means: np.ndarray, spreads: np.ndarray) -> dict[int, int]:
        found: dict[int, int] = {}
        sides = ((MARKS_BELOW, self._low), (MARKS_ABOVE, self._high))
        for marks, ends in sides if self.n >= FEWEST else ():
            far = np.isin(ends, marks) & (np.abs(ends - means) > APART * spreads) & (spreads > 0)
            found |= {int(j): int(ends[j]) for j in np.flatnonzero(far)}
        return found

    def _duplicates(self, constant: np.ndarray) -> list[tuple[int, ...]]:
        found: dict[bytes, list[int]] = {}
        for j in np.flatnonzero(self._live & ~constant):
            found.setdefault(self._keys[j].tobytes(), []).append(int(j))
        return [tuple(group) for group in found.values() if len(group) > 1]

    def _identifiers(self) -> tuple[list[int], list[int]]:
        identifiers, counters = [], []
        for j, kept in ({} if self._codes is None else self._codes.kept).items():
            values = np.concatenate([part for _, part in sorted(kept, key=lambda one: one[0])])
            if not self._whole[j] or np.unique(values).size < self.n:
                continue
            identifiers.append(j)
            if (np.diff(values) == 1).all():
                counters.append(j)
        return identifiers, counters

    def _correlated(self, vary: np.ndarray) -> list[tuple[int, int, float]]:
        """Return the pairs whose absolute correlation is at least :data:`SAME`."""
        means = self._cross_sums / self._paired
        covariance = self._cross - self._paired * np.outer(means, means)
        spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        # Rounding leaves a little variance, also to columns that have none.
        vary = vary & (spread > 1e-7 * np.sqrt(np.maximum(np.diag(self._cross), 0.0)))
        inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=vary)
        covariance *= inverse
        covariance *= inverse[:, None]
        first, second = np.nonzero(np.triu(np.abs(covariance) >= SAME, 1))
        values = np.clip(covariance[first, second], -1.0, 1.0)
        order = np.argsort(-np.abs(values), kind="stable")[:1000]
        return [(int(first[i]), int(second[i]), float(values[i])) for i in order]


def may_gather(source: DataSource) -> str:
    """Return why the facts of a source are not gathered; empty if they are."""
    n, d = source.shape
    traits = source.traits
    if traits.shared is not None or traits.spread:
        return "The columns were not examined: the rows are spread over several processes."
    entries = (traits.nnz() if traits.sparse else None) or n * d
    if entries > MOST_ENTRIES:
        return f"The columns were not examined: the data have {count_words(entries, 'value')}."
    return ""
