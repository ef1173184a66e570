"""Every source, priming and known problem; the contracts run all of them through the same promises.

A newcomer adds one line here and is tested like the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import anndata
import av
import dask
import dask.array as da
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
import scipy.sparse as sp
import torch
import xarray as xr
import zarr
from PIL import Image

from primedpca import as_source
from primedpca.priming import (
    BlockKrylov,
    EigenGame,
    Exact,
    FrequentDirections,
    Krasulina,
    MuEigenGame,
    Oja,
    PowerMethod,
    SubspaceIteration,
)
from primedpca.sources.files.images import ImageFolder
from primedpca.sources.files.numpy_files import RawFileSource
from primedpca.sources.files.video import VideoFrames
from primedpca.sources.maps import RowMap

# -- tolerances: from the type, named once ---------------------------------------------------

EPS = {np.dtype("float32"): 2.0**-23, np.dtype("float64"): 2.0**-52}
#: What is promised: the error of variances, relative to the largest.
VARIANCE_ERROR = {np.dtype("float32"): 1e-5, np.dtype("float64"): 1e-10}


def angle_error(dtype: Any, gap: float, d: int) -> float:
    """What rounding may turn a component by: a few ulps for each feature, over the gap."""
    return 50 * np.sqrt(d) * EPS[np.dtype(dtype)] / gap


# -- problems with a known answer ------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Data ``X`` (float64) whose covariance, divided by n - 1, has a planted spectrum."""

    name: str
    X: np.ndarray
    components: np.ndarray
    variances: np.ndarray

    @property
    def gap(self) -> float:
        """The smallest gap between neighbours among the first six, relative to the largest."""
        return float(-np.diff(self.variances[:6]).max() / self.variances[0])


def planted(name: str, n: int, d: int, spectrum: np.ndarray, mean: float = 0.0) -> Problem:
    """Rows with exactly this spectrum (as many values as there are non-zero ones)."""
    rng = np.random.default_rng(len(name))
    r = spectrum.size
    noise = rng.standard_normal((n, r))
    scores = np.linalg.qr(noise - noise.mean(axis=0))[0]
    axes = np.linalg.qr(rng.standard_normal((d, r)))[0].T
    X = scores * np.sqrt(spectrum * (n - 1)) @ axes + mean * rng.standard_normal(d)
    return Problem(name, X, axes, spectrum)


PROBLEMS = [
    planted("tall, geometric", 240, 24, 0.7 ** np.arange(24)),
    planted("tall, linear, far from zero", 240, 24, np.linspace(10, 1, 24), mean=100.0),
    planted("wide, geometric", 40, 150, 0.6 ** np.arange(39), mean=1.0),
    planted("tall, rank 8", 120, 20, 0.5 ** np.arange(8)),
]

# -- sources ---------------------------------------------------------------------------------


def _strided(X: np.ndarray) -> np.ndarray:
    wide = np.zeros((X.shape[0] * 2, X.shape[1] * 3), X.dtype)
    wide[::2, ::3] = X
    return wide[::2, ::3]


def _read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.flags.writeable = False
    return X


def _memmap(X: np.ndarray, folder: Any, order: str) -> np.memmap:
    path = folder / f"{order}.bin"
    held = np.memmap(path, X.dtype, "w+", 64, X.shape, order)
    held[...] = X
    held.flush()
    return np.memmap(path, X.dtype, "r", 64, X.shape, order)


#: name -> (data, folder for files) -> what a user would pass as X.
SOURCES = {
    "numpy": lambda X, folder: X,
    "numpy, columns first": lambda X, folder: np.asfortranarray(X),
    "numpy, strided": lambda X, folder: _strided(X),
    "numpy, reversed": lambda X, folder: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "numpy, read-only": lambda X, folder: _read_only(X),
    "numpy, big-endian": lambda X, folder: X.astype(X.dtype.newbyteorder(">")),
    "memory map, rows": lambda X, folder: _memmap(X, folder, "C"),
    "memory map, columns": lambda X, folder: _memmap(X, folder, "F"),
    "csr": lambda X, folder: sp.csr_array(X),
    "csc": lambda X, folder: sp.csc_array(X),
    "csr matrix": lambda X, folder: sp.csr_matrix(X),
    "coo": lambda X, folder: sp.coo_array(X),
    "lil": lambda X, folder: sp.lil_array(X),
    "torch": lambda X, folder: torch.tensor(X),
    "torch, transposed": lambda X, folder: torch.tensor(np.ascontiguousarray(X.T)).T,
    "pandas": lambda X, folder: pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])]),
    "polars": lambda X, folder: pl.DataFrame(X, schema=[f"c{j}" for j in range(X.shape[1])]),
}
#: Between them these take every path behind the sources: rows, columns, both compressed layouts
#: and tensors.
FEW_SOURCES = ("numpy", "numpy, columns first", "csr", "csc", "torch")


