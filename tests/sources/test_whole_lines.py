"""Text is cut into pieces of whole lines, wherever the reads end."""

import io

import pytest

from primedpca import as_source
from primedpca.sources import base
from primedpca.sources.base import whole
from primedpca.sources.files.common import whole_lines
from primedpca.sources.files.text_lines import Lines

QUOTED = b'a,b\n"x\ny",1\n"p ""q""\n\nr",2\n3,4\n' * 3


@pytest.mark.parametrize("size", [*range(1, 40), 1000])
@pytest.mark.parametrize("text", [QUOTED, QUOTED[:-1], b"", b"\n\n", b"one line"])
def test_pieces_are_whole_lines_that_never_end_inside_quotation_marks(text, size, monkeypatch):
    monkeypatch.setattr(base, "READ_BYTES", size)
    lines = Lines("utf-8", 0, b"\n", None, ",")
    pieces = list(lines.cut(io.BytesIO(text), "x"))
    assert b"".join(piece for _, piece in pieces) == text
    assert [text[begin : begin + len(piece)] for begin, piece in pieces] == [p for _, p in pieces]
    assert not any(piece.count(b'"') % 2 for _, piece in pieces)
    assert all(piece.endswith(b"\n") for _, piece in pieces[:-1])


@pytest.mark.parametrize("size", [*range(2, 30, 2), 7, 1000])
def test_line_ends_of_two_bytes_are_not_found_across_two_characters(size):
    end = "\n".encode("utf-16-le")
    text = "a\u0a00b\nc\u0100\u000ad\n\u0a0a\n".encode("utf-16-le")
    pieces = list(whole_lines(io.BytesIO(text), "x", size, end=end))
    assert b"".join(piece for _, piece in pieces) == text
    assert all(len(piece) % 2 == 0 and piece.endswith(end) for _, piece in pieces)
    for _, piece in pieces:
        piece.decode("utf-16-le")


def test_a_line_may_have_as_many_bytes_as_are_allowed_and_no_more():
    text = b"1,2\n" + b"x" * 50
    assert len(list(whole_lines(io.BytesIO(text), "x", 8, most=50))) == 2
    with pytest.raises(ValueError, match=r"over 49 bytes in the line at 4"):
        list(whole_lines(io.BytesIO(text), "x", 8, most=49))


def test_an_encoding_that_is_given_outweighs_a_byte_order_mark(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "é,b\n1,2\n3,5\n".encode("cp1252"))
    assert as_source(path, encoding="cp1252").traits.feature_names().tolist() == ["é", "b"]


@pytest.mark.parametrize(
    ("count", "shown"), [(3, r"\(10, 11, 12\)"), (4, r"\(10, 11, 12, \.\.\.\)")]
)
def test_numbers_in_place_of_names_are_shown(tmp_path, count, shown):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(",".join(str(10 + j + i) for j in range(count)) for i in range(3)))
    with pytest.raises(ValueError, match=shown):
        as_source(path)


# -- quotation marks that are text -------------------------------------------------------------

PLAIN = "1;2;x\n" * 5
#: Tables with delimiter ";" and comments, the names of their rows, and one of their columns.
MARKS = {
    "unquoted": (
        f'a;b;id\n{PLAIN}1;2;5" pipe\n5;6;"x4\n7;8;9"\n6;7;8\n',
        [*"xxxxx", '5" pipe', "x4\n7;8;9", "8"],
    ),
    "early": ('a;b;id\n1;2;5" pipe\n5;6;"x4\n7;8;9"\n6;7;8\n', ['5" pipe', "x4\n7;8;9", "8"]),
    "comment": ('id;a;b\nq;1;2\n# 5" pipe\n"r\nX";1;2\ns;4;5\n', ["q", "r\nX", "s"]),
    "mark": ('id;a;b\nq;1;2\n"r\n# 5";1;2 # "c"\ns;4;5\n', ["q", "r\n# 5", "s"]),
    "escaped": ('id;a;b\nq;1;2\n"r ""\n;1;2 ""x";1;2\ns;4;5\n', ["q", 'r "\n;1;2 "x', "s"]),
}


@pytest.mark.parametrize("size", [31, 35, 40, 47, 55, 2**20])
@pytest.mark.parametrize("skip_bad_lines", [False, True])
@pytest.mark.parametrize(
    ("end", "encoding"), [("\n", "utf-8"), ("\r\n", "utf-8"), ("\n", "utf-16")]
)
@pytest.mark.parametrize("name", MARKS)
def test_a_quotation_begins_with_a_field(
    name, end, encoding, skip_bad_lines, size, tmp_path, monkeypatch
):
    text, names = MARKS[name]
    (tmp_path / "q.csv").write_bytes(text.replace("\n", end).encode(encoding))
    options = {"delimiter": ";", "comment": "#", "id_column": "id"}
    monkeypatch.setattr(base, "READ_BYTES", size)
    source = as_source(tmp_path / "q.csv", skip_bad_lines=skip_bad_lines, **options)
    assert [row.replace("\r\n", "\n") for row in source.row_names] == names
    assert len(whole(source)) == len(names)


@pytest.mark.parametrize("size", [20, 37, 2**20])
def test_a_quoted_line_that_looks_like_a_row_is_none(size, tmp_path, monkeypatch):
    """A piece that ends before it would have the right number of fields, and so has the next."""
    monkeypatch.setattr(base, "READ_BYTES", size)
    (tmp_path / "q.csv").write_text('a,b,id\n1,2,x\n3,4,"y\n5,6,z"\n7,9,w\n')
    source = as_source(tmp_path / "q.csv", id_column="id")
    assert source.row_names.tolist() == ["x", "y\n5,6,z", "w"]
    assert whole(source).tolist() == [[1, 2], [3, 4], [7, 9]]


@pytest.mark.parametrize("quoted", ["r\n0", "r\r\n0"])
@pytest.mark.parametrize("row", [0, 1, 400])
def test_line_ends_of_an_old_mac_around_others_in_quotation_marks(quoted, row, tmp_path):
    names = [f"r{i}" for i in range(500)]
    names[row] = quoted
    rows = "".join(f'"{name}"|{i}\r' for i, name in enumerate(names))
    (tmp_path / "a.csv").write_bytes(f'id|a\r# 5"\r{rows}'.encode())
    source = as_source(tmp_path / "a.csv", delimiter="|", id_column="id", comment="#")
    assert source.row_names.tolist() == names
    assert whole(source)[:, 0].tolist() == list(range(500))


@pytest.mark.parametrize("skip_bad_lines", [False, True])
def test_a_quotation_that_is_not_closed_is_refused(skip_bad_lines, tmp_path):
    (tmp_path / "a.csv").write_text('a,id\n1,x\n2,"y\n3,z\n4,w\n')
    with pytest.raises(ValueError, match=r"not closed in '2,\"y.*correct the line"):
        as_source(tmp_path / "a.csv", id_column="id", skip_bad_lines=skip_bad_lines)


def test_a_blank_table_has_marks_in_its_text(tmp_path):
    (tmp_path / "a.csv").write_text('id a  b\n5" 1   2\n6" 3  4\n  "x  y" 5\t7  \n')
    source = as_source(tmp_path / "a.csv", delimiter=" ", id_column="id")
    assert source.row_names.tolist() == ['5"', '6"', "x  y"]
    assert whole(source).tolist() == [[1, 2], [3, 4], [5, 7]]
