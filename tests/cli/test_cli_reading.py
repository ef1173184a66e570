"""What command lines read: headers, maps, raw numbers, devices, models."""

import dataclasses
import gzip
import inspect
import json

import numpy as np
import pandas as pd
import pytest
from command import on_a_terminal, primedpca
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA

from primedpca import PrimedPCA, as_source, load
from primedpca.cli.options import Preparation, Search, as_angle
from primedpca.sources import maps

X = load_iris().data


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.savetxt(tmp_path / "bare.csv", X, delimiter=",")
    return tmp_path


def answer(*words, cwd, code=0):
    done = primedpca(words[0], "--json", *words[1:], cwd=cwd)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout, parse_constant=pytest.fail)


def error(*words, cwd):
    return answer(*words, cwd=cwd, code=1)["error"]


def write_csv(path, names, rows=X, delimiter=","):
    np.savetxt(path, rows, delimiter=delimiter, header=delimiter.join(names), comments="")


# -- the first line of CSV ---------------------------------------------------------------------


def test_a_csv_without_a_header_loses_no_row(folder):
    said = error("fit", "bare.csv", "-k", "2", cwd=folder)
    assert "pass `--no-header` if it is a row like the others" in said
    assert "`--header` if these are names" in said
    assert "5.099999999999999645e+00" in said
    found = answer("fit", "bare.csv", "-k", "2", "--no-header", "-o", "m.safetensors", cwd=folder)
    assert found["n_samples"] == len(X)
    np.testing.assert_allclose(found["explained_variance"], PCA(2).fit(X).explained_variance_)
    words = ("transform", "bare.csv", "m.safetensors", "-o", "s.npy")
    assert answer(*words, "--no-header", cwd=folder)["shape"] == [len(X), 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [("0,0\n1,2\n2,1\n", ()), ("5.1,3.5,setosa\n4,3,setosa\n6,1,other\n", ("--label", "setosa"))],
    ids=["equal values", "with a class"],
)
def test_a_row_is_told_from_names_whatever_stands_in_it(text, words, folder):
    (folder / "row.csv").write_text(text)
    assert "`--no-header`" in error("fit", "row.csv", "-k", "1", *words, cwd=folder)


def test_names_may_be_numbers(folder):
    write_csv(folder / "counted.csv", "0123")  # as pandas writes a frame without names
    assert answer("fit", "counted.csv", "-k", "2", cwd=folder)["n_samples"] == len(X)
    years = ("1990", "1991", "1992", "1993")
    write_csv(folder / "years.csv", years)
    assert "(1990, 1991, 1992, ...)" in error("fit", "years.csv", "-k", "2", cwd=folder)
    words = ("fit", "years.csv", "-k", "2", "--header", "-o", "m.safetensors")
    assert answer(*words, cwd=folder)["n_samples"] == len(X)
    assert tuple(load(folder / "m.safetensors").feature_names_in_) == years
    # The model has these names, so the option is not needed again.
    words = ("transform", "years.csv", "m.safetensors", "-o", "s.npy")
    assert answer(*words, cwd=folder)["shape"] == [len(X), 2]


def test_components_in_csv_are_all_audited(folder):
    right = PCA(2).fit(X).components_
    np.savetxt(folder / "c.csv", right, delimiter=";")
    words = ("c.csv", "--delimiter", ";", "--no-header", "--tol", "1deg")
    found = answer("certify", "x.npy", *words, cwd=folder)
    assert found["met"] is True
    assert len(found["certificate"]["angle_bounds"]) == 2
    # Data with column names, components without.
    write_csv(folder / "x.csv", "abcd", delimiter=";")
    found = answer("certify", "x.csv", "c.csv", "--delimiter", ";", cwd=folder)
    assert len(found["certificate"]["angle_bounds"]) == 2


@pytest.mark.parametrize(
    ("words", "ours", "theirs", "named"),
    [
        (("--delimiter", ";"), ";", ",", True),
        (("--delimiter", ";"), ";", ",", False),
        ((), ",", ";", True),
        ((), ",", "\t", False),
        (("--no-header",), ",", ",", True),
        (("--no-header",), ",", ",", "0123"),
        (("--no-header", "--delimiter", ";"), ";", ",", True),
    ],
)
def test_options_of_the_data_need_not_describe_the_components(words, ours, theirs, named, folder):
    if "--no-header" in words:
        np.savetxt(folder / "d.csv", X, delimiter=ours)
    else:
        write_csv(folder / "d.csv", "abcd", delimiter=ours)
    head = theirs.join(named if isinstance(named, str) else "abcd") if named else ""
    right = PCA(2).fit(X).components_
    np.savetxt(folder / "e.csv", right, delimiter=theirs, header=head, comments="")
    if not named:
        (folder / "e.csv").write_text((folder / "e.csv").read_text().lstrip())
    found = answer("certify", "d.csv", "e.csv", *words, "--tol", "1deg", cwd=folder)
    assert found["met"] is True
    assert len(found["certificate"]["angle_bounds"]) == 2


