"""Matrix Market: what SciPy writes comes back bit by bit, and everything else is refused."""

from __future__ import annotations

import gzip
import re
import tracemalloc

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from primedpca import as_source
from primedpca._core.arrays import is_sparse
from primedpca.sources.files import matrix_market

RNG = np.random.default_rng


def dense_of(source):
    parts = [b.toarray() if is_sparse(b) else np.asarray(b) for _, b in source.scan()]
    return np.concatenate(parts, axis=source.axis)


def read(tmp_path, text, suffix=".mtx"):
    path = tmp_path / f"a{suffix}"
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    return as_source(path)


def matrix(kind, n=40, d=40, seed=0):
    rng = RNG(seed)
    X = np.where(
        rng.random((n, d)) < 0.3, rng.normal(size=(n, d)) * 10.0 ** rng.integers(-300, 300), 0
    )
    if kind == "integer":
        X = rng.integers(-(2**63), 2**63 - 1, (n, d)) * (rng.random((n, d)) < 0.3)
    elif kind == "unsigned-integer":
        X = rng.integers(0, 2**64 - 1, (n, d), np.uint64) * (rng.random((n, d)) < 0.3)
    elif kind == "pattern":
        X = (X != 0).astype(float)
    return X


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("layout", ["coordinate", "array"])
@pytest.mark.parametrize("field", ["real", "integer", "unsigned-integer", "pattern"])
def test_what_scipy_writes_comes_back(tmp_path, monkeypatch, field, layout, symmetry, suffix):
    if (field, layout) == ("pattern", "array") or (
        symmetry == "skew-symmetric" and field in ("pattern", "unsigned-integer")
    ):
        pytest.skip("there is no such form")
    monkeypatch.setattr(matrix_market, "PIECE_BYTES", 300)
    X = matrix(field)
    if symmetry != "general":
        X = np.tril(X, -1)
        X = X + X.T if symmetry == "symmetric" else X - X.T
    given = X if layout == "array" else sp.coo_array(X)
    written = tmp_path / "w.mtx"
    scipy.io.mmwrite(written, given, symmetry=symmetry, field=field, comment="one\ntwo")
    assert written.read_text().split("\n")[0].split()[1:] == ["matrix", layout, field, symmetry]
    source = read(tmp_path, written.read_bytes(), suffix)
    assert source.dtype == (X.dtype if "integer" in field else np.float64)
    assert is_sparse(source.read(0)) == (layout == "coordinate")
    np.testing.assert_array_equal(dense_of(source), X)


def test_every_way_to_write_a_number(tmp_path):
    words = ["1", "+1", "-1.", ".5", "-.5e-3", "1E+05", "0", "-0", "00012", "1e-400", "1e400"]
    words += ["nan", "NaN", "-inf", "Infinity", "4.9e-324", "1.7976931348623157e308"]
    words += ["0." + "1" * 300, "9" * 300, "123456789012345678901234567890"]
    text = "%%MatrixMarket matrix array real general\n{} 1\n{}\n"
    for chosen in (words, [word for word in words if not re.search("[nN]", word)]):
        found = dense_of(read(tmp_path, text.format(len(chosen), "\n".join(chosen))))
        np.testing.assert_array_equal(found[:, 0], [float(word) for word in chosen])


def test_numbers_are_rounded_as_python_rounds_them(tmp_path):
    bits = RNG(0).integers(0, 2**64 - 1, 20_000, np.uint64).view(np.float64)
    values = bits[np.isfinite(bits)]
    text = "\n".join(map(repr, values.tolist()))
    head = f"%%MatrixMarket matrix array real general\n{values.size} 1\n"
    np.testing.assert_array_equal(dense_of(read(tmp_path, head + text))[:, 0], values)


LAX = {
    "Windows": b"%%MatrixMarket matrix coordinate real general\r\n2 2 2\r\n1 1 5\r\n2 2 6\r\n",
    "no last line end": b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 5\n2 2 6",
    "blank lines": (
        b"%%MatrixMarket matrix coordinate real general\n% a\n\n%b\n"
        b" 2\t2 2 \n\n1 1 5\n\n 2  2 6\n\n"
    ),
    "capitals": b"%%MatrixMarket MATRIX Coordinate REAL General\n2 2 2\n1 1 5\n2 2 6\n",
    "added up": b"%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 2\n1 1 3\n2 2 6\n",
    "dense": b"%%MatrixMarket matrix array double general\n2 2\n5\n0\n0\n6\n",
}


