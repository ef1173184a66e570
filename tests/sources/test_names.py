"""Names and labels of rows are those of the table, whatever the library that holds it."""

import csv
import datetime
import re
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import primedpca

from primedpca import PrimedPCA, as_source

NUMBERS = {"a": [1.0, 2.0, 3.0, 5.0], "b": [1.0, 4.0, 2.0, 0.0]}
LARGE = 2**60 + 1  # which float64 cannot hold
#: Kinds of tables, in files and in memory, of an Arrow table.
KINDS = ["parquet", "feather", "arrow", "stream", "pyarrow", "pandas", "polars"]


def opened(kind, folder, table, **options):
    path = folder / f"x.{'arrow' if kind == 'stream' else kind}"
    if kind == "pandas":
        return as_source(table.to_pandas(integer_object_nulls=False), **options)
    if kind == "polars":
        return as_source(pl.from_arrow(table), **options)
    if kind == "pyarrow":
        return as_source(table, **options)
    if kind == "parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path)
    elif kind == "feather":
        import pyarrow.feather

        pyarrow.feather.write_feather(table, path)
    else:
        new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with new(path, table.schema) as writer:
            writer.write_table(table)
    return as_source(path, **options)


def scores_of(source, path):
    """Names in the table of scores, as text."""
    PrimedPCA(1).fit(source).transform(source, out=path)
    if path.suffix == ".parquet":
        return pd.read_parquet(path)["n"].astype(object).where(lambda x: x.notna(), None).tolist()
    return pd.read_csv(path, dtype=str, keep_default_na=False)["n"].tolist()


# Streams with dictionaries are refused.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "stream"])
@pytest.mark.parametrize("option", ["id_column", "label_column"])
def test_a_missing_category_is_missing(kind, option, tmp_path):
    names = pa.array(["x", None, "y", None]).dictionary_encode()
    source = opened(kind, tmp_path, pa.table({"n": names, **NUMBERS}), **{option: "n"})
    known = source.traits.row_names() if option == "id_column" else source.traits.labels()
    assert known.tolist() == ["x", None, "y", None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_whole_numbers_with_missing_ones_stay_whole(kind, suffix, tmp_path):
    table = pa.table({"n": [LARGE, None, LARGE + 1, 7], **NUMBERS})
    if kind == "pandas":
        frame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        source = as_source(frame, id_column="n")
    else:
        source = opened(kind, tmp_path, table, id_column="n")
    assert source.traits.row_names().tolist() == [LARGE, None, LARGE + 1, 7]
    found = scores_of(source, tmp_path / f"out{suffix}")
    missing = "" if suffix == ".csv" else None
    assert found == [str(LARGE), missing, str(LARGE + 1), "7"]


@pytest.mark.parametrize("kind", KINDS)
def test_times_keep_the_offset_of_their_zone(kind, tmp_path):
    zone = ZoneInfo("America/St_Johns")
    times = [datetime.datetime(2020, month, 1, 23, tzinfo=zone) for month in (1, 7, 8)]
    names = pa.array([*times, None], pa.timestamp("us", zone.key))
    source = opened(kind, tmp_path, pa.table({"n": names, **NUMBERS}), id_column="n")
    found = [
        name and re.sub(r"\.0+", "", str(name)).replace(" ", "T")
        for name in source.traits.row_names()
    ]
    shown = ["2020-01-01T23:00:00-03:30", "2020-07-01T23:00:00-02:30", "2020-08-01T23:00:00-02:30"]
    assert found == [*shown, None]


def test_an_index_of_pandas_keeps_whole_numbers():
    index = pd.Index([LARGE, None], dtype="Int64", name="n")
    source = as_source(pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 5.0]}, index=index))
    assert source.traits.row_names().tolist() == [LARGE, None]


