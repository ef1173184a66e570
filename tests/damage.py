"""Damage a file in every way of a list and read it: run as a program, so that a crash is seen.

``python damage.py KIND FOLDER BITS...`` cuts the file off, makes it longer, and flips these bits
of every byte near its ends.  It prints a line for every case before it is tried, and last a JSON
object: how many cases ended in a named error, in the right numbers, or in those that the format's
own library reads (a flipped bit may make another legal file), and those that did not.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import zarr
from catalogue import FILES, TEXT_FILES

from primedpca import as_source
from primedpca.protocols import DataSource

SHAPE = (40, 6)


def plain(path: Path) -> np.ndarray:
    """What the format's own library makes of the file, without any help from here."""
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return archive["X"]
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return file["group/X"][...]
    if path.suffix == ".zarr":
        return zarr.open_array(path, mode="r")[...]
    if path.name == "s.arrow":
        with pa.ipc.open_stream(path.read_bytes()) as stream:
            return np.stack([column.to_numpy() for column in stream.read_all().columns], axis=1)
    read = {
        ".parquet": pyarrow.parquet.read_table,
        ".csv": pyarrow.csv.read_csv,
        ".feather": pyarrow.feather.read_table,
        ".arrow": pyarrow.feather.read_table,
    }[path.suffix]
    table: pa.Table = read(path)
    if table.num_columns == 1:
        return np.array(table.column(0).to_pylist())
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def places(size: int) -> list[int]:
    """Where a file is cut off."""
    some = {0, 1, 4, 8, 10, 50, 100, 127, 128, 200, size - 100, size - 22, size - 8, size - 4}
    shares = {size * share // 16 for share in range(16)}
    return sorted(place for place in some | shares | {size - 1} if 0 <= place < size)


def damages(whole: bytes, flips: list[int]) -> Iterator[tuple[str, bytes]]:
    """A name and the damaged bytes."""
    size = len(whole)
    for place in places(size):
        yield f"cut at {place}", whole[:place]
    yield "a byte more", whole + b"\0"
    ends = set(range(min(200, size))) | set(range(max(0, size - 200), size))
    for place in sorted(ends):
        for bits in flips:
            flipped = bytearray(whole)
            flipped[place] ^= bits
            yield f"byte {place} ^ {bits:#x}", bytes(flipped)


def outcome(given: Any, path: Path, X: np.ndarray) -> str:
    """What came of reading: "error", "right", "plain", or what went wrong."""
    try:
        source = given() if callable(given) else as_source(given)
        found = np.concatenate([block for _, block in source.scan()], axis=source.axis)
    except (OSError, ValueError, TypeError) as error:
        return "error" if str(path) in str(error) else f"does not name the file: {error!r}"
    except MemoryError:
        return "error"
    except Exception as error:
        return f"{error!r}"
    if found.shape == X.shape and (found == X).all():
        return "right"
    try:
        other = plain(path)
    except Exception as error:
        return f"read wrong numbers where others refuse: {error!r}"
    same = found.shape == other.shape and np.array_equal(found, other, equal_nan=True)
    return "plain" if same else "wrong numbers"


def peak() -> int:
    """The most memory that this process has had, in kB; getrusage would count its parent's."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def main(kind: str, folder: Path, flips: list[int]) -> None:
    X = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    X = X.astype("float64") if kind in TEXT_FILES else X
    given = (FILES | TEXT_FILES)[kind](X, folder)
    if isinstance(given, DataSource):  # made with options: make it again every time
        path = Path(given.path)
        given = partial(as_source, path, cache=0)
    else:
        path = Path(given.split("::")[0])
    targets = [path]
    if path.is_dir():
        every = sorted(each for each in path.rglob("*") if each.is_file())
        metadata = [each for each in every if each.name in ("zarr.json", ".zarray")]
        targets = [*metadata, next(each for each in every if each not in metadata)]
    counts, bad = Counter(), []
    before = peak()
    for target in targets:
        whole = target.read_bytes()
        for name, damaged in damages(whole, flips):
            print(kind, target.name, name, flush=True)
            target.write_bytes(damaged)
            found = outcome(given, path, X)
            counts[found if found in ("error", "right", "plain") else "bad"] += 1
            if found not in ("error", "right", "plain"):
                bad.append(f"{target.name}, {name}: {found}")
        target.write_bytes(whole)
    assert outcome(given, path, X) == "right"
    grown = peak() - before
    print(json.dumps({"counts": counts, "bad": bad, "grown_mb": grown / 1024}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], Path(sys.argv[2]), [int(bits) for bits in sys.argv[3:]])
