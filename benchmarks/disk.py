"""A fit from disk against reading the file once, and against its memory budget.

``python benchmarks/disk.py --size 4GB`` makes a float32 file of that size in every format, fits
each in a process of its own, cached and cold, and watches that process's memory from this one.
It prints a table: seconds to read the file once, seconds of the same product on as much data in
memory, passes and seconds of the fit, the ratio of these, the growth of the resident memory, and
the worst true angle against LAPACK; then the same for scikit-learn's IncrementalPCA on the `.npy`.
Cold means that the system is asked to forget the file before the fit and before the reading; the
later passes of a fit find what the first has left in memory.  Linux only; the files are deleted at
the end.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

D, K = 4000, 8  # so many columns that a full decomposition is not the cheapest
ROWS = 2000  # made at a time, and the rows of a chunk or row group
PROBES, RIDES = 16, 4  # directions of the proof, and the passes on which they ride
FORMATS = {"npy": "a.npy", "hdf5": "a.h5", "zarr": "a.zarr", "parquet": "a.parquet"}


# -- making the files -------------------------------------------------------------------------


def blocks(n: int) -> Any:
    """Rows with a slowly falling spectrum, a few thousand at a time."""
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((D, 64)))[0].T.astype("float32")
    axes *= (20 * np.arange(1, 65, dtype="float32") ** -0.5)[:, None]
    for start in range(0, n, ROWS):
        rows = min(ROWS, n - start)
        noise = rng.standard_normal((rows, D), dtype="float32")
        yield start, rng.standard_normal((rows, 64), dtype="float32") @ axes + noise + 1


def make(folder: Path, n: int, formats: list[str]) -> None:
    """The files, and the true components by LAPACK."""
    total, square = np.zeros(D), np.zeros((D, D))
    writers = {name: WRITERS[name](folder / FORMATS[name], n) for name in formats}
    for writer in writers.values():
        next(writer)
    for start, block in blocks(n):
        near = block - np.float32(1)
        total += near.sum(axis=0, dtype="float64")
        square += near.T @ near  # a few thousand rows at a time: exact enough for the angle asked
        for writer in writers.values():
            writer.send((start, block))
    for writer in writers.values():
        writer.close()
    mean = total / n
    _, vectors = np.linalg.eigh(square / n - np.outer(mean, mean))
    np.save(folder / "truth.npy", vectors[:, ::-1][:, :K].T)


def write_npy(path: Path, n: int) -> Any:
    with path.open("wb") as file:
        head = {"descr": "<f4", "fortran_order": False, "shape": (n, D)}
        np.lib.format.write_array_header_1_0(file, head)
        while True:
            _, block = yield
            block.tofile(file)


def write_hdf5(path: Path, n: int) -> Any:
    import h5py

    with h5py.File(path, "w") as file:
        held = file.create_dataset("X", (n, D), "float32", chunks=(ROWS // 4, D), fletcher32=True)
        while True:
            start, block = yield
            held[start : start + len(block)] = block


def write_zarr(path: Path, n: int) -> Any:
    import zarr

    held = zarr.create_array(
        path, shape=(n, D), chunks=(ROWS // 4, D), dtype="float32", compressors=None
    )
    while True:
        start, block = yield
        held[start : start + len(block)] = block


def write_parquet(path: Path, n: int) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    schema = pa.schema([(f"c{j}", pa.float32()) for j in range(D)])
    how = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    with parquet.ParquetWriter(path, schema, **how) as writer:
        while True:
            _, block = yield
            columns = [np.ascontiguousarray(column) for column in block.T]
            writer.write_table(pa.table(columns, schema=schema))


WRITERS = {"npy": write_npy, "hdf5": write_hdf5, "zarr": write_zarr, "parquet": write_parquet}


# -- one fit, in a process of its own ---------------------------------------------------------


def forget(path: Path) -> None:
    """Ask the system to drop what it has cached of a file or folder."""
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            handle = os.open(file, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def child(path: Path, max_memory: str, cold: bool) -> None:
    """Say ready, wait, fit; then measure reading and multiplying."""
    from primedpca import PrimedPCA, as_source
    from primedpca._operator.operator import Centred

    options = {"tol": math.pi / 128, "random_state": 0}
    PrimedPCA(2, **options).fit(np.random.default_rng(0).standard_normal((300, 50)))
    source: Any = as_source(path)
    source.read(0)  # the library that reads it is loaded
    if cold:
        forget(path)
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.perf_counter()
    pca = PrimedPCA(K, max_memory=max_memory, **options).fit(source)
    fit = time.perf_counter() - begun
    print("done", flush=True)
    if cold:
        forget(path)
    begun = time.perf_counter()
    for _ in source.scan():
        pass
    read = time.perf_counter() - begun
    held = np.concatenate([source.read(i) for i in range(min(30, len(source.blocks)))])
    product = time_product(Centred(held, float64=True), pca) * source.shape[0] / len(held)
    report = {
        "read": read,
        "product": product,
        "fit": fit,
        "passes": float(pca.n_passes_),
        "angle": worst_angle(pca.components_, path),
        "certified": bool(np.all(pca.certificate_.angle_bounds <= math.pi / 128)),
    }
    print(json.dumps(report), flush=True)


def time_product(data: Any, pca: Any) -> float:
    """Seconds of what a pass of the fit multiplies, on data in memory: the mean over its passes."""
    priming, passes = pca.plan_.priming, round(float(pca.n_passes_))
    if type(priming).__name__ == "Exact":
        return seconds_of(data.covariance)
    size = int(priming.block_size)
    vectors = np.random.default_rng(1).standard_normal((D, size + PROBES))
    alone = seconds_of(lambda: data.covariance_product(vectors[:, :size].copy()))
    ridden = seconds_of(lambda: data.covariance_product(vectors))
    rides = min(RIDES, passes)
    return ((passes - rides) * alone + rides * ridden) / passes


def seconds_of(work: Any) -> float:
    """The better of two: the first also finds the mean."""
    seconds = []
    for _ in range(2):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def incremental(path: Path) -> None:
    """scikit-learn's IncrementalPCA on the rows of a `.npy`, a thousand at a time."""
    from sklearn.decomposition import IncrementalPCA

    X = np.load(path, mmap_mode="r")
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.perf_counter()
    pca = IncrementalPCA(K, batch_size=1000).fit(X)
    fit = time.perf_counter() - begun
    print("done", flush=True)
    print(json.dumps({"fit": fit, "angle": worst_angle(pca.components_, path)}), flush=True)