def thinned(values: Iterable[Any], kept: Collection[Any] = FEW_SOURCES) -> list[Any]:
    """Values to parametrise with; those not kept repeat the others and are integration tests."""
    repeats = pytest.mark.integration
    return [value if value in kept else pytest.param(value, marks=repeats) for value in values]


# -- files of numbers ------------------------------------------------------------------------


def _npy(X: np.ndarray, path: Any, order: str = "C") -> str:
    np.save(path, np.asarray(X, order=order))
    return str(path)


def _raw(X: np.ndarray, path: Any, order: str) -> RawFileSource:
    path.write_bytes(b"head" + X.tobytes(order))
    return as_source(path, shape=X.shape, dtype=X.dtype, offset=4, order=order)


def _npz(X: np.ndarray, path: Any) -> str:
    np.savez(path, X=X, other=np.arange(3))
    return f"{path}::X"


def _npz_compressed(X: np.ndarray, path: Any, order: str = "C", cache: Any = 0) -> Any:
    np.savez_compressed(path, X=np.asarray(X, order=order))
    return as_source(path, cache=cache)


def _hdf5(X: np.ndarray, path: Any, **how: Any) -> str:
    with h5py.File(path, "w") as file:
        file.create_dataset("group/X", data=X, **how)
    return f"{path}::group/X"


def _zarr(X: np.ndarray, path: Any, chunks: tuple[int, int], **how: Any) -> str:
    array = zarr.create_array(path, shape=X.shape, chunks=chunks, dtype=X.dtype, **how)
    array[...] = X
    return str(path)


def table_of(X: np.ndarray, **more: Any) -> pa.Table:
    """A table with columns c0, c1, ... and others."""
    return pa.table({f"c{j}": np.ascontiguousarray(X[:, j]) for j in range(X.shape[1])} | more)


def vectors_of(X: np.ndarray, **more: Any) -> pa.Table:
    """A table with one column of vectors, and others."""
    values = pa.array(np.ascontiguousarray(X).ravel())
    return pa.table({"v": pa.FixedSizeListArray.from_arrays(values, X.shape[1])} | more)


def _parquet(table: pa.Table, path: Any, rows: int) -> str:
    parquet.write_table(table, path, row_group_size=rows, write_page_checksum=True)
    return str(path)


def _parquet_folder(X: np.ndarray, folder: Any) -> str:
    folder.mkdir()
    half = X.shape[0] // 2
    _parquet(table_of(X[:half]), folder / "a.parquet", 7)
    _parquet(table_of(X[half:]), folder / "b.parquet", 100)
    return str(folder)


def _feather(table: pa.Table, path: Any, rows: int) -> str:
    feather.write_feather(table, path, chunksize=rows)
    return str(path)


def _stream(table: pa.Table, path: Any, rows: int) -> str:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return str(path)


def write_csv(X: np.ndarray, path: Any) -> str:
    """Numbers as text that gives them back bit by bit."""
    lines = [",".join(f"c{j}" for j in range(X.shape[1]))]
    lines += [",".join(map(repr, row)) for row in X.tolist()]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


