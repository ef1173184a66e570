"""A file of every kind for :mod:`mutants`, and how to read it strictly without primedpca."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import awkward_tables
import numpy as np
import openpyxl
import scipy.io
import scipy.sparse as sp

from primedpca import as_source
from primedpca.sources.base import join

X = np.random.default_rng(0).normal(size=(20, 4)).round(6)
COUNTS = np.random.default_rng(1).poisson(0.7, size=(20, 20)) * 1.0


@dataclass
class Kind:
    """A file, the part of it that is mutated, and a strict reader that is not ours."""

    path: Path
    strict: Callable[[Path], Any]
    target: Path = None  # type: ignore[assignment]
    options: dict[str, Any] = field(default_factory=dict)
    whole: Any = None

    def __post_init__(self) -> None:
        self.target = self.target or self.path

    def names(self, path: Path) -> list[str]:
        """One of these must stand in a message."""
        return [str(path), str(self.target), str(path.with_suffix(""))]

    def read(self, path: Path) -> Any:
        """All of it by primedpca, with what stands beside the numbers."""
        source: Any = as_source(path, **self.options)
        for name in ("row_names", "feature_names", "labels"):
            getattr(source, name, None)
        return join([block for _, block in source.scan()], source.axis)


# -- spreadsheets -----------------------------------------------------------------------------


def _excel(folder: Path) -> Kind:
    def strict(path: Path) -> np.ndarray:
        (sheet,) = openpyxl.load_workbook(path, data_only=True).worksheets
        rows = [row for row in sheet.iter_rows(values_only=True) if any(c is not None for c in row)]
        return _numbers_of(rows)

    awkward_tables.book(list("abcd"), *X.tolist())(folder / "a.xlsx")
    return Kind(folder / "a.xlsx", strict)


def _open_document(folder: Path) -> Kind:
    def strict(path: Path) -> np.ndarray:
        with zipfile.ZipFile(path) as packed:
            root = ElementTree.fromstring(packed.read("content.xml"))
        rows = []
        for row in root.iter(f"{{{TABLE}}}table-row"):
            if all(len(cell) == 0 and f"{{{OFFICE}}}value-type" not in cell.attrib for cell in row):
                continue  # the empty rest of the sheet
            cells = []
            for cell in row:
                assert cell.tag == f"{{{TABLE}}}table-cell"
                assert not {name for name in cell.attrib if "repeated" in name}
                kind = cell.get(f"{{{OFFICE}}}value-type")
                assert kind in ("float", "string")
                value = cell.get(f"{{{OFFICE}}}value")
                cells.append(float(value) if kind == "float" else "".join(cell.itertext()))
            rows.append(cells)
        return _numbers_of(rows)

    rows = awkward_tables.ods_rows(list("abcd"), *X.tolist())
    awkward_tables.open_document(rows)(folder / "a.ods")
    return Kind(folder / "a.ods", strict)


def _numbers_of(rows: list[Any]) -> np.ndarray:
    """The rows below the names; empty cells and columns as ours reads them."""
    width = max(map(len, rows))
    filled = [[*row, *[None] * (width - len(row))] for row in rows[1:]]
    assert all(isinstance(cell, (int, float, str, type(None))) for row in filled for cell in row)
    found = np.array(
        [[np.nan if c is None else _number(str(c)) for c in row] for row in filled], float
    )
    return found[:, ~np.isnan(found).all(axis=0)]


# -- NumPy and SciPy --------------------------------------------------------------------------


def _npy(folder: Path) -> Kind:
    np.save(folder / "a.npy", X)
    return Kind(folder / "a.npy", np.load)


def _raw(folder: Path) -> Kind:
    (folder / "a.raw").write_bytes(X.tobytes())

    def strict(path: Path) -> np.ndarray:
        return np.frombuffer(path.read_bytes()[: X.nbytes]).reshape(X.shape)

    return Kind(folder / "a.raw", strict, options={"shape": X.shape, "dtype": "f8"})


def _npz(save: Callable[..., None]) -> Callable[[Path], Kind]:
    def make(folder: Path) -> Kind:
        save(folder / "a.npz", X=X)
        return Kind(folder / "a.npz", _only_matrix)

    return make


def _only_matrix(path: Path) -> np.ndarray:
    with np.load(path) as archive:
        (found,) = [archive[name] for name in archive if archive[name].ndim == 2]
        return found


def _sparse_npz(form: str, compressed: bool) -> Callable[[Path], Kind]:
    def make(folder: Path) -> Kind:
        sp.save_npz(folder / "a.npz", sp.coo_array(COUNTS).asformat(form), compressed=compressed)
        return Kind(folder / "a.npz", _load_npz)

    return make


def _load_npz(path: Path) -> Any:
    found = sp.load_npz(path)
    if hasattr(found, "check_format"):
        found.check_format(full_check=True)
    return found


# -- text -------------------------------------------------------------------------------------


def _csv(suffix: str) -> Callable[[Path], Kind]:
    sign = "\t" if "tsv" in suffix else ","

    def strict(path: Path) -> np.ndarray:
        data = path.read_bytes()
        text = (gzip.decompress(data) if suffix.endswith("gz") else data).decode("utf-8-sig")
        rows = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=sign) if line]
        if any(len(row) != len(rows[0]) for row in rows):
            raise ValueError("lines of several lengths")
        return np.array([[_number(word) for word in row] for row in rows[1:]])

    def make(folder: Path) -> Kind:
        lines = [sign.join("abcd"), *(sign.join(map(repr, row)) for row in X.tolist())]
        data = ("\n".join(lines) + "\n").encode()
        path = folder / f"a{suffix}"
        path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
        return Kind(path, strict)

    return make


#: What stands for a missing value.
ABSENT = {"", "NA", "N/A", "NaN", "nan", "NULL", "null", "#N/A", "-nan", "-NaN", "n/a"}


def _number(word: str) -> float:
    if word in ABSENT:
        return np.nan
    if not re.fullmatch(
        r"\s*[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf|infinity|nan)\s*", word, re.I
    ):
        raise ValueError(f"{word!r} is not a number")
    return float(word)


def _market(given: Any, suffix: str = ".mtx", **options: Any) -> Callable[[Path], Kind]:
    def make(folder: Path) -> Kind:
        held = io.BytesIO()
        scipy.io.mmwrite(held, given, **options)
        data, path = held.getvalue(), folder / f"a{suffix}"
        path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
        return Kind(path, _strict_market)

    return make


def _strict_market(path: Path) -> Any:
    """By the letter of the format, a line at a time."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.name.endswith("gz") else data).decode("ascii")
    first, *rest = text.split("\n")
    tag, matrix, layout, kind, symmetry = first.lower().split()
    assert (tag, matrix) == ("%%matrixmarket", "matrix")
    while rest[0].startswith("%") or not rest[0].strip():
        rest = rest[1:]
    sizes = [int(word) for word in rest[0].split()]
    lines = [line.split() for line in rest[1:] if line.strip()]
    assert all(re.fullmatch("[-+.0-9a-zA-Z]+", word) for line in lines for word in line)
    value = {"integer": int, "unsigned-integer": int}.get(kind, _number)
    if layout == "array":
        n, d = sizes
        places = [
            (i, j)
            for j in range(d)
            for i in range({"general": 0, "symmetric": j}.get(symmetry, j + 1), n)
        ]
        values = [value(word) for (word,) in lines]
    else:
        n, d, count = sizes
        assert count == len(lines)
        places = [(int(line[0]) - 1, int(line[1]) - 1) for line in lines]
        assert all(0 <= i < n and 0 <= j < d for i, j in places)
        assert all(len(line) == (2 if kind == "pattern" else 3) for line in lines)
        values = [1.0 if kind == "pattern" else value(line[2]) for line in lines]
    found = dict.fromkeys(places, 0.0)
    assert len(places) == len(values)
    for (i, j), entry in zip(places, values, strict=True):
        found[i, j] += entry
    if symmetry != "general":
        assert all(i >= j for i, j in found)
        sign = 1 if symmetry == "symmetric" else -1
        found |= {(j, i): sign * entry for (i, j), entry in found.items() if i != j}
    rows, columns = zip(*found, strict=True) if found else ((), ())
    whole = sp.coo_array((list(found.values()), (rows, columns)), shape=(n, d))
    return whole.toarray() if layout == "array" else whole


