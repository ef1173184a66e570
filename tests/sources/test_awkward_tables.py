"""Awkward tables: each loads by a documented option, or is refused with the option named."""

import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from awkward_tables import BY_NAME
from command import primedpca

from primedpca import as_source, load
from primedpca.cli.options import as_names
from primedpca.cli.printing import in_words_of_the_command_line
from primedpca.sources.base import whole

FLAGS = {"id_column": "--id", "label_column": "--label"}
REFUSED = (ValueError, OSError)


@pytest.fixture(params=BY_NAME.values(), ids=BY_NAME)
def table(request):
    return request.param


@pytest.fixture
def path(table, tmp_path):
    return table.write(tmp_path)


def opened(path, options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        source = as_source(path, **options)
    return source, " ".join(str(warning.message) for warning in caught)


def test_every_table_is_read_or_refused_with_a_remedy(table, path):
    if table.refusal is not None:
        with pytest.raises(REFUSED) as refusal:
            as_source(path)
        assert table.refusal in str(refusal.value)
        assert path.name in str(refusal.value)
    if table.values is not None:
        source, warned = opened(path, table.options or {})
        np.testing.assert_array_equal(whole(source), table.values)
        assert (table.warning or "") in warned
        assert bool(table.warning) == bool(warned)


def words_of(options):
    for name, value in (options or {}).items():
        flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
        if value is True:
            yield flag
        elif value is False:
            yield flag.replace("--", "--no-")
        else:
            yield from (flag, ",".join(value) if isinstance(value, list) else value)


def test_the_command_line_says_the_same(table, path):
    if table.refusal is not None:
        done = primedpca("fit", path.name, "-k", "1", "--missing", "mean", cwd=path.parent)
        assert done.returncode == 1
        assert in_words_of_the_command_line(table.refusal) in done.stderr
        assert "`" not in done.stderr or "`--" in done.stderr
    if table.values is None:
        return
    words = ("--json", "-k", "1", "--missing", "mean", *words_of(table.options))
    done = primedpca("fit", path.name, *words, cwd=path.parent)
    found = json.loads(done.stdout)
    if len(table.values) == 1:  # read, but a single row has no variance
        assert "error" in found
        return
    assert done.returncode == 0, done.stderr
    assert [found["n_samples"], found["n_features"]] == list(np.shape(table.values))
    assert (table.warning or "") in done.stderr


def test_a_model_of_a_table_finds_its_columns_by_name_in_another(tmp_path):
    table = BY_NAME["german_excel.csv"]
    options = list(words_of(table.options))
    first, second = table.write(tmp_path), tmp_path / "later.csv"
    second.write_text("note;b;a\nx;2;1.234,50\ny;5;\n")
    model = tmp_path / "m.safetensors"
    fitted = primedpca("fit", first, "-k", "1", *options, "-o", model)
    assert fitted.returncode == 0, fitted.stderr
    done = primedpca("transform", second, model, *options, "-o", tmp_path / "s.csv")
    assert "NaN" in done.stderr  # the column that is empty here is not left out
    words = ("fit", first, "-k", "1", "--missing", "mean", *options, "-o", model, "--force")
    assert primedpca(*words).returncode == 0
    done = primedpca("transform", second, model, *options, "-o", tmp_path / "s.csv")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("-999.0", {"na_values": [-999]}),
        (" -999 ", {"na_values": -999.0}),
        ("-9.99e2", {"na_values": "-999"}),
        ("-999,50", {"na_values": [-999.5], "decimal": ","}),
        ("-999,50", {"na_values": ["?", "-999,5"], "decimal": ","}),
        ("-1.000", {"na_values": "-1000", "decimal": ",", "thousands": "."}),
        ("$-1", {"na_values": -1, "strip": "$"}),
        ("-999.0", {"na_values": np.array([-999])}),
        ("-999.0", {"na_values": np.array([-999, 0.5])}),
        ("-999", {"na_values": np.int16(-999)}),
        ("0.10", {"na_values": [np.float32(0.1)]}),
        ("0.10000000149011612", {"na_values": np.float32(0.1)}),
        ("inf", {"na_values": "inf"}),
        ("-99,90", {"na_values": "-99.9", "decimal": ","}),
        ("-999,0", {"na_values": "-999.0", "decimal": ",", "thousands": "."}),
        ("-7", {"na_values": ["5-", "-7"]}),
    ],
)
def test_a_number_that_stands_for_a_missing_value_does_so_however_it_is_written(
    cell, options, tmp_path
):
    path = tmp_path / "x.csv"
    path.write_text(f"a;b\n{cell};2\n3;-9\n5;9\n")
    block = as_source(path, delimiter=";", **options).read(0)
    np.testing.assert_array_equal(block, [[np.nan, 2], [3, -9], [5, 9]])