def worst_angle(components: Any, path: Path) -> float:
    """Degrees to the truth that lies beside the file."""
    truth = np.load(path.parent / "truth.npy")
    return float(np.degrees(np.arccos(abs((components * truth).sum(axis=1)).clip(0, 1).min())))


def resident(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def watched(path: Path, *options: str) -> dict[str, Any]:
    """The child's report, and how much its resident memory grew while it fitted."""
    command = [sys.executable, __file__, "--child", str(path), *options]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        before = peak = resident(process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        while not select.select([process.stdout], [], [], 0.005)[0]:
            peak = max(peak, resident(process.pid))
        if process.stdout.readline() != "done\n":
            raise RuntimeError(f"the fit of {path} ended with {process.wait()}")
        report = json.loads(process.stdout.readline())
    return report | {"grown": (peak - before) / 1e6}


def main() -> None:
    """Make, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1GB")
    parser.add_argument("--formats", nargs="*", default=list(FORMATS), choices=list(FORMATS))
    parser.add_argument("--max-memory", default="500MB")
    parser.add_argument("--folder", help="where to make the files; by default the temporary folder")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--incremental", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child and given.incremental:
        incremental(Path(given.child))
        return
    if given.child:
        child(Path(given.child), given.max_memory, given.cold)
        return
    from primedpca._core.units import as_bytes

    n = int(as_bytes(given.size, "size")) // (4 * D)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        make(folder, n, given.formats)
        print(f"{n} x {D} float32, k={K}, max_memory={given.max_memory}")
        print("format  state   read s  product s  passes  fit s  ratio  grown MB  worst angle")
        for kind in given.formats:
            for cold in (False, True):
                options = ["--max-memory", given.max_memory, *["--cold"] * cold]
                row = watched(folder / FORMATS[kind], *options)
                ratio = row["fit"] / (row["passes"] * max(row["read"], row["product"]))
                print(
                    f"{kind:8}{'cold' if cold else 'cached':8}{row['read']:6.2f}"
                    f"{row['product']:11.2f}{row['passes']:8.0f}{row['fit']:7.2f}{ratio:7.2f}"
                    f"{row['grown']:10.0f}{row['angle']:11.4f}°"
                    f"{'' if row['certified'] else '  not certified'}",
                    flush=True,
                )
        if "npy" in given.formats:
            row = watched(folder / FORMATS["npy"], "--incremental")
            print(
                f"IncrementalPCA on the .npy: {row['fit']:.1f} s, {row['grown']:.0f} MB, "
                f"{row['angle']:.1f}° off"
            )


if __name__ == "__main__":
    main()