# -- tables -----------------------------------------------------------------------------------


def _table(suffix: str) -> Callable[[Path], Kind]:
    def make(folder: Path) -> Kind:
        import pyarrow as pa
        import pyarrow.feather
        import pyarrow.parquet

        table, path = (
            pa.table({name: X[:, j] for j, name in enumerate("abcd")}),
            folder / f"a{suffix}",
        )
        if suffix == ".parquet":
            pa.parquet.write_table(table, path, row_group_size=10, write_page_checksum=True)
            read = pa.parquet.read_table
        elif suffix == ".arrow":
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
                out.write_table(table, max_chunksize=10)

            def read(path: Path) -> Any:
                with pa.ipc.open_stream(path.read_bytes()) as stream:
                    return stream.read_all()
        else:
            pa.feather.write_feather(table, path, chunksize=10)
            read = pa.feather.read_table
        return Kind(path, lambda path: _columns(read(path)))

    return make


def _columns(table: Any) -> np.ndarray:
    table.validate(full=True)
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


# -- genotypes --------------------------------------------------------------------------------


def _genotypes(suffix: str) -> Callable[[Path], Kind]:
    def strict(path: Path) -> np.ndarray:
        n, d = (
            sum(1 for line in path.with_suffix(end).read_bytes().split(b"\n") if line.strip())
            for end in (".fam", ".bim")
        )
        data = path.read_bytes()
        assert data[:3] == b"\x6c\x1b\x01"
        assert len(data) == 3 + -(-n // 4) * d
        packed = np.frombuffer(data[3:], np.uint8).reshape(d, -1)
        pairs = np.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], axis=2)
        return np.array([2, np.nan, 1, 0])[pairs.reshape(d, -1)[:, :n]].T

    def make(folder: Path) -> Kind:
        from bed_reader import to_bed

        values = np.random.default_rng(2).integers(0, 3, (13, 9)).astype(float)
        values[3, 4] = np.nan
        to_bed(folder / "a.bed", values)
        return Kind(folder / "a.bed", strict, folder / f"a{suffix}")

    return make


