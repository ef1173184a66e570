"""Text tables: encodings, line ends, numbers and headers at the edges of what is read."""

import codecs
import gzip
import re
import warnings

import numpy as np
import pyarrow as pa
import pytest

from primedpca import as_source
from primedpca.sources import base
from primedpca.sources.column_choice import chosen_names, warn_left_out
from primedpca.sources.files import csv_text, number_text, paths, table_columns, text_lines
from primedpca.sources.files.number_text import Notation, remedy
from primedpca.sources.files.text_lines import Lines, fields


def refused(call, *arguments, **options):
    """Return the message of the error, or None."""
    try:
        call(*arguments, **options)
    except (ValueError, TypeError, OSError) as error:
        return str(error)
    return None


# -- lines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "end"),
    [("a\nb", "\n"), ("a\r\nb", "\n"), ("a\rb", "\r"), ("ab", "\n"), ("a\rb\nc", "\n")],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-be", "cp1252"])
def test_ends_of_lines(text, end, encoding):
    given = None if encoding == "utf-8" else encoding
    found = Lines.of(text.encode(encoding), given, None, ",")
    assert (found.encoding, found.begin, found.end) == (encoding, 0, end.encode(encoding))


@pytest.mark.parametrize("mark", [codecs.BOM_UTF8, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE])
def test_byte_order_marks(mark):
    encoding = dict(text_lines.MARKS)[mark]
    found = Lines.of(mark + "a\nb".encode(encoding), None, None, ",")
    assert (found.encoding, found.begin) == (encoding, len(mark))
    assert Lines.of(mark + "a".encode(encoding), encoding, None, ",").begin == len(mark)


def test_bytes_that_are_nul():
    assert refused(text_lines._encoding, b"\0" + b"a" * 3, None) is None
    assert refused(text_lines._encoding, b"\0\0" + b"a" * 3, None) is not None
    for order, text in (("le", b"a\0b\0c"), ("be", b"\0a\0b\0")):
        assert f"'utf-16-{order}'" in refused(text_lines._encoding, text, None)
    # Only the first 64 KiB are looked at.
    long = b"a" * 65_536 + b"\0" * 65_536
    assert refused(text_lines._encoding, long, None) is None
    long = b"a" * 49_152 + b"\0" * 16_384
    assert refused(text_lines._encoding, long, None) is None
    assert refused(text_lines._encoding, long[1:] + b"\0", None) is not None


