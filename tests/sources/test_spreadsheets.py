"""Spreadsheets from anywhere: bombs, cells far away, damage, links, and what is read of them."""

import contextlib
import pickle
import random
import re
import zipfile
from datetime import date, datetime, time

import numpy as np
import openpyxl
import pytest
from awkward_tables import BY_NAME, PLAIN, book, ods_rows, open_document

from primedpca import PrimedPCA, as_source
from primedpca.sources.base import whole
from primedpca.sources.files import spreadsheets

SHEET = "xl/worksheets/sheet1.xml"


@pytest.fixture
def path(tmp_path):
    book(["a", "b"], *PLAIN)(tmp_path / "a.xlsx")
    return tmp_path / "a.xlsx"


def rewrite(path, **changed):
    """Write some parts of a workbook anew, each by a function of its bytes."""
    with zipfile.ZipFile(path) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    for name, change in changed.items():
        parts[name] = change(parts.get(name, b""))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, part in parts.items():
            packed.writestr(name, part)


def test_a_model_of_a_sheet_is_that_of_its_numbers(path):
    model = PrimedPCA(1).fit(path)
    np.testing.assert_allclose(model.mean_, np.mean(PLAIN, axis=0))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert model.transform(path).shape == (3, 1)


def test_small_files_that_unpack_to_much_are_refused(path, monkeypatch):
    monkeypatch.setattr(spreadsheets, "FILE_BYTES", 2**24)
    rewrite(path, **{"xl/media.xml": lambda _: bytes(2**25)})
    assert path.stat().st_size < 2**17
    with pytest.raises(ValueError, match=r"a\.xlsx: it unpacks to over 1 GB"):
        as_source(path)


def test_sizes_that_are_declared_wrong_are_refused(path):
    rewrite(path, **{SHEET: lambda part: part + bytes(2**22)})
    packed = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo(SHEET).file_size
    # The central directory says that the part is short, so that a reader might not stop there.
    path.write_bytes(packed.replace(size.to_bytes(4, "little"), (1000).to_bytes(4, "little")))
    with pytest.raises(ValueError, match=r"a\.xlsx is damaged"):
        as_source(path)


@pytest.mark.parametrize("place", [b"XFD1048576", b"ZZZZZZ1", b"A999999999"])
def test_cells_far_away_are_refused(path, place):
    rewrite(path, **{SHEET: lambda part: part.replace(b'r="B4"', b'r="' + place + b'"')})
    with pytest.raises(ValueError, match=r"a\.xlsx: xl/worksheets/sheet1.xml has "):
        as_source(path)


def test_rows_without_places_are_counted(path):
    def bare(part):
        cells = b"<c><v>1</v></c>" * 5000
        return part.replace(
            b"</sheetData>", b"<row/>" * 10**6 + b"<row>" + cells + b"</row></sheetData>"
        )

    rewrite(path, **{SHEET: bare})
    with pytest.raises(ValueError, match="reach to row 1000"):
        as_source(path)


def test_a_text_that_a_million_cells_share_is_refused(path, monkeypatch):
    monkeypatch.setattr(spreadsheets, "TEXT_BYTES", 2**20)
    shared = b"<sst><si><t>" + b"x" * 30_000 + b"</t></si></sst>"
    cells = b"".join(b'<row><c t="s"><v>0</v></c></row>' for _ in range(1000))
    rewrite(
        path,
        **{
            "xl/sharedStrings.xml": lambda _: shared,
            SHEET: lambda part: part.replace(b"</sheetData>", cells + b"</sheetData>"),
        },
    )
    with pytest.raises(ValueError, match="of text"):
        as_source(path)