@pytest.mark.parametrize("words", [(), ("--decimal", ",")])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("sign", [";", "\t", "|"])
def test_components_may_have_a_decimal_comma(sign, named, words, folder):
    rows = [sign.join(f"{value!r}" for value in row) for row in PCA(2).fit(X).components_.tolist()]
    lines = [sign.join("abcd")] * named + [row.replace(".", ",") for row in rows]
    (folder / "c.csv").write_text("\n".join(lines) + "\n")
    found = answer("certify", "x.npy", "c.csv", *words, "--tol", "1deg", cwd=folder)
    assert found["met"] is True
    assert len(found["certificate"]["angle_bounds"]) == 2


@pytest.mark.parametrize("words", [(), ("--delimiter", ";"), ("--decimal", ",")])
@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("c.csv", "a,b,c,d\n1,0,x,0\n0,1,0,0\n", "not all numbers: 'c' ('x' in row 1). Write num"),
        ("c.csv", "a,b,c,d\n1,0,50%,0\n0,1,0,0\n", "'c' ('50%' in row 1). Write numbers alone"),
        ("c.csv", "a,b,c,d\n1,0,0\n0,1,0,0\n", "3 fields instead of 4"),
        ("c.csv", "", "is empty"),
        ("c.csv", "a,b,c,d\n1,,0,0\n0,1,0,0\n", "non-finite value, nan, in row 1, column 2"),
        ("c.bin", "12345678", "unsupported suffix"),
    ],
)
def test_errors_about_components_name_no_options_of_the_data(name, text, named, words, folder):
    (folder / name).write_text(text)
    error = answer("certify", "x.npy", name, *words, cwd=folder, code=1)["error"]
    assert error.startswith("COMPONENTS")
    assert named in error
    assert "`--" not in error


def test_gzipped_tabs_are_a_table_to_every_command(folder):
    write_csv(folder / "x.tsv", "abcd", delimiter="\t")
    (folder / "x.tsv.gz").write_bytes(gzip.compress((folder / "x.tsv").read_bytes()))
    words = ("fit", "x.tsv.gz", "-k", "2", "--exclude", "d", "-o", "m.safetensors")
    assert answer(*words, cwd=folder)["n_features"] == 3
    words = ("transform", "x.tsv.gz", "m.safetensors", "-o", "s.csv")
    assert answer(*words, cwd=folder)["shape"] == [len(X), 2]


# -- maps --------------------------------------------------------------------------------------


def test_a_model_keeps_its_map(folder):
    logs = PCA(2).fit(np.log1p(X))
    words = ("fit", "x.npy", "-k", "2", "--map", "log1p", "-o", "m.safetensors")
    assert answer(*words, cwd=folder)["map"] == "log1p"
    answer("report", "m.safetensors", "x.npy", "-o", "page.html", cwd=folder)
    page = (folder / "page.html").read_text()
    assert "log1p, applied to each row" in page
    assert "as_source(X, map=maps.log1p)" in page
    answer("transform", "x.npy", "m.safetensors", "-o", "s.npy", cwd=folder)
    scores = np.load(folder / "s.npy")
    np.testing.assert_allclose(scores, logs.transform(np.log1p(X)), atol=1e-9)
    found = answer("certify", "x.npy", "m.safetensors", "--tol", "pi/1024", cwd=folder)
    assert found["met"] is True
    assert "Map: log1p" in primedpca("inspect", "m.safetensors", cwd=folder).stdout
    words = ("transform", "x.npy", "m.safetensors", "-o", "t.npy", "--map", "sqrt")
    assert "`--map` sqrt: the model was fitted with --map log1p" in error(*words, cwd=folder)


def test_models_of_python_have_theirs(folder):
    PrimedPCA(2).fit(X).save(folder / "plain.safetensors")
    words = ("x.npy", "plain.safetensors", "-o", "s.npy", "--map", "log1p")
    assert "fitted without a map" in error("transform", *words, cwd=folder)
    mapped = as_source(folder / "x.npy", map=maps.sqrt)
    model = PrimedPCA(2).fit(mapped)
    model.save(folder / "sqrt.safetensors")
    answer("transform", "x.npy", "sqrt.safetensors", "-o", "s.npy", cwd=folder)
    np.testing.assert_array_equal(np.load(folder / "s.npy"), model.transform(mapped))
    PrimedPCA(2).fit(as_source(X, map=doubled)).save(folder / "own.safetensors")
    words = ("transform", "x.npy", "own.safetensors", "-o", "t.npy")
    assert "fitted with the map <doubled>" in error(*words, cwd=folder)