def test_a_name_that_is_data_too_is_the_text_of_the_file(tmp_path):
    (tmp_path / "x.csv").write_text("id,a,b\n007,1,2\n010,3,5\n1e3,2,2\n")
    options = {"id_column": "id", "columns": ["id", "b"], "label_column": "b"}
    source = as_source(tmp_path / "x.csv", **options)
    assert source.row_names.tolist() == ["007", "010", "1e3"]
    assert source.labels.tolist() == ["2", "5", "2"]
    assert source.read(0).tolist() == [[7, 2], [10, 5], [1000, 2]]
    for words in (
        ["fit", "x.csv", "-k", "1", "--columns", "a,id", "-o", "m.safetensors"],
        ["transform", "x.csv", "m.safetensors", "--id", "id", "-o", "o.csv"],
    ):
        assert primedpca(*words, cwd=tmp_path).returncode == 0
    written = pd.read_csv(tmp_path / "o.csv", dtype=str)
    assert written["id"].tolist() == ["007", "010", "1e3"]


@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
def test_marks_for_missing_values_among_names_are_missing(suffix, tmp_path):
    names = ["x", "", "NA", "null", "?", "y", "-999", "None"]
    frame = pd.DataFrame({"n": names, "a": range(8), "b": [3, 1, 4, 1, 5, 9, 2, 6]})
    path = tmp_path / f"t{suffix}"
    write = frame.to_csv if suffix == ".csv" else frame.to_excel
    write(path, index=False)
    options = {"id_column": "n", "label_column": "n"}
    kept = ["x", None, None, None, "?", "y", "-999", "None"]
    assert as_source(path, **options).row_names.tolist() == kept
    source = as_source(path, na_values=["?", -999], **options)
    assert source.labels.tolist() == ["x", None, None, None, None, "y", None, "None"]
    read = pd.read_csv if suffix == ".csv" else pd.read_excel
    pandas = read(path, na_values=["?", -999])["n"]
    assert pandas.isna().tolist() == [*(name is None for name in source.labels[:-1]), True]
    PrimedPCA(1).fit(source).transform(source, out=tmp_path / "s.csv")
    written = pd.read_csv(tmp_path / "s.csv", keep_default_na=False)
    assert written["n"].tolist() == [name or "" for name in source.labels]


def test_a_quoted_empty_name_is_missing(tmp_path):
    (tmp_path / "x.csv").write_text('n,a,b\n"",1,2\nx,3,5\n"NA",2,2\n')
    assert as_source(tmp_path / "x.csv", id_column="n").row_names.tolist() == [None, "x", None]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_line_ends_in_names_are_quoted(suffix, end, tmp_path):
    names = [f"a{end}b", f"c{end}", 'd"e', "f\tg,h"]
    frame = pd.DataFrame({"n": names, **NUMBERS})
    source = as_source(frame, id_column="n")
    PrimedPCA(1).fit(source).transform(source, out=tmp_path / f"x{suffix}")
    again = as_source(tmp_path / f"x{suffix}", id_column="n")
    assert again.row_names.tolist() == names
    with open(tmp_path / f"x{suffix}", encoding="utf-8", newline="") as file:
        assert [row[0] for row in csv.reader(file, delimiter=",\t"[suffix == ".tsv"])][1:] == names


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("option", ["id_column", "label_column"])
def test_a_name_of_scores_is_not_that_of_names(suffix, option, tmp_path):
    source = as_source(pd.DataFrame({"PC1": list("wxyz"), **NUMBERS}), **{option: "PC1"})
    with pytest.raises(ValueError, match=r"two columns 'PC1'\. Rename .*, or leave it out"):
        PrimedPCA(2).fit(source).transform(source, out=tmp_path / f"x{suffix}")
    assert not list(tmp_path.iterdir())


def test_names_and_labels_are_two_columns_unless_they_are_one(tmp_path):
    frame = pd.DataFrame({"name": list("wxyz"), **NUMBERS}, index=list("abcd"))
    source = as_source(frame, label_column="name")
    model = PrimedPCA(1).fit(source)
    with pytest.raises(ValueError, match="two columns 'name'"):
        model.transform(source, out=tmp_path / "x.csv")
    both = as_source(frame, id_column="name", label_column="name")
    model.transform(both, out=tmp_path / "x.csv")
    assert pd.read_csv(tmp_path / "x.csv").iloc[:, 0].tolist() == list("wxyz")


