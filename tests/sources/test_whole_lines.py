"""Text is cut into pieces of whole lines, wherever the reads end."""

import io

import pytest

from primedpca import as_source
from primedpca.sources.files.common import whole_lines

QUOTED = b'a,b\n"x\ny",1\n"p ""q""\n\nr",2\n3,4\n' * 3


@pytest.mark.parametrize("size", [*range(1, 40), 1000])
@pytest.mark.parametrize("text", [QUOTED, QUOTED[:-1], b"", b"\n\n", b"one line"])
def test_pieces_are_whole_lines_that_never_end_inside_quotation_marks(text, size):
    pieces = list(whole_lines(io.BytesIO(text), "x", size, quote=b'"'))
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
