"""Small files that would unpack to far more than they say: refused before the memory is full."""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
import scipy.sparse as sp
from bed_reader import to_bed

from primedpca import as_source

MOST = 250e6  # bytes: a line may take 64 MB, and stands there twice while it is joined


def refused(path, message, most=MOST):
    """The path is refused, and little memory was taken."""
    tracemalloc.start()
    try:
        with pytest.raises((ValueError, OSError), match=message) as told:
            list(as_source(path).scan())
        assert str(path) in str(told.value)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def packed(path, *parts):
    """A gzip file of (bytes, how often) without holding what it unpacks to."""
    with gzip.open(path, "wb", 1) as file:
        for text, count in parts:
            for _ in range(count):
                file.write(text)


LONG = b"1" * 2**20


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".csv.gz"])
@pytest.mark.parametrize("where", ["first", "later"])
def test_an_endless_line(tmp_path, where, suffix):
    path = tmp_path / f"a{suffix}"
    sign = b"\t" if "tsv" in suffix else b","
    head = [(b"a%sb\n1%s2\n" % (sign, sign), 1)] if where == "later" else []
    if suffix == ".csv":
        path.write_bytes(b"".join(text * count for text, count in head) + LONG * 70)
    else:
        packed(path, *head, (LONG, 300))
    assert path.stat().st_size < 100e6
    refused(path, r"is not text: over 67108864 bytes|no ',' in its first|first line")


@pytest.mark.parametrize("place", [0, 50_000])
def test_a_long_line_is_read(tmp_path, place):
    lines = [b"1,2,x"] * place + [b"3,4,%s" % (b"y" * 3_000_000)] + [b"5,6,z"] * 3
    (tmp_path / "a.csv").write_bytes(b"\n".join([b"a,b,c", *lines]))
    source = as_source(tmp_path / "a.csv", exclude="c")
    assert source.shape == (place + 4, 2)
    assert source.read(0)[place].tolist() == [3, 4]


def test_a_line_of_a_million_columns(tmp_path):
    packed(tmp_path / "a.csv.gz", (b"," * 2**20, 1), (b"\n", 1))
    refused(tmp_path / "a.csv.gz", "1048577 columns, over 131072")


def test_lines_with_nothing_in_them(tmp_path):
    packed(tmp_path / "a.csv.gz", (b"a,b\n", 1), (b"\n" * 2**20, 80))
    refused(tmp_path / "a.csv.gz", "has no rows")


def test_comments_are_not_part_of_csv(tmp_path):
    packed(tmp_path / "a.csv.gz", (b"# nothing\n" * 2**15, 10), (b"a,b\n1,2\n", 1))
    refused(tmp_path / "a.csv.gz", "a.csv.gz")


@pytest.mark.parametrize("suffix", [".fam", ".bim"])
def test_an_endless_line_beside_genotypes(tmp_path, suffix):
    to_bed(tmp_path / "a.bed", np.zeros((4, 3)))
    (tmp_path / f"a{suffix}").write_bytes(LONG * 70)
    path = tmp_path / "a.bed"
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"a{suffix} is not text: over"):
        as_source(path)
    assert tracemalloc.get_traced_memory()[1] < MOST
    tracemalloc.stop()


# -- NumPy's archives -------------------------------------------------------------------------


def header(text, version=2):
    """A `.npy` header of this text."""
    size = struct.pack("<I" if version == 2 else "<H", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


def stored(shape, descr="<f8"):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n"
    return header(text.encode(), 1)


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, parts in members.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                for text, count in parts:
                    for _ in range(count):
                        member.write(text)


ZEROS = bytes(2**20)
TEXT = b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }"


def test_a_header_without_end(tmp_path):
    begin = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**30) + TEXT
    archive(tmp_path / "a.npz", X=[(begin, 1), (b" " * 2**20, 100)])
    assert (tmp_path / "a.npz").stat().st_size < 6e6
    refused(tmp_path / "a.npz", "1073741824 bytes, more than 10000", 1e7)
    (tmp_path / "a.npy").write_bytes(begin + b" " * 2**20)
    refused(tmp_path / "a.npy", "1073741824 bytes, more than 10000", 1e7)