# -- images and videos ------------------------------------------------------------------------


def _image(suffix: str) -> Callable[[Path], Kind]:
    def strict(path: Path) -> np.ndarray:
        from PIL import Image

        with Image.open(path) as image:
            return np.asarray(image).reshape(1, -1)

    def make(folder: Path) -> Kind:
        from PIL import Image

        # Every grey once: of fewer a .gif would be a palette, which is not read.
        pixels = np.random.default_rng(3).permutation(256).astype(np.uint8).reshape(16, 16)
        Image.fromarray(pixels).save(folder / f"a{suffix}")
        return Kind(folder / f"a{suffix}", strict)

    return make


def _video(suffix: str, codec: str) -> Callable[[Path], Kind]:
    def strict(path: Path) -> np.ndarray:
        import av

        with av.open(str(path), metadata_errors="replace") as container:
            frames = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
        return np.stack(frames).reshape(len(frames), -1)

    def make(folder: Path) -> Kind:
        import av

        path = folder / f"a{suffix}"
        frames = np.random.default_rng(4).integers(0, 256, (8, 16, 16, 3), np.uint8)
        with av.open(str(path), "w") as container:
            stream = container.add_stream(codec, rate=10)
            stream.width = stream.height = 16
            stream.pix_fmt = "yuv420p"
            for values in frames:
                for packet in stream.encode(av.VideoFrame.from_ndarray(values, format="rgb24")):
                    container.mux(packet)
            for packet in stream.encode():
                container.mux(packet)
        return Kind(path, strict)

    return make


IMAGES = ("bmp", "gif", "jp2", "jpg", "pgm", "png", "tif", "webp")
#: Kind -> what makes such a file in a folder.
TABLE = "urn:oasis:names:tc:opendocument:xmlns:table:1.0"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"

KINDS: dict[str, Callable[[Path], Kind]] = {
    "xlsx": _excel,
    "ods": _open_document,
    "npy": _npy,
    "raw": _raw,
    "npz": _npz(np.savez),
    "npz, compressed": _npz(np.savez_compressed),
    "npz, csr": _sparse_npz("csr", False),
    "npz, csc, compressed": _sparse_npz("csc", True),
    "npz, coo": _sparse_npz("coo", True),
    "npz, dia": _sparse_npz("dia", True),
    "npz, bsr": _sparse_npz("bsr", True),
    "csv": _csv(".csv"),
    "tsv": _csv(".tsv"),
    "csv.gz": _csv(".csv.gz"),
    "tsv.gz": _csv(".tsv.gz"),
    "mtx": _market(sp.coo_array(X)),
    "mtx, array": _market(X),
    "mtx, integer": _market(sp.coo_array(COUNTS.astype(int))),
    "mtx, pattern": _market(sp.coo_array(COUNTS), field="pattern"),
    "mtx, symmetric": _market(sp.coo_array(COUNTS + COUNTS.T), symmetry="symmetric"),
    "mtx, skew": _market(COUNTS - COUNTS.T, symmetry="skew-symmetric"),
    "mtx.gz": _market(sp.coo_array(X), ".mtx.gz"),
    "parquet": _table(".parquet"),
    "feather": _table(".feather"),
    "arrow": _table(".arrow"),
    "bed": _genotypes(".bed"),
    "bim": _genotypes(".bim"),
    "fam": _genotypes(".fam"),
    **{name: _image(f".{name}") for name in IMAGES},
    "mkv": _video(".mkv", "ffv1"),
    "mp4": _video(".mp4", "mpeg4"),
    "avi": _video(".avi", "mpeg4"),
    "webm": _video(".webm", "libvpx"),
}