def test_bytes_that_are_not_text():
    def told(data, encoding="utf-8"):
        try:
            data.decode(encoding)
        except UnicodeDecodeError as error:
            return text_lines.not_text(error, encoding)
        return None

    assert "the byte 0xe9" in told(b"x\xe9 a")
    assert "`encoding`='cp1252'" in told(b"x\xe9 a")
    assert "`encoding`='latin-1'" in told(b"x\xe9 a\x81")
    assert "`encoding`='cp1252'" in told(b"x\xe9" + b"a" * 65_535 + b"\x81")
    assert "`encoding`='latin-1'" in told(b"x\xe9" + b"a" * 65_534 + b"\x81")
    assert told(b"\x81", "cp1252") == "it has the byte 0x81, which is not CP1252; pass another " + (
        "`encoding`."
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-32-be"])
@pytest.mark.parametrize("end", ["\n", "\r"])
def test_first_lines(encoding, end):
    text = end.join(["ab", "", '"c', 'd"', "\u0a0d\u0d0a", "e"])
    lines = Lines(encoding, 0, end.encode(encoding), None, ",")
    piece = text.encode(encoding)
    found = list(lines.first(piece, 9))
    assert [line for _, line in found] == ["ab", "", f'"c{end}d"', "\u0a0d\u0d0a", "e"]
    for place, line in found:
        assert piece[place:].decode(encoding).startswith(line)
    assert len(list(lines.first(piece, 2))) == 2
    assert list(lines.first(b"", 3)) == []
    assert [line for _, line in lines.first('"ab'.encode(encoding), 3)] == ['"ab']


def test_ends_of_lines_across_two_characters():
    end = "\n".encode("utf-16-be")  # 00 0a
    piece = b"\x0a\x00\x0a\x00" + end + b"\x00a"
    assert text_lines._line_end(piece, 0, end) == 6
    assert text_lines._line_end(piece, 6, end) == 8
    assert text_lines._line_end(b"\x00\x0a", 0, end) == 2
    assert text_lines._line_end(b"ab\ncd", 0, b"\n") == 3
    assert text_lines._line_end(b"\nab", 0, b"\n") == 1
    assert text_lines._line_end(b"ab", 0, b"\n") == 2


def test_comments_and_blanks():
    lines = Lines("utf-8", 0, b"\n", "#", ",")
    assert lines.decoded(b'1 # a\n"#",2#"b"\n#c\n3') == b'1\n"#",2\n\n3'
    assert lines.decoded(b"1 # a\r2") == b"1\r2"
    assert lines.decoded(b"#") == b""
    assert lines.decoded(b'a"#"b"#') == b'a"'  # a quotation begins with a field
    assert lines.decoded(b'"a#"#b#c') == b'"a#"'
    assert lines.decoded(b'"a\n#b" # "c\n#"\n"d') == b'"a\n#b"\n\n"d'
    tabs = Lines("utf-8", 0, b"\n", "#", "\t")
    assert tabs.decoded(b"4\t5\t# c\n7\t8 # c\n") == b"4\t5\t\n7\t8\n"
    assert tabs.decoded(b'"4"\t# c\n \t# c\n7') == b'"4"\t\n \t\n7'
    assert tabs.decoded(b"\t# c\n # c\n7 # c") == b"\t\n\n7"
    assert tabs.decoded(b"\t# c\r\t# c") == b"\t\r\t"
    blanks = Lines("utf-8", 0, b"\n", None, " ")
    assert blanks.decoded(b' 1\t 2  3 \n"a  b"   4') == b'1 2 3\n"a  b" 4'
    assert text_lines.check_comment("#", ",") == "#"
    for bad in ("##", '"', "\n", "", 5, ",", "\udc80"):
        told = f"`comment`={bad!r} must be one printable character other than the delimiter ','"
        assert refused(text_lines.check_comment, bad, ",").startswith(told)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", [""]),
        ("a,b,", ["a", "b", ""]),
        ('"a","b,c",d', ["a", "b,c", "d"]),
        ('"say ""x""",1', ['say "x"', "1"]),
        ('"a"x,b', ["a", "b"]),
        (',"",', ["", "", ""]),
    ],
)
def test_fields_of_a_line(line, found):
    assert fields(line, ",") == found
    assert fields(line.replace(",", "|"), "|") == [one.replace(",", "|") for one in found]


# -- numbers ----------------------------------------------------------------------------------


def read_as(notation, texts):
    """Return texts as numbers, or the place of the first one that is not a number."""
    values, wrong = notation.numbers(pa.array(texts, pa.string()))
    return wrong if values is None else values.to_pylist()


@pytest.mark.parametrize(
    ("options", "texts", "found"),
    [
        ({}, ["1", " 2.5 ", "-3e2", "\u22124", "NA", "inf"], [1, 2.5, -300, -4, None, np.inf]),
        ({}, ["1", "1,5"], 1),
        ({"decimal": ","}, ["1,5", "(2)", "3-", "(4,5)"], [1.5, -2, -3, -4.5]),
        (
            {"thousands": ","},
            ["1,234", "12,34,567", "1234", "1,234.5"],
            [1234, 1234567, 1234, 1234.5],
        ),
        ({"thousands": ","}, ["1,23"], 0),
        ({"thousands": ","}, ["1234,567"], 0),
        ({"thousands": " "}, ["1 234", "1\u00a0234", "1\u202f234"], [1234] * 3),
        ({"strip": ["$", "USD"]}, ["$5", "-$5", "5 USD", "$ 1.5"], [5, -5, 5, 1.5]),
        ({"strip": "%"}, ["5%", "(5%)", "%"], 2),
        ({"na_values": ["-", 99]}, ["-", "99", "1"], [None, None, 1]),
    ],
)
def test_notations(options, texts, found):
    names = ("decimal", "thousands", "strip", "na_values")
    notation = Notation.of(*(options.get(name) for name in names))
    assert read_as(notation, texts) == found


def test_notations_that_are_refused():
    for bad in ("ab", "1", "a", "+", "(", '"', "", 5):
        assert "`decimal`=" in refused(Notation.of, bad, None, None, None)
        assert "`thousands`=" in refused(Notation.of, None, bad, None, None)
    assert "Pass `decimal`=','" in refused(Notation.of, None, ".", None, None)
    assert "Pass `decimal`='.'" in refused(Notation.of, ",", ",", None, None)
    for bad in (" ", "5", "+", "a-"):
        assert "`strip` has" in refused(Notation.of, None, None, [bad], None)
    assert refused(Notation.of, None, None, [None], None) is not None
    for given in ({"a": -999}, {}):
        told = f"`na_values`={given!r} is a dict, but the same texts apply to all columns. Pass"
        with pytest.raises(TypeError, match=re.escape(told)):
            Notation.of(None, None, None, given)
    assert "`strip`={'$': 1} is a dict" in refused(Notation.of, None, None, {"$": 1}, None)