#: name -> (data, folder) -> a path, or a source made of one.
FILES = {
    "npy, rows": lambda X, folder: _npy(X, folder / "a.npy"),
    "npy, columns": lambda X, folder: _npy(X, folder / "a.npy", "F"),
    "raw, rows": lambda X, folder: _raw(X, folder / "a.bin", "C"),
    "raw, columns": lambda X, folder: _raw(X, folder / "a.bin", "F"),
    "npz": lambda X, folder: _npz(X, folder / "a.npz"),
    "npz, compressed, rows": lambda X, folder: _npz_compressed(X, folder / "a.npz"),
    "npz, compressed, columns": lambda X, folder: _npz_compressed(X, folder / "a.npz", "F"),
    "hdf5": lambda X, folder: _hdf5(X, folder / "a.h5"),
    "hdf5, chunks": lambda X, folder: _hdf5(X, folder / "a.h5", chunks=(5, 3), fletcher32=True),
    "hdf5, columns": lambda X, folder: _hdf5(X, folder / "a.h5", chunks=(X.shape[0], 1)),
    "zarr 3": lambda X, folder: _zarr(X, folder / "a.zarr", (5, 3)),
    "zarr 3, shards": lambda X, folder: _zarr(X, folder / "a.zarr", (3, 3), shards=(6, 6)),
    "zarr 2": lambda X, folder: _zarr(X, folder / "a.zarr", (5, 3), zarr_format=2),
    "zarr, columns": lambda X, folder: _zarr(X, folder / "a.zarr", (X.shape[0], 1)),
    "parquet": lambda X, folder: _parquet(table_of(X), folder / "a.parquet", 2),
    "parquet, one group": lambda X, folder: _parquet(table_of(X), folder / "a.parquet", 1000),
    "parquet, vectors": lambda X, folder: _parquet(vectors_of(X), folder / "a.parquet", 2),
    "parquet, folder": lambda X, folder: _parquet_folder(X, folder / "tables"),
    "feather": lambda X, folder: _feather(table_of(X), folder / "a.feather", 2),
    "arrow, vectors": lambda X, folder: _feather(vectors_of(X), folder / "a.arrow", 2),
    "arrow, stream": lambda X, folder: _stream(table_of(X), folder / "s.arrow", 2),
}
#: Text is read as float64, whatever it was.
TEXT_FILES = {"csv": lambda X, folder: write_csv(X, folder / "a.csv")}


def _png_files(X: np.ndarray, folder: Any) -> str:
    for i, row in enumerate(X):
        Image.fromarray(row[None]).save(folder / f"{i:03}.png")
    return str(folder)


