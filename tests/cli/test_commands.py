"""Every command as a user runs it, on real files."""

import csv
import json
import math
import re
import shlex
import subprocess
import sys

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
from command import primedpca
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA

from primedpca import as_source, cli, load
from primedpca._demo import Proven
from primedpca.cli.demo import _show_proofs
from primedpca.cli.options import as_angle, as_count
from primedpca.report.words import bound_words

IRIS = load_iris()


@pytest.fixture
def folder(tmp_path):
    """The flowers as a table with names and classes, as an array, and in HDF5."""
    with open(tmp_path / "flowers.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["plant", "a", "b", "c", "d", "species"])
        for i, (row, kind) in enumerate(zip(IRIS.data.tolist(), IRIS.target, strict=True)):
            writer.writerow([f"p{i}", *row, IRIS.target_names[kind]])
    np.save(tmp_path / "flowers.npy", IRIS.data)
    with h5py.File(tmp_path / "flowers.h5", "w") as file:
        file["garden/flowers"], file["other"] = IRIS.data, np.ones((3, 3))
    return tmp_path


def answer(*words, cwd, code=0):
    done = primedpca(words[0], "--json", *words[1:], cwd=cwd)
    assert done.returncode == code, done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout, parse_constant=pytest.fail)


TABLE = ("flowers.csv", "--id", "plant", "--label", "species")