@pytest.mark.parametrize(
    ("texts", "what", "option"),
    [
        (["1", "a"], "'a' in row 2", ""),
        (["1", "2,5"], "'2,5' in row 2", "`decimal`=','"),
        (["1.234,50", "2"], "'1.234,50' in row 1", "`decimal`=',', `thousands`='.'"),
        (["1,234.5"], "'1,234.5' in row 1", "`thousands`=','"),
        (["1", "?"], "'?' in row 2", "`na_values`='?'"),
        (["1", "?", "--", "?"], "'?' in row 2", "`na_values`=['?', '--']"),
        (["$5", "6"], "'$5' in row 1", "`strip`='$'"),
        (["5 kg", "6 kg"], "'5 kg' in row 1", "`strip`='kg'"),
        (["5 kg", "6 g"], "'5 kg' in row 1", ""),
        (["EUR 5"], "'EUR 5' in row 1", "`strip`='EUR'"),
        (["r1", "r2"], "'r1' in row 1", ""),
        (["1$", "2%", "3€", "4£"], "'1$' in row 1", "`strip`=['$', '%', '€', '£']"),
        (["1$", "2%", "3€", "4£", "5¥"], "'1$' in row 1", ""),
        (["2020-01-02"], "dates or times, '2020-01-02' in row 1", ""),
        (["yes", "no"], "yes or no, 'yes' in row 1", ""),
        (sorted(number_text.YES_NO), "yes or no, 'f' in row 1", ""),
        (["1", "2"], "text", ""),
        (["x" * 20], repr("x" * 20) + " in row 1", ""),
        (["x" * 21], repr("x" * 20 + "...") + " in row 1", ""),
    ],
)
def test_remedies(texts, what, option):
    assert remedy(texts, Notation()) == (what, option)
    later = what.replace("row 1", "row 8").replace("row 2", "row 9")
    assert remedy(texts, Notation(), 7) == (later, option)


def test_a_sign_of_comments_at_the_start_of_a_line():
    found = remedy(["1", "#4", "#half"], Notation(), 0, "#%")
    assert found == ("'#4' in row 2", "`comment`='#'")
    assert remedy(["1", "#4"], Notation())[1] == "`strip`='#'"
    assert remedy(["#1", "#4"], Notation(), 0, "#%")[1] == "`strip`='#'"  # in every line
    assert remedy(["1", "#4", "%5"], Notation(), 0, "#%")[1] == "`strip`=['#', '%']"


def test_a_comma_that_may_be_either():
    what, option = remedy(["1,234"], Notation())
    assert what == "'1,234' in row 1"
    wanted = "`thousands`=',' if the comma in '1,234' separates thousands, or `decimal`=','"
    assert option == f"{wanted} if it is the decimal sign"
    assert remedy(["1,2345"], Notation())[1] == "`decimal`=','"
    assert remedy(["1,23"], Notation())[1] == "`decimal`=','"
    many = [f"{i}," + "5" for i in range(12)]
    assert remedy(many, Notation())[1] == "`decimal`=','"
    marks = ["-", "--", "---", ".", "..", "...", "?", "*", "none", "nil"]
    assert remedy(["1", *marks], Notation())[1] == f"`na_values`={marks[:9]}"


def test_affixes():
    assert number_text._affixes("$5") == ["$"]
    assert number_text._affixes("5 kg") == ["kg"]
    assert number_text._affixes("$5%") == ["%", "$"]
    assert number_text._affixes("r1") == []
    assert number_text._affixes("r 1") == []
    assert number_text._affixes("kr1") == ["kr"]
    assert number_text._affixes("abc") == []
    assert number_text._affixes("1_000") == []
    assert number_text.reads_as_number("1_000") is False


# -- tables -----------------------------------------------------------------------------------


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_indices_that_number_the_rows():
    for entries, counts in (
        ([0, 1], True),
        (["5", "6", "7"], True),
        ([0], False),
        ([], False),
        ([0, 2], True),
        ([0.0, 1.0, 3.0], True),
        ([0.5, 1.5, 2.5], False),
        ([0, 0], False),
        ([1, 0], False),
        (["a", "b"], False),
        ([None, 1], False),
        ([*range(1000), 5], True),
        ([*range(999), 5], False),
    ):
        assert table_columns._counts(entries) == counts
    assert table_columns._counts([4, 5, 6], gaps=False)
    assert not table_columns._counts([4, 5, 7], gaps=False)