CATEGORIES = {
    "integers": [LARGE, None, 3],
    "booleans": [True, None, False],
    "floats": [1.5, None, 2.5],
    "dates": [datetime.date(2020, 1, 1), None, datetime.date(2021, 2, 3)],
    "times": [datetime.datetime(2020, 1, 1, 5), None, datetime.datetime(2021, 2, 3, 6)],
    "durations": [datetime.timedelta(1), None, datetime.timedelta(2)],
}


def as_listed(names):
    """Names of Python, with None for every missing one."""
    if names.dtype.kind in "mM" and names.dtype != "M8[D]":
        names = names.astype(f"{names.dtype.kind}8[us]")  # which Python has, too
    return [None if pd.isna(name) else name for name in names.tolist()]


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("names", CATEGORIES.values(), ids=CATEGORIES)
def test_a_missing_category_of_any_type_is_missing(names, cut):
    table = pa.table({"n": pa.array(names).dictionary_encode(), "a": [1.0, 2, 4], "b": [3.0, 1, 2]})
    if cut:
        table, names = pa.concat_tables([table, table]).slice(1, 4), [*names, *names][1:5]
    for option, kind in (("id_column", "row_names"), ("label_column", "labels")):
        assert as_listed(getattr(as_source(table, **{option: "n"}), kind)) == names


@pytest.mark.parametrize("names", CATEGORIES.values(), ids=CATEGORIES)
def test_categories_of_pandas_keep_their_values(names):
    values = pd.Categorical(names)
    numbers = {"a": [1.0, 2.0, 4.0], "b": [3.0, 1.0, 2.0]}
    for source in (
        as_source(pd.DataFrame({**numbers, "n": values}), id_column="n"),
        as_source(pd.DataFrame(numbers, index=pd.CategoricalIndex(values, name="n"))),
    ):
        assert as_listed(source.row_names) == names


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pandas"])
@pytest.mark.parametrize("more", [0, 7])
def test_times_of_day_keep_nanoseconds(kind, more, tmp_path):
    hour = 3600 * 10**9
    times = pa.array([hour, hour + 1000 + more, None, 5], pa.time64("ns"))
    if not more:
        times = pa.array([hour, hour + 1000, None, 5000], pa.time64("ns"))
    source = opened(kind, tmp_path, pa.table({"n": times, **NUMBERS}), id_column="n")
    shown = ["01:00:00", "01:00:00.000001", None, "00:00:00.000005"]
    if more:
        shown = ["01:00:00.000000000", "01:00:00.000001007", None, "00:00:00.000000005"]
    assert [name and str(name) for name in source.row_names] == shown
    frame = pd.DataFrame({**NUMBERS, "n": pd.array(times, pd.ArrowDtype(times.type))})
    assert as_source(frame, id_column="n").row_names.tolist() == source.row_names.tolist()


MISSING = {
    "floats": [0.1, float("nan"), 2.5, 3.0],
    "dates": np.array(["2020-01-01", "NaT", "2020-01-02", "2020-01-03"], "M8[s]"),
    "durations": np.array([1, "NaT", 2, 3], "m8[D]"),
    "objects": np.array(["x", pd.NA, "y", "z"], dtype=object),
    "objects with NaN": np.array(["x", np.nan, "y", pd.NaT], dtype=object),
}


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("names", MISSING.values(), ids=MISSING)
def test_missing_names_are_written_as_missing(names, suffix, tmp_path):
    frame = pd.DataFrame({"n": names, **NUMBERS})
    # One column as both: missing names equal missing labels.
    source = as_source(frame, id_column="n", label_column="n")
    out = tmp_path / f"x{suffix}"
    PrimedPCA(1).fit(source).transform(source, out=out)
    gaps = [bool(pd.isna(name)) for name in names]
    if suffix == ".parquet":
        assert [name is None for name in pq.read_table(out)["n"].to_pylist()] == gaps
    else:
        with open(out, encoding="utf-8", newline="") as file:
            rows = [*csv.reader(file, delimiter=",\t"[suffix == ".tsv"])][1:]
        assert [row[0] == "" for row in rows] == gaps