def test_repeated_cells_of_an_open_document_are_refused(tmp_path):
    cell = '<table:table-cell office:value-type="float" office:value="1" {}/>'
    many = cell.format('table:number-columns-repeated="16384"')
    rows = f'<table:table-row table:number-rows-repeated="1000000">{many}</table:table-row>'
    open_document(rows)(tmp_path / "a.ods")
    with pytest.raises(ValueError, match=r"a\.ods: content\.xml has 16384 cells"):
        as_source(tmp_path / "a.ods")
    named = "<!DOCTYPE x [<!ENTITY a 'b'>]>"
    open_document(ods_rows(["a"], [1.0]))(tmp_path / "b.ods")
    rewrite(
        tmp_path / "b.ods", **{"content.xml": lambda p: p.replace(b"?>", f"?>{named}".encode(), 1)}
    )
    with pytest.raises(ValueError, match=r"b\.ods: it defines entities"):
        as_source(tmp_path / "b.ods")


def test_a_number_without_its_value_is_refused(tmp_path):
    open_document(ods_rows(["a"], [1.0], [2.0]).replace('office:value="2.0"', ""))(
        tmp_path / "a.ods"
    )
    with pytest.raises(ValueError, match=r"a\.ods: row 3 has a cell with half of a number"):
        as_source(tmp_path / "a.ods")


def test_links_are_not_followed_and_formulas_not_run(tmp_path):
    made = openpyxl.Workbook()
    for row in (["a", "b"], [1, "='file:///etc/[passwd]x'!A1"], [2, "=1+1"], [3, 4]):
        made.active.append(row)
    made.save(tmp_path / "a.xlsx")
    found = whole(as_source(tmp_path / "a.xlsx"))  # they have no saved values
    np.testing.assert_array_equal(found, [[1, np.nan], [2, np.nan], [3, 4]])


def test_damaged_workbooks_are_errors(path):
    whole_file, rng = path.read_bytes(), random.Random(0)
    for _ in range(150):
        data = bytearray(whole_file)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data[: rng.randrange(1, len(data) + 1)] if rng.random() < 0.3 else data)
        with contextlib.suppress(ValueError, OSError):  # nothing else, above all no panic
            whole(as_source(path))


def test_a_workbook_is_pickled_with_its_numbers(path):
    again = pickle.loads(pickle.dumps(as_source(path)))
    path.unlink()
    np.testing.assert_array_equal(whole(again), PLAIN)


def test_a_sheet_of_a_workbook_is_named(tmp_path):
    path = BY_NAME["two_sheets.xlsx"].write(tmp_path)
    with pytest.raises(ValueError, match="there is no `sheet`='x'; there are 'Sheet', 'more', 'no"):
        as_source(path, sheet="x")


def test_numbers_in_columns_of_text_are_written_as_people_write_them():
    written = {3.0: "3", -2.5: "-2,5", 1e15 - 1: "999999999999999", 1e15: "1000000000000000,0"}
    for number, text in written.items():
        assert spreadsheets._text(number, ",") == text


MIDNIGHT, NOON = datetime(2024, 5, 1), datetime(2024, 5, 1, 12, 30)
WHOLE = [1001, 1002, None]
MIXED = [date(2024, 5, 1), time(12, 30), datetime(2024, 5, 1, 6)]


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        ([MIDNIGHT, NOON, None], [MIDNIGHT, NOON, None]),
        ([NOON, MIDNIGHT, NOON], [NOON, MIDNIGHT, NOON]),
        ([MIDNIGHT, MIDNIGHT, None], [MIDNIGHT.date(), MIDNIGHT.date(), None]),
        (MIXED, [str(cell) for cell in MIXED]),
        (MIXED[::-1], [str(cell) for cell in MIXED[::-1]]),
        ([1001, 1002, None], ["1001", "1002", None]),
        ([1001, 0.5, "x"], ["1001", "0.5", "x"]),
    ],
)
def test_times_and_numbers_that_name_rows_are_those_of_the_sheet(cells, names, tmp_path):
    book(["n", "a", "b"], *([cell, i, i * i] for i, cell in enumerate(cells)))(tmp_path / "a.xlsx")
    source = as_source(tmp_path / "a.xlsx", id_column="n")
    assert source.row_names.tolist() in (names, WHOLE)
    PrimedPCA(1).fit(source).transform(source, out=tmp_path / "a.csv")
    with open(tmp_path / "a.csv", encoding="utf-8") as file:
        written = [line.split(",")[0] for line in file][1:]
    assert written == ["" if name is None else str(name) for name in names]