def lossless_video(path: Any, frames: np.ndarray, rate: int = 10, keys: int = 12) -> Any:
    """Write frames ``(n, height, width)`` of uint8, so that they come back bit by bit."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=rate)
        stream.height, stream.width = frames.shape[1:]
        stream.pix_fmt = "gray"
        stream.codec_context.gop_size = keys
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="gray")))
        container.mux(stream.encode())
    return path


#: The same for what holds bytes only.
BYTE_SOURCES = {
    "images": _png_files,
    "images, some kept": lambda X, folder: ImageFolder(_png_files(X, folder), cache=3 * X.shape[1]),
    "video": lambda X, folder: VideoFrames(lossless_video(folder / "v.mkv", X[:, None]), gray=True),
    "video, nothing kept": lambda X, folder: VideoFrames(
        lossless_video(folder / "v.mkv", X[:, None]), gray=True, cache=0
    ),
}


class Rows(torch.utils.data.Dataset):
    """Pairs of a row and a label, by number."""

    def __init__(self, X: np.ndarray) -> None:
        self.X = X

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.tensor(self.X[i]), 1


class Flow(torch.utils.data.IterableDataset):
    """Rows in order."""

    def __init__(self, X: np.ndarray) -> None:
        self.X = X

    def __iter__(self) -> Any:
        return iter(self.X)


class Blocks:
    """Blocks of three rows, whenever asked."""

    def __init__(self, X: Any) -> None:
        self.X = X

    def __iter__(self) -> Any:
        return (self.X[a : a + 3] for a in range(0, self.X.shape[0], 3))


def _saved(X: Any, path: Any, **options: Any) -> str:
    sp.save_npz(path, X, **options)
    return str(path)


def annotated(X: Any) -> anndata.AnnData:
    """With names for rows and columns."""
    names = [f"cell {i}" for i in range(X.shape[0])], [f"gene {j}" for j in range(X.shape[1])]
    return anndata.AnnData(X, pd.DataFrame(index=names[0]), pd.DataFrame(index=names[1]))


def h5ad_file(X: Any, path: Any, **options: Any) -> str:
    """An AnnData file."""
    annotated(X).write_h5ad(path, **options)
    return str(path)


def _field(X: np.ndarray) -> xr.DataArray:
    shape = (X.shape[0], 3, X.shape[1] // 3)
    return xr.DataArray(X.reshape(shape), dims=("time", "lat", "lon"))


def sparse_chunks(X: Any, rows: int) -> da.Array:
    """A Dask array of compressed rows, so many in a chunk."""
    kind = sp.csr_array((0, X.shape[1]), dtype=X.dtype)
    pieces = [sp.csr_array(X[a : a + rows]) for a in range(0, X.shape[0], rows)]
    return da.concatenate(
        [da.from_delayed(dask.delayed(piece), piece.shape, meta=kind) for piece in pieces]
    )


#: The same for kinds of data that end up in the same few readers: fewer tests run on them.
KINDS = {
    "npz, csr": lambda X, folder: _saved(sp.csr_array(X), folder / "a.npz", compressed=False),
    "npz, csc": lambda X, folder: _saved(sp.csc_array(X), folder / "a.npz", compressed=False),
    "npz, compressed": lambda X, folder: _saved(sp.csr_array(X), folder / "a.npz"),
    "npz, coo": lambda X, folder: _saved(sp.coo_array(X), folder / "a.npz"),
    "h5ad, dense": lambda X, folder: h5ad_file(X, folder / "a.h5ad"),
    "h5ad, csr": lambda X, folder: h5ad_file(sp.csr_array(X), folder / "a.h5ad"),
    "h5ad, csc": lambda X, folder: h5ad_file(sp.csc_array(X), folder / "a.h5ad"),
    "h5ad, gzip": lambda X, folder: h5ad_file(
        sp.csr_array(X), folder / "a.h5ad", compression="gzip"
    ),
    "AnnData": lambda X, folder: annotated(sp.csr_array(X)),
    "AnnData, backed": lambda X, folder: anndata.read_h5ad(
        h5ad_file(sp.csr_array(X), folder / "a.h5ad"), backed="r"
    ),
    "torch dataset": lambda X, folder: Rows(X),
    "torch tensors": lambda X, folder: torch.utils.data.TensorDataset(torch.tensor(X)),
    "torch iterable": lambda X, folder: Flow(X),
    "torch loader": lambda X, folder: torch.utils.data.DataLoader(Rows(X), batch_size=4),
    "xarray": lambda X, folder: _field(X),
    "xarray, transposed": lambda X, folder: (
        _field(X).transpose("lon", "time", "lat").transpose("time", "lat", "lon")
    ),
    "dask": lambda X, folder: da.from_array(X, chunks=(5, 4)),
    "dask, uneven": lambda X, folder: da.from_array(X, chunks=((1, 0, X.shape[0] - 1), -1)),
    "dask, csr": lambda X, folder: sparse_chunks(X, 5),
    "blocks": lambda X, folder: Blocks(X),
    "blocks, sparse": lambda X, folder: Blocks(sp.csr_array(X)),
    "mapped": lambda X, folder: as_source(X, map=np.positive),
    "mapped, csr": lambda X, folder: as_source(sp.csr_array(X), map=lambda rows: rows * 1),
    "mapped, csc": lambda X, folder: as_source(sp.csc_array(X), map=RowMap("same")),
    "mapped, torch": lambda X, folder: as_source(torch.tensor(X), map=RowMap("same")),
}

# -- primings --------------------------------------------------------------------------------

#: name -> the priming and whether it converges to rounding (the others go on wandering).
PRIMINGS = {
    "exact": (Exact(), True),
    "block_krylov": (BlockKrylov(), True),
    "block_krylov, left": (BlockKrylov(side="left"), True),
    "block_krylov, left, images": (
        BlockKrylov(block_size=3, max_basis=12, side="left", keep_images=True),
        True,
    ),
    "block_krylov, explicit": (BlockKrylov(block_size=3, explicit=True), True),
    "block_krylov, left, explicit": (BlockKrylov(side="left", explicit=True), True),
    "block_krylov, small blocks": (BlockKrylov(block_size=3, max_basis=12), True),
    "subspace_iteration": (SubspaceIteration(), True),
    "power_method": (PowerMethod(epsilon=1e-9, max_steps=400), True),
    "oja": (Oja(steps=300), False),
    "eigengame": (EigenGame(steps=300), False),
    "mu_eigengame": (MuEigenGame(steps=300), False),
    "krasulina": (Krasulina(steps=300), False),
    "frequent_directions": (FrequentDirections(sketch_size=60), False),
}