def doubled(rows):
    return 2 * rows


# -- other options -----------------------------------------------------------------------------


def test_a_device_takes_data_in_memory_and_nothing_else_has_to(folder):
    # A device that every machine has, and that still needs PyTorch.
    words = ("fit", "x.npy", "-k", "2", "--map", "log1p", "--device", "cpu:0")
    answer(*words, "-o", "m.safetensors", "--report", "page.html", cwd=folder)
    assert "cpu:0" in (folder / "page.html").read_text()
    answer("transform", "x.npy", "m.safetensors", "-o", "s.npy", cwd=folder)
    wanted = PCA(2).fit_transform(np.log1p(X))
    np.testing.assert_allclose(np.load(folder / "s.npy"), wanted, atol=1e-6)
    answer("report", "m.safetensors", "x.npy", "-o", "again.html", cwd=folder)
    parameters = answer("inspect", "m.safetensors", cwd=folder)["parameters"]
    assert parameters["device"] is None  # the device is not part of a model


def test_a_model_says_how_its_columns_are_prepared(folder):
    answer("fit", "x.npy", "-k", "2", "--scale", "std", "-o", "m.safetensors", cwd=folder)
    words = ("certify", "x.npy", "m.safetensors")
    assert "`--scale` std is set by the model" in error(*words, "--scale", "std", cwd=folder)
    assert "`--missing` error is set by the model" in error(
        *words, "--missing", "error", cwd=folder
    )


def test_a_line_of_fit_is_planned_by_changing_the_word(folder):
    words = ("x.npy", "-k", "2", "--tol", "1deg", "--max-passes", "9", "--max-memory", "1GB")
    words += ("--map", "log1p", "--scale", "std", "--missing", "mean", "--seed", "0")
    words += ("-o", "m.safetensors", "--report", "p.html", "--checkpoint", "kept", "-v", "--force")
    before = sorted(folder.iterdir())
    assert answer("plan", *words, cwd=folder)["ways"][0]["name"] == "a full decomposition"
    assert sorted(folder.iterdir()) == before
    answer("fit", *words, cwd=folder)
    found = answer("plan", "x.npy", "-k", "2", "--device", "cpu:0", cwd=folder)
    assert found["shape"] == [150, 4]
    assert "already exists" in error("plan", "x.npy", "-k", "2", "-o", "m.safetensors", cwd=folder)


def test_a_plan_is_refused_where_its_fit_would_be(folder):
    words = ("x.npy", "-k", "2", "--seed", "0", "--checkpoint", "kept")
    answer("fit", *words, cwd=folder)
    before = {path: path.stat().st_mtime_ns for path in (folder / "kept").iterdir()}
    answer("plan", *words, cwd=folder)
    for more in (("--scale", "std"), ("--seed", "1"), ("-k", "3")):
        said = error("plan", *words, *more, cwd=folder)
        assert "belongs to other parameters" in said
        assert said == error("fit", *words, *more, cwd=folder)
    assert "'x.npy' is a file" in error("plan", *words, "--checkpoint", "x.npy", cwd=folder)
    np.save(folder / "narrow.npy", X[:, :3])
    answer("fit", "narrow.npy", "-k", "2", "-o", "narrow.safetensors", cwd=folder)
    start = ("--warm-start", "narrow.safetensors")
    assert "narrow.safetensors has 3 columns" in error("plan", *words, *start, cwd=folder)
    PrimedPCA(2).fit(X).save(folder / "start.safetensors")
    new = ("plan", "x.npy", "-k", "2", "--warm-start", "start.safetensors", "--checkpoint")
    answer(*new, "none", cwd=folder)
    assert not (folder / "none").exists()
    assert "start was None" in error(*new, "kept", "--seed", "0", cwd=folder)
    assert {path: path.stat().st_mtime_ns for path in (folder / "kept").iterdir()} == before


def test_bench_reads_as_fit_does(folder):
    write_csv(folder / "x.csv", "abcd", delimiter=";")
    words = ("bench", "x.csv", "-k", "2", "--repeats", "1", "--delimiter", ";", "--map", "log1p")
    assert len(answer(*words, cwd=folder)["rows"]) == 5
    assert "need DATA" in error("bench", "--columns", "a", cwd=folder)