def test_from_a_table_to_scores_and_a_page(folder):
    done = primedpca("fit", *TABLE, "-k", "2", "-o", "m.safetensors", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "92.46 %" in done.stdout
    assert "Components 1 and 2 are each proven to be within 0.000001°" in done.stdout
    model = load(folder / "m.safetensors")
    assert list(model.feature_names_in_) == ["a", "b", "c", "d"]
    assert (model.verbose, model.engine) == (0, None)
    # The model has the names of its columns, so --id is not needed again.
    words = ("transform", "flowers.csv", "m.safetensors", "-o", "s.csv", "--label", "species")
    assert answer(*words, cwd=folder)["shape"] == [150, 2]
    with open(folder / "s.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["species", "PC1", "PC2"]
    assert [row[0] for row in rows] == [IRIS.target_names[kind] for kind in IRIS.target]
    scores = np.array([row[1:] for row in rows], dtype=float)
    source = as_source(folder / "flowers.csv", columns=["a", "b", "c", "d"])
    np.testing.assert_array_equal(scores, model.transform(source))
    page = answer("report", "m.safetensors", *TABLE, "-o", "page.html", cwd=folder)["page"]
    html = (folder / page).read_text()
    assert "setosa" in html
    assert "Components 1 and 2 are each proven to be within" in html


@pytest.mark.parametrize("data", ["flowers.npy", "flowers.h5::garden/flowers"])
def test_fit_in_json_is_what_scikit_learn_finds(data, folder):
    found = answer("fit", data, "-k", "3", "--seed", "0", "-o", "m.safetensors", cwd=folder)
    truth = PCA(3).fit(IRIS.data)
    np.testing.assert_allclose(found["explained_variance"], truth.explained_variance_)
    assert found["converged"] is True
    assert found["status"] == "certified"
    assert max(found["certificate"]["angle_bounds"]) <= math.pi / 1024
    assert found["model"] == "m.safetensors"
    assert found["data"] == data
    components = load(folder / "m.safetensors").components_
    np.testing.assert_allclose(components, truth.components_, atol=1e-10)


def test_warnings_of_reading_are_in_the_json_as_well(folder):
    (folder / "mixed.csv").write_text("a,b,name\n1,2,x\n3,5,y\n4,4,z\n")
    found = answer("fit", "mixed.csv", "-k", "1", "--numeric-only", cwd=folder)
    assert ["name" in words for words in found["warnings"]] == [True]


@pytest.mark.parametrize("suffix", [".npy", ".tsv", ".parquet"])
def test_scores_in_every_format(suffix, folder):
    answer("fit", "flowers.npy", "-k", "2", "--scale", "std", "-o", "m.safetensors", cwd=folder)
    out = folder / f"scores{suffix}"
    words = ("transform", "flowers.npy", "m.safetensors", "-o", out.name)
    assert answer(*words, cwd=folder)["columns"] == ["PC1", "PC2"]
    wanted = load(folder / "m.safetensors").transform(IRIS.data)
    if suffix == ".npy":
        found = np.load(out)
    elif suffix == ".parquet":
        found = np.stack([column.to_numpy() for column in pq.read_table(out).columns], axis=1)
    else:
        found = np.loadtxt(out, delimiter="\t", skiprows=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    # An existing file is replaced only with --force.
    assert answer(*words, cwd=folder, code=1)["exit_code"] == 1
    assert answer(*words, "--force", cwd=folder)["shape"] == [150, 2]
    assert not list(folder.glob(".*"))


def test_certify_audits_the_output_of_others(folder):
    right = PCA(2).fit(IRIS.data).components_
    np.save(folder / "right.npy", right)
    turned = np.array([[math.cos(0.1), math.sin(0.1)], [-math.sin(0.1), math.cos(0.1)]]) @ right
    np.savetxt(folder / "turned.csv", turned, delimiter=",", header="a,b,c,d", comments="")
    found = answer("certify", "flowers.npy", "right.npy", "--tol", "1deg", cwd=folder)
    assert found["met"] is True
    assert max(found["certificate"]["angle_bounds"]) < 1e-6
    found = answer("certify", "flowers.npy", "turned.csv", "--tol", "1deg", cwd=folder, code=3)
    assert found["met"] is False
    np.testing.assert_allclose(found["certificate"]["angle_bounds"], 0.1, atol=1e-6)
    done = primedpca("certify", "flowers.npy", "turned.csv", cwd=folder)
    assert done.returncode == 0
    assert "within 5.8°" in done.stdout


def test_certify_finds_columns_by_name(folder):
    names = np.loadtxt(folder / "flowers.csv", str, delimiter=",", max_rows=1).tolist()
    known = [names.index(name) for name in names if name not in ("plant", "species")]
    known, right = [names[j] for j in known], PCA(2).fit(IRIS.data).components_
    words = ("certify", *TABLE, "components.csv", "--tol", "1deg")

    def write(values, header):
        path, line = folder / "components.csv", ",".join(header)
        np.savetxt(path, values, delimiter=",", header=line, comments="", fmt="%.17g")

    write(right[:, [2, 0, 1, 3]], [known[j] for j in (2, 0, 1, 3)])
    assert answer(*words, cwd=folder)["met"] is True
    write(right, [known[j] for j in (2, 0, 1, 3)])
    assert answer(*words, cwd=folder, code=3)["met"] is False
    write(right, "wxyz")
    found = answer(*words, cwd=folder, code=1)
    assert (
        f"COMPONENTS have the name 'w' in column 1, where DATA has {known[0]!r}" in found["error"]
    )


def test_certify_prepares_the_data_as_the_model_did(folder):
    answer("fit", *TABLE, "-k", "2", "--scale", "std", "-o", "m.safetensors", cwd=folder)
    found = answer("certify", "flowers.csv", "m.safetensors", "--tol", "pi/1024", cwd=folder)
    assert found["met"] is True


def test_plan_and_inspect(folder):
    found = answer("plan", "flowers.npy", "-k", "2", cwd=folder)
    assert found["shape"] == [150, 4]
    assert found["ways"][0]["name"] == "a full decomposition"
    plain = primedpca("plan", "flowers.npy", "-k", "2", cwd=folder)
    assert "a full decomposition" in plain.stdout
    answer("fit", "flowers.npy", "-k", "0.95", "-o", "m.safetensors", cwd=folder)
    found = answer("inspect", "m.safetensors", cwd=folder)
    assert found["n_components"] == 2
    assert found["parameters"]["n_components"] == 0.95
    plain = primedpca("inspect", "m.safetensors", cwd=folder)
    assert "fitted to 150 rows x 4 columns" in plain.stdout
    assert "\x1b" not in plain.stdout


def test_a_bound_has_one_wording_and_the_plan_is_called_planned(folder):
    fit = primedpca(
        "fit", "flowers.npy", "-k", "2", "-o", "m.safetensors", "--report", "p.html", cwd=folder
    )
    inspect = primedpca("inspect", "m.safetensors", cwd=folder)
    certify = primedpca("certify", "flowers.npy", "m.safetensors", cwd=folder)
    page = (folder / "p.html").read_text()
    bounds = [bound_words(b, b) for b in load(folder / "m.safetensors").angle_bounds_]
    assert all(bound.endswith("°") for bound in bounds)
    for done in (fit, inspect):
        assert [line.split()[-1] for line in done.stdout.splitlines() if "%" in line] == bounds
    rows = certify.stdout.splitlines()
    assert rows[0].endswith("proven within")
    assert all(row.endswith("°") and "e-" not in row.split()[-1] for row in rows[1:3])
    assert all(f"<td>{bound}</td>" in page for bound in bounds)
    plan = str(load(folder / "m.safetensors").plan_)
    assert f"Planned: {plan}\nDone: the data were read once in " in inspect.stdout
    assert "<dt>Planned</dt>" in page
    assert "<dt>Done</dt><dd>the data were read once in " in page


def test_what_is_not_proven_ends_with_3_and_is_kept(folder):
    x = np.random.default_rng(0).normal(size=(600, 300))
    np.save(folder / "noise.npy", x)
    words = ("noise.npy", "-k", "4", "--priming", "block_krylov", "--max-passes", "4")
    found = answer("fit", *words, "-o", "m.safetensors", cwd=folder, code=3)
    assert found["converged"] is False
    assert found["status"] == "not_certified"
    assert load(folder / "m.safetensors").components_.shape == (4, 300)
    done = primedpca("fit", *words, "-v", cwd=folder)
    assert done.returncode == 3
    assert "`--max-passes` was reached" in done.stdout
    assert done.stderr.count("primedpca: step") == 2  # the other passes are for the proof
    assert "proven" not in done.stderr  # two steps are too few to begin a proof


@pytest.mark.parametrize(
    ("size", "k", "status", "words"),
    [
        (10, 1, "certified", "Components 2 to 9 were not kept; request 9 components"),
        (30, 3, "exact", "Nothing useful is proven about components 1 to 3."),
        (10, 9, "certified", "Components 1 to 9 are not distinguished, but proven as a subspace"),
        (10, 10, "certified", "Component 10 has no variance above rounding error."),
    ],
)
def test_a_tie_is_met_by_its_span_and_audited_if_all_of_it_is_there(size, k, status, words, folder):
    np.save(folder / "eye.npy", np.eye(size))  # all variances are tied, except one that is zero
    found = answer("fit", "eye.npy", "-k", k, "-o", "m.safetensors", cwd=folder)
    assert found["status"] == status
    assert found["converged"]
    assert found["certificate"]["zero"] == [i == 9 for i in range(k)]
    done = primedpca("fit", "eye.npy", "-k", k, cwd=folder)
    assert done.returncode == 0
    assert words in done.stdout
    assert done.stdout.count("(span)") == (min(k, 9) if status == "certified" else 0)
    assert ("no variance\n" in done.stdout) == (k == 10)
    assert done.stderr == ""
    audit = ("certify", "eye.npy", "m.safetensors", "--tol", "pi/1024")
    assert answer(*audit, cwd=folder, code=0 if k > 8 else 3)["met"] is (k > 8)


def test_what_is_proven_is_printed_outwards(folder):
    right = PCA(2).fit(IRIS.data)
    np.save(folder / "right.npy", right.components_)
    proof = answer("certify", "flowers.npy", "right.npy", cwd=folder)["certificate"]
    rows = primedpca("certify", "flowers.npy", "right.npy", cwd=folder).stdout.splitlines()[1:3]
    for i, row in enumerate(rows):
        _, low, high, bound = row.split()
        assert float(low) <= proof["eigenvalue_bounds"][i][0]
        assert proof["eigenvalue_bounds"][i][1] <= float(high)
        assert math.degrees(proof["angle_bounds"][i]) <= float(bound.removesuffix("°"))
        assert low != high


def test_the_demo_rounds_what_is_proven_up(capsys):
    _show_proofs([Proven("set", "plan", 0.5, 2.14e-7, 1.04e-8, "")])
    assert capsys.readouterr().out.split("set")[-1].split()[1:3] == ["2.2e-07°", "1.0e-08°"]


def test_fit_writes_a_page_and_goes_on_from_a_checkpoint(folder):
    words = ("flowers.npy", "-k", "2", "--seed", "0", "--checkpoint", "kept")
    first = answer("fit", *words, "--report", "page.html", cwd=folder)
    assert first["report"] == "page.html"
    assert (folder / "page.html").read_text().lower().startswith("<!doctype html")
    again = answer("fit", *words, cwd=folder)
    assert again["explained_variance"] == first["explained_variance"]


def test_missing_values_and_maps(folder):
    x = IRIS.data.copy()
    x[0, 0] = np.nan
    np.save(folder / "holes.npy", x)
    assert answer("fit", "holes.npy", "-k", "2", "--missing", "mean", cwd=folder)["converged"]
    found = answer("fit", "flowers.npy", "-k", "2", "--map", "log1p", cwd=folder)
    wanted = PCA(2).fit(np.log1p(IRIS.data)).explained_variance_
    np.testing.assert_allclose(found["explained_variance"], wanted)


def test_bench_races_on_any_data(folder):
    rows = answer("bench", "flowers.npy", "-k", "2", "--repeats", "1", cwd=folder)["rows"]
    assert rows[0]["solver"] == "PrimedPCA"
    assert len(rows) == 5
    assert all(row["seconds"] > 0 for row in rows)
    assert [row["proves"] for row in rows] == [True] + [False] * 4
    assert max(row["bound"] for row in rows) < 1e-3  # four columns are easy for every solver
    done = primedpca("bench", "flowers.npy", "-k", "2", "--repeats", "1", cwd=folder)
    assert "scikit-learn, randomized" in done.stdout


def test_datasets_in_json(folder):
    found = answer("datasets", "--data-dir", ".", cwd=folder)
    assert {row["name"] for row in found["sets"]} >= {"mnist", "cifar10"}


COMMANDS = (
    *("demo", "fit", "transform", "certify", "plan", "inspect", "report", "bench"),
    *("datasets", "reproduce"),
)


def test_help_lists_every_command():
    done = primedpca("--help", COLUMNS="100")
    assert done.returncode == 0
    assert all(f" {name} " in done.stdout for name in COMMANDS)
    assert primedpca().stdout == primedpca("--help").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name):
    done = primedpca(name, "--help", COLUMNS="100")
    assert done.returncode == 0
    assert f"Example: primedpca {name}" in done.stdout
    assert "--json" in done.stdout
    assert "--debug" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_examples_of_the_help_run(folder):
    """The examples on data, one after another, as a new user would run them."""
    np.save(folder / "data.npy", np.random.default_rng(0).normal(size=(60, 12)))
    np.save(folder / "components.npy", np.eye(12)[:2])
    for name in ("fit", "transform", "certify", "plan", "inspect", "report"):
        (line,) = re.findall(r"Example: primedpca (.*)", cli.COMMANDS[name].__doc__)
        done = primedpca(*shlex.split(line), cwd=folder)
        wanted = 3 if name == "certify" else 0  # these components are not principal components
        assert done.returncode == wanted, f"{line}: {done.stderr}"


def test_columns_whose_names_have_commas_and_tabs_between_fields(folder):
    (folder / "t.csv").write_text('id\t"a, b"\tc\n1\t2\t3\n2\t1\t4\n3\t5\t9\n')
    words = ("t.csv", "--delimiter", r"\t", "--columns", 'c, "a, b"', "--scale", "std")
    answer("fit", *words, "-k", "1", "-o", "m.safetensors", cwd=folder)
    assert list(load(folder / "m.safetensors").feature_names_in_) == ["c", "a, b"]
    shown = primedpca("inspect", "m.safetensors", cwd=folder).stdout
    assert 'Columns: c, "a, b"' in shown
    assert "Scale: columns divided by their standard deviations" in shown


@pytest.mark.parametrize(
    ("words", "radians"),
    [
        ("pi/128", math.pi / 128),
        ("π/8", math.pi / 8),
        ("2*pi/128", math.pi / 64),
        ("0.5 * pi / 2", math.pi / 4),
        ("1deg", math.radians(1)),
        ("0.5°", math.radians(0.5)),
        ("0.01", 0.01),
        ("1e-3rad", 1e-3),
        (".5", 0.5),
    ],
)
def test_angles(words, radians):
    assert as_angle(words) == pytest.approx(radians, rel=1e-15)


def test_numbers_of_components():
    assert as_count("10") == 10
    assert as_count("0.95") == 0.95
    assert as_count("mle") == "mle"


def test_the_number_of_threads_changes_no_bit_and_is_checked(folder):
    one, three = (
        answer("fit", "flowers.npy", "-k", "2", "--seed", "0", "--threads", n, cwd=folder)
        for n in ("1", "3")
    )
    for found in (one, three):
        del found["seconds"]
    assert one == three
    done = primedpca("fit", "flowers.npy", "-k", "2", "--threads", "0", cwd=folder)
    assert done.returncode == 2
    assert "'0' is not an integer of at least 1" in done.stderr


def test_missing_values_and_the_rule_of_the_model(folder):
    x = IRIS.data.copy()
    np.save(folder / "whole.npy", x)
    x[3, 1] = np.nan
    np.save(folder / "gaps.npy", x)
    answer("fit", "whole.npy", "-k", "2", "-o", "m.safetensors", cwd=folder)
    for words in (
        ("transform", "gaps.npy", "m.safetensors", "-o", "s.npy"),
        ("certify", "gaps.npy", "m.safetensors"),
        ("report", "m.safetensors", "gaps.npy", "-o", "p.html"),
    ):
        found = answer(*words, cwd=folder, code=1)["error"]
        assert "Fit the model with `--missing mean`, or drop or replace it" in found
    found = answer("certify", "gaps.npy", "whole.npy", cwd=folder, code=1)["error"]
    assert "Fit the model" not in found


def test_a_store_of_scores_is_not_replaced(folder):
    answer("fit", "flowers.npy", "-k", "2", "-o", "m.safetensors", cwd=folder)
    words = ("transform", "flowers.npy", "m.safetensors", "-o", "s.zarr")
    answer(*words, cwd=folder)
    for more in ((), ("--force",)):
        found = answer(*words, *more, cwd=folder, code=1)["error"]
        assert "`-o` s.zarr already exists. A store is not replaced, even with `--force`" in found


@pytest.mark.parametrize("suffix", ["zarr", "npy", "csv"])
def test_a_limit_on_the_size_of_files_is_named(folder, suffix):
    pytest.importorskip("resource")
    x = np.random.default_rng(0).normal(size=(20_000, 4))
    np.save(folder / "x.npy", x)
    answer("fit", "x.npy", "-k", "3", "-o", "m.safetensors", cwd=folder)
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))\n"
        "from primedpca.cli import main\n"
        f"sys.argv[1:] = ['transform', 'x.npy', 'm.safetensors', '-o', 's.{suffix}']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"primedpca: `-o` s.{suffix} could not be written: File too large" in done.stderr
    assert not [path for path in folder.iterdir() if "s.z" in path.name or path.name[0] == "."]
    assert not (folder / f"s.{suffix}").exists()


@pytest.mark.filterwarnings("default:The variances of:RuntimeWarning")
def test_warnings_of_the_library_are_lines_of_the_command(folder):
    rows = np.random.default_rng(0).normal(size=(60, 5))
    np.save(folder / "tiny.npy", rows * 1e-200)
    np.save(folder / "small.npy", rows * 1e-160)
    done = primedpca("choose", "tiny.npy", cwd=folder)
    assert done.stderr.startswith("primedpca: The variance of DATA is zero")
    assert done.stderr.count("\n") == 1
    done = primedpca("choose", "small.npy", cwd=folder)
    assert done.returncode == 0
    assert done.stderr.startswith("primedpca: warning: The variances of DATA are below the range")
    assert ".py" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_package_runs_as_the_command_line():
    command = [sys.executable, "-m", "primedpca", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("primedpca ")
