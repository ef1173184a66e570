"""Cost of each algorithm: passes, flops, bytes, memory and estimated seconds.

Counts follow from shapes.  Seconds are counts times the rates of :mod:`primedpca._planning.rates`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from primedpca._core.arrays import dtype_name
from primedpca._core.wording import memory_words
from primedpca._operator.operator import Centred
from primedpca._operator.wide_rows import HELD_BYTES
from primedpca._planning.rates import CORE, DEVICE, Rates
from primedpca.priming import BlockKrylov, Exact
from primedpca.priming.block_krylov import LOOKS, PART, default_basis
from primedpca.priming.extra_directions import MEMORY
from primedpca.result import Way

__all__ = ["Load", "exact_way", "explicit_way", "krylov_way", "ways"]


#: Choices are priced for this many workers, whatever the engine has, so that the same data and
#: options lead to the same bits on any number of workers.
REFERENCE_WORKERS = 2
#: Random columns that check a proof, of dense and of sparse data, the number of passes that they
#: ride on, and how many of their images are kept at most.
CHECKS, RIDES, IMAGES = {False: 8, True: 16}, 2, 8
#: Part of the time of a full decomposition for which a certificate may be probabilistic.
WORTH = 0.9
#: Order up to which a matrix is decomposed in full: that takes no longer than a few steps.
SMALL = 200
#: Where the spectrum is flat, block Krylov takes this many times the steps expected.
FLAT = 3.0
#: Step at which the variances from the k-th to the 2k-th show a flat spectrum if they fall by less
#: than this part; then twice the expected steps and more would follow.
FALLS_AT, FALLS_BY = 3, 0.1
DISK = 2e9  # bytes a second of a local disk or network, partly served by the system's file cache
ALLOCATOR = 1.1  # memory of the process over memory in use: the allocator keeps freed blocks
WAITING_BYTES = 2.0**27  # partial sums that a remote worker may hold
IMAGES_BYTES = 2.0**26  # limit on images kept to save a pass, where `max_memory` is not set


@dataclass(frozen=True)
class Load:
    """Sizes and rates that determine the cost of one pass.

    Attributes
    ----------
    n, d : int
        Numbers of rows and columns.
    entries : int
        Entries that are multiplied: all, or the stored ones of sparse data.
    stored : int
        Bytes read in a pass.
    item : int
        Bytes of a number as it is multiplied, 4 or 8.
    sparse : bool
        Whether the data are sparse.
    axis : int
        0 if blocks hold rows, 1 if they hold columns.
    blocks : int
        Number of blocks.
    workers : int
        Blocks that are processed at the same time, for the estimate of seconds.
    rate : float
        Bytes a second at which data are read; infinite in memory.
    rates : Rates, default=CORE
        Seconds for a unit of each kind of work.
    cache : float, default=0.0
        Bytes of decoded data that the source keeps.
    busy : int, default=1
        Blocks that one process holds at the same time.
    cast : bool, default=False
        Whether float32 could hold the numbers that are multiplied in float64.
    counts : bool, default=False
        Whether the Gram matrix is made exactly, from products of whole numbers.
    remote : bool, default=False
        Whether other processes, on a cluster, process the blocks; `max_memory` then applies to
        each of them.
    """

    n: int
    d: int
    entries: int
    stored: int
    item: int
    sparse: bool
    axis: int
    blocks: int
    workers: int
    rate: float
    rates: Rates = CORE
    cache: float = 0.0
    busy: int = 1
    remote: bool = False
    cast: bool = False
    counts: bool = False

    @classmethod
    def of(cls, data: Centred, workers: int = REFERENCE_WORKERS) -> Load:
        """Return the load of ``data``.

        Parameters
        ----------
        data : Centred
        workers : int, default=2
            Workers that the seconds are estimated for.
        """
        source, traits = data.source, data.traits
        n, d = data.shape
        counted = traits.nnz() if data.sparse else None
        entries = n * d if counted is None else int(counted)
        size = int(getattr(source.dtype, "itemsize", 8))
        item = 8 if "64" in dtype_name(data.like.dtype) else 4
        stored = entries * (size + 4 * data.sparse)
        cache = traits.cache_bytes
        in_memory = traits.array is not None or cache >= stored
        rates = CORE if source.device in (None, "cpu") else DEVICE
        whole = dtype_name(source.dtype) in ("uint8", "int8") and source.axis == 1 and n <= d
        plain = data.center and data.root is None and data.missing == "error"
        plain &= data.frame.scale is None and not data.standardise
        # Decoding scales with the workers; the speed of a disk is shared by all of them.
        rate = DISK if traits.read_rate is None else workers * traits.read_rate
        return cls(
            n,
            d,
            entries,
            stored,
            item,
            data.sparse,
            source.axis,
            len(source.blocks),
            min(workers, len(source.blocks)),
            math.inf if in_memory else rate,
            rates,
            cache,
            # Unlike seconds, memory uses the true number of workers: `max_memory` must hold.  A
            # device works on one block while the next one arrives.
            min(data.engine.blocks_in_memory() if rates is CORE else 2, len(source.blocks)),
            data.engine.traits.remote,
            counts=whole and plain and rates.counted is not None and not data.sparse,
        )

    def in_float64(self) -> Load:
        """Return the load of the same data multiplied in float64, as exact proofs are made."""
        return self if self.item == 8 else replace(self, item=8, cast=True)

    @property
    def buffers(self) -> float:
        """Bytes of the blocks that are being processed and of those that the source caches."""
        ready = self.stored if self.sparse else self.entries * self.item
        each = max(2.0**23, ready / self.blocks) + 2 * self.stored / self.blocks
        # A remote worker may also hold partial sums that wait to be added.
        return self.cache + self.busy * each + self.remote * WAITING_BYTES

    @property
    def wide_rows(self) -> bool:
        """Whether the Gram matrix is formed from rows held in memory (``_operator.wide_rows``)."""
        return self.axis == 0 and not self.sparse and self.n < self.d and not self.remote

    @property
    def overhead(self) -> float:
        """Fixed cost of a pass, in columns multiplied: ``c`` of ``priming.extra_directions``."""
        _, each = (self.rates.sparse if self.sparse else self.rates.dense)[self.item]
        reading = self.stored / self.rate
        columns = reading * self.workers / (max(1, self.entries) * each)
        return columns + (0.0 if self.sparse else MEMORY)

    def product(self, columns: int, readings: int = 1) -> float:
        """Return the seconds to multiply all data with ``columns`` columns, and back."""
        ready, each = (self.rates.sparse if self.sparse else self.rates.dense)[self.item]
        if self.rates is DEVICE and columns and not self.sparse:
            columns = max(16, 1 << (columns - 1).bit_length())  # as tensor cores multiply them
        work = self.entries * (readings * ready + columns * each) / self.workers
        length = self.d if self.axis == 0 else self.n
        added = self.blocks * length * columns * self.rates.add
        return work + added + readings * self.stored / self.rate


def _square(load: Load, checks: int = 0) -> float:
    """Return the seconds to multiply the smaller matrix of dense data, and random columns."""
    m, rates = min(load.n, load.d), load.rates
    if load.counts and rates.counted is not None:
        return load.entries * m * rates.counted / load.workers
    each = m * rates.square[load.item]
    if checks:  # in float64, from which the numbers are cast again
        ready, column = rates.dense[8]
        each += checks * column + (ready / 4 if load.item == 4 else 0.0)
    return load.entries * each / load.workers


def _formed(load: Load, checks: int = 0) -> float:
    """Return the seconds of the pass over dense blocks that adds up to the smaller matrix."""
    added = load.blocks * min(load.n, load.d) ** 2 * load.rates.add / load.workers
    converted = 0.0 if load.counts else load.product(0)
    return _square(load, checks) + converted + (0.0 if load.wide_rows else added)


def _decomposed(m: int, p: int, rates: Rates) -> float:
    """Return the seconds for ``p`` eigenvectors of a matrix of order ``m``."""
    if 6 * (p + 1) < m:
        cubic, linear = rates.few
        return m**3 * cubic + m * linear
    return m**3 * rates.full + m * rates.order


def exact_way(load: Load, p: int, budget: float = math.inf) -> Way:
    """Return the cost of a full decomposition of the covariance or Gram matrix.

    Parameters
    ----------
    load : Load
    p : int
        Number of directions wanted.
    budget : float, default=inf
        Limit on memory in bytes.  A finite limit counts memory pessimistically.
    """
    if load.wide_rows:
        return _way_of_rows(load, p, budget)
    m, across, rates = min(load.n, load.d), max(load.n, load.d), load.rates
    aligned = load.axis == (0 if load.d <= load.n else 1)
    passes = 1.0 + (load.d > load.n)  # the Gram matrix needs a pass more, for right vectors
    flops = float(load.entries) * m
    if aligned and load.sparse:
        pairs = load.entries**2 / across
        flops = 2 * pairs
        seconds = (pairs * rates.pairs + load.blocks * m * m * rates.add) / load.workers
    elif aligned:
        seconds = _formed(load)
    else:
        # Blocks run across the matrix: it is formed in slices of columns, two passes for each.
        slices = -(-m // max(64, 2**22 // across))
        passes, flops = 2.0 * slices + (load.d > load.n), 4.0 * load.entries * m
        seconds = slices * load.product(m // slices, 2)
    seconds += rates.fit + _decomposed(m, p, rates)
    seconds += load.product(p) if load.d > load.n else 0.0
    memory = 8.0 * m * m * (2 + load.busy) + 3 * load.item * load.d * p + load.buffers
    if budget < math.inf:  # add LAPACK's workspace and freed blocks that threads have not returned
        memory = ALLOCATOR * (memory + 16.0 * m * m) + load.buffers / 2 + load.busy * 2.0**23
    return Way(Exact(), 1, passes, flops + 4 * m**3, passes * load.stored, memory, seconds)


def _way_of_rows(load: Load, p: int, budget: float) -> Way:
    """Return the cost of the Gram matrix of wide rows, held all or two groups at a time."""
    n, rates, vectors = load.n, load.rates, 8.0 * load.d * p
    # Rows are processed in strips after reading; the mean and one more vector have d entries.
    strips = load.cache + load.busy * (2.0**25 + 2.0 * load.stored / load.blocks)
    fixed = 8.0 * n * n * (2 + load.busy) + 16.0 * load.d + strips
    room, groups = budget - fixed - vectors, 1
    if budget == math.inf:
        room = HELD_BYTES
    if load.stored > room:
        fixed += load.buffers - load.cache  # the mean takes a pass over blocks of its own
        least = 2.0 * load.stored / load.blocks
        room = HELD_BYTES if budget == math.inf else max(least, budget - fixed - vectors)
        groups = max(3, math.ceil(2 * load.stored / room))
    passes = 2.0 if groups == 1 else 2 + (groups + 1) / 2
    again = 1 if groups == 1 else 2
    seconds = again * _square(load)
    seconds += load.product(0, max(1, groups - 1)) + load.product(p)
    seconds += rates.fit + _decomposed(n, p, rates)
    if load.rate < math.inf:
        seconds += (passes - max(1, groups - 1) - 1) * load.stored / load.rate
    held = min(load.stored, room)
    memory = fixed + max(held + vectors, 2 * vectors)
    flops = (1.0 + again) * load.entries * n + 4.0 * n**3
    return Way(Exact(), 1, passes, flops, passes * load.stored, memory, seconds, room)


def explicit_way(
    load: Load, p: int, block: int, tol: float, proven: bool, budget: float = math.inf
) -> Way:
    """Return the cost of block Krylov with an explicit covariance or Gram matrix.

    Parameters are those of :func:`krylov_way`.  The time of the steps, which read no data, is that
    of real spectra; on flat ones they take longer, but the pass that makes the matrix does not.
    """
    m, rates, left = min(load.n, load.d), load.rates, load.d > load.n
    whole = exact_way(load.in_float64() if proven else load, p, budget)
    steps = math.ceil(krylov_passes(p, block, tol))
    unit, basis = rates.basis[load.item], 0
    seconds, flops = _formed(load, CHECKS[False] * proven), float(load.entries) * m
    for step in range(steps):
        basis = min(basis + block, m)
        kept = m * block * (4.0 * basis + 24 * block)
        flops += 2.0 * m * m * block + kept
        seconds += (m * m * block / 2 + kept) * unit + rates.step / 2
        # The small problem is solved after every eighth part of the basis.
        seconds += rates.small * basis**3 * min(1.0, LOOKS / (step + 1))
    if basis * PART > m:
        seconds += _decomposed(m, p, rates)
    passes = 1.0
    if left:
        passes += 1
        seconds += (load.in_float64() if proven else load).product(p) / 2
    if proven:
        seconds += m**3 * rates.factor[load.item] + rates.proof / 3
        flops += m**3 / 3
    # The sums, the matrix and its factor; the basis is at most a third as large.
    memory = whole.memory + load.item * m * (m * (1.0 + proven) + basis)
    priming = BlockKrylov(block_size=block, side="left" if left else "right", explicit=True)
    read = passes * load.stored
    return Way(priming, steps, passes, flops, read, memory, seconds, whole.room)


def may_be_explicit(load: Load, p: int) -> bool:
    """Whether one pass over dense blocks adds up to the smaller matrix, and few are wanted."""
    m = min(load.n, load.d)
    aligned = load.wide_rows or load.axis == (0 if load.d <= load.n else 1)
    # Where most components are wanted, the differences between the last are too small for float32.
    few = m >= SMALL and 4 * (p + max(8, p // 4) + 1) < m
    return load.rates is CORE and not load.sparse and aligned and few


def krylov_passes(p: int, block: int, tol: float) -> float:
    """Estimate the number of steps of block Krylov on real spectra; flat spectra need more."""
    finer = max(0.0, math.log2(math.pi / 128 / tol))
    return (2.2 + 2.9 * p / block) * (1 + 0.055 * finer)


def krylov_way(
    load: Load,
    p: int,
    block: int,
    side: Any,
    tol: float,
    proven: bool,
    budget: float = math.inf,
) -> Way:
    """Return the cost of block Krylov.

    Parameters
    ----------
    load : Load
    p : int
        Number of directions wanted.
    block : int
        Columns multiplied in one step.
    side : {"right", "left"}
    tol : float
        Target angle in radians.
    proven : bool
        Whether a certificate is made: a few columns are multiplied once in float64, and ride on
        the last steps.
    budget : float, default=inf
        Limit on memory in bytes.  A finite limit may shorten the basis, which costs passes.
    """
    length = load.d if side == "right" else load.n
    readings = 1 if load.axis == (0 if side == "right" else 1) else 2
    steps = math.ceil(krylov_passes(p, block, tol))
    seconds, flops, basis, rates = 0.0, 0.0, 0, load.rates
    # As many of dense data on a GPU as of sparse data.
    checks = CHECKS[load.sparse or rates is DEVICE] * proven
    # On a GPU, a look by the host may cost more than a step: none before one can be the last.
    early = load.product(block, readings) > rates.small * (block * steps) ** 3
    first = 1 if rates is CORE else max(1, steps - early)
    for step in range(steps):
        columns = block + checks * (step >= steps - RIDES)
        basis = min(basis + block, length)
        # Flops of orthogonalising the new columns against the basis and among themselves.
        kept = length * columns * (4.0 * basis + 24 * columns)
        flops += 4.0 * load.entries * columns + kept
        seconds += load.product(columns, readings) + kept * rates.basis[load.item]
        seconds += rates.step + rates.small * basis**3 * (step + 1 >= first)
    combined = 2.0 * basis * p * rates.basis[load.item]
    passes, keep = float((steps + proven) * readings), False
    if proven:
        flops += 4.0 * load.entries * checks
        seconds += load.in_float64().product(checks, readings) + rates.proof
        seconds += 6.0 * length * basis * checks * rates.basis[8]
    most = default_basis(block, p, load.item * length)
    if side == "left":
        # One product with M makes the first block.  At the end, left vectors become right ones,
        # by a pass or from the images that were kept.
        images = load.item * load.d * most
        fits = images * basis <= IMAGES_BYTES * most and images <= budget / 4
        last, kept = load.product(p) / 2 + length * combined, load.d * combined
        if proven:  # right vectors are made in float64
            last = load.in_float64().product(p) / 2 + length * combined
        keep = not proven and readings == 2 and fits and kept < last
        passes += 1 if keep else 2
        seconds += load.product(block) / 2 + (kept if keep else last)
    else:
        seconds += length * combined
    fixed = load.item * (3.0 * length * block + 3.0 * load.d * p) + load.buffers
    fixed += 8.0 * (load.busy + 3) * length * (block + checks) + 8.0 * length * checks * IMAGES
    if budget < math.inf:
        fixed = ALLOCATOR * (fixed + _at_worst(load, length, p, block, basis, proven))
    if keep:
        fixed += images if budget < math.inf else load.item * load.d * basis
    priming = BlockKrylov(block_size=block, side=side, keep_images=keep, first_look=first)
    return _within(
        budget,
        Way(priming, steps, passes, flops, passes * load.stored, fixed, seconds),
        load.item * length,
        basis,
        # A proof needs several passes between restarts: its probes start anew after each.
        p + (9 if proven else 2) * block,
        most,
    )


def _at_worst(load: Load, length: int, p: int, block: int, basis: int, proven: bool) -> float:
    """Return the additional bytes of a slow spectrum: a restart, all probes, small matrices."""
    restart = load.item * (3.0 * length * (p + block) - 3.0 * load.d * p)
    # Where the checks cannot prove it, probes do, in float64 and from the right.
    probes = 8.0 * load.d * 16 * 9 * proven
    return max(0.0, restart) + probes + 40.0 * basis**2


def _within(budget: float, way: Way, each: float, basis: int, least: int, most: int) -> Way:
    """Return ``way`` with the memory of its basis, limited by ``max_basis`` to fit the budget.

    Parameters
    ----------
    budget : float
        Limit on memory in bytes.
    way : Way
        Block Krylov, its memory without the basis.
    each : float
        Bytes of a basis vector.
    basis, least, most : int
        Numbers of basis vectors: expected, needed at least, and where restarts begin by default.
    """
    room = budget - way.memory
    if room >= each * most:
        return replace(way, memory=way.memory + each * basis)
    room = max(least, int(room // each))
    priming = replace(way.priming, max_basis=room)
    if room >= basis:  # no restart is expected, but slow spectra take more steps
        return replace(way, priming=priming, memory=way.memory + each * basis)
    # Estimated factor by which restarts slow down convergence on slow spectra.
    again = max(1.0, 1.5 * basis / room)
    return replace(
        way,
        priming=priming,
        passes=way.passes * again,
        flops=way.flops * again,
        bytes=way.bytes * again,
        seconds=way.seconds * again,
        memory=way.memory + each * room,
    )


def ways(
    load: Load,
    p: int,
    tol: float,
    proven: bool,
    budget: float = math.inf,
    p_exact: int | None = None,
    learns: bool = False,
    p_explicit: int | None = None,
) -> list[Way]:
    """Return all algorithms that fit into memory, cheapest first.

    Parameters
    ----------
    load : Load
    p : int
        Number of directions wanted.
    tol : float
        Target angle in radians.
    proven : bool
        Whether a certificate is made.
    budget : float, default=inf
        Limit on memory in bytes.
    p_exact : int or None, default=None
        Number of directions of a full decomposition; ``None`` means ``p``.
    learns : bool, default=False
        Whether one more pass computes scales or the means of known values first.
    p_explicit : int or None, default=None
        Number of directions with an explicit matrix; ``None`` means ``p``.

    Raises
    ------
    ValueError
        If nothing fits into ``budget``.
    """
    m = min(load.n, load.d)
    found = [exact_way(load.in_float64() if proven else load, p_exact or p, budget)]
    q = p_explicit or p
    if may_be_explicit(load, q):
        choices = [explicit_way(load, q, min(b, q), tol, proven, budget) for b in (8, 16)]
        best = min(choices, key=attrgetter("seconds"))
        at_once = not load.wide_rows or load.stored <= best.room
        if at_once and best.seconds < (WORTH if proven else 1.0) * found[0].seconds:
            found.append(best)
    sides, blocks, multiplied = ["right", "left"], [], load
    for block in sorted({min(8, p), min(16, p), min(32, p), p}):
        # A basis of half the dimensions saves nothing over a full decomposition.
        if block * krylov_passes(p, block, tol) < m / 2:
            blocks.append(block)
    if proven and budget < math.inf:
        # Beyond the reach of the checks, a proof goes on in float64 and from the right.
        sides, multiplied = ["right"], load.in_float64()
    for side in sides:
        for block in blocks:
            found.append(krylov_way(multiplied, p, block, side, tol, proven, budget))
    fitting = [way for way in found if way.memory <= budget]
    if not fitting:
        leanest = min(found, key=attrgetter("memory"))
        raise ValueError(
            f"`max_memory`={memory_words(budget)} is less than the "
            f"{memory_words(leanest.memory, up=True)} that {leanest.name} needs, which needs the "
            "least. Raise `max_memory` or lower `n_components`. A limit counts memory at its "
            "worst; without one, `plan` states what is expected."
        )
    if learns:
        seconds = load.product(0)
        for i, way in enumerate(fitting):
            passes, read = way.passes + 1, way.bytes + load.stored
            fitting[i] = replace(way, passes=passes, bytes=read, seconds=way.seconds + seconds)
    return sorted(fitting, key=attrgetter("seconds"))