def test_raw_numbers(folder):
    (folder / "x.raw").write_bytes(b"header" + X.astype(">f4").tobytes())
    form = ("--shape", "150,4", "--dtype", ">f4", "--offset", "6")
    found = answer("fit", "x.raw", "-k", "2", *form, "-o", "m.safetensors", cwd=folder)
    truth = PCA(2).fit(X)
    np.testing.assert_allclose(found["explained_variance"], truth.explained_variance_, rtol=1e-5)
    answer("transform", "x.raw", "m.safetensors", *form, "-o", "s.npy", cwd=folder)
    assert np.load(folder / "s.npy").shape == (150, 2)
    assert "needs `--dtype`" in error("fit", "x.raw", "-k", "2", "--shape", "150,4", cwd=folder)
    assert "pass `--shape N,D` and `--dtype`" in error("fit", "x.raw", "-k", "2", cwd=folder)
    for option, value in (("--shape", "150"), ("--dtype", "real")):
        done = primedpca("fit", "x.raw", "-k", "2", option, value, cwd=folder)
        assert done.returncode == 2
        assert f": '{value}'. Write" in done.stderr


def test_transform_shows_how_far_it_is_on_a_terminal(folder):
    PrimedPCA(2).fit(X).save(folder / "m.safetensors")
    words = ("transform", "x.npy", "m.safetensors", "-o")
    code, written = on_a_terminal(*words, "s.npy", cwd=folder)
    assert code == 0
    assert "reading" in written
    assert "100%" in written
    assert written.rstrip().endswith("s.npy: 150 rows x 2 scores")
    code, written = on_a_terminal(*words, "t.npy", cwd=folder, TERM="dumb")
    assert (code, written.strip()) == (0, "t.npy: 150 rows x 2 scores")
    np.testing.assert_array_equal(np.load(folder / "s.npy"), np.load(folder / "t.npy"))


def test_options_have_the_defaults_of_the_estimator():
    known = inspect.signature(PrimedPCA).parameters
    for group in (Search, Preparation):
        for field in dataclasses.fields(group):
            default = as_angle(field.default) if field.name == "tol" else field.default
            assert default == known[field.name].default, field.name


def test_components_in_tables_as_others_write_them(tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 4)) * [4, 3, 2, 1]
    truth = np.linalg.svd(X - X.mean(axis=0))[2][:2]
    years, letters = [2019, 2020, 2021, 2022], list("abcd")
    pd.DataFrame(X, columns=years).to_csv(tmp_path / "years.csv", index=False)
    pd.DataFrame(truth, columns=years).to_csv(tmp_path / "of_years.csv", index=False)
    pd.DataFrame(X, columns=letters).to_csv(tmp_path / "rows.csv", index=False)
    pd.DataFrame(truth, columns=letters).to_csv(tmp_path / "counted.csv")
    pd.DataFrame(truth, columns=letters, index=["PC1", "PC2"]).to_csv(tmp_path / "named.csv")
    np.save(tmp_path / "x.npy", X)
    for words in (
        ("years.csv", "of_years.csv", "--header"),
        ("x.npy", "of_years.csv", "--header"),
        ("rows.csv", "counted.csv"),
        ("rows.csv", "named.csv"),
        ("x.npy", "named.csv"),
    ):
        done = primedpca("certify", *words, "--tol", "1e-6", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["met"]


@pytest.mark.parametrize("ids", [(), ("--id", "a")])
def test_a_name_too_few_does_not_shift_the_columns_of_a_model(tmp_path, ids):
    table = "5,1,9\n6,3,8\n7,2,5\n4,8,1\n"
    (tmp_path / "good.csv").write_text("a,b,c\n" + table)
    words = ("fit", "good.csv", "-k", "2", "--missing", "mean", "-o", "m.safetensors")
    assert primedpca(*words, cwd=tmp_path).returncode == 0
    rows = [f"{i},{line}" for i, line in enumerate(table.split(), 1)]
    for text in ("\n".join(rows), "\n".join([rows[0][:-1], *rows[1:]])):  # the second with a gap
        (tmp_path / "short.csv").write_text(f"a,b,c\n{text}\n")
        words = ("transform", "short.csv", "m.safetensors", "-o", "s.csv", *ids)
        done = primedpca(*words, cwd=tmp_path)
        assert done.returncode == 1
        assert "3 names in its first line for 4 columns" in done.stderr
        assert not (tmp_path / "s.csv").exists()
    (tmp_path / "ended.csv").write_text("a,b,c\n" + table.replace("\n", ",\n"))
    words = ("transform", "ended.csv", "m.safetensors", "-o", "s.csv")
    assert primedpca(*words, cwd=tmp_path).returncode == 0


def test_a_link_to_nowhere_is_found_before_a_fit(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(30, 4)))
    (tmp_path / "m.safetensors").symlink_to("nowhere")
    done = primedpca("plan", "x.npy", "-k", "2", "-o", "m.safetensors", cwd=tmp_path)
    assert "m.safetensors already exists" in done.stderr


