"""What each way to a decomposition costs: passes, flops, bytes, memory, and about how long.

Counts follow from shapes.  Seconds are counts times the rates below, which were measured on a
server; only their ratios decide which way is cheapest, and those differ little between machines.
``python benchmarks/planner.py`` compares them with the clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from primedpca.arrays import dtype_name
from primedpca.centred import Centred
from primedpca.extra import MEMORY
from primedpca.priming import BlockKrylov, Exact

__all__ = ["Load", "Way", "exact_way", "krylov_way", "ways"]


@dataclass(frozen=True)
class Rates:
    """Seconds for a unit of work on one core, or on a device; by bytes of the arithmetic.

    Attributes
    ----------
    dense, sparse : dict
        For each entry of the data: to make it ready, and to multiply it with one column and
        back (4 flops).
    square : dict
        For an entry and a column of the square matrix; ``pairs`` where the data are sparse.
    add : float
        For an entry of a block's result.
    basis : dict
        For a flop of keeping a tall basis orthonormal.
    small, full, few : float
        For ``m^3`` of an eigenproblem: all vectors of a small one, all of a large one, a few.
    step, proof : float
        For a step whatever its size, and for one with its proof.
    """

    dense: dict[int, tuple[float, float]]
    sparse: dict[int, tuple[float, float]]
    square: dict[int, float]
    pairs: float
    add: float
    basis: dict[int, float]
    small: float
    full: float
    few: float
    step: float
    proof: float


CORE = Rates(
    dense={4: (1.1e-9, 0.042e-9), 8: (2.0e-9, 0.088e-9)},
    sparse={4: (1.5e-9, 0.75e-9), 8: (1.5e-9, 1.2e-9)},
    square={4: 0.0145e-9, 8: 0.026e-9},
    pairs=4e-9,
    add=1e-9,
    basis={4: 0.03e-9, 8: 0.06e-9},
    small=0.35e-9,
    full=0.16e-9,
    few=0.06e-9,
    step=2e-3,
    proof=1e-2,
)
#: A data-centre GPU: products at the speed of its memory, launches and small problems dear.
DEVICE = replace(
    CORE,
    dense={4: (2e-12, 0.2e-12), 8: (4e-12, 0.3e-12)},
    square={4: 0.1e-12, 8: 0.1e-12},
    add=1e-12,
    basis={4: 0.1e-12, 8: 0.2e-12},
    full=0.003e-9,
    few=0.003e-9,
    step=4e-3,
)
PROBES, RIDES = 16, 4


@dataclass(frozen=True)
class Load:
    """What a pass has to carry.

    Attributes
    ----------
    n, d : int
    entries : int
        Stored ones, of sparse data.
    stored : int
        Bytes read in a pass.
    item : int
        Bytes of a number as it is multiplied, 4 or 8.
    sparse : bool
    axis : int
    blocks : int
    workers : int
    rate : float
        Bytes a second that can be read, infinite in memory.
    rates : Rates
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

    @classmethod
    def of(cls, data: Centred, proven: bool) -> Load:
        """The load of these data; a proof is made in float64."""
        source: Any = data.source
        n, d = data.shape
        held = getattr(source, "array", None)
        entries = int(held.nnz) if data.sparse and held is not None else n * d
        size = int(getattr(source.dtype, "itemsize", 8))
        item = 8 if proven or "64" in dtype_name(data.like.dtype) else 4
        workers = getattr(data.engine, "workers", 1)
        rate = math.inf if held is not None else 1e9
        stored = entries * (size + 4 * data.sparse)
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
            rate,
            CORE if source.device in (None, "cpu") else DEVICE,
        )

    @property
    def buffers(self) -> float:
        """Bytes of the blocks that are being worked on."""
        return self.workers * (2.0**23 + 2 * self.stored / self.blocks)

    @property
    def overhead(self) -> float:
        """What a pass costs whatever its width, in columns: see :mod:`primedpca.extra`."""
        if self.rate < math.inf:
            return 200.0
        return 0.0 if self.sparse else MEMORY

    def product(self, columns: int, readings: int = 1) -> float:
        """Seconds to multiply all data with so many columns, and back."""
        ready, each = (self.rates.sparse if self.sparse else self.rates.dense)[self.item]
        work = self.entries * (readings * ready + columns * each) / self.workers
        length = self.d if self.axis == 0 else self.n
        added = self.blocks * length * columns * self.rates.add
        return work + added + readings * self.stored / self.rate


@dataclass(frozen=True)
class Way:
    """One way to a decomposition, and its price.

    Attributes
    ----------
    priming : object
    steps : int
        Of the priming, about.
    passes : float
        Readings of all the data, about.
    flops, bytes, memory : float
        Bytes are those read; memory is what is needed beside the data.
    seconds : float
    """

    priming: Any
    steps: int
    passes: float
    flops: float
    bytes: float
    memory: float
    seconds: float

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        if isinstance(self.priming, BlockKrylov):
            side = "" if self.priming.side == "right" else " from the left"
            return f"block Krylov{side} with blocks of {self.priming.block_size}"
        return "a full decomposition"