def test_headers_below_a_title():
    def late(rows, decimal="."):
        return table_columns.late_header(rows, Notation(decimal))

    names, row, title = ["a", "b", "c"], ["1", "2", "3"], ["t", "", ""]
    assert late([title, names, row]) == 1
    assert late([title, ["", "", ""], names, row]) == 2
    assert late([names, row, row]) is None
    assert late([title, names]) is None  # nothing follows
    assert late([title, names, names]) is None
    assert late([["t", "u", ""], names, row]) is None  # one blank may be a name that is missing
    assert late([title, row, row]) is None
    assert late([title, ["a", "", "c"], row]) is None
    commas = ["1,5", "2,5", "3,5"]
    assert late([title, names, commas]) is None
    assert late([title, names, commas], ",") == 1
    assert late([["1,5", "", ""], commas, row]) == 1
    assert late([["1,5", "", ""], commas, row], ",") is None


def test_names_of_columns():
    assert table_columns.unique_names(["a", "a", "a.1", "a", ""]) == [
        *("a", "a.2", "a.1", "a.3"),
        "Unnamed: 4",
    ]
    with pytest.warns(UserWarning, match=r"'a' as 'a.1', 'a' as 'a.2'\.$"):
        table_columns.warn_of_renamed("path", ["a"] * 3, ["a", "a.1", "a.2"])
    many = [f"a.{i}" for i in range(6)]
    with pytest.warns(UserWarning, match=r"'a' as 'a.4', \.\.\.\.$"):
        table_columns.warn_of_renamed("path", ["a"] * 6, many)
    with pytest.warns(UserWarning, match=r"'a' as 'a.4'\.$"):
        table_columns.warn_of_renamed("path", ["a"] * 5, many[:5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table_columns.warn_of_renamed("path", ["", "b"], ["Unnamed: 0", "b"])


def test_columns_that_are_left_out():
    with pytest.warns(UserWarning, match=r"^path: left out a column .*: 'a' \(text\)\.$"):
        warn_left_out("path", {"a": "text"})
    for count, end in ((20, r"'c19' \(text\)\.$"), (21, r"'c19' \(text\), \.\.\.\.$")):
        with pytest.warns(UserWarning, match=rf"left out {count} columns .*{end}"):
            warn_left_out("path", {f"c{j}": "text" for j in range(count)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_left_out("path", {})


def test_chosen_names():
    def chosen(columns=None, others=(None, None), exclude=None, known=("a", "b", "c")):
        return chosen_names("path", list(known), columns, list(others), exclude)

    assert chosen() == ["a", "b", "c"]
    assert chosen(["c", "a"]) == ["c", "a"]
    assert chosen("b") == ["b"]
    assert chosen(exclude="b", others=("a", None)) == ["c"]
    assert chosen(known=[0, 1], columns=1) == [1]
    nine, ten = ([f"c{j}" for j in range(count)] for count in (9, 10))
    assert refused(chosen, "x", known=nine).endswith("'c8'.")
    assert refused(chosen, "x", known=ten).endswith("'c8' ....")
    assert "no column of numbers left" in refused(chosen, exclude=["a", "b", "c"])
    assert "2 columns named 'a'" in refused(chosen, known=["a", "a", "b"])
    assert refused(chosen, known=["a", "a", "b"], columns=["b"]) is None
    assert "names 'a' twice" in refused(chosen, ["a", "b", "a"])
    assert "both in `columns` and in `exclude`" in refused(chosen, ["a"], exclude="a")
    assert "must be the names" in refused(chosen, [1])


@pytest.mark.parametrize(
    ("columns", "kinds", "dtype"),
    [
        (["int8"], [False], "int8"),
        (["int8"], [True], "float32"),
        (["int16", "uint8"], [True, False], "float32"),
        (["int32"], [True], "float64"),
        (["float"], [True], "float32"),
        (["bool"], [True], "float32"),
        (["bool", "double"], [False, True], "float64"),
    ],
)
def test_types_of_tables(columns, kinds, dtype):
    types = tuple(
        getattr(pa, {"float": "float32", "double": "float64", "bool": "bool_"}.get(n, n))()
        for n in columns
    )
    chosen = table_columns.TableColumns(tuple(columns), types)
    assert table_columns.common_dtype(chosen, kinds) == np.dtype(dtype)
    assert chosen.alike == (columns == ["float"])


def test_messages_on_columns_that_are_not_numbers():
    one = table_columns._not_numbers({"a": ("text", "")}, False)
    assert one.startswith("has a column that is not all numbers: 'a' (text). Use")
    many = {f"c{j}": ("dates", "`x`=1") for j in range(6)}
    told = table_columns._not_numbers(many, True)
    assert told.startswith("has 6 columns that are not all numbers: 'c0' (dates: pass `x`=1)")
    assert "'c4' (dates: pass `x`=1), .... Use" in told
    assert "'c5'" not in told
    assert told.endswith("since the first one; a column of vectors must be the only one.")
    assert ", ..." not in table_columns._not_numbers(dict([*many.items()][:5]), False)


def test_headers_that_are_numbers():
    number, text = pa.float64(), pa.string()

    def found(names, kinds=None, **options):
        given = [options.get(name) for name in ("decimal", "thousands", "strip", "na_values")]
        kinds = kinds or [number] * len(names)
        return refused(csv_text.check_names, "path", names, kinds, Notation.of(*given))

    assert found(["0", "1", "2"]) is None
    assert found(["1", "2", "3"]) is None
    assert "(0, 1); pass" in found(["0", "1"])
    assert "(2, 3, 4); pass" in found(["2", "3", "4"])
    assert "(2, 3, 4, ...); pass" in found(["2", "3", "4", "5"])
    assert found(["a", "5"]) is None
    assert found(["7", "b"], [number, text]) is not None
    assert found(["", ""]) is None
    assert found(["a", "b"], [text, text]) is None
    assert "(5.1, NA, ?, ...); pass" in found(["5.1", "NA", "?", "nan"])
    assert "(True, FALSE); pass" in found(["True", "FALSE"])
    assert found(["NA", "null", "?"]) is None
    assert found(["NA", "True", "a"]) is None
    assert found(["1", "none given"]) is None
    assert "(−5, 6)" in found(["−5", "6"])
    assert found(["1,5", "2"]) is None
    assert "(1,5, 2.5)" in found(["1,5", "2.5"], decimal=",")
    assert "(1.234, 1.234.567)" in found(["1.234", "1.234.567"], thousands=".", decimal=",")
    assert "((5), 6-, $7, ...)" in found(["(5)", "6-", "$7", "8 %"], strip=["$", "%"])
    assert "(1, absent)" in found(["1", "absent"], na_values="absent")
    assert found(["1", "2", "3"], decimal=",") is None


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_first_lines_of_csv_files(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"

    def found(text, **options):
        path.write_bytes(gzip.compress(text.encode()) if suffix == ".csv.gz" else text.encode())
        return refused(as_source, path, **options)

    assert found("a,b\n1,2\n3,4\n") is None
    assert "pass `delimiter`=';'" in found("a;b\n1;2\n")
    assert "in line 3; pass `delimiter`='|'" in found("\n\na|b\n1|2\n")
    assert found("a;b\n1\n2\n3\n") is None  # the second line has no such sign
    assert "pass `delimiter`=';'" in found("a;b\n1;2\n3\n")
    assert "pass `delimiter`=' '" in found("a b\n1 2\n3 4\n")
    assert "pass `delimiter`=' '" in found("1 2\n1 2\n3 4\n", header=False)
    assert found("a b\n1\n2\n") is None
    assert "'t' in line 1" in found("t\na,b\n1,2\n3,4\n")
    assert "pass `skip_rows`=1 if the table begins in line 2" in found("t\na,b\n1,2\n3,4\n")
    assert "pass `comment`='#', or pass `skip_rows`=1" in found("# t\na,b\n1,2\n3,4\n")
    assert found("# t\na,b\n1,2\n3,4\n", comment="#") is None
    assert found("t\na,b\n1,2\n3,4\n", skip_rows=1) is None
    assert "a line with 3 fields instead of 2, '5,6,7'" in found("a,b\n1,2\n3,4\n5,6,7\n")
    assert "has no rows below its column names" in found("a,b\n")
    assert "is empty" in found("\n \n")
    words = "1 name in its first line for 2 columns: pass `id_column`"
    assert words in found("a\n5,1\n7,2\n")
    assert "`header`=False" in found("5,6\n1,2\n")


def test_rows_of_csv_files_in_small_pieces(tmp_path, monkeypatch):
    from primedpca.sources import base

    text = "id,a,b\n" + "".join(f"r{i},{i},{i / 4}\n" for i in range(40))
    path = write(tmp_path / "a.csv", text)
    for size in (2**23, 100, 37):
        monkeypatch.setattr(base, "READ_BYTES", size)
        source = as_source(path, id_column="id")
        assert (len(source.blocks) > 1) == (size < 200)
        wanted = np.c_[np.arange(40.0), np.arange(40) / 4]
        for order in (range(len(source.blocks)), range(len(source.blocks) - 1, -1, -1)):
            for i in order:
                start, stop = source.blocks[i]
                np.testing.assert_array_equal(source.read(i), wanted[start:stop])
        assert source.traits.row_names().tolist() == [f"r{i}" for i in range(40)]
        assert source.traits.headings == ("id", "label")
    bad = write(tmp_path / "b.csv", text.replace("\n", "\n", 1) + "r40,x,1\n")
    with pytest.raises(ValueError, match=r"'a' \('x' in row 41\)"):
        as_source(bad, id_column="id")


def test_whole_numbers_of_csv_files(tmp_path):
    path = tmp_path / "a.csv"
    for value, right in ((2**53, True), (2**53 + 1, False), (-(2**53) - 1, False), (2**60, True)):
        write(path, f"a,b\n1,2\n{value},3\n")
        assert (refused(as_source, path) is None) == right
    write(path, f"a,b\n1,2\n{2**53}.5,3\n")
    as_source(path)


def test_the_number_of_columns_of_a_csv_file(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_text, "MOST_COLUMNS", 3)
    as_source(write(tmp_path / "a.csv", "a,b,c\n1,2,3\n"))
    with pytest.raises(ValueError, match="has 4 columns, over 3"):
        as_source(write(tmp_path / "b.csv", "a,b,c,d\n1,2,3,4\n"))


def test_lines_that_are_skipped(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n1,2\n3\n4,5,6\n7,8\n1,2\n9\n10\n1,2\n1,2\n")
    with pytest.warns(UserWarning, match=r"left out 4 line\(s\) .*: '3', '4,5,6', '9'\.$"):
        source = as_source(path, skip_bad_lines=True)
    np.testing.assert_array_equal(source.read(0), [[1, 2], [7, 8], [1, 2], [1, 2], [1, 2]])


def test_genotypes_as_text_are_no_table(tmp_path):
    text = "##fileformat=VCFv4.2\n##contig=<ID=1,length=2>\n#CHROM\tPOS\tS1\n1\t100\t0/0\n"
    for name in ("a.csv", "a.tsv"):
        told = refused(as_source, write(tmp_path / name, text))
        assert told.endswith(
            f"{name} holds genotypes as VCF, not a table. Convert it to PLINK, 'plink2 --vcf FILE "
            "--make-bed --out NAME', and read NAME.bed."
        )


def test_yes_and_no_have_a_remedy(tmp_path):
    told = refused(as_source, write(tmp_path / "a.csv", "a,b\n1,yes\n2,no\n"))
    assert told.endswith("; store yes and no, or true and false, as 1 and 0.")


# -- paths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "words"), paths.OTHERS.items())
def test_files_that_are_not_read(tmp_path, suffix, words):
    path = write(tmp_path / f"a{suffix}", "1")
    assert suffix.startswith(".")
    assert words.endswith(".")
    assert refused(as_source, path) == f"`X`={str(path)!r} is not supported. {words}"


def test_suffixes_of_paths():
    assert {suffix: home.split(".")[0] for suffix, home in paths.SUFFIXES.items()} == {
        **{".npy": "numpy_files", ".npz": "numpy_files", ".h5ad": "hdf5", ".bed": "plink"},
        **dict.fromkeys((".h5", ".hdf5", ".he5"), "hdf5"),
        **dict.fromkeys((".zarr", ".zarr.zip"), "zarr_store"),
        **dict.fromkeys((".parquet", ".pq", ".arrow", ".feather", ".ipc"), "tables"),
        **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), "csv_text"),
        **dict.fromkeys((".xlsx", ".xlsm", ".ods"), "spreadsheets"),
        **dict.fromkeys((".mtx", ".mtx.gz"), "matrix_market"),
        **dict.fromkeys(
            (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm"), "video"
        ),
        **dict.fromkeys(
            (".bmp", ".gif", ".jfif", ".jp2", ".jpeg", ".jpg", ".pgm", ".png", ".ppm"), "images"
        ),
        **dict.fromkeys((".tif", ".tiff", ".webp"), "images"),
    }
    assert paths.suffix_of("a/B.TAR.MTX.GZ") == ".mtx.gz"
    assert paths.suffix_of("a.zarr.zip") == ".zarr.zip"
    assert paths.suffix_of("a.b/c.xyz") == ".xyz"
    assert paths.suffix_of("a.zarr/") == ".zarr"


def test_rows_to_skip():
    assert [table_columns.check_skip_rows(one) for one in (None, 0, 3)] == [0, 0, 3]
    assert type(table_columns.check_skip_rows(np.int64(3))) is int
    for bad in (-1, 1.5, "2", True, False):
        assert f"`skip_rows`={bad!r}" in refused(table_columns.check_skip_rows, bad)


@pytest.mark.parametrize(("length", "shown"), [(40, "{}"), (41, "{:.40}...")])
def test_lines_with_too_many_fields_are_shown_up_to_forty_characters(tmp_path, length, shown):
    line = "1,2,".ljust(length, "3")
    path = write(tmp_path / "a.csv", f"a,b\n1,2\n3,4\n{line}\n")
    with pytest.raises(ValueError, match="has a line with 3 fields instead of 2") as found:
        as_source(path)
    assert f"{shown.format(line)!r};" in str(found.value)


# -- what stands above a table, and beside it ---------------------------------------------------


@pytest.mark.parametrize("count", [29, 30, 100])
@pytest.mark.parametrize("above", ["# note, {i}\n", "\n", '# a "note"\r\n'])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_a_table_may_begin_below_many_comments_and_blank_lines(count, above, encoding, tmp_path):
    lines = "".join(above.format(i=i) for i in range(count))
    for names, header in (("id,a\n", True), ("", False)):
        for text in (f"{lines}{names}x,1\ny,2\n", f"{names}{lines}x,1\n{lines}y,2\n"):
            path = tmp_path / "a.csv"
            path.write_bytes(text.encode(encoding))
            options = {"comment": "#", "encoding": encoding, "header": header}
            source = as_source(path, id_column="id" if header else "f0", **options)
            np.testing.assert_array_equal(source.read(0), [[1], [2]])
            assert source.row_names.tolist() == ["x", "y"]


@pytest.mark.parametrize("size", [2**23, 64, 16])
def test_a_table_may_begin_behind_the_first_piece(size, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "READ_BYTES", size)
    rows = "".join(f"{i},{i / 4}\n" for i in range(40))
    wanted = np.c_[np.arange(40.0), np.arange(40) / 4]
    path = write(tmp_path / "a.csv", "a title\n" * 9 + "# note\n" * 40 + "\n" * 9 + f"a,b\n{rows}")
    source = as_source(path, skip_rows=9, comment="#")
    blocks = [source.read(i) for i in range(len(source.blocks))]
    np.testing.assert_array_equal(np.concatenate(blocks), wanted)
    path = write(tmp_path / "b.csv", rows)
    source = as_source(path, skip_rows=30, header=False)
    blocks = [source.read(i) for i in range(len(source.blocks))]
    np.testing.assert_array_equal(np.concatenate(blocks), wanted[30:])
    message = refused(as_source, write(tmp_path / "c.csv", "a\n" * 40 + "1;2\n"), skip_rows=39)
    assert "has no ',' in line 41" not in (message or "")
    message = refused(as_source, write(tmp_path / "d.csv", "\n" * 40 + "a;b\n1;2\n"))
    assert "has no ',' in line 41; pass `delimiter`=';'." in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"Report\n1,2\n"3",4\n5,6\n7,8\n', "text follows a quotation in line 1, '\"Report'"),
        ('Report,"x\n1,2\n"3",4\n5,6\n7,8\n', "text follows a quotation in line 1, "),
        ('"Report\n1,2\n"",4\n5,6\n7,8\n', "a quotation mark is not closed in '\"Report"),
    ],
)
def test_a_stray_quotation_mark_in_a_title_loses_no_rows(text, words, tmp_path):
    message = refused(as_source, write(tmp_path / "a.csv", text), skip_rows=1, header=False)
    assert words in message


@pytest.mark.parametrize("title", ['"Re\nport",x', '"Report" of 2020', '5" pipes', '"a" "b'])
def test_titles_may_have_quotation_marks(title, tmp_path):
    path = write(tmp_path / "a.csv", f"{title}\n1,2\n3,4\n")
    found = as_source(path, skip_rows=1, header=False).read(0)
    np.testing.assert_array_equal(found, [[1, 2], [3, 4]])


@pytest.mark.parametrize("sign", ["\n", "\r", '"', "\u00a7", "", ";;", 5, b";"])
def test_signs_that_do_not_separate_fields_are_refused_by_name(sign, tmp_path):
    message = refused(as_source, write(tmp_path / "a.csv", "a;b\n1;2\n"), delimiter=sign)
    assert f"`delimiter`={sign!r} must be one ASCII character, such as ';'" in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            gzip.compress(b"a,b\n1,2\n", mtime=0),
            "is compressed by gzip; decompress it, or rename it to .csv",
        ),
        (b"PK\x03\x04" + b"\0" * 90, "is a ZIP archive; unpack it, or rename it to .xlsx"),
        (b"\xd0\xcf\x11\xe0" + b"\0" * 90, "is an old Excel file; save it as .xlsx or .csv"),
    ],
    ids=["gzip", "zip", "excel"],
)
def test_compressed_files_and_workbooks_named_as_text(content, words, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    assert words in refused(as_source, path)


@pytest.mark.parametrize("option", ["numeric_only", "skip_bad_lines", "header"])
@pytest.mark.parametrize("value", ["no", 0, 1])
def test_switches_are_true_or_false(option, value, tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n1,2\n3,4\n")
    message = refused(as_source, path, **{option: value})
    assert message == f"`{option}`={value!r} must be True or False."


@pytest.mark.parametrize(
    ("rows", "options", "wanted"),
    [
        ("1,5\n2,25", {"decimal": ","}, [[1.5], [2.25]]),
        ("1,500\n2,250", {"thousands": ","}, [[1500], [2250]]),
        ("1,5 kg\n2,25", {"decimal": ",", "strip": "kg"}, [[1.5], [2.25]]),
    ],
)
def test_one_column_without_a_name_may_hold_the_sign_of_numbers(rows, options, wanted, tmp_path):
    path = write(tmp_path / "a.csv", rows + "\n")
    source = as_source(path, header=False, delimiter=";", **options)
    np.testing.assert_array_equal(source.read(0), wanted)


def test_percentages_are_not_comments(tmp_path):
    for entry in ("%5", "% 5", "%-5", "%(5)"):
        message = refused(as_source, write(tmp_path / "a.csv", f"a,b\n{entry},2\n3,4\n"))
        assert "pass `strip`='%'" in message or "pass" not in message
        assert "comment" not in message
    message = refused(as_source, write(tmp_path / "a.csv", "a,b\n%note,2\n3,4\n"))
    assert "pass `comment`='%'" in message


@pytest.mark.parametrize(
    ("sign", "entry", "options"),
    [
        ("-", "-5", {}),
        (".", "1.5", {}),
        ("5", "25", {}),
        ("e", "1e5", {}),
        ("(", "(5)", {"strip": "kg"}),
        (",", "1,5", {"decimal": ","}),
        ("'", "1'000", {"thousands": "'"}),
    ],
)
def test_a_comment_cuts_no_number(sign, entry, options, tmp_path):
    path = write(tmp_path / "a.csv", f"a;b\n3;{entry}\n")
    message = refused(as_source, path, comment=sign, delimiter=";", **options)
    assert message.startswith(f"`comment`={sign!r} is a part of numbers")


@pytest.mark.parametrize("sign", ["'", ".", "/", "*"])
def test_signs_that_no_number_has_may_begin_a_comment(sign, tmp_path):
    path = write(tmp_path / "a.csv", f"a;b\n{sign} note\n3;7,5{sign} more\n")
    source = as_source(path, comment=sign, delimiter=";", decimal=",")
    np.testing.assert_array_equal(source.read(0), [[3, 7.5]])


def test_other_delimiters_are_proposed_if_a_name_holds_the_given_one(tmp_path):
    path = write(tmp_path / "a.csv", "x (m, s);b\n1.5;2\n3;4\n")
    assert "pass `delimiter`=';', or pass `skip_rows`=1" in refused(as_source, path)
    assert as_source(path, delimiter=";").feature_names.tolist() == ["x (m, s)", "b"]
    path = write(tmp_path / "b.csv", "Title, one\na\n5\n")
    assert "`delimiter`" not in refused(as_source, path)


def test_more_lines_are_skipped_than_there_are(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n1,2\n")
    message = refused(as_source, path, skip_rows=7)
    assert message == f"{path} has no line left to read with `skip_rows`=7. Correct the option."
