"""A model of how long passes take on clusters, fitted to passes on 1, 2 and 4 workers here.

``python benchmarks/scale.py measure`` times passes over dense, sparse and genotype files of
several shapes, in one thread and on Dask workers, and writes ``docs/results/scale.csv`` (about a
quarter of an hour on two cores).  ``python benchmarks/scale.py predict`` fits the model to that
file and prints what it says, with the errors it makes on measurements that it has not seen, and
what it foretells.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import scipy.sparse as sp
from clusters import cluster, store
from scipy.optimize import nnls

from primedpca._core.process import processors
from primedpca._operator.operator import Centred
from primedpca.engines import LocalEngine
from primedpca.engines.dask.engine import DaskEngine, span_of

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "scale.csv"
SHAPES = {
    "dense": [(125_000, 1000), (30_000, 4000), (4_000, 30_000)],
    "sparse": [(40_000, 500), (80_000, 200)],  # rows, and entries in each of them
    "genotypes": [(20_000, 10_000), (100_000, 2_000), (500_000, 512)],
}
GENES = 28_000
COLUMNS = (16, 64)
WORKERS = (0, 1, 2, 4)  # none: a thread of this process
REPEATS = 2
DRAWS = 300


@dataclass(frozen=True)
class Pass:
    """One pass ``X^T (X V)``, or ``X (X^T U)`` of data that lie in columns.

    Attributes
    ----------
    kind, dtype : str
    entries : float
        Stored numbers of the data.
    columns : int
        Of the vectors.
    width : int
        Their length, which is that of the sums.
    blocks : int
    workers, threads : int
        Processes, and in each; no process is a thread of this one.
    cores : int
        How many of them can work at a time.
    seconds : float
        As measured, or 0.
    """

    kind: str
    dtype: str
    entries: float
    columns: int
    width: int
    blocks: int
    workers: int
    threads: int
    cores: int
    seconds: float = 0.0

    @property
    def tasks(self) -> int:
        """Of the cluster: runs of blocks."""
        return -(-self.blocks // span_of(self.blocks, max(1, self.workers * self.threads)))

    @property
    def vectors(self) -> float:
        """Bytes of the operands, and of every sum."""
        return 8.0 * self.width * self.columns

    def terms(self) -> np.ndarray:
        """What each constant of the model is multiplied with, of the work and of the cluster."""
        at_once = min(self.cores, max(1, self.workers * self.threads))
        # Of sparse data the sums are a part of the products: all their shapes have one width.
        sums = 0.0 if self.kind == "sparse" else self.blocks * self.vectors
        work = [self.entries, self.entries * self.columns, sums]
        sent = (self.tasks + self.workers) * self.vectors  # packed and unpacked by those at work
        rest = [1.0, self.tasks, sent / at_once] if self.workers else [0.0] * 3
        return np.array([*(term / at_once for term in work), *rest])


# -- measuring --------------------------------------------------------------------------------


def sparse_file(path: Path, n: int, each: int) -> str:
    """Counts of ``n`` cells, ``each`` genes seen in every one."""
    rng = np.random.default_rng(0)
    genes = np.sort(rng.integers(0, GENES // each, (n, each)) + np.arange(each) * (GENES // each))
    counts = rng.integers(1, 9, n * each).astype(np.float32)
    held = sp.csr_matrix((counts, genes.ravel(), np.arange(n + 1) * each), shape=(n, GENES))
    anndata.AnnData(held).write_h5ad(path)
    return str(path)


def genotypes_file(path: Path, n: int, d: int) -> str:
    """Genotypes of ``n`` individuals at ``d`` variants, one in a thousand missing."""
    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        file.write(b"\x6c\x1b\x01")
        for p in rng.uniform(0.05, 0.5, d):
            some = rng.random(-(-n // 4) * 4)
            codes = np.select([some < 1e-3, some < p * p, some < p * (2 - p)], [1, 0, 2], 3)
            file.write((codes.reshape(-1, 4) << np.arange(0, 8, 2)).sum(1).astype(np.uint8))
    path.with_suffix(".fam").write_text("".join(f"f i{i} 0 0 0 -9\n" for i in range(n)))
    path.with_suffix(".bim").write_text("".join(f"1 v{i} 0 {i + 1} A B\n" for i in range(d)))
    return str(path)


def made(folder: Path, kind: str, n: int, d: int) -> str:
    """A file of such data."""
    if kind == "dense":
        return store(folder / f"{n}.zarr", n, d, (max(1, 2_000_000 // d), d))
    if kind == "sparse":
        return sparse_file(folder / f"{n}.h5ad", n, d)
    return genotypes_file(folder / f"{n}.bed", n, d)


def timed(data: Centred, columns: int) -> float:
    """Seconds of a pass, the best of some."""
    axis = data.source.axis
    shape = (data.shape[1 - axis], columns)
    vectors = np.random.default_rng(0).standard_normal(shape).astype(data.like.dtype)
    product, best = (data.gram_product if axis else data.covariance_product), np.inf
    for _ in range(REPEATS):
        start = time.perf_counter()
        product(vectors)
        best = min(best, time.perf_counter() - start)
    return best


def passes(path: str, kind: str, engine: Any, workers: int) -> list[Pass]:
    """Passes over one file with several numbers of columns, in both types."""
    found = []
    for dtype in ("float32", "float64"):
        data = Centred(path, engine, float64=dtype == "float64")
        data.learn()
        n, d = data.shape
        entries = float((data.source.traits.nnz() if data.sparse else None) or n * d)
        width, blocks = (n if data.source.axis else d), len(data.source.blocks)
        for columns in COLUMNS:
            about = (kind, dtype, entries, columns, width, blocks, workers, 1, processors())
            found.append(Pass(*about, timed(data, columns)))
            print(f"{path.split('/')[-1]} {found[-1]}", flush=True)
    return found


def measure(folder: Path) -> None:
    """Every shape on every number of workers."""
    given = [(kind, made(folder, kind, *shape)) for kind in SHAPES for shape in SHAPES[kind]]
    found: list[Pass] = []
    for workers in WORKERS:
        if not workers:
            for kind, path in given:
                found += passes(path, kind, LocalEngine(1), 0)
            continue
        with cluster(workers) as client:
            client.run(lambda: __import__("primedpca.estimator") and None)
            for kind, path in given:
                found += passes(path, kind, DaskEngine(client), workers)
    with open(RESULTS, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, Pass.__dataclass_fields__)
        writer.writeheader()
        writer.writerows(vars(one) for one in found)


# -- the model --------------------------------------------------------------------------------


def read() -> list[Pass]:
    """The measurements."""
    fields = Pass.__dataclass_fields__
    as_type = {"str": str, "int": int, "float": float}
    with open(RESULTS, newline="", encoding="utf-8") as file:
        return [
            Pass(**{name: as_type[str(fields[name].type)](row[name]) for name in fields})
            for row in csv.DictReader(file)
        ]


class Model:
    """Constants for the work on every kind and type of data, and for the cluster.

    Fitted by least squares of relative errors, none of the constants negative.
    """

    def __init__(self, known: list[Pass]) -> None:
        self.kinds = sorted({(one.kind, one.dtype) for one in known})
        rows = np.array([self._row(one) / one.seconds for one in known])
        scale = np.maximum(np.abs(rows).max(axis=0), 1e-300)
        self.constants = nnls(rows / scale, np.ones(len(known)))[0] / scale

    def _row(self, one: Pass) -> np.ndarray:
        terms, row = one.terms(), np.zeros(3 * len(self.kinds) + 3)
        at = 3 * self.kinds.index((one.kind, one.dtype))
        row[at : at + 3], row[-3:] = terms[:3], terms[3:]
        return row

    def __call__(self, one: Pass) -> float:
        """Seconds of a pass."""
        return float(self._row(one) @ self.constants)

    def work(self, one: Pass) -> float:
        """Seconds of it that are work on blocks."""
        return float(self._row(one)[:-3] @ self.constants[:-3])


def shape_of(one: Pass) -> tuple[Any, ...]:
    """What is left out together: all passes over one file with so many columns."""
    return one.kind, one.entries, one.width, one.columns


def unseen_errors(known: list[Pass]) -> np.ndarray:
    """Predicted over measured of every pass, by models that have not seen its shape."""
    ratios = []
    for shape in sorted({shape_of(one) for one in known}):
        model = Model([one for one in known if shape_of(one) != shape])
        ratios += [model(one) / one.seconds for one in known if shape_of(one) == shape]
    return np.array(ratios)


@dataclass(frozen=True)
class Cluster:
    """Somebody's machines.

    Attributes
    ----------
    nodes, threads : int
        Each node runs a worker of so many threads.
    network : float
        Bytes a second that a node sends or receives.
    storage : float
        Bytes a second that all nodes together read.
    """

    nodes: int
    threads: int
    network: float = 1.25e9
    storage: float = 2e9


@dataclass(frozen=True)
class Task:
    """A fit on data that nobody has here.

    Attributes
    ----------
    title : str
    shape : Pass
    file : float
        Bytes of the file.
    products : (int, int)
        The least and the most of a fit.
    readings : int
        How often each of them reads the file.
    """

    title: str
    shape: Pass
    file: float
    products: tuple[int, int]
    readings: int = 1


def hours(model: Model, task: Task, there: Cluster, products: float) -> float:
    """Of a fit: the slower of working and reading, then what is sent, and the scheduler's part."""
    nodes, threads = there.nodes, there.threads
    one = replace(task.shape, workers=nodes, threads=threads, cores=nodes * threads)
    work, reading = model.work(one), task.file / there.storage
    rest = 0.0
    if nodes > 1:
        sent = (one.tasks / nodes + nodes) * one.vectors
        rest = model(one) - work + sent / there.network
    return products * (task.readings * max(work, reading) + rest) / 3600


