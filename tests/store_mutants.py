"""Change files at random and read each in a process of its own, limited in time and memory.

``python store_mutants.py KIND FOLDER COUNT SEED`` prints a JSON object: how many ended in which
outcome, and the names of those that ended badly.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

resource = pytest.importorskip("resource")  # limits on memory, which Windows does not have

SECONDS, MEMORY = 10, 2 * 2**30
#: Clear errors; the numbers of the original; those that the format's own library reads, where no
#: checksum tells that they were changed.
GOOD = {"error", "right", "unprotected"}
HUGE = [0, 1, 7, 255, 2**15, 2**20 - 1, 2**24, 2**31 - 1, 2**32, 2**40, 2**62, 2**63, 2**64 - 1]


def survive(
    read: Callable[[Path], str],
    files: Iterable[tuple[str, Path]],
    seconds: float = SECONDS,
    memory: int = MEMORY,
) -> dict[str, str]:
    """What ``read`` returned of each file, or how its process ended, by the name of the case.

    ``files`` are made as they are asked for: a case may reuse the path of the one before.
    """
    found = {}
    for name, path in files:
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(told)
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 2)
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            try:
                words = read(path)
            except BaseException as error:
                words = f"raised {error!r}"
            os.write(tell, words.encode(errors="replace")[:4000])
            os._exit(0)
        os.close(tell)
        if not select.select([told], [], [], seconds)[0]:
            os.kill(child, signal.SIGKILL)
            found[name] = "hang"
            os.waitpid(child, 0)
        else:
            words = os.read(told, 4000).decode()
            _, status = os.waitpid(child, 0)
            ended = os.waitstatus_to_exitcode(status)
            found[name] = words or f"crash {ended}"
        os.close(told)
    return found


# -- mutations --------------------------------------------------------------------------------


def mutate(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A name and the bytes after one change, or a few bits."""
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
    return f"{how} at {at}", bytes(held)