def test_errors_list_options_of_the_command_line(folder):
    write_csv(folder / "t.csv", [f"c{j}" for j in range(X.shape[1])])
    said = error("fit", "t.csv", "-k", "1", "--sheet", "A", cwd=folder)
    assert "`--sheet`" in said
    assert "--header, --columns, --id, --label, --exclude, --numeric-only" in said
    assert "_" not in said.partition("its options are")[2]
    listed = said.partition("its options are: ")[2].strip().rstrip(".").split(", ")
    shown = primedpca("fit", "--help", cwd=folder).stdout
    assert all(option in shown for option in listed)


def test_a_model_with_names_hints_at_a_file_without(folder):
    write_csv(folder / "named.csv", [f"c{j}" for j in range(X.shape[1])])
    np.savetxt(folder / "rows.csv", X, delimiter=",")
    answer("fit", "named.csv", "-k", "2", "-o", "named.safetensors", cwd=folder)
    words = ("transform", "rows.csv", "named.safetensors", "-o", "rows.npy")
    said = error(*words, cwd=folder)
    assert "values in its first line" in said
    assert "`--no-header`" in said
    answer(*words, "--no-header", cwd=folder)
    (folder / "other.csv").write_text("x,y\n1,2\n3,5\n4,7\n")
    said = error("transform", "other.csv", "named.safetensors", "-o", "o.npy", cwd=folder)
    assert "has no column 'c0'; it has 'x', 'y'" in said


def test_an_error_of_the_report_says_that_the_model_is_written(folder):
    (folder / "huge.csv").write_text("a,b\n1,1e308\n2,-1e308\n3,1e307\n")
    words = ("fit", "huge.csv", "-k", "1", "--scale", "std", "-o", "h.safetensors")
    said = error(*words, "--report", "h.html", cwd=folder)
    assert "the report was not written, but the model h.safetensors was" in said
    assert "overflow" not in said
    assert "Give DATA in another unit" in said
    assert (folder / "h.safetensors").exists()
    assert not (folder / "h.html").exists()


@pytest.mark.parametrize("more", [(), ("--numeric-only",)])
def test_a_column_that_a_model_needs_cannot_be_left_out(more, folder):
    write_csv(folder / "a.csv", ["a", "b", "c", "d"])
    answer("fit", "a.csv", "-k", "1", "--missing", "mean", "-o", "m.safetensors", cwd=folder)
    text = (folder / "a.csv").read_text().splitlines()
    text[3] = "x" + text[3][text[3].index(",") :]
    (folder / "new.csv").write_text("\n".join(text))
    said = error("transform", "new.csv", "m.safetensors", "-o", "s.npy", *more, cwd=folder)
    assert "'a' ('x' in row 3). The model needs the numbers: correct the entries" in said
    assert "--numeric-only" not in said
    answer("transform", "new.csv", "m.safetensors", "-o", "s.npy", "--na-values", "x", cwd=folder)


def test_options_with_several_texts_may_be_repeated(folder):
    write_csv(folder / "named.csv", ["a", "b", "c", "d"])
    once = ("fit", "named.csv", "-k", "1", "-o", "m.safetensors")
    found = answer(*once, "--exclude", "a", "--exclude", "b,d", cwd=folder)
    assert found["n_features"] == 1
    answer("transform", "named.csv", "m.safetensors", "-o", "s.npy", cwd=folder)
    words = ("--columns", "d", "--columns", "a,b")
    answer(*once, "--force", *words, cwd=folder)
    assert load(folder / "m.safetensors").feature_names_in_.tolist() == ["d", "a", "b"]
    said = error(*once, "--force", *words, "--columns", "a", cwd=folder)
    assert "`--columns` names 'a' twice" in said
    (folder / "marks.csv").write_text("p;q\n1,5 $;?\n2,5 €;-\n3 $;4\n")
    words = ("--strip", "$", "--strip", "€", "--na-values", "?", "--na-values", "-")
    line = ("fit", "marks.csv", "-k", "1", "--delimiter", ";", "--decimal", ",", *words)
    assert answer(*line, "--missing", "mean", cwd=folder)["n_features"] == 2
