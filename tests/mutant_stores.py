"""Arrays in HDF5, .h5ad and Zarr for :mod:`mutants`, read also by their formats' own libraries."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse as sp
import zarr
from anndata import AnnData
from mutant_files import Kind

X = np.random.default_rng(0).integers(0, 4, (40, 6)).astype("float32") / 4
HUGE = [0, 1, 7, 255, 2**15, 2**20 - 1, 2**24, 2**31 - 1, 2**32, 2**40, 2**62, 2**63, 2**64 - 1]
#: In the place of a value in JSON.
VALUES = [
    *(*HUGE, -1, 0.5, None, "", "x", [], {}, True, "<f4", "|O", "float64", "zstd", "pickle"),
    *([2**20, 2**20], [1, 1], [2**40, 9], {"id": "pickle"}, {"name": "gzip"}, "NaN"),
]


class Store(Kind):
    """A file, or a folder of which any file is mutated, mostly those that describe the others."""

    def names(self, path: Path) -> list[str]:
        """Return the name of the store, which must stand in a message."""
        return [path.name]

    def mutated(self, rng: random.Random) -> tuple[Path, bytes]:
        """Return one of the files and its content after a change."""
        files = sorted(path for path in self.path.rglob("*") if path.is_file()) or [self.path]
        described = [path for path in files if path.name in ("zarr.json", ".zarray")]
        target = rng.choice(described if described and rng.random() < 0.5 else files)
        return target, (_edit if target in described else _change)(target.read_bytes(), rng)


# -- changes ----------------------------------------------------------------------------------


def _change(data: bytes, rng: random.Random) -> bytes:
    """One change, or a few bits."""
    held, size = bytearray(data), len(data)
    at = rng.randrange(size)
    how = rng.choice(["flip", "flip", "flips", "delete", "insert", "cut", "number", "zero"])
    if how == "flip":
        held[at] ^= 1 << rng.randrange(8)
    elif how == "flips":
        for _ in range(rng.randrange(2, 9)):
            held[rng.randrange(size)] ^= 1 << rng.randrange(8)
    elif how == "delete":
        del held[at : at + rng.randrange(1, 9)]
    elif how == "insert":
        held[at:at] = rng.randbytes(rng.randrange(1, 9))
    elif how == "cut":
        del held[at:]
    elif how == "number":
        width = rng.choice([2, 4, 8])
        held[at : at + width] = (rng.choice(HUGE) % 2 ** (8 * width)).to_bytes(width, "little")
    else:
        held[at : at + 16] = bytes(len(held[at : at + 16]))
    return bytes(held)


def _edit(text: bytes, rng: random.Random) -> bytes:
    """JSON with another value in one place, or damaged bytes."""
    if rng.random() < 0.3:
        return _change(text, rng)
    whole = json.loads(text)
    parent, key = rng.choice(list(_places(whole)))
    if rng.random() < 0.15:
        del parent[key]
    else:
        parent[key] = rng.choice(VALUES)
    return json.dumps(whole).encode()


def _places(thing: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(thing.keys() if isinstance(thing, dict) else range(len(thing))):
        yield thing, key
        if isinstance(thing[key], (dict, list)):
            yield from _places(thing[key])


# -- HDF5, .h5ad and Zarr ---------------------------------------------------------------------


def _made(
    name: str, write: Callable[[Path], None], strict: Callable[[Path], Any], whole: Any = X
) -> Callable[[Path], Kind]:
    def make(folder: Path) -> Kind:
        if (child := os.fork()) == 0:  # Zarr's thread must not live in a process that forks
            write(folder / name)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        return Store(folder / name, strict, whole=whole)

    return make


def _hdf5(**how: Any) -> Callable[[Path], Kind]:
    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset("group/X", data=X, **how)

    return _made("a.h5", write, _read_hdf5)


def _read_hdf5(path: Path) -> np.ndarray:
    with h5py.File(path) as file:
        found: list[Any] = []  # its name may be what was changed
        file.visititems(lambda name, thing: found.append(thing))
        return next(one for one in found if isinstance(one, h5py.Dataset))[...]


def _h5ad(values: Any, **how: Any) -> Callable[[Path], Kind]:
    def write(path: Path) -> None:
        frame = AnnData(values)
        frame.obs_names = [f"cell {i}" for i in range(40)]
        frame.write_h5ad(path, **how)

    return _made("a.h5ad", write, _read_h5ad, values)


def _read_h5ad(path: Path) -> Any:
    with h5py.File(path) as file:
        if isinstance(file["X"], h5py.Dataset):
            return file["X"][...]
        parts = tuple(file["X"][name][...] for name in ("data", "indices", "indptr"))
        kind = sp.csr_array if "csr" in file["X"].attrs["encoding-type"] else sp.csc_array
        return kind(parts, shape=tuple(file["X"].attrs["shape"]))


def _zarr(**how: Any) -> Callable[[Path], Kind]:
    return _made("a.zarr", lambda path: _write_zarr(path, **how), _read_zarr)


def _write_zarr(store: Any, **how: Any) -> None:
    zarr.create_array(store, shape=X.shape, dtype=X.dtype, **how)[...] = X


def _write_zip(path: Path) -> None:
    with zarr.storage.ZipStore(path, mode="w") as store:
        _write_zarr(store, chunks=(20, 3))


def _read_zarr(path: Path) -> np.ndarray:
    store = zarr.storage.ZipStore(path, mode="r") if path.suffix == ".zip" else path
    array = zarr.open_array(store, mode="r")
    whole = np.full(array.shape, array.fill_value or 0, array.dtype)
    # No more than 2 x 2 chunks are stored, and Zarr takes long to look for thousands.
    rows, columns = (slice(2 * step) for step in array.shards or array.chunks)
    whole[rows, columns] = array[rows, columns]
    return whole


#: Kind -> what makes such a store in a folder.
KINDS: dict[str, Callable[[Path], Kind]] = {
    "hdf5": _hdf5(),
    "hdf5, chunks": _hdf5(chunks=(10, 3), compression="gzip", fletcher32=True, shuffle=True),
    "hdf5, lzf": _hdf5(chunks=(10, 3), compression="lzf"),
    "h5ad, dense": _h5ad(X),
    "h5ad, csr": _h5ad(sp.csr_array(X), compression="gzip"),
    "zarr 3": _zarr(chunks=(20, 3)),
    "zarr 3, shards": _zarr(compressors=zarr.codecs.Crc32cCodec(), chunks=(5, 3), shards=(20, 6)),
    "zarr 2": _zarr(chunks=(20, 3), zarr_format=2),
    "zarr, zip": _made("a.zarr.zip", _write_zip, _read_zarr),
}