@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
def test_true_and_false_beside_numbers(tmp_path, suffix):
    """In a workbook as in CSV: beside 1 and 0 they are these, beside other numbers an error."""

    def table(*cells):
        path = tmp_path / f"t{suffix}"
        rows = [["a", "b"], *([cell, i] for i, cell in enumerate(cells))]
        if suffix == ".csv":
            path.write_text("\n".join(f"{a},{b}" for a, b in rows))
        else:
            book(*rows)(path)
        return path

    assert whole(as_source(table(True, False, True)))[:, 0].tolist() == [1, 0, 1]
    assert whole(as_source(table(True, 0, 1)))[:, 0].tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match=r"'a' \(yes or no, 'True' in row 2\)"):
        as_source(table(3, True, 4.5))
    with pytest.warns(UserWarning, match="'a'"):
        assert as_source(table(3, True, 4.5), numeric_only=True).feature_names.tolist() == ["b"]


@pytest.mark.parametrize(
    ("column", "options"),
    [
        ([True, False, True], {}),
        (["NA", 4, 5], {}),
        ([1.5, 4, 5], {"decimal": ","}),
        (["1,5", 4, 5], {"decimal": ","}),
    ],
)
def test_a_row_of_a_sheet_is_not_taken_for_names(column, options, tmp_path):
    book(*zip(column, [1.5, 2, 3], strict=True))(tmp_path / "a.xlsx")
    with pytest.raises(ValueError, match=r"`header`=False if it is a row"):
        as_source(tmp_path / "a.xlsx", **options)
    assert as_source(tmp_path / "a.xlsx", header=False, **options).shape == (3, 2)


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("suffix", [".xlsx", ".ods"])
def test_skip_rows_counts_from_the_top_of_the_sheet(blank, suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    title, table = ["Sales"], [["a", "b", "c"], [1, 2.5, 9], [3, 4, 8], [5, 6, 6]]

    def write(*rows):
        if suffix == ".xlsx":
            book(*[[]] * blank, *rows)(path)
        else:
            empty = '<table:table-row table:number-rows-repeated="1"/>' * blank
            open_document(empty + ods_rows(*rows))(path)

    write(*table)
    for skipped in range(blank + 1):
        assert whole(as_source(path, skip_rows=skipped)).tolist() == table[1:]
    assert whole(as_source(path, skip_rows=blank + 1, header=False)).tolist() == table[1:]
    with pytest.raises(ValueError, match=r"no line left to read with `skip_rows`=9\."):
        as_source(path, skip_rows=9)
    write(title, *table)
    with pytest.raises(ValueError, match=r"no line left to read with `skip_rows`=99\. Correct"):
        as_source(path, skip_rows=99)
    begins = rf"`skip_rows`={blank + 1} if the table begins in row {blank + 2}\."
    with pytest.raises(ValueError, match=begins):
        as_source(path)
    assert whole(as_source(path, skip_rows=blank + 1)).tolist() == table[1:]


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("9007199254740993", {}),
        ("-9.007.199.254.740.993", {"decimal": ",", "thousands": "."}),
    ],
)
def test_whole_numbers_of_text_beyond_2_to_53_are_refused(cell, options, tmp_path):
    book(["a", "b"], [cell, 1], ["3", 2], ["4", 3])(tmp_path / "a.xlsx")
    with pytest.raises(ValueError, match=r"a\.xlsx: column 'a' holds -?9007199254740993, which"):
        as_source(tmp_path / "a.xlsx", **options)
    assert as_source(tmp_path / "a.xlsx", id_column="a").row_names[0] == cell


def test_at_most_nine_sheets_are_listed(tmp_path):
    whole_book = openpyxl.Workbook()
    for i in range(9):
        whole_book.create_sheet(f"s{i}")
    whole_book.save(tmp_path / "a.xlsx")
    with pytest.raises(ValueError, match=r"there are 'Sheet', 's0', .*, 's6', 's7'\.$"):
        as_source(tmp_path / "a.xlsx", sheet="x")