def test_numbers_in_cells_of_a_sheet_stand_for_missing_values(tmp_path):
    pd.DataFrame({"a": [-999.0, 2, 3], "b": [1.5, 2, 9]}).to_excel(tmp_path / "x.xlsx", index=False)
    block = as_source(tmp_path / "x.xlsx", na_values=-999).read(0)
    np.testing.assert_array_equal(block, [[np.nan, 1.5], [2, 2], [3, 9]])


@pytest.mark.parametrize(("mark", "decimal"), [("-99.9", ","), ("-99,9", ","), (-99.9, ",")])
def test_numbers_in_cells_stand_for_missing_values_in_either_notation(mark, decimal, tmp_path):
    pd.DataFrame({"a": [-99.9, 2, 3], "b": [1.5, 2, 9]}).to_excel(tmp_path / "x.xlsx", index=False)
    block = as_source(tmp_path / "x.xlsx", na_values=mark, decimal=decimal).read(0)
    np.testing.assert_array_equal(block, [[np.nan, 1.5], [2, 2], [3, 9]])


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_a_mark_with_a_decimal_comma_needs_that_sign(suffix, tmp_path):
    frame = pd.DataFrame({"a": [-99.9, 2, 3], "b": [1.5, 2, 9]})
    getattr(frame, {"csv": "to_csv", "xlsx": "to_excel"}[suffix])(tmp_path / f"x.{suffix}")
    said = r"has '-99,9', a number with a decimal comma. Pass `decimal`=',', or -99.9"
    with pytest.raises(ValueError, match=said):
        as_source(tmp_path / f"x.{suffix}", na_values="-99,9")


def test_a_decimal_comma_in_marks_on_the_command_line(tmp_path):
    (tmp_path / "x.csv").write_text("a;b\n9;-99,9\n3;1,5\n5;9\n4;0\n")
    words = ("fit", "x.csv", "-k", "1", "--delimiter", ";", "--decimal", ",", "--missing", "mean")
    for marks, missing in (('"-99,9"', 1), ("-99.9,x", 1), ("-99, 9", 2), ("-99,-98", 0)):
        out = ("-o", "m.safetensors", "--force")
        done = primedpca(*words, "--na-values", marks, *out, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        columns = [[9, 3, 5, 4], [-99.9, 1.5, 9, 0]]
        gone = [[], [-99.9], [9]][missing]
        means = [np.mean([x for x in column if x not in gone]) for column in columns]
        np.testing.assert_allclose(load(tmp_path / "m.safetensors").mean_, means)
    done = primedpca(*words, "--na-values", "?,-99,9", cwd=tmp_path)
    assert done.returncode == 2
    assert """Write '"-99,9"' for one number, or '-99, 9' for two""" in done.stderr


@pytest.mark.parametrize(
    ("entry", "options", "hint"),
    [
        ("0.123", {"decimal": ",", "thousands": "."}, "`decimal`='.', no `thousands`"),
        ("-000.123", {"decimal": ",", "thousands": "."}, "`decimal`='.', no `thousands`"),
        ("0,123", {"thousands": ","}, "`decimal`=',', no `thousands`"),
        ("0,123", {}, "`decimal`=','"),
        ("1’234", {}, "`thousands`='’'"),
        ("12\u00a0%", {}, "`strip`='%'"),
    ],
)
def test_an_entry_that_is_no_number_in_a_notation_comes_with_a_hint(entry, options, hint, tmp_path):
    (tmp_path / "x.csv").write_text(f"a;b\n{entry};2\n3;4\n", encoding="utf-8")
    with pytest.raises(ValueError) as refusal:
        as_source(tmp_path / "x.csv", delimiter=";", **options)
    assert f"({entry!r} in row 1: pass {hint})" in str(refusal.value)


@pytest.mark.parametrize(
    ("entry", "options", "value"),
    [
        ("10,123.5", {"thousands": ","}, 10123.5),
        ("0.123", {"thousands": ","}, 0.123),
        ("12\u00a0%", {"strip": "%"}, 12),
        ("€\u202f12", {"strip": "€"}, 12),
        ("(\u00a0$12)", {"strip": "$"}, -12),
        ("\u22125", {}, -5),
        ("  ", {}, np.nan),
        ("NA ", {}, np.nan),
    ],
)
@pytest.mark.parametrize("before", [0, 3000])
def test_blanks_and_signs_of_typesetters_in_numbers(entry, options, value, before, tmp_path):
    rows = "1;2\n" * before
    (tmp_path / "x.csv").write_text(f"a;b\n{rows}{entry};2\n3;4\n", encoding="utf-8")
    block = as_source(tmp_path / "x.csv", delimiter=";", **options).read(0)
    np.testing.assert_array_equal(block[before:], [[value, 2], [3, 4]])


def test_a_folder_of_csv_files_is_refused_with_a_remedy(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="Join its CSV files into one, or convert"):
        as_source(tmp_path)


def test_true_and_false_are_not_the_numbers_that_stand_for_missing_values(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2, 3], "b": [True, False, True]})
    frame.to_excel(tmp_path / "x.xlsx", index=False)
    frame.to_csv(tmp_path / "x.csv", index=False)
    for name in ("x.csv", "x.xlsx"):
        block = as_source(tmp_path / name, na_values=[1]).read(0)
        np.testing.assert_array_equal(block, [[np.nan, 1], [2, 0], [3, 1]])