def exact_way(load: Load, p: int) -> Way:
    """A full decomposition by the covariance or the Gram matrix, of order ``m = min(n, d)``."""
    m, across, rates = min(load.n, load.d), max(load.n, load.d), load.rates
    aligned = load.axis == (0 if load.d <= load.n else 1)
    passes = 1.0 + (load.d > load.n)
    flops = float(load.entries) * m
    if aligned and load.sparse:
        pairs = load.entries**2 / across
        flops = 2 * pairs
        seconds = (pairs * rates.pairs + load.blocks * m * m * rates.add) / load.workers
    elif aligned:
        seconds = load.entries * m * rates.square[load.item] / load.workers + load.product(0)
        seconds += load.blocks * m * m * rates.add / load.workers
    else:
        slices = -(-m // max(64, 2**22 // across))
        passes, flops = 2.0 * slices + (load.d > load.n), 4.0 * load.entries * m
        seconds = slices * load.product(m // slices, 2)
    few = 4 * (p + 1) < m
    seconds += (
        rates.step
        + m**3 * (rates.few if few else rates.full)
        + (load.product(p) if load.d > load.n else 0.0)
    )
    memory = 8.0 * m * m * (2 + load.workers) + 3 * load.item * load.d * p + load.buffers
    return Way(Exact(), 1, passes, flops + 4 * m**3, passes * load.stored, memory, seconds)


def krylov_passes(p: int, block: int, tol: float) -> float:
    """About how many steps block Krylov takes: on real spectra, not on flat ones."""
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
    """Block Krylov with ``p`` directions in the end and ``block`` columns a step."""
    length = load.d if side == "right" else load.n
    readings = 1 if load.axis == (0 if side == "right" else 1) else 2
    steps = math.ceil(krylov_passes(p, block, tol)) + proven
    seconds, flops, basis, rates = 0.0, 0.0, 0, load.rates
    for step in range(steps):
        columns = block + PROBES * (proven and step >= steps - RIDES)
        basis = min(basis + block, length)
        kept = length * columns * (4.0 * basis * (1.5 if proven else 1.0) + 24 * columns)
        flops += 4.0 * load.entries * columns + kept
        seconds += load.product(columns, readings) + kept * rates.basis[load.item]
        seconds += rates.small * basis**3 * (2 if proven else 1)
        seconds += rates.proof if proven else rates.step
    seconds += 2.0 * length * basis * p * rates.basis[load.item]
    passes = float(steps * readings)
    if side == "left":
        passes, seconds = passes + 1, seconds + load.product(p)
    fixed = load.item * (3.0 * length * block + 3.0 * load.d * p) + load.buffers
    fixed += 8.0 * (load.workers + 3) * length * (block + PROBES * proven)
    priming = BlockKrylov(block_size=block, side=side)
    return _within(
        budget,
        Way(priming, steps, passes, flops, passes * load.stored, fixed, seconds),
        load.item * length,
        basis,
        # A proof needs some passes between two restarts.
        p + (9 if proven else 2) * block,
    )


def _within(budget: float, way: Way, each: float, basis: int, least: int) -> Way:
    """The way with its basis, restarted where the budget does not hold it whole."""
    if way.memory + each * basis <= budget:
        return replace(way, memory=way.memory + each * basis)
    room = min(basis, max(least, int((budget - way.memory) // each)))
    priming = replace(way.priming, max_basis=room)
    # About what cutting the basis back costs on slow spectra.
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


def ways(load: Load, p: int, tol: float, proven: bool, budget: float = math.inf) -> list[Way]:
    """Every way that is considered and keeps within the budget of memory, the cheapest first."""
    m = min(load.n, load.d)
    found = [exact_way(load, p)]
    # Proofs are made on the right; with blocks of 8 their work at every step is not made up for.
    sides, sizes = (["right"], (16, 32, p)) if proven else (["right", "left"], (8, 16, 32, p))
    for side in sides:
        for block in sorted({min(size, p) for size in sizes}):
            # A basis that fills half of the space is no saving.
            if block * krylov_passes(p, block, tol) < m / 2:
                found.append(krylov_way(load, p, block, side, tol, proven, budget))
    fitting = [way for way in found if way.memory <= budget]
    if not fitting:
        leanest = min(found, key=lambda way: way.memory)
        raise ValueError(
            f"`max_memory`={budget / 1e6:.0f} MB is less than the {leanest.memory / 1e6:.0f} MB "
            f"that {leanest.name} needs, the leanest way; raise it, or ask for fewer components."
        )
    return sorted(fitting, key=lambda way: way.seconds)