def genotypes(dtype: str, products: tuple[int, int], readings: int) -> Task:
    """UK Biobank: 0.5 M individuals, 6.1 M variants, 40 components."""
    n, d, columns = 500_000, 6_100_000, 60
    shape = Pass("genotypes", dtype, float(n * d), columns, n, d // 64, 1, 1, 1)
    proof = "proven, float64" if dtype == "float64" else "not proven, float32"
    return Task(f"0.5 M x 6.1 M genotypes, k = 40, {proof}", shape, n * d / 4, products, readings)


def cells(dtype: str, products: tuple[int, int]) -> Task:
    """1.3 M cells, of whose 28,000 genes one in fourteen is seen; 50 components."""
    n, entries, columns = 1_300_000, 2.6e9, 60
    blocks = int(entries * 8 / 2**23)
    shape = Pass("sparse", dtype, entries, columns, GENES, blocks, 1, 1, 1)
    proof = "proven, float64" if dtype == "float64" else "not proven, float32"
    return Task(f"{n / 1e6:g} M x 28,000 cells, k = 50, {proof}", shape, entries * 8, products)


FORETOLD = [
    (genotypes("float32", (7, 16), 1), [Cluster(1, 20), Cluster(10, 20)]),
    (genotypes("float64", (10, 20), 2), [Cluster(1, 20), Cluster(10, 20)]),
    (cells("float32", (10, 16)), [Cluster(1, 8), Cluster(4, 8)]),
    (cells("float64", (12, 20)), [Cluster(1, 8), Cluster(4, 8)]),
]


def predict() -> None:
    """Print the model, its errors, and what it says of data that are not here."""
    known, rng = read(), np.random.default_rng(0)
    model, ratios = Model(known), unseen_errors(known)
    print("| work on one core | nanoseconds an entry | a product with it | a byte of the sums |")
    print("|---|---|---|---|")
    for i, (kind, dtype) in enumerate(model.kinds):
        a, b, c = model.constants[3 * i : 3 * i + 3] * 1e9
        print(f"| {kind}, {dtype} | {a:.3g} | {b:.3g} | {c:.3g} |")
    start, each, moved = model.constants[-3:]
    print(
        f"\nDask: {start * 1e3:.0f} ms a pass, {each * 1e3:.2f} ms a task, "
        f"{moved * 1e9:.2g} ns for a byte that is sent.\n"
    )
    low, middle, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    print(
        f"Predicted over measured of {len(ratios)} passes of shapes not seen: median "
        f"{middle:.2f}, 90 % of them between {low:.2f} and {high:.2f}.\n"
    )
    shapes = sorted({shape_of(one) for one in known})
    drawn = []
    for _ in range(DRAWS):
        chosen = rng.integers(0, len(shapes), len(shapes))
        sample = [one for j in chosen for one in known if shape_of(one) == shapes[j]]
        if len({(one.kind, one.dtype) for one in sample}) == len(model.kinds):
            drawn.append(Model(sample))
    print("| fit | machines | hours | between |")
    print("|---|---|---|---|")
    for task, clusters in FORETOLD:
        for there in clusters:
            few, many = task.products
            middle = hours(model, task, there, (few + many) / 2)
            ends = [
                np.quantile([hours(m, task, there, few) for m in drawn], 0.05) / high,
                np.quantile([hours(m, task, there, many) for m in drawn], 0.95) / low,
            ]
            machines = f"{there.nodes} x {there.threads} threads"
            print(
                f"| {task.title}, {few} to {many} products | {machines} | {middle:.2g} | "
                f"{ends[0]:.2g} and {ends[1]:.2g} |"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["measure", "predict"])
    if parser.parse_args().part == "predict":
        predict()
    else:
        with tempfile.TemporaryDirectory() as name:
            measure(Path(name))