def edit(text: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A name and the JSON with another value in one place, or as damaged bytes."""
    if rng.random() < 0.3:
        return mutate(text, rng)
    whole = json.loads(text)
    places = list(_places(whole))
    parent, key = rng.choice(places)
    values = [*HUGE, -1, 0.5, None, "", "x", [], {}, True, "<f4", "|O", "float64", "zstd", "pickle"]
    values += [[2**20, 2**20], [1, 1], [2**40, 9], {"id": "pickle"}, {"name": "gzip"}, "NaN"]
    if rng.random() < 0.15:
        del parent[key]
        return f"without {key}", json.dumps(whole).encode()
    parent[key] = rng.choice(values)
    return f"{key} = {parent[key]!r}", json.dumps(whole).encode()


def _places(thing):
    keys = thing.keys() if isinstance(thing, dict) else range(len(thing))
    for key in list(keys):
        yield thing, key
        if isinstance(thing[key], (dict, list)):
            yield from _places(thing[key])


def mutants(given: Path, folder: Path, count: int, seed: int) -> Iterator[tuple[str, Path]]:
    """Copies of a file, or of a folder of which one file differs, at one path after another."""
    rng, copy = random.Random(seed), folder / "mutant" / given.name
    shutil.rmtree(copy.parent, ignore_errors=True)
    copy.parent.mkdir()
    (shutil.copytree if given.is_dir() else shutil.copy)(given, copy)
    targets = sorted(path for path in copy.rglob("*") if path.is_file()) or [copy]
    for number in range(count):
        described = [path for path in targets if path.name in ("zarr.json", ".zarray")]
        target = rng.choice(described if described and rng.random() < 0.5 else targets)
        whole = target.read_bytes()
        name, changed = (edit if target in described else mutate)(whole, rng)
        target.write_bytes(changed)
        yield f"{number}: {target.name}, {name}", copy
        target.write_bytes(whole)


# -- arrays in HDF5, .h5ad and Zarr -----------------------------------------------------------

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import h5py
    import numpy as np
    import scipy.sparse as sp
    import zarr
    from anndata import AnnData

    from primedpca import as_source

    X = np.random.default_rng(0).integers(0, 4, (40, 6)).astype("float32") / 4

    def hdf5_file(path, **how):
        with h5py.File(path, "w") as file:
            file.create_dataset("group/X", data=X, **how)

    def h5ad_file(path, values, **how):
        frame = AnnData(values)
        frame.obs_names = [f"cell {i}" for i in range(40)]
        frame.write_h5ad(path, **how)

    def zarr_array(store, **how):
        zarr.create_array(store, shape=X.shape, dtype=X.dtype, **how)[...] = X

    def zip_store(path):
        with zarr.storage.ZipStore(path, mode="w") as store:
            zarr_array(store, chunks=(20, 3))

    packed = {"chunks": (10, 3), "compression": "gzip", "fletcher32": True, "shuffle": True}
    small = {"chunks": (5, 3), "shards": (20, 6)}
    checked = zarr.codecs.Crc32cCodec()
    KINDS = {
        "hdf5": ("a.h5", hdf5_file),
        "hdf5, chunks": ("a.h5", lambda path: hdf5_file(path, **packed)),
        "hdf5, lzf": ("a.h5", lambda path: hdf5_file(path, chunks=(10, 3), compression="lzf")),
        "h5ad, dense": ("a.h5ad", lambda path: h5ad_file(path, X)),
        "h5ad, csr": ("a.h5ad", lambda path: h5ad_file(path, sp.csr_array(X), compression="gzip")),
        "zarr 3": ("a.zarr", lambda path: zarr_array(path, chunks=(20, 3))),
        "zarr 3, shards": ("a.zarr", lambda path: zarr_array(path, compressors=checked, **small)),
        "zarr 2": ("a.zarr", lambda path: zarr_array(path, chunks=(20, 3), zarr_format=2)),
        "zarr, zip": ("a.zarr.zip", zip_store),
    }

    def plain(path):
        """What the format's own library reads."""
        if path.suffix == ".h5":
            with h5py.File(path) as file:
                found = []  # its name may be what was changed
                file.visititems(lambda name, thing: found.append(thing))
                return next(one for one in found if isinstance(one, h5py.Dataset))[...]
        if path.suffix == ".h5ad":
            with h5py.File(path) as file:
                if isinstance(file["X"], h5py.Dataset):
                    return file["X"][...]
                parts = [file["X"][name][...] for name in ("data", "indices", "indptr")]
                made = sp.csr_array if "csr" in file["X"].attrs["encoding-type"] else sp.csc_array
                return made(tuple(parts), shape=tuple(file["X"].attrs["shape"])).toarray()
        store = zarr.storage.ZipStore(path, mode="r") if path.suffix == ".zip" else path
        array = zarr.open_array(store, mode="r")
        whole = np.full(array.shape, array.fill_value or 0, array.dtype)
        # No more than 2 x 2 chunks are stored, and Zarr takes long to look for thousands.
        rows, columns = (slice(2 * step) for step in array.shards or array.chunks)
        whole[rows, columns] = array[rows, columns]
        return whole

    def read(path):
        try:
            source = as_source(path)
            names = [getattr(source, name, None) for name in ("row_names", "feature_names")]
            blocks = [block for _, block in source.scan()]
        except (ValueError, OSError, TypeError) as error:
            known = path.name in str(error)
            return "error" if known else f"does not name the file: {error!r}"
        blocks = [block.toarray() if sp.issparse(block) else block for block in blocks]
        found = np.concatenate(blocks, axis=source.axis)
        del names
        if found.shape == X.shape and (found == X).all():
            return "right"
        other = plain(path)
        same = found.shape == other.shape and np.array_equal(found, other, equal_nan=True)
        return "unprotected" if same else "wrong numbers"

    kind, folder, count, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    name, make = KINDS[kind]
    if (child := os.fork()) == 0:  # Zarr's thread must not live in a process that forks
        make(folder / name)
        os._exit(0)
    os.waitpid(child, 0)
    assert survive(read, [("as it was", folder / name)]) == {"as it was": "right"}
    outcomes = survive(read, mutants(folder / name, folder, count, seed))
    bad = {name: words for name, words in outcomes.items() if words not in GOOD}
    counts = Counter(words if words in GOOD else words.split()[0] for words in outcomes.values())
    print(json.dumps({"counts": counts, "bad": bad}))