@pytest.mark.parametrize("text", LAX.values(), ids=LAX)
@pytest.mark.parametrize("size", [7, 1000])
def test_what_the_format_leaves_open(tmp_path, monkeypatch, text, size):
    monkeypatch.setattr(matrix_market, "PIECE_BYTES", size)
    np.testing.assert_array_equal(dense_of(read(tmp_path, text)), [[5, 0], [0, 6]])


COORDINATES = "%%MatrixMarket matrix coordinate {} {}\n3 3 2\n{}\n"
ARRAY = "%%MatrixMarket matrix array {} {}\n2 2\n{}\n"
WRONG = {
    "a null byte": (ARRAY.format("real", "general", "1\0\n2\n3\n4"), r"line 3 holds '\\x00'"),
    "a comma": (ARRAY.format("real", "general", "1,5\n2\n3\n4"), "line 3 holds ','"),
    "hexadecimal": (ARRAY.format("real", "general", "1\n0x10\n3\n4"), "line 4 holds 'x'"),
    "a word": (ARRAY.format("real", "general", "1\n2\n3\nfour"), "line 6 holds 'o'"),
    "letters of nan": (ARRAY.format("real", "general", "1\n2\n3\nfin"), "'fin' instead of"),
    "two signs": (ARRAY.format("real", "general", "1\n--2\n3\n4"), "line 4 has '--2' instead"),
    "two numbers": (ARRAY.format("real", "general", "1\n2-3\n3\n4"), "line 4 has '2-3'"),
    "two points": (ARRAY.format("real", "general", "1\n2\n1.2.3\n4"), "line 5 has '1.2.3'"),
    "no digits": (ARRAY.format("real", "general", "1\n2\n3\n."), "line 6 has '.' instead"),
    "half an exponent": (ARRAY.format("real", "general", "1\n2\n3e\n4"), "line 5 has '3e' inst"),
    "Fortran": (ARRAY.format("real", "general", "1\n2\n3D0\n4"), "line 5 holds 'D'"),
    "underlined": (ARRAY.format("real", "general", "1\n2\n1_0\n4"), "line 5 holds '_'"),
    "two a line": (
        ARRAY.format("real", "general", "1 2\n3\n4"),
        "line 3 has 2 numbers instead of",
    ),
    "too few": (ARRAY.format("real", "general", "1\n2\n3"), "ends after 3 of the 4"),
    "too many": (ARRAY.format("real", "general", "1\n2\n3\n4\n5"), "more than the 4 entries"),
    "a late comment": (ARRAY.format("real", "general", "1\n2\n% 3\n3\n4"), "line 5 holds '%'"),
    "trailing text": (ARRAY.format("real", "general", "1\n2\n3\n4\nend"), "line 7 holds 'd'"),
    "a form feed": (ARRAY.format("real", "general", "1\n2\f\n3\n4"), r"line 4 holds '\\x0c'"),
    "not ASCII": (ARRAY.format("real", "general", "1\n2\n3\n٤"), "line 6 holds"),
    "not an integer": (
        ARRAY.format("integer", "general", "1\n2.0\n3\n4"),
        "'2.0' instead of",
    ),
    "only a sign": (ARRAY.format("integer", "general", "1\n-\n3\n4"), "line 4 has '-' instead of"),
    "beyond 64 bits": (ARRAY.format("integer", "general", f"1\n{2**63}\n3\n4"), "fit into 64 bits"),
    "far beyond": (ARRAY.format("integer", "general", f"1\n{10**30}\n3\n4"), "fit into 64 bits"),
    "negative": (ARRAY.format("unsigned-integer", "general", "1\n-2\n3\n4"), "'-2' instead of"),
    "a sum beyond 64 bits": (
        COORDINATES.format("integer", "general", f"1 2 {2**62}\n1 2 {2**62}"),
        f"entries at 1, 2 add up to {2**63}, beyond 64 bits",
    ),
    "a negative sum": (
        COORDINATES.format("integer", "general", f"3 3 {-(2**63)}\n3 3 -1"),
        f"entries at 3, 3 add up to {-(2**63) - 1}",
    ),
    "a sum of unsigned ones": (
        COORDINATES.format("unsigned-integer", "general", f"1 1 {2**64 - 1}\n1 1 1"),
        f"add up to {2**64}",
    ),
    "a mirrored sum": (
        COORDINATES.format("integer", "symmetric", f"2 1 {2**62}\n2 1 {2**62}"),
        f"add up to {2**63}",
    ),
    "the negative of the least": (
        COORDINATES.format("integer", "skew-symmetric", f"2 1 1\n3 1 {-(2**63)}"),
        f"the negative of {-(2**63)} does not fit into 64 bits",
    ),
    "the same in an array": (
        ARRAY.format("integer", "skew-symmetric", -(2**63)),
        f"the negative of {-(2**63)} does not fit",
    ),
    "the negative of an unsigned one": (
        COORDINATES.format("unsigned-integer", "skew-symmetric", f"2 1 1\n3 1 {2**63}"),
        f"the negative of {2**63} does not fit",
    ),
    "the same in an unsigned array": (
        ARRAY.format("unsigned-integer", "skew-symmetric", 2**63),
        f"the negative of {2**63} does not fit",
    ),
    "complex": (ARRAY.format("complex", "general", "1 0\n2 0\n3 0\n4 0"), "complex numbers, which"),
    "Hermitian": (ARRAY.format("real", "hermitian", "1\n2\n3\n4"), "complex numbers"),
    "no such field": (ARRAY.format("quaternion", "general", "1"), "field 'quaternion' is not one"),
    "no such symmetry": (ARRAY.format("real", "chiral", "1"), "symmetry 'chiral' is not one"),
    "pattern array": (ARRAY.format("pattern", "general", "1"), "field 'pattern' is not"),
    "index 0": (COORDINATES.format("real", "general", "1 1 1\n0 1 2"), r"line 4 has an index 0"),
    "index 4": (COORDINATES.format("real", "general", "1 1 1\n1 4 2"), r"line 4 has an index 4"),
    "index -1": (COORDINATES.format("real", "general", "1 1 1\n-1 1 2"), "'-1' instead of"),
    "index 1.5": (COORDINATES.format("real", "general", "1 1 1\n1.5 1 2"), "'1.5' instead of"),
    "index 1e0": (COORDINATES.format("real", "general", "1 1 1\n1e0 1 2"), "'1e0' instead of"),
    "huge index": (COORDINATES.format("real", "general", f"1 1 1\n{10**25} 1 2"), "fit into 64"),
    "wrapped": (COORDINATES.format("real", "general", f"1 1 1\n{2**64 + 1} 1 2"), "fit into 64"),
    "two of three": (COORDINATES.format("real", "general", "1 1\n1 1 1 2"), "line 3 has 2 numbers"),
    "values of a pattern": (
        COORDINATES.format("pattern", "general", "1 1 1\n2 2 2"),
        "3 numbers in",
    ),
    "upper triangle": (COORDINATES.format("real", "symmetric", "1 1 1\n1 2 2"), "on or below the"),
    "on the diagonal": (
        COORDINATES.format("real", "skew-symmetric", "2 1 1\n2 2 2"),
        "below the d",
    ),
    "not square": ("%%MatrixMarket matrix array real symmetric\n2 3\n1\n", "but is 2 x 3"),
    "no size": ("%%MatrixMarket matrix array real general\n% 2 2\n", "before the line of its size"),
    "empty": ("", "is empty|it is empty"),
    "no banner": ("2 2\n1\n2\n3\n4\n", "begins with '2 2', not with %%MatrixMarket"),
    "vector": ("%%MatrixMarket vector array real general\n2 2\n", "first line is"),
    "sizes in words": ("%%MatrixMarket matrix array real general\ntwo 2\n", "as 2 integers"),
    "sizes with signs": ("%%MatrixMarket matrix array real general\n-2 -2\n1\n", "as 2 integers"),
    "nothing in it": ("%%MatrixMarket matrix array real general\n0 2\n", "empty"),
    "huge": ("%%MatrixMarket matrix array real general\n999999999 999999999\n1\n", "at most"),
    "many entries": ("%%MatrixMarket matrix coordinate real general\n9 9 99999999\n", "at most"),
    "many rows": (
        "%%MatrixMarket matrix coordinate real general\n999999999999 9 1\n1 1 1\n",
        "1 entries take 6 bytes",
    ),
}


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz"])
@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_what_is_refused(tmp_path, text, message, suffix):
    path = str(tmp_path / f"a{suffix}")
    with pytest.raises(ValueError, match=message) as refused:
        read(tmp_path, text, suffix)
    assert path in str(refused.value)


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric"])
@pytest.mark.parametrize("field", ["integer", "unsigned-integer"])
@pytest.mark.parametrize("layout", ["coordinate", "array"])
def test_mirrored_integers_keep_their_values(tmp_path, layout, field, symmetry):
    head = f"%%MatrixMarket matrix {layout} {field} {symmetry}\n"
    sign = 1 if symmetry == "symmetric" else -1
    text = f"2 2 1\n2 1 {2**63 - 1}\n" if layout == "coordinate" else f"2 2\n{2**63 - 1}\n"
    if layout == "array" and symmetry == "symmetric":  # the diagonal is stored, too
        text = f"2 2\n0\n{2**63 - 1}\n0\n"
    found = dense_of(read(tmp_path, head + text)).tolist()
    assert found == [[0, sign * (2**63 - 1)], [2**63 - 1, 0]]