@pytest.mark.parametrize("text", [b"(" * 9000, b"[" * 9000 + b"]" * 900, b"-" * 9990, b"9" * 9990])
def test_a_header_that_is_nested(tmp_path, text):
    (tmp_path / "a.npy").write_bytes(header(text))
    refused(tmp_path / "a.npy", "damaged or cannot be read .the header", 1e8)


def test_an_array_that_unpacks_to_more_than_it_says(tmp_path):
    archive(tmp_path / "a.npz", X=[(stored((20, 4)), 1), (ZEROS, 500)])
    refused(tmp_path / "a.npz", "its header is wrong", 1e7)


def test_an_archive_that_says_less_than_it_unpacks_to(tmp_path):
    """Both the archive and the array speak of 20 x 4 numbers; the stream goes on for 200 MB."""
    honest = stored((20, 4)) + bytes(640)
    stream = zlib.compressobj(1, zlib.DEFLATED, -15)
    body = stream.compress(honest) + b"".join(stream.compress(ZEROS) for _ in range(200))
    body += stream.flush()
    name = b"X.npy"
    sizes = struct.pack("<III", zlib.crc32(honest), len(body), len(honest))
    local = b"PK\3\4" + struct.pack("<HHHHH", 20, 0, 8, 0, 0) + sizes + struct.pack("<HH", 5, 0)
    central = b"PK\1\2" + struct.pack("<HHHHHH", 20, 20, 0, 8, 0, 0) + sizes
    central += struct.pack("<HHHHHII", 5, 0, 0, 0, 0, 0, 0) + name
    place = len(local) + len(name) + len(body)
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), place, 0)
    (tmp_path / "a.npz").write_bytes(local + name + body + central + end)
    tracemalloc.start()
    found = as_source(tmp_path / "a.npz").read(0)
    assert tracemalloc.get_traced_memory()[1] < 1e7
    tracemalloc.stop()
    np.testing.assert_array_equal(found, np.zeros((20, 4)))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_a_small_sparse_matrix_of_many_entries(tmp_path, form):
    path, count = tmp_path / "a.npz", 20 * 2**20
    sp.save_npz(path, sp.coo_array(np.eye(20, 4)).asformat(form))
    with zipfile.ZipFile(path) as file:
        members = {name.removesuffix(".npy"): [(file.read(name), 1)] for name in file.namelist()}
    many = [(ZEROS, 20)]
    members["data"] = [(stored((count,), "|i1"), 1), *many]
    for name in {"indices", "row", "col"} & members.keys():
        members[name] = [(stored((count,), "|i1"), 1), *many]
    archive(path, **members)
    refused(path, "20971520 entries", 1e7)


@pytest.mark.parametrize("member", ["format", "shape"])
def test_members_that_should_be_small(tmp_path, member):
    path = tmp_path / "a.npz"
    sp.save_npz(path, sp.csr_array(np.eye(20, 4)))
    with zipfile.ZipFile(path) as file:
        members = {name.removesuffix(".npy"): [(file.read(name), 1)] for name in file.namelist()}
    members[member] = [(stored((100 * 2**17,), "<i8"), 1), (ZEROS, 100)]
    archive(path, **members)
    refused(path, f"{member} declares 13107200 entries", 1e7)


@pytest.mark.parametrize("form", ["coo", "dia", "bsr"])
def test_rows_that_nothing_stands_in(tmp_path, form):
    path = tmp_path / "a.npz"
    sp.save_npz(path, sp.coo_array(np.eye(20, 4)).asformat(form))
    with np.load(path) as file:
        held = dict(file) | {"shape": np.array([20 * 10**9, 4])}
    np.savez(path, **held)
    refused(path, r"its shape is \(20000000000, 4\)", 1e7)


def test_gzip_of_gzip_is_text_that_is_refused(tmp_path):
    inner = io.BytesIO()
    with gzip.GzipFile(fileobj=inner, mode="wb") as file:
        file.write(ZEROS)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(inner.getvalue()))
    refused(tmp_path / "a.csv.gz", "a.csv.gz")
