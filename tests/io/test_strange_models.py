"""Models from a stranger: nothing is contacted, written or run, and no error is raw."""

import csv
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import hostile_models
import numpy as np
import pytest
from command import primedpca
from safetensors import safe_open

from primedpca import PrimedPCA, load
from primedpca.cli import app
from primedpca.cli.errors import run
from primedpca.priming import BlockKrylov, FrequentDirections, Oja, PowerMethod

SCRIPT = Path(hostile_models.__file__)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 6)) * np.geomspace(9, 1, 6) + 5


def changed(path, change):
    """Write the file anew with another body, under a valid checksum."""
    with safe_open(path, "numpy") as file:
        body = json.loads(file.metadata()["body"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    parts = body["@dict"]
    change(parts["params"]["@dict"], parts["fitted"]["@dict"], tensors)
    hostile_models.write(path, body, tensors)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    PrimedPCA(2, priming="block_krylov", random_state=0).fit(X).save(path)
    return path


@pytest.mark.integration
@pytest.mark.skipif(os.name != "posix", reason="limits calls by SIGALRM")
@pytest.mark.parametrize("count", [150, pytest.param(2500, marks=pytest.mark.slow)])
def test_hostile_bodies(tmp_path, count):
    words = [sys.executable, SCRIPT, tmp_path, "0", str(count)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=3600, env=os.environ | threads
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == []
    assert found["loaded"] > count / 10  # so that methods are tried and not only `load`
    assert found["calls"] > 5 * count


def test_places_are_not_part_of_a_model(tmp_path):
    path, folder = tmp_path / "model.safetensors", tmp_path / "checkpoint"
    fitted = PrimedPCA(2, checkpoint=folder, max_memory="1GB", random_state=0).fit(X)
    fitted.save(path)
    assert str(folder).encode() not in path.read_bytes()
    for name in ("engine", "checkpoint", "device", "max_memory"):
        assert f'"{name}'.encode() not in path.read_bytes()
        assert load(path).get_params()[name] is None


def test_places_in_older_files_are_ignored(model, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        places = {
            "engine": f"tcp://127.0.0.1:{server.getsockname()[1]}",
            "checkpoint": str(tmp_path / "written"),
            "device": "cuda:3",
            "max_memory": "1B",
        }
        changed(model, lambda params, fitted, tensors: params.update(places))
        found = load(model).set_params(warm_start=True).fit(X)
        with pytest.raises(TimeoutError):
            server.accept()
    assert {name: getattr(found, name) for name in places} == dict.fromkeys(places)
    assert os.listdir(tmp_path) == [model.name]


@pytest.mark.parametrize("name", ["oja", {"@array": "0003"}])
def test_the_priming_of_a_plan_is_not_a_name(model, name):
    """Only the parameter may be a name or an array of directions."""
    changed(model, lambda params, fitted, tensors: fitted["plan_"]["fields"].update(priming=name))
    with pytest.raises(ValueError, match="unknown priming"):
        load(model)


def test_numbers_of_older_files(model):
    def change(params, fitted, tensors):
        params["tol"], tensors["tol"] = {"@array": "tol"}, np.array(0.25, np.float32)

    changed(model, change)
    assert load(model).tol == 0.25


@pytest.mark.parametrize(
    ("part", "name", "value", "words"),
    [
        ("params", "priming", "os.system", "`priming` holds 'os.system'"),
        ("params", "tol", {"@float": "nan"}, "`tol`=nan must be an angle"),
        ("params", "warm_up", 1, "among the parameters, 'warm_up' is not known"),
        ("fitted", "map_", "log1p)\nimport os", "`map_` is neither a function of primedpca"),
        ("fitted", "fit", "x", "among the fitted attributes, 'fit' is not known"),
        ("fitted", "n_components_", 3, r"`n_components_`=3, but `components_` has shape \(2, 6\)"),
        ("fitted", "status_", "EXACT", "`status_` holds a str, not a Status"),
        ("fitted", "mean_", {"@array": "none"}, "names an array that the file does not hold"),
        ("fitted", "plan_", {"@type": "Popen", "fields": {}}, "an unknown type"),
        ("fitted", "where_", "\ud800", "surrogate"),
    ],
)
def test_each_value_is_checked_by_name(model, part, name, value, words):
    def change(params, fitted, tensors):
        (params if part == "params" else fitted)[name] = value

    changed(model, change)
    with pytest.raises(ValueError, match=rf"(?s){model.name} is not a valid model: .*{words}"):
        load(model)


def test_a_body_that_is_nested_deeply(model):
    def change(params, fitted, tensors):
        for _ in range(900):
            params["scale"] = [params["scale"]]

    changed(model, change)
    with pytest.raises(ValueError, match="is not a valid model"):
        load(model)


def test_what_load_would_refuse_is_not_saved(tmp_path):
    fitted = PrimedPCA(2).fit(X)
    with pytest.raises(ValueError, match="cannot be saved: `tol`=-1"):
        fitted.set_params(tol=-1).save(tmp_path / "m")
    fitted.set_params(tol=0.1).components_[0, 0] = np.nan
    with pytest.raises(ValueError, match="cannot be saved: `components_`"):
        fitted.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_model_without_a_plan_is_saved_again(tmp_path):
    fitted = PrimedPCA(2, priming=lambda x, p: np.eye(6)[:, :p]).fit(X)
    with pytest.warns(UserWarning, match="`priming`"):
        fitted.save(tmp_path / "m")
    load(tmp_path / "m").save(tmp_path / "again")
    assert load(tmp_path / "again").plan_ is None


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (BlockKrylov, {"block_size": "4"}),
        (BlockKrylov, {"max_basis": 2.5}),
        (BlockKrylov, {"side": ["left"]}),
        (BlockKrylov, {"keep_images": 1}),
        (FrequentDirections, {"sketch_size": True}),
        (PowerMethod, {"epsilon": "small"}),
        (PowerMethod, {"max_steps": 2**63}),
        (Oja, {"steps": None}),
        (Oja, {"momentum": "0.9"}),
        (Oja, {"learning_rate": np.ones(2)}),
        (Oja, {"schedule": None}),
    ],
)
def test_options_of_primings_are_checked(kind, options):
    with pytest.raises(ValueError, match=f"`{next(iter(options))}`="):
        kind(**options)


# -- names on terminals ----------------------------------------------------------------------

ESCAPES = "red\x1b[31m \x9b2J\x07\u202e\u2028"


def test_names_of_columns_are_shown_and_not_obeyed(tmp_path):
    pandas = pytest.importorskip("pandas")
    names = [ESCAPES, *"bcdef"]
    PrimedPCA(2).fit(pandas.DataFrame(X, columns=names)).save(tmp_path / "m.safetensors")
    done = primedpca("inspect", "m.safetensors", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert r"red\x1b[31m \x9b2J\x07\u202e\u2028, b" in done.stdout
    assert all(c == "\n" or c.isprintable() for c in done.stdout)
    done = primedpca("inspect", "m.safetensors", "--json", cwd=tmp_path)
    assert all(c == "\n" or c.isprintable() for c in done.stdout)
    assert json.loads(done.stdout)["feature_names"] == names
    assert load(tmp_path / "m.safetensors").feature_names_in_.tolist() == names


@pytest.mark.skipif(os.name != "posix", reason="names are bytes there")
@pytest.mark.parametrize("name", ["x\x1b]0;title\x07\n.csv", os.fsdecode(b"x\xff.csv")])
def test_names_of_files_are_shown_and_not_obeyed(tmp_path, monkeypatch, capsys, name):
    rows = "\n".join(",".join(f"{value:.6f}" for value in row) for row in X)
    (tmp_path / name).write_text(f"a,b,c,d,e,f\n{rows}\n")
    monkeypatch.chdir(tmp_path)
    for words in (
        ("fit", name, "-k", "2", "-o", "m.safetensors"),
        ("plan", name, "-k", "2"),
        ("transform", name, "m.safetensors", "-o", f"scores {name}"),
        ("report", "m.safetensors", name, "-o", "page2.html"),
        ("fit", name, "-k", "2", "--json"),
        ("fit", name, "-k", "2", "--exclude", "nothing"),
        ("fit", name, "-k", "2", "--columns", "nothing", "--json"),
        ("inspect", name),
        ("fit", f"absent {name}", "-k", "2", "--debug"),
    ):
        run(app, words)
        written = "".join(capsys.readouterr())
        assert all(c in "\n" or c.isprintable() for c in written), written
        assert "primedpca itself" not in written
        assert "Unicode" not in written
        assert "--debug" in words or "Traceback" not in written


# -- tables of scores ------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_no_entry_of_a_table_of_scores_is_a_formula(tmp_path, monkeypatch, suffix):
    ids = ["=1+1", "@SUM(A1)", "+cmd", "-2+3", "-2.5", "+1e3", "a=b", "", "\t=1", "\uff1d1"]
    rows = [f'"{name}",{a},{b}' for name, (a, b) in zip(ids, X[:10, :2], strict=True)]
    (tmp_path / "x.csv").write_text("\n".join(["=id,a,b", *rows]) + "\n", encoding="utf-8")
    out = f"scores.{suffix}"
    monkeypatch.chdir(tmp_path)
    for words in (
        ("fit", "x.csv", "-k", "1", "--exclude", "=id", "-o", "m.safetensors"),
        ("transform", "x.csv", "m.safetensors", "-o", out, "--id", "=id"),
    ):
        assert run(app, words) == 0
    with open(tmp_path / out, encoding="utf-8", newline="") as file:
        table = list(csv.reader(file, delimiter="\t" if suffix == "tsv" else ","))
    wanted = ["'=id", "'=1+1", "'@SUM(A1)", "'+cmd", "'-2+3", "-2.5", "+1e3", "a=b", ""]
    assert [row[0] for row in table] == [*wanted, "'\t=1", "'\uff1d1"]
    assert all(float(row[1]) == float(row[1]) for row in table[1:])