ERRORS = ["#DIV/0!", "#REF!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!"]
FOUR = [[1.0, 5.0], [2.0, 4.0], [3.0, 3.0], [7.0, 0.0]]


def with_error(path, name, place, prefix=b""):
    """Put an error into a cell of a workbook of Excel."""
    cell = f'<c r="{place}" s="0" t="e"><f>1/0</f><v>{name}</v></c>'.encode()

    def change(part):
        found = re.sub(rf'<c r="{place}".*?</c>'.encode(), cell, part)
        if prefix:
            found = re.sub(rb"(</?)(?=[a-zA-Z])", rb"\1" + prefix + b":", found)
        return found.replace(b"xmlns=", b"xmlns:" + prefix + b"=") if prefix else found

    rewrite(path, **{SHEET: change})


def check_error(path, name):
    """The third row of the first column is an error, or missing with ``na_values``."""
    if name != "#N/A":
        with pytest.raises(ValueError, match=rf"'a'.*{re.escape(repr(name))} in row 3"):
            as_source(path)
    found = whole(as_source(path, na_values=[name]))
    np.testing.assert_array_equal(found, [[1, 5], [2, 4], [np.nan, 3], [7, 0]])


@pytest.mark.parametrize("prefix", [b"", b"x"])
@pytest.mark.parametrize("name", [*ERRORS, "#N/A", "#SPILL!"])
def test_errors_of_excel_are_missing_only_if_na_values_says_so(name, prefix, tmp_path):
    book(["a", "b"], *FOUR)(tmp_path / "a.xlsx")
    with_error(tmp_path / "a.xlsx", name, "A4", prefix)
    check_error(tmp_path / "a.xlsx", name)


@pytest.mark.parametrize("value", ['string" office:string-value="', 'float" office:value="0'])
@pytest.mark.parametrize("name", [*ERRORS, "#N/A", "Err:502"])
def test_errors_of_an_open_document_likewise(name, value, tmp_path):
    kind = 'xmlns:calcext="urn:org:documentfoundation:names" calcext:value-type="error"'
    cell = f'<table:table-cell table:formula="of:=1/0" office:value-type="{value}" {kind}>'
    rows = ods_rows(["a", "b"], *FOUR).replace(
        '<table:table-cell office:value-type="float" office:value="3.0"/>',
        f"{cell}<text:p>{name}</text:p></table:table-cell>",
        1,
    )
    open_document(rows)(tmp_path / "a.ods")
    check_error(tmp_path / "a.ods", name)


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_their_remedy(path, name):
    with_error(path, name, "A3")
    with pytest.raises(ValueError, match=re.escape(f"`na_values`={name!r}")):
        as_source(path)
    # Names are text, as in CSV.
    assert as_source(path, id_column="a").row_names.tolist()[1] == name


def test_errors_beside_true_and_false(tmp_path):
    book(["a", "b"], [True, 1], [False, 5], [True, 3])(tmp_path / "a.xlsx")
    with_error(tmp_path / "a.xlsx", "#REF!", "A3")
    found = whole(as_source(tmp_path / "a.xlsx", na_values="#REF!"))
    np.testing.assert_array_equal(found, [[1, 1], [np.nan, 5], [1, 3]])


def test_an_open_document_beyond_the_limits_of_the_reader_is_refused(tmp_path):
    wide = ods_rows([f"x{i}" for i in range(17_000)], [1.0] * 17_000)
    empty = '<table:table-row table:number-rows-repeated="3000000"><table:table-cell/>'
    empty += "</table:table-row>"
    for rows in (wide, ods_rows(["a"], [1.0], [2.0]) + empty + ods_rows([3.0])):
        open_document(rows)(tmp_path / "a.ods")
        with pytest.raises(ValueError, match=r"a\.ods"):
            as_source(tmp_path / "a.ods")
    open_document(ods_rows(["a"], [1.0], [2.0]) + empty)(tmp_path / "b.ods")  # as LibreOffice pads
    assert as_source(tmp_path / "b.ods").shape == (2, 1)