def test_options_of_the_wrong_type_are_refused_by_name(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2], "b": [3.0, 4]})
    frame.to_excel(tmp_path / "x.xlsx", index=False)
    frame.to_csv(tmp_path / "x.csv", index=False)
    for name in ("x.csv", "x.xlsx"):
        with pytest.raises(ValueError, match="`header`='x' must be True or False"):
            as_source(tmp_path / name, header="x")
        with pytest.raises(TypeError, match=r"`na_values`=\[None\] must be a text or number"):
            as_source(tmp_path / name, na_values=[None])
        rows = as_source(tmp_path / name, columns=["f0"], skip_rows=1, header=np.bool_(False))
        assert rows.shape == (2, 1)


def test_row_names_without_a_name_beside_decimal_commas(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\nx;1,5;2,5\ny;3,5;4,5\n")
    options = {"delimiter": ";", "decimal": ",", "id_column": "Unnamed: 0"}
    source = as_source(tmp_path / "t.csv", **options)
    np.testing.assert_array_equal(source.read(0), [[1.5, 2.5], [3.5, 4.5]])
    assert source.row_names.tolist() == ["x", "y"]


def test_a_comment_behind_an_empty_last_field(tmp_path):
    rows = b"a\tb\tc\n1\t2\t3\n4\t5\t# no c\n  # a line of its own\n7\t8\t9\n"
    (tmp_path / "t.tsv").write_bytes(rows)
    block = as_source(tmp_path / "t.tsv", comment="#").read(0)
    np.testing.assert_array_equal(block, [[1, 2, 3], [4, 5, np.nan], [7, 8, 9]])


@pytest.mark.parametrize(("suffix", "sign"), [(".csv", ","), (".tsv", "\t")])
@pytest.mark.parametrize("comment", ["", "# x", " # x"])
def test_a_row_of_empty_fields_before_a_comment_is_a_row(comment, suffix, sign, tmp_path):
    path = tmp_path / f"t{suffix}"
    path.write_text(f"a,b\n1,2\n,{comment}\n3,4\n".replace(",", sign))
    block = as_source(path, comment="#").read(0)
    np.testing.assert_array_equal(block, [[1, 2], [np.nan, np.nan], [3, 4]])
    path.write_text(f"a,b,c\n1,2,3\n,{comment}\n".replace(",", sign))
    with pytest.raises(ValueError, match="a line with 2 fields instead of 3"):
        as_source(path, comment="#")


def test_one_column_whose_name_holds_the_decimal_sign(tmp_path):
    path, options = tmp_path / "t.csv", {"delimiter": ";", "decimal": ","}
    path.write_text("a,b\n1,5\n2,5\n")
    with pytest.raises(ValueError, match="`delimiter`=',', or put the name in quotation marks"):
        as_source(path, **options)
    path.write_text('"a,b"\n1,5\n2,5\n')
    source = as_source(path, **options)
    assert source.feature_names.tolist() == ["a,b"]
    np.testing.assert_array_equal(source.read(0), [[1.5], [2.5]])


NO_ENCODINGS = {"x": "must be", "hex": "must be", "a\0": "must be", "undefined": "must be"}
NO_ENCODINGS |= {5: "must be", "cp037": "is not supported"}


@pytest.mark.parametrize(("given", "words"), NO_ENCODINGS.items())
def test_an_encoding_that_is_none_is_refused_by_name(given, words, tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,5\n2,3\n")
    with pytest.raises(ValueError, match="encoding") as found:
        as_source(tmp_path / "a.csv", encoding=given)
    assert str(found.value).startswith(f"`encoding`={given!r} {words}")


def test_a_comment_that_is_none_is_refused_by_name(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,5\n2,3\n")
    for given in ("//", ",", 5):
        with pytest.raises(ValueError, match="comment") as found:
            as_source(tmp_path / "a.csv", comment=given)
        assert str(found.value).startswith(f"`comment`={given!r} must be one printable character")


def test_a_decimal_sign_that_is_not_ascii_is_refused_by_name(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1·5,2\n2,3\n", encoding="utf-8")
    with pytest.raises(ValueError, match="`decimal`='·' is not ASCII") as found:
        as_source(tmp_path / "a.csv", decimal="·")
    assert "damaged" not in str(found.value)


def test_chosen_columns_of_which_one_is_left_out_late(tmp_path):
    """Text far below leaves out a column; that is no sign of a name too few."""
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "1,2\n" * 200_000 + "3,four\n")
    with pytest.warns(UserWarning, match="'b'"):
        source = as_source(path, columns=["a", "b"], numeric_only=True)
    assert source.column_names == ("a",)
    assert source.shape == (200_001, 1)


@pytest.mark.parametrize("dash", ["-", "--", "\u2212", "\u2013", "\u2014"])
def test_a_dash_right_behind_the_decimal_sign_stands_for_zeros(dash, tmp_path):
    entries = f"12,{dash} €;8,50 €;-20,{dash}€;(3,{dash});5-;4,0-".split(";")
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["a;b", *(f"{one};1" for one in entries), ""]), encoding="utf-8")
    block = as_source(path, delimiter=";", decimal=",", strip="€").read(0)
    assert block[:, 0].tolist() == [12, 8.5, -20, -3, -5, -4]
    path.write_text(f"a;b\nCHF 1'234.{dash};1\nCHF 8.50;4\n", encoding="utf-8")
    block = as_source(path, delimiter=";", thousands="'", strip="CHF").read(0)
    assert block[:, 0].tolist() == [1234, 8.5]


@pytest.mark.parametrize("entry", ["5,5,-", "1e5,-", ",-", "1.234.-", "5\u2013"])
def test_a_dash_elsewhere_is_refused(entry, tmp_path):
    (tmp_path / "x.csv").write_text(f"a;b\n{entry};1\n2;4\n", encoding="utf-8")
    with pytest.raises(ValueError, match="not all numbers"):
        as_source(tmp_path / "x.csv", delimiter=";", decimal=",", thousands=".")


@pytest.mark.parametrize("kind", ["frame", "arrow", "pandas", "dictionary", "feather"])
def test_categories_of_numbers_are_refused_however_they_are_stored(kind, tmp_path):
    frame = pd.DataFrame({"group": pd.Categorical([10, 20, 10]), "x": [1.0, 2, 4]})
    table, path = pa.Table.from_pandas(frame), tmp_path / "x.parquet"
    if kind == "pandas":  # as other writers of Parquet store what pandas holds
        metadata, plain = table.schema.metadata, frame.astype({"group": int})
        table = pa.Table.from_pandas(plain).replace_schema_metadata(metadata)
        pq.write_table(table, path)
    elif kind == "dictionary":
        pq.write_table(table.replace_schema_metadata(None), path)
    elif kind == "feather":
        path = tmp_path / "x.feather"
        frame.to_feather(path)
    given = {"frame": frame, "arrow": table}.get(kind, path)
    with pytest.raises(ValueError, match=r"'group' \(categories\)"):
        as_source(given)
    source = as_source(given, label_column="group")
    assert source.shape == (3, 1)
    assert source.labels.tolist() == [10, 20, 10]


@pytest.mark.parametrize(
    ("text", "options", "line"),
    [
        ("\n".join(["i,x", *('"' * (i in (10, 500)) + f"r{i},{i}" for i in range(999))]), {}, 12),
        ('i,x\r\na,1\r\n"b"c,2\r\n', {}, 3),
        ('i,x\ra,1\r"b" c,2\rd,4\r', {}, 3),
        ('# "of"\n"i"n,x\na,1\n', {"comment": "#"}, 2),
        ('"a" title\n\ni,x\na,1\nb,"2"3\n', {"skip_rows": 1}, 5),
        ('i;x\n"a""b"c;1\n', {"delimiter": ";"}, 2),
        ('i x\na 1\n"b c"d  2\n', {"delimiter": " "}, 3),
        ('i\tx\n"a"  b\t1\n', {"delimiter": "\t"}, 2),
        ('i,x\n"ü\nü",1\n"b" #,2\n', {"encoding": "utf-16-le"}, 4),
    ],
)
def test_text_behind_a_quotation_is_refused_with_its_line(text, options, line, tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode(options.get("encoding", "utf-8")))
    with pytest.raises(ValueError, match=rf"text follows a quotation in line {line}, .*correct"):
        as_source(path, id_column="i", **options)


@pytest.mark.parametrize("size", [0, 300])
def test_the_line_of_a_quotation_is_counted_over_all_pieces(size, tmp_path, monkeypatch):
    rows = [f"r{i},{i}" for i in range(999)]
    rows[900] = '"r900"x,1'
    (tmp_path / "x.csv").write_text("\n".join(["\ufeffi,x", '"a\nb",1', *rows, ""]), "utf-8")
    if size:
        monkeypatch.setattr("primedpca.sources.base.READ_BYTES", size)
    with pytest.raises(ValueError, match="in line 904, '\"r900\"x,1'"):
        as_source(tmp_path / "x.csv", id_column="i")


@pytest.mark.parametrize(
    ("text", "options", "names"),
    [
        ('i,x\n"a""b",1\n"""",2\n" c" ,"3"\t\n', {}, ['a"b', '"', " c "]),
        ('i,x\r\n"a\r\nb","1"\r\n5" c,2\r\nd"e",3', {}, ["a\r\nb", '5" c', 'd"e"']),
        ('i,x\n"a",1# "x"y\n"b","2" # c\n"#",3\n', {"comment": "#"}, ["a", "b", "#"]),
        ('i\tx\n"a"\t1\n"b" \t2\n"c""" \t"3"\n', {"delimiter": "\t"}, ["a", "b ", 'c" ']),
        ('"i" x\n"a b"  1\n"c"\t"2"\n"d" 3  \n', {"delimiter": " "}, ["a b", "c", "d"]),
    ],
)
def test_sound_quotations_are_read(text, options, names, tmp_path):
    (tmp_path / "x.csv").write_bytes(text.encode())
    source = as_source(tmp_path / "x.csv", id_column="i", **options)
    blocks = [source.read(i) for i in range(len(source.blocks))]
    assert np.concatenate(blocks)[:, 0].tolist() == [1, 2, 3]
    assert source.row_names.tolist() == names


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        ("1.234", "`thousands`='.'"),
        ("25.100.000", "`thousands`='.'"),
        ("1 234", "`thousands`=' '"),
        ("1\u202f234", "`thousands`=' '"),
        ("1'234", '`thousands`="\'"'),
        ("1.234 €", "`thousands`='.', `strip`='€'"),
        ("1.5", "`decimal`='.'"),
    ],
)
def test_a_hint_keeps_the_decimal_sign_that_was_passed(entry, hint, tmp_path):
    (tmp_path / "x.csv").write_text(f"a;b\n{entry};2,5\n7;4\n", encoding="utf-8")
    with pytest.raises(ValueError) as refusal:
        as_source(tmp_path / "x.csv", delimiter=";", decimal=",")
    assert f"in row 1: pass {hint})" in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "hint"),
    [({"strip": "%"}, "`na_values`='%'"), ({}, "`strip`='%', `na_values`='%'")],
)
def test_a_unit_without_a_number_is_a_mark_and_not_a_comment(options, hint, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a;b\n%;1\n5%;2\n7%;9\n")
    with pytest.raises(ValueError) as refusal:
        as_source(path, delimiter=";", **options)
    assert f"('%' in row 1: pass {hint})" in str(refusal.value)
    block = as_source(path, delimiter=";", strip="%", na_values="%").read(0)
    np.testing.assert_array_equal(block, [[np.nan, 1], [5, 2], [7, 9]])


@pytest.mark.parametrize(
    ("entries", "sign"),
    [
        (["0.0", "1.0", "2.0"], "."),
        (["1.0", "5.0", "7.0"], "."),
        (["0,0", "1,0", "2"], ","),
        (["1", "2", "3"], ","),
        (["1e0", "1e1", "1e2"], "."),
        (["9007199254740993", "9007199254740994", "9007199254740995"], "."),
    ],
)
def test_an_index_of_whole_floats_is_refused_as_one_of_integers(entries, sign, tmp_path):
    path, rows = tmp_path / "x.csv", "".join(f"{one};{i * i}\n" for i, one in enumerate(entries))
    path.write_text(f";x\n{rows}")
    with pytest.raises(ValueError, match="that numbers the rows"):
        as_source(path, delimiter=";", decimal=sign)
    path.write_text(f"n;x\n{rows}")
    if len(entries[0]) < 16:
        assert as_source(path, delimiter=";", decimal=sign).shape == (3, 2)


@pytest.mark.parametrize("entries", [["0.5", "1.5", "2.5"], ["2.0", "1.0", "0.0"], ["1", "", "3"]])
def test_a_column_without_a_name_that_does_not_count_is_data(entries, tmp_path):
    rows = "".join(f"{one},{i * i}\n" for i, one in enumerate(entries))
    (tmp_path / "x.csv").write_text(f",x\n{rows}")
    assert as_source(tmp_path / "x.csv").shape == (3, 2)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("a, b ,c", ["a", "b", "c"]),
        ('a,"b, c"', ["a", "b, c"]),
        ('" id "', [" id "]),
        ('a , " id " ,b', ["a", " id ", "b"]),
        ('"a""b",c"d', ['a"b', 'c"d']),
        ('"', ['"']),
        ("site\nname,x", ["site\nname", "x"]),
        ('"site\r\nname"', ["site\r\nname"]),
        (r"site\nname", ["site\nname"]),
        (r"a\\b", [r"a\\b"]),
        (r"C:\\new,C:\data", [r"C:\new", r"C:\data"]),
    ],
)
def test_names_of_columns_on_the_command_line(words, names):
    assert as_names(words) == names


@pytest.mark.parametrize("words", ["", "a,,b", "a,", '""', ' , "a"'])
def test_an_empty_name_on_the_command_line_is_refused(words):
    with pytest.raises(typer.BadParameter, match="Empty name"):
        as_names(words)


def test_columns_with_line_breaks_on_the_command_line(tmp_path):
    frame = pd.DataFrame({"site\nname": ["u", "v", "w"], " id ": [1, 5, 2], "x": [1.0, 2, 5]})
    frame.to_parquet(tmp_path / "x.parquet")
    for words in (
        ("--exclude", "site\nname"),
        ("--exclude", r"site\nname"),
        ("--id", r"site\nname"),
        ("--label", "site\nname"),
        ("--columns", '" id ",x'),
        ("--exclude", '"site\nname"," id "'),
    ):
        done = primedpca("fit", "x.parquet", "-k", "1", "--json", *words, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
    (tmp_path / "x.csv").write_text('"a\nb",x\n1,2\n3,5\n4,9\n')
    for words in (("--strip", "a\nb"), ("--na-values", "a\nb"), ("--columns", "a\nb,x")):
        done = primedpca("fit", "x.csv", "-k", "1", "--json", *words, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