def test_large_integers_at_one_place_are_added(tmp_path):
    text = f"1 2 {2**63 - 1}\n1 2 {-(2**63)}\n1 2 {2**62}\n"
    head = "%%MatrixMarket matrix coordinate integer general\n2 2 3\n"
    assert dense_of(read(tmp_path, head + text)).tolist() == [[0, 2**62 - 1], [0, 0]]


@pytest.mark.integration
@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz"])
@pytest.mark.parametrize("what", ["comments", "a comment", "a line", "blank lines", "entries"])
def test_memory_is_bounded_by_what_is_promised(tmp_path, what, suffix):
    head = b"%%MatrixMarket matrix coordinate real general\n"
    text = {
        "comments": head + b"% nothing\n" * 7_000_000,
        "a comment": head + b"%" * 70_000_000,
        "a line": head + b"9 9 1\n1 1 " + b"1" * 70_000_000,
        "blank lines": head + b"9 9 1\n" + b"\n" * 70_000_000,
        "entries": head + b"9 9 1\n" + b"1 1 1\n" * 12_000_000,
    }[what]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(gzip.compress(text, 1) if suffix.endswith("gz") else text)
    del text
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"comments|is not text|ends after 0|more than the 1"):
        as_source(path)
    assert tracemalloc.get_traced_memory()[1] < 60e6
    tracemalloc.stop()


