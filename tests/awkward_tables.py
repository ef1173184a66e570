"""Tables as spreadsheets, R, pandas and databases export them, each named after its difficulty."""

import datetime as dt
import gzip
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet

NAN = float("nan")
#: What most of the tables hold.
PLAIN = [[1.0, 2.0], [3.0, 5.0], [4.0, 7.0]]
MONEY = [[1234.5, 2.0], [-3.5, 5.0], [1000000.0, 7.0]]


@dataclass(frozen=True)
class Table:
    """A table, what is said when it is opened without options, and the options that open it.

    Attributes
    ----------
    name : str
        With its suffix.
    content : bytes, str or callable
        Of the file; a function writes it to the path that it is given.
    refusal : str or None
        Part of the message without options, with the remedy; None if no option is needed.
    options : dict
        Of ``as_source``, with which the table is read.
    values : list of lists or None
        The numbers; None for a table without any.
    warning : str or None
        Part of the warning with these options.
    """

    name: str
    content: bytes | str | Callable[[Path], Any]
    refusal: str | None = None
    options: Any = None
    values: Any = None
    warning: str | None = None

    def write(self, folder: Path) -> Path:
        path = folder / self.name
        if callable(self.content):
            self.content(path)
        else:
            text = self.content
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


def book(*rows: Any, **sheets: Any) -> Callable[[Path], None]:
    """Write rows into the first sheet, and others into sheets of their own."""

    def write(path: Path) -> None:
        made = openpyxl.Workbook()
        for row in rows:
            made.active.append(row)
        for name, more in sheets.items():
            sheet = made.create_sheet(name)
            for row in more:
                sheet.append(row)
        made.save(path)

    return write


def merged_title(path: Path) -> None:
    made = openpyxl.Workbook()
    for row in (["Sales", None, None], ["a", "b", "c"], [1, 2, 9], [3, 5, 8], [4, 7, 7]):
        made.active.append(row)
    made.active.merge_cells("A1:C1")
    made.save(path)


def with_formulas(path: Path) -> None:
    """A workbook whose formulas have saved values, as Excel writes it."""
    book(["a", "b"], [1, 2], [3, 5], [4, 7])(path)
    with zipfile.ZipFile(path) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    parts[sheet] = parts[sheet].replace(b"<v>5</v>", b"<f>B2+3</f><v>5</v>")
    with zipfile.ZipFile(path, "w") as packed:
        for name, part in parts.items():
            packed.writestr(name, part)


ODS = (
    '<?xml version="1.0" encoding="UTF-8"?><office:document-content '
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" office:version="1.2">'
    '<office:body><office:spreadsheet><table:table table:name="Sheet1">{}'
    # As LibreOffice ends a sheet.
    '<table:table-row table:number-rows-repeated="1048570">'
    '<table:table-cell table:number-columns-repeated="16384"/></table:table-row>'
    "</table:table></office:spreadsheet></office:body></office:document-content>"
)
MANIFEST = """<?xml version="1.0" encoding="UTF-8"?><manifest:manifest
 xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><manifest:file-entry
 manifest:full-path="/" manifest:media-type="application/vnd.oasis.opendocument.spreadsheet"/>
 </manifest:manifest>"""


