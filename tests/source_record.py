"""Blocks, batches and traits of sources of every kind, as recorded in ``source_record.json``.

    python tests/source_record.py            # compare with source_record.json
    python tests/source_record.py --write    # record anew, and say why in the commit

The cut into blocks decides the memory, the number of reads and the last bits of a result.  A
change of any of these is deliberate, or it is a mistake.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parent))
from catalogue import BYTE_SOURCES, FILES, KINDS, SOURCES, TEXT_FILES
from conftest import shrink_blocks

from primedpca import as_source
from primedpca._operator.wide_rows import groups
from primedpca.sources import base
from primedpca.sources.base import cut_evenly
from primedpca.sources.files.chunked import outside, strips
from primedpca.sources.memory.dense import DenseSource, cut_in_memory
from primedpca.sources.memory.sparse import cut_by_entries
from primedpca.sources.selected import Selected
from primedpca.sources.wrappers import on_device as device_module
from primedpca.sources.wrappers.on_device import OnDevice

RECORD = Path(__file__).with_suffix(".json")
MAKERS = SOURCES | FILES | KINDS | TEXT_FILES | BYTE_SOURCES
#: Traits that are numbers or words, and do not depend on the folder.
TRAITS = ("headings", "image_shape", "library", "read_rate", "cache_bytes", "on_disk")
TRAITS += ("sequential", "missing", "missing_chunks", "map_name", "spread", "in_memory")


def plain(value: Any) -> Any:
    """Return a value as JSON gives it back."""
    return json.loads(json.dumps(value, default=lambda one: np.asarray(one).tolist()))


def data(name: str, shape: tuple[int, int] = (47, 6)) -> np.ndarray:
    """Return numbers of which about half are zero."""
    rng = np.random.default_rng(5)
    values = rng.integers(1, 200, shape) * (rng.random(shape) < 0.5)
    kind = np.uint8 if name in BYTE_SOURCES else np.float32
    return values.astype(np.float64 if name in TEXT_FILES else kind)


def cut_of(source: Any) -> list[Any]:
    """Shape, type, axis and blocks of a source."""
    blocks = [list(pair) for pair in source.blocks]
    return [list(source.shape), str(source.dtype).split(".")[-1], int(source.axis), blocks]


def facts(source: Any) -> dict[str, Any]:
    """Return the cut, the traits and the order of rows of a source."""
    traits = source.traits
    found = {"cut": cut_of(source), "nnz": traits.nnz()}
    found |= {"traits": [getattr(traits, name) for name in TRAITS]}
    found["names"] = [
        None if names is None else [str(names[0]), len(names)]
        for names in (traits.feature_names(), traits.row_names(), traits.labels())
    ]
    for size, seed, epoch, start in ((10, None, 0, 0), (10, 3, 1, 1), (7, 3, 2, 4)):
        index = [index.tolist() for index, _ in source.batches(size, seed, epoch, start)]
        found[f"batches {size} {seed} {epoch} {start}"] = index
    found["batches 10 3"] = [index.tolist() for index, _ in source.batches(10, 3)]
    part = source.sample(0.3, 1)
    found["sample"] = [part.index.tolist(), cut_of(part)]
    for room, most in ((np.inf, np.inf), (300.0, np.inf), (500.0, 2.0**21), (0.0, np.inf)):
        moved = OnDevice(source, "cpu", room, most)
        kept = [moved._groups, moved._most, moved.cache_bytes, moved.read_rate]
        found[f"device {room} {most}"] = [cut_of(moved), *kept]
        same = [index.tolist() for index, _ in moved.batches(10, 3)] == found["batches 10 3"]
        assert same or moved._all, "batches on a device"
    return plain(found)


def kind_facts(name: str) -> dict[str, Any]:
    """Return the facts of one kind of data, in blocks of the usual size and in small ones."""
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        places = [Path(folder, size) for size in ("usual", "small")]
        for place in places:
            place.mkdir()
        source = as_source(MAKERS[name](data(name), places[0]))
        shown = re.sub(r"<[^>]*>", "<...>", repr(source).replace(str(places[0]), "folder"))
        found = {"usual": facts(source), "name": shown}
        with pytest.MonkeyPatch.context() as patch:
            shrink(patch)
            found["small"] = facts(as_source(MAKERS[name](data(name), places[1])))
    return found


def shrink(patch: Any) -> None:
    """Make all blocks small, also those on their way to a device."""
    shrink_blocks(patch)
    for limit, size in (("PIECE_BYTES", 128), ("STREAM_BYTES", 600), ("DEVICE_ENTRIES", 64)):
        patch.setattr(device_module, limit, size)


def indptr_of(counts: list[int]) -> np.ndarray:
    """Return the offsets of rows with so many entries."""
    return np.concatenate([[0], np.cumsum(counts)])


def cuts() -> dict[str, Any]:
    """Return cuts of many lengths, at and beside the edges of their formulas."""
    found: dict[str, Any] = {}
    for length, step in ((0, 3), (1, 3), (6, 3), (7, 3), (10, 4), (5, 0), (5, 1), (100, 99)):
        found[f"evenly {length} {step}"] = cut_evenly(length, step)
    for length, across, kind, device in (
        *((n, 2**16, "float32", None) for n in (7, 8, 9, 16, 17, 31, 32, 33, 64, 100, 1000)),
        *((n, 2**15, "float64", "cpu") for n in (8, 9, 15, 16, 17, 32, 33, 1000)),
        *((n, 60, "int64", None) for n in (4369, 4370, 8738, 8739, 100_000)),
        *((n, 60, "uint8", None) for n in (8738, 8739, 17_477, 100_000)),
        *((n, 2**20, "float32", "cuda:0") for n in (256, 257, 513)),
        *((n, 2**27, "float64", "cuda:0") for n in (16, 17, 40)),
        (50, 0, "float32", None),
    ):
        edges = cut_in_memory(length, across, np.dtype(kind), device)
        found[f"in memory {length} {across} {kind} {device}"] = edges
    for across in (3, 2**15, 2**15 + 1, 2**16):
        for entries in (2**18, 2**19, 3 * 2**18, 3 * 2**18 + 2**17, 2**20, 3 * 2**20):
            indptr = indptr_of([entries // 64] * 64)
            found[f"entries {entries} {across}"] = cut_by_entries(indptr, across)
    found["entries, uneven"] = cut_by_entries(indptr_of([0, 2**21, 0, 1, 2**21, 5, 0]), 4)
    for shape in ((1000, 30), (30, 1000), (100, 100), (5000, 700), (7, 3)):
        for chunks in ((1, 30), (10, 10), (100, 7), (999, 1), (2000, 2000), (64, 64)):
            for size in (1, 8):
                found[f"strips {shape} {chunks} {size}"] = strips(shape, chunks, size)
            found[f"outside {shape} {chunks}"] = [outside(shape, chunks, axis) for axis in (0, 1)]
    wide = DenseSource(np.zeros((60, 400), np.float32))
    wide.axis, wide.blocks = 0, cut_evenly(60, 7)
    row = 1600.0
    for room in (60 * row, 60 * row - 1, 28 * row, 14 * row, 13.9 * row, 7 * row, row, 0.0):
        found[f"groups {room}"] = groups(wide, room)
    return plain(found)


def views() -> dict[str, Any]:
    """Return the cuts of views, and of arrays that are square or stored by columns."""
    X = data("numpy", (40, 40))
    tall, index = data("numpy", (200, 9)), np.array([0, 1, 19, 20, 21, 57, 199])
    found: dict[str, Any] = {"square": cut_of(as_source(X)), "wide": cut_of(as_source(X[:39]))}
    for name, source in {
        "dense": as_source(tall),
        "csr": as_source(sp.csr_array(tall)),
        "dense, columns": as_source(tall.T),
        "csc": as_source(sp.csc_array(tall.T)),
    }.items():
        length = source.shape[0]
        part = base.Subset(source, index[index < length])
        found[f"rows of {name}"] = [cut_of(part), part._owner, part.local]
        some = index[index < source.shape[1]]
        chosen = Selected(source, some)
        found[f"columns of {name}"] = [cut_of(chosen), chosen._owner, chosen.local]
        blocks = [
            np.asarray(one.toarray() if sp.issparse(one) else one) for _, one in chosen.scan()
        ]
        whole = np.concatenate(blocks, axis=source.axis)
        wanted = (tall if source.axis == 0 else tall.T)[:, some]
        assert np.array_equal(whole, wanted), name
    return plain(found)


def small_views() -> dict[str, Any]:
    """Return the cuts of views of sources with small blocks."""
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        return views()


#: Name of a part of the record -> function that measures it.
PARTS: dict[str, Callable[[], dict[str, Any]]] = {"cuts": cuts, "views": views}
PARTS |= {"views, small": small_views}
PARTS |= {f"kind: {name}": partial(kind_facts, name) for name in MAKERS}


def differences(found: Any, known: Any, where: str = "") -> list[str]:
    """Return the places at which two records differ."""
    if isinstance(found, dict) and isinstance(known, dict):
        names = found.keys() | known.keys()
        pairs = ((name, found.get(name), known.get(name)) for name in sorted(names))
        return [one for name, a, b in pairs for one in differences(a, b, f"{where}/{name}")]
    return [] if found == known else [f"{where}: {found}, recorded as {known}"]


if __name__ == "__main__":
    now = {name: measure() for name, measure in PARTS.items()}
    if "--write" in sys.argv:
        lines = json.dumps(now, indent=None, separators=(",", ":"))
        RECORD.write_text(lines.replace('},"', '},\n"').replace('],"', '],\n"') + "\n")
    print(*differences(now, json.loads(RECORD.read_text())), sep="\n")