def test_only_bytes_of_numbers_are_allowed():
    assert set(matrix_market.ALLOWED) == set(b" \t\r\n0123456789+-.eEnafityNAFITY")


@pytest.mark.parametrize(("genes", "end"), [("features", ""), ("features", ".gz"), ("genes", "")])
def test_counts_of_10x_genomics_have_genes_as_rows(genes, end, tmp_path):
    head = "%%MatrixMarket matrix coordinate integer general\n2 3 2\n1 1 5\n2 3 7\n"
    texts = {"matrix.mtx": head, f"{genes}.tsv": "E1\tG1\nE2\tG2\n", "barcodes.tsv": "A\nC\nG\n"}
    for name, text in texts.items():
        data = gzip.compress(text.encode()) if end else text.encode()
        (tmp_path / f"{name}{end}").write_bytes(data)
    remedy = r"scanpy.read_10x_mtx\('.*'\).write_h5ad\('cells.h5ad'\) makes a file of cells as rows"
    with pytest.raises(
        ValueError, match=f"folder of 10x Genomics, with cells as columns.*{remedy}"
    ):
        as_source(tmp_path)
    with pytest.warns(UserWarning, match=f"genes as rows, so rows are genes here.*{remedy}"):
        assert as_source(tmp_path / f"matrix.mtx{end}").shape == (2, 3)
    (tmp_path / f"barcodes.tsv{end}").unlink()
    assert as_source(tmp_path / f"matrix.mtx{end}").shape == (2, 3)