def open_document(rows: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
            packed.writestr("META-INF/manifest.xml", MANIFEST)
            packed.writestr("content.xml", ODS.format(rows))

    return write


def ods_rows(*rows: Any) -> str:
    def cell(value: Any) -> str:
        if isinstance(value, str):
            inside = f"<text:p>{value}</text:p>"
            return f'<table:table-cell office:value-type="string">{inside}</table:table-cell>'
        return f'<table:table-cell office:value-type="float" office:value="{value}"/>'

    lines = ("".join(map(cell, row)) for row in rows)
    return "".join(f"<table:table-row>{line}</table:table-row>" for line in lines)


def parquet(columns: Any) -> Callable[[Path], None]:
    return lambda path: pyarrow.parquet.write_table(pa.table(columns), path)


def stream(path: Path) -> None:
    table = pa.table({"a": [1.0, 3.0, 4.0], "b": [2.0, 5.0, 7.0]})
    with pyarrow.ipc.new_stream(path, table.schema) as out:
        out.write_table(table)


def twice(suffix: str) -> Callable[[Path], None]:
    """A table with two columns of one name."""
    table = pa.table([[1, 3], [2, 5], [7, 8]], names=["a", "a", "b"])

    def write(path: Path) -> None:
        if suffix == "parquet":
            pyarrow.parquet.write_table(table, path)
            return
        make = pyarrow.ipc.new_file if suffix == "arrow" else pyarrow.ipc.new_stream
        with make(path, table.schema) as out:
            out.write_table(table)

    return write


def indexed(path: Path) -> None:
    frame = pd.DataFrame(PLAIN, columns=["a", "b"], index=["x", "y", "z"])
    frame.to_parquet(path)


SEMICOLONS = "a;b\n1.234,50;2\n-3,5;5\n1.000.000;7\n"
GERMAN = {"delimiter": ";", "decimal": ",", "thousands": "."}
TEXT = "that is not all numbers"
DAYS = [dt.datetime(2024, 1, day) for day in (1, 2, 3)]

TABLES = [
    # -- numbers as people write them ----------------------------------------------------------
    Table("semicolons.csv", "a;b\n1;2\n3;5\n4;7\n", "`delimiter`=';'", {"delimiter": ";"}, PLAIN),
    Table("german_excel.csv", SEMICOLONS, "`delimiter`=';'", GERMAN, MONEY),
    Table(
        "decimal_commas_in_quotes.csv",
        'a,b\n"1,5",2\n"3,25",5\n4,7\n',
        "'1,5' in row 1: pass `decimal`=','",
        {"decimal": ","},
        [[1.5, 2], [3.25, 5], [4, 7]],
    ),
    Table(
        "thousands_in_quotes.csv",
        'a,b\n"1,234.50",2\n-3.5,5\n"1,000,000",7\n',
        "pass `thousands`=','",
        {"thousands": ","},
        MONEY,
    ),
    Table(
        "a_comma_of_either_kind.csv",
        'a,b\n"1,234",2\n"3,125",5\n"4,500",7\n',
        "`decimal`=',' if it is the decimal sign",
        {"decimal": ","},
        [[1.234, 2], [3.125, 5], [4.5, 7]],
    ),
    Table(
        "french_blanks.csv",
        "a;b\n1\u202f234,50;2\n-3,5;5\n1 000 000;7\n",
        "`delimiter`=';'",
        {"delimiter": ";", "decimal": ",", "thousands": " "},
        MONEY,
    ),
    Table(
        "swiss_apostrophes.csv",
        "a,b\n1'234.50,2\n-3.5,5\n1'000'000,7\n",
        '`thousands`="\'"',
        {"thousands": "'"},
        MONEY,
    ),
    Table(
        "dollars.csv",
        'a,b\n"$1,234.50",2\n-$3.50,5\n"$1,000,000",7\n',
        "`thousands`=',', `strip`='$'",
        {"thousands": ",", "strip": "$"},
        MONEY,
    ),
    Table(
        "euros_after_the_number.csv",
        "a;b\n1.234,50 €;2\n-3,50 €;5\n1.000.000 €;7\n",
        "`delimiter`=';'",
        GERMAN | {"strip": "€"},
        MONEY,
    ),
    Table(
        "negative_in_parentheses.csv",
        'a,b\n"1,234.50",2\n(3.50),5\n"1,000,000",7\n',
        "pass `thousands`=','",
        {"thousands": ","},
        MONEY,
    ),
    Table(
        "minus_behind.csv",
        'a,b\n"1,234.50",2\n3.50-,5\n"1,000,000",7\n',
        "pass `thousands`=','",
        {"thousands": ","},
        MONEY,
    ),
    Table(
        "quotes_after_blanks.csv",
        'a, b\n1, "2"\n3, "5"\n4, "7"\n',
        """`strip`='"'""",
        {"strip": '"'},
        PLAIN,
    ),
    Table(
        "nul_bytes.csv",
        "a,b\n1,2\0\n3,5\n4,7\n",
        r"'b' (NUL bytes, '2\x00' in row 1). Use",
        {"exclude": "b"},
        [[1.0], [3.0], [4.0]],
    ),
    Table("per_cent.csv", "a,b\n1%,2\n3 %,5\n4%,7\n", "`strip`='%'", {"strip": "%"}, PLAIN),
    Table("units.csv", "a,b\n1 kg,2\n3 kg,5\n4kg,7\n", "`strip`='kg'", {"strip": "kg"}, PLAIN),
    Table("scientific.csv", "a,b\n1e0,2E0\n+3.0,.5e1\n4.,7\n", values=PLAIN),
    Table("integers_and_floats.csv", "a,b\n1,2\n3.0,5\n4,7.0\n", values=PLAIN),
    Table("blanks_around.csv", "a, b\n 1, 2\n3 ,5 \n4,7\n", values=PLAIN),
    Table(
        "beyond_2_to_53.csv",
        "a,b,id\n1,2,9007199254740993\n3,5,9007199254740995\n4,7,9007199254740997\n",
        "column 'id' holds 9007199254740993",
        {"exclude": "id"},
        PLAIN,
    ),
    # -- missing values ------------------------------------------------------------------------
    Table(
        "a_dash_for_missing.csv",
        "a,b\n-,2\n3,-\n4,7\n",
        "`na_values`='-'",
        {"na_values": "-"},
        [[NAN, 2], [3, NAN], [4, 7]],
    ),
    Table(
        "a_point_for_missing.csv",
        "a,b\n.,2\n3,.\n4,7\n",
        "`na_values`='.'",
        {"na_values": "."},
        [[NAN, 2], [3, NAN], [4, 7]],
    ),
    Table(
        "question_marks.csv",
        "a,b\n?,2\n3,?\n4,7\n",
        "`na_values`='?'",
        {"na_values": "?"},
        [[NAN, 2], [3, NAN], [4, 7]],
    ),
    Table(
        "mysql_nulls.csv",
        "a,b\n\\N,2\n3,\\N\n4,7\n",
        "`na_values`='\\\\N'",
        {"na_values": "\\N"},
        [[NAN, 2], [3, NAN], [4, 7]],
    ),
    Table(
        "division_by_zero.csv",
        "a,b\n#DIV/0!,2\n3,#DIV/0!\n4,7\n",
        "`na_values`='#DIV/0!'",
        {"na_values": "#DIV/0!"},
        [[NAN, 2], [3, NAN], [4, 7]],
    ),
    Table(
        "codes_for_missing.csv",
        "a,b\n-999,2\n3,-999\n4,7\n",
        None,
        {"na_values": -999},
        [[NAN, 2], [3, NAN], [4, 7]],
    ),
    Table(
        "nulls_of_programs.csv",
        "a,b\nNULL,2\n3,NA\nNaN,7\n#N/A,1\n,3\n",
        values=[[NAN, 2], [3, NAN], [NAN, 7], [NAN, 1], [NAN, 3]],
    ),
    Table(
        "infinite.csv",
        "a,b\ninf,2\n3,-inf\n4,7\n1,1\n",
        None,
        {"na_values": ["inf", "-inf"]},
        [[NAN, 2], [3, NAN], [4, 7], [1, 1]],
    ),
    Table(
        "an_empty_column.csv",
        "a,notes,b\n1,,2\n3,,5\n4,,7\n",
        values=PLAIN,
        warning="'notes' (no values)",
    ),
    Table(
        "all_not_available.csv",
        "a,notes,b\n1,NA,2\n3,NA,5\n4,NA,7\n",
        values=PLAIN,
        warning="'notes' (no values)",
    ),
    # -- columns that are not numbers ----------------------------------------------------------
    Table(
        "true_and_false.csv",
        "a,b,c\n1,2,True\n3,5,False\n4,7,True\n",
        values=[[1, 2, 1], [3, 5, 0], [4, 7, 1]],
    ),
    Table(
        "true_beside_text.csv",
        "a,b,c,d\n1,2,TRUE,x\n3,5,FALSE,y\n4,7,,z\n",
        TEXT,
        {"label_column": "d"},
        [[1, 2, 1], [3, 5, 0], [4, 7, NAN]],
    ),
    Table(
        "yes_and_no.csv",
        "a,b,c\n1,2,yes\n3,5,no\n4,7,yes\n",
        "yes or no, 'yes' in row 1",
        {"label_column": "c"},
        PLAIN,
    ),
    Table(
        "dates.csv",
        "day,a,b\n2024-01-01,1,2\n2024-01-02,3,5\n2024-01-03,4,7\n",
        "'day' (dates)",
        {"id_column": "day"},
        PLAIN,
    ),
    Table(
        "german_dates.csv",
        "Tag;a;b\n31.12.2023;1;2\n01.01.2024;3;5\n02.01.2024;4;7\n",
        "`delimiter`=';'",
        {"delimiter": ";", "exclude": "Tag"},
        PLAIN,
    ),
    Table(
        "times.csv",
        "at,a,b\n12:30,1,2\n12:31,3,5\n12:32,4,7\n",
        "'at' (times of day)",
        {"numeric_only": True},
        PLAIN,
        "'at' (times of day)",
    ),
    Table(
        "timestamps.csv",
        "at,a,b\n2024-01-01 10:00:00,1,2\n2024-01-02 10:00:00,3,5\n2024-01-03 10:00:00,4,7\n",
        "'at' (dates and times)",
        {"exclude": "at"},
        PLAIN,
    ),
    Table(
        "categories.csv",
        "a,b,kind\n1,2,red\n3,5,blue\n4,7,red\n",
        "'red' in row 1",
        {"numeric_only": True},
        PLAIN,
        "'kind' ('red' in row 1)",
    ),
    Table(
        "one_typing_error.csv",
        "a,b\n1,2\n3,5\n4,7\n4,7\n8,O\n",
        "'O' in row 5",
        {"na_values": "O"},
        [*PLAIN, [4, 7], [8, NAN]],
    ),
    # -- names ---------------------------------------------------------------------------------
    Table(
        "the_index_of_pandas.csv",
        ",a,b\n0,1,2\n1,3,5\n2,4,7\n",
        "`id_column`='Unnamed: 0'",
        {"id_column": "Unnamed: 0"},
        PLAIN,
    ),
    Table(
        "an_index_read_twice.csv",
        "Unnamed: 0,a,b\n0,1,2\n1,3,5\n2,4,7\n",
        "`exclude`='Unnamed: 0'",
        {"exclude": "Unnamed: 0"},
        PLAIN,
    ),
    Table(
        "r_write_csv.csv",
        '"","a","b"\n"1",1,2\n"2",3,5\n"3",4,7\n',
        "`id_column`='Unnamed: 0'",
        {"id_column": "Unnamed: 0"},
        PLAIN,
    ),
    Table(
        "r_write_table.csv",
        '"a" "b"\n"x" 1 2\n"y" 3 5\n"z" 4 7\n',
        None,
        {"delimiter": " ", "id_column": "Unnamed: 0"},
        PLAIN,
    ),
    Table(
        "a_missing_name.csv",
        "a,b\n0.5,1,2\n0.1,3,5\n0.9,4,7\n",
        "2 names in its first line for 3 columns: pass `id_column`='Unnamed: 0'",
        {"id_column": "Unnamed: 0"},
        PLAIN,
    ),
    Table(
        "a_missing_name_and_a_gap.csv",
        "a,b\n7,2,\n3,5,1\n4,7,2\n",
        "2 names in its first line for 3 columns: pass `id_column`='Unnamed: 0' if the first",
        {"id_column": "Unnamed: 0"},
        [[2, NAN], [5, 1], [7, 2]],
    ),
    Table("equal_names.csv", "a,a\n1,2\n3,5\n4,7\n", values=PLAIN, warning="'a' as 'a.1'"),
    Table("long_names.csv", f"{'a' * 10_000},{'b' * 10_000}\n1,2\n3,5\n4,7\n", values=PLAIN),
    Table("a_line_break_in_a_name.csv", 'a,"b\n(kg)"\n1,2\n3,5\n4,7\n', values=PLAIN),
    Table(
        "no_names.csv",
        "1.5,2\n3,5\n4,7\n",
        "`header`=False",
        {"header": False},
        [[1.5, 2], [3, 5], [4, 7]],
    ),
    Table(
        "years_as_names.csv", "1990,1991\n1,2\n3,5\n4,7\n", "`header`=True", {"header": True}, PLAIN
    ),
    # -- lines ---------------------------------------------------------------------------------
    Table(
        "title_lines.csv",
        "Sales report\nfor 2023\n\na,b\n1,2\n3,5\n4,7\n",
        "`skip_rows`=3",
        {"skip_rows": 3},
        PLAIN,
    ),
    Table(
        "title_of_excel.csv",
        "Sales,,\n,,\na,b,c\n1,2,0\n3,5,1\n4,7,3\n",
        "`skip_rows`=2",
        {"skip_rows": 2, "exclude": "c"},
        PLAIN,
    ),
    Table(
        "comments.csv",
        "# made by a program\na,b\n1,2\n3,5\n# half\n4,7\n",
        "`comment`='#'",
        {"comment": "#"},
        PLAIN,
    ),
    Table(
        "a_comment_between.csv",
        "a,b\n1,2\n# half\n3,5\n4,7 # the last\n",
        "`comment`='#'",
        {"comment": "#"},
        PLAIN,
    ),
    Table(
        "a_row_in_a_comment.csv",
        "a,b\n1,2\n#9,9\n3,5\n4,7\n",
        "'#9' in row 2: pass `comment`='#'",
        {"comment": "#"},
        PLAIN,
    ),
    Table("blank_lines_before.csv", "\n\n\na,b\n1,2\n3,5\n4,7\n", values=PLAIN),
    Table(
        "delimiters_at_the_end.csv",
        "a,b,\n1,2,\n3,5,\n4,7,\n",
        values=PLAIN,
        warning="'Unnamed: 2' (no values)",
    ),
    Table(
        "delimiters_behind_rows.csv",
        "a,b\n1,2,\n3,5,\n4,7,\n",
        values=PLAIN,
        warning="'Unnamed: 2' (no values)",
    ),
    Table(
        "ragged.csv",
        "a,b\n1,2\n3,5\n9\n4,7\n8,8,8\n",
        "`skip_bad_lines`=True",
        {"skip_bad_lines": True},
        PLAIN,
        "2 line(s)",
    ),
    Table(
        "quoted_line_breaks.csv",
        'a,b,note\n1,2,"one\ntwo"\n3,5,"say ""no"""\n4,7,x\n',
        TEXT,
        {"exclude": "note"},
        PLAIN,
    ),
    Table("carriage_returns.csv", "a,b\r1,2\r3,5\r4,7\r", values=PLAIN),
    Table("dos_lines.csv", "a,b\r\n1,2\r\n3,5\r\n4,7", values=PLAIN),
    Table(
        "columns_of_blanks.csv",
        "a    b\n1    2\n3    5\n4    7\n",
        "`delimiter`=' '",
        {"delimiter": " "},
        PLAIN,
    ),
    Table("pipes.csv", "a|b\n1|2\n3|5\n4|7\n", "`delimiter`='|'", {"delimiter": "|"}, PLAIN),
    Table("tabs.csv", "a\tb\n1\t2\n3\t5\n4\t7\n", r"`delimiter`='\t'", {"delimiter": "\t"}, PLAIN),
    Table("commas.tsv", "a,b\n1,2\n3,5\n4,7\n", "`delimiter`=','", {"delimiter": ","}, PLAIN),
    Table("packed.csv.gz", gzip.compress(b"a,b\n1,2\n3,5\n4,7\n"), values=PLAIN),
    Table("empty.csv", "", "is empty"),
    Table("names_only.csv", "a,b\n", "no rows below its column names"),
    Table("one_column.csv", "a\n1\n3\n4\n", values=[[1], [3], [4]]),
    Table("one_row.csv", "a,b\n1,2\n", values=[[1, 2]]),
    # -- encodings -----------------------------------------------------------------------------
    Table("byte_order_mark.csv", "a,b\n1,2\n3,5\n4,7\n".encode("utf-8-sig"), values=PLAIN),
    Table("utf16.csv", "a,b\n1,2\n3,5\n4,7\n".encode("utf-16"), values=PLAIN),
    Table(
        "utf16_without_mark.csv",
        "a,b\n1,2\n3,5\n4,7\n".encode("utf-16-be"),
        "`encoding`='utf-16-be'",
        {"encoding": "utf-16-be"},
        PLAIN,
    ),
    Table(
        "cp1252.csv",
        "Größe,b\n1,2\n3,5\n4,7\n".encode("cp1252"),
        "`encoding`='cp1252'",
        {"encoding": "cp1252"},
        PLAIN,
    ),
    Table(
        "cp1252_rows.csv",
        "a,b,who\n1,2,Müller\n3,5,José\n4,7,x\n".encode("cp1252"),
        "`encoding`='cp1252'",
        {"encoding": "cp1252", "id_column": "who"},
        PLAIN,
    ),
    # -- spreadsheets --------------------------------------------------------------------------
    Table(
        "commas_in_texts_beside_numbers.xlsx",
        book(["a", "b"], ["1,5", 2], [3, 5], [4.25, 7]),
        "'1,5' in row 1: pass `decimal`=','",
        {"decimal": ","},
        [[1.5, 2], [3, 5], [4.25, 7]],
    ),
    Table(
        "truth_as_text.xlsx",
        book(["a", "b"], ["TRUE", 2], ["False", 5], [1, 7], ["NA", 8]),
        values=[[1, 2], [0, 5], [1, 7], [NAN, 8]],
    ),
    Table("plain.xlsx", book(["a", "b"], [1, 2], [3, 5], [4, 7]), values=PLAIN),
    Table(
        "two_sheets.xlsx",
        book(["a"], [1], more=[["a", "b"], [1, 2], [3, 5], [4, 7]], none=[]),
        "`sheet`='Sheet'",
        {"sheet": "more"},
        PLAIN,
    ),
    Table(
        "title_and_merged_cells.xlsx",
        merged_title,
        "`skip_rows`=1",
        {"skip_rows": 1, "exclude": "c"},
        PLAIN,
    ),
    Table("formulas.xlsx", with_formulas, values=PLAIN),
    Table(
        "dates.xlsx",
        book(["a", "b", "day"], *([*row, day] for row, day in zip(PLAIN, DAYS, strict=True))),
        "'day' (dates)",
        {"id_column": "day"},
        PLAIN,
    ),
    Table(
        "numbers_as_text.xlsx",
        book(["a", "b"], ["1.234,50", 2], ["-3,5", 5], ["1.000.000", 7]),
        "`decimal`=',', `thousands`='.'",
        {"decimal": ",", "thousands": "."},
        MONEY,
    ),
    Table(
        "an_empty_column.xlsx",
        book(["a", "x", "b"], [1, None, 2], [3, None, 5], [4, None, 7]),
        values=PLAIN,
        warning="'x' (no values)",
    ),
    Table("empty.xlsx", book(), "no filled sheet"),
    Table("not_a_workbook.xlsx", b"a,b\n1,2\n", "not_a_workbook.xlsx"),
    Table("old_excel.xls", b"\xd0\xcf\x11\xe0" + bytes(512), "Save it as .xlsx or .csv"),
    Table("libre_office.ods", open_document(ods_rows(["a", "b"], *PLAIN)), values=PLAIN),
    # -- files of columns ----------------------------------------------------------------------
    Table(
        "null_column.parquet",
        parquet({"a": [1.0, 3, 4], "b": [2.0, 5, 7], "c": pa.nulls(3)}),
        values=PLAIN,
        warning="'c' (no values)",
    ),
    Table(
        "decimals.parquet",
        parquet({"a": pa.array(map(Decimal, "134"), pa.decimal128(9, 2)), "b": [2.0, 5.0, 7.0]}),
        values=PLAIN,
    ),
    Table(
        "dictionary.parquet",
        parquet(
            {"a": [1, 3, 4], "b": [2, 5, 7], "kind": pa.array(["x", "y", "x"]).dictionary_encode()}
        ),
        "'kind' (categories)",
        {"label_column": "kind"},
        PLAIN,
    ),
    Table(
        "nullable_integers.parquet",
        parquet({"a": [1, None, 4], "b": [2, 5, 7]}),
        values=[[1, 2], [NAN, 5], [4, 7]],
    ),
    Table(
        "booleans.parquet",
        parquet({"a": [1, 3, 4], "b": [True, False, None]}),
        values=[[1, 1], [3, 0], [4, NAN]],
    ),
    Table(
        "timestamps.parquet",
        parquet({"a": [1, 3, 4], "b": [2, 5, 7], "at": DAYS}),
        "'at' (dates and times)",
        {"numeric_only": True},
        PLAIN,
        "'at' (dates and times)",
    ),
    Table(
        "lists.parquet",
        parquet({"a": [1, 3, 4], "b": [2, 5, 7], "v": [[1], [2], [3]]}),
        "a column of vectors must be the only one",
        {"exclude": "v"},
        PLAIN,
    ),
    Table("vectors.parquet", parquet({"v": PLAIN}), values=PLAIN),
    Table("the_index_of_pandas.parquet", indexed, values=PLAIN),
    Table(
        "polars.parquet",
        lambda path: pl.DataFrame(PLAIN, schema=["a", "b"], orient="row").write_parquet(path),
        values=PLAIN,
    ),
    Table(
        "feather.feather",
        lambda path: pyarrow.feather.write_feather(
            pa.table({"a": [1, 3, 4], "b": [2, 5, 7]}), path
        ),
        values=PLAIN,
    ),
    Table(
        "the_index_of_a_filtered_frame.csv",
        ",a,b\n0,1,2\n1,3,5\n3,4,7\n",
        "`exclude`='Unnamed: 0'",
        {"exclude": "Unnamed: 0"},
        PLAIN,
    ),
    Table(
        "the_index_of_a_filtered_frame.xlsx",
        book([None, "a", "b"], [2, 1, 2], [5, 3, 5], [17, 4, 7]),
        "`exclude`='Unnamed: 0'",
        {"exclude": "Unnamed: 0"},
        PLAIN,
    ),
    Table(
        "a_nameless_column_of_fractions.xlsx",
        book([None, "b"], [0.5, 2], [1.5, 5], [2.5, 7]),
        values=[[0.5, 2], [1.5, 5], [2.5, 7]],
    ),
    Table(
        "a_nameless_column_of_data.csv",
        ",b\n1,2\n4,5\n3,7\n",
        values=[[1, 2], [4, 5], [3, 7]],
    ),
    *(
        Table(
            f"equal_names.{suffix}",
            twice(suffix),
            "has 2 columns named 'a'; rename them, or leave them out by `exclude`",
            {"exclude": "a"},
            [[7.0], [8.0]],
        )
        for suffix in ("parquet", "arrow", "ipc")
    ),
    Table("stream.arrow", stream, values=PLAIN),
]
BY_NAME = {table.name: table for table in TABLES}
assert len(BY_NAME) == len(TABLES) >= 60
