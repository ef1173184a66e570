"""Command lines whose results leave: loadings, scores with names, all options of a fit, choices."""

import json

import anndata
import numpy as np
import pandas as pd
import pytest
from bed_reader import to_bed
from command import primedpca
from sklearn.datasets import load_wine

from primedpca import PrimedPCA, choose_k, load
from primedpca.cli.options import FitOptions, Preparation, Search

WINE = load_wine(as_frame=True)


@pytest.fixture
def folder(tmp_path):
    WINE.data.assign(kind=WINE.target_names[WINE.target]).to_csv(tmp_path / "wine.csv", index=False)
    np.save(tmp_path / "wine.npy", WINE.data.to_numpy())
    PrimedPCA(3, scale="std", random_state=0).fit(WINE.data).save(tmp_path / "m.safetensors")
    return tmp_path


def answer(*words, cwd, code=0):
    done = primedpca(words[0], "--json", *words[1:], cwd=cwd)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_loadings_are_written_with_names(folder, suffix):
    words = ("loadings", "m.safetensors", "-o", f"x{suffix}")
    assert answer(*words, cwd=folder)["components"] == ["PC1", "PC2", "PC3"]
    out = folder / f"x{suffix}"
    table = pd.read_parquet(out) if suffix == ".parquet" else pd.read_csv(out)
    assert table.columns.tolist() == ["feature", "PC1", "PC2", "PC3"]
    assert table.feature.tolist() == WINE.data.columns.tolist()
    model = load(folder / "m.safetensors")
    np.testing.assert_allclose(table.iloc[:, 1:].astype(float), model.components_.T)
    assert "already exists" in answer(*words, cwd=folder, code=1)["error"]
    assert answer(*words, "--force", cwd=folder)["out"] == out.name


def test_loadings_are_printed(folder):
    done = primedpca("loadings", "m.safetensors", cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["feature", "PC1", "PC2", "PC3"]
    assert lines[1].split()[0] == "alcohol"
    rotated = answer("loadings", "m.safetensors", "--rotation", "varimax", cwd=folder)
    wanted = load(folder / "m.safetensors").loadings(rotation="varimax")
    assert rotated["components"] == wanted.columns.tolist() == ["RC1", "RC2", "RC3"]
    np.testing.assert_allclose(rotated["loadings"], wanted)
    assert (
        "unsupported suffix"
        in answer("loadings", "m.safetensors", "-o", "x.npy", cwd=folder, code=1)["error"]
    )


def test_what_inspect_promises_is_printed(folder):
    done = primedpca("inspect", "m.safetensors", cwd=folder)
    assert "variance" in done.stdout
    said = primedpca("inspect", "--help", cwd=folder).stdout
    assert "variances" in said
    assert "primedpca loadings MODEL" in said


def test_every_parameter_has_an_option():
    options = {own for group in (Search, Preparation) for own in group.__dataclass_fields__}
    parameters = set(PrimedPCA().get_params()) - {"n_components", "engine", "verbose"}
    assert parameters - options == {"warm_start"}  # a path here
    assert "warm_start" in FitOptions.__dataclass_fields__


def test_options_of_a_fit_reach_the_model(folder):
    line = "fit wine.npy -k 2 -o n.safetensors --no-center --whiten --certificate none"
    line += " --extra-components 3 --failure-probability 1e-4 --batch-size 64 --refine-share 0.5"
    answer(*line.split(), cwd=folder)
    model = load(folder / "n.safetensors")
    found = {
        name: getattr(model, name)
        for name in ("center", "whiten", "certificate", "extra_components")
    }
    assert found == {"center": False, "whiten": True, "certificate": "none", "extra_components": 3}
    assert (model.failure_probability, model.batch_size, model.refine_share) == (1e-4, 64, 0.5)
    assert model.certificate_ is None
    assert not model.mean_.any()
    error = answer("fit", "wine.npy", "-k", "2", "--refine-share", "2", cwd=folder, code=1)["error"]
    assert "`--refine-share`=2.0 must be" in error


def test_a_fit_that_starts_from_a_model(folder):
    rows = np.random.default_rng(0).normal(size=(800, 400)) * np.linspace(9, 1, 400)
    np.save(folder / "x.npy", rows)
    line = "fit x.npy -k 4 --priming subspace_iteration --certificate none --seed 0 --tol 0.5deg"
    first = answer(*line.split(), "-o", "a.safetensors", cwd=folder)
    again = answer(
        *line.split(), "--warm-start", "a.safetensors", "-o", "b.safetensors", cwd=folder
    )
    assert again["passes"] < first["passes"]
    assert load(folder / "b.safetensors").warm_start is False
    error = answer(
        "fit", "wine.npy", "-k", "2", "--warm-start", "a.safetensors", cwd=folder, code=1
    )
    assert "has 400 columns, DATA have 13" in error["error"]


def test_genotypes_and_cells_keep_the_names_of_their_rows(folder):
    rng = np.random.default_rng(0)
    people = {"iid": [f"person{i}" for i in range(20)]}
    to_bed(folder / "g.bed", rng.integers(0, 3, (20, 8)).astype(float), properties=people)
    answer("fit", "g.bed", "-k", "2", "-o", "g.safetensors", cwd=folder)
    answer("transform", "g.bed", "g.safetensors", "-o", "g.csv", cwd=folder)
    assert pd.read_csv(folder / "g.csv").name.tolist() == people["iid"]
    answer("transform", "g.bed", "g.safetensors", "-o", "g.zarr", cwd=folder)
    assert (folder / "g.zarr/zarr.json").exists()


def test_a_mask_and_labels_of_cells(folder):
    x = np.random.default_rng(0).poisson(2.0, (40, 12)).astype("float32")
    obs = pd.DataFrame(
        {"kind": pd.Categorical(["a", "b"] * 20)}, index=[f"c{i}" for i in range(40)]
    )
    var = pd.DataFrame({"highly_variable": np.arange(12) < 5}, index=[f"g{j}" for j in range(12)])
    anndata.AnnData(x, obs=obs, var=var).write_h5ad(folder / "a.h5ad")
    line = "fit a.h5ad -k 2 --mask highly_variable --map log1p -o a.safetensors"
    assert answer(*line.split(), cwd=folder)["n_features"] == 5
    # The model finds its variables by name.
    answer(*["transform", "a.h5ad", "a.safetensors", "--label", "kind", "-o", "a.csv"], cwd=folder)
    table = pd.read_csv(folder / "a.csv")
    assert table.columns.tolist() == ["name", "kind", "PC1", "PC2"]
    assert table.kind.tolist() == obs.kind.tolist()
    wanted = PrimedPCA(2).fit_transform(np.log1p(x[:, :5]))
    np.testing.assert_allclose(table[["PC1", "PC2"]], wanted, atol=1e-4)
    answer(*["report", "a.safetensors", "a.h5ad", "--label", "kind", "-o", "a.html"], cwd=folder)


def test_totals_of_a_map_are_those_of_whole_rows(folder):
    x = np.random.default_rng(0).poisson(2.0, (40, 12)).astype(float)
    x[:, 7] *= 30
    names = [f"g{j}" for j in range(12)]
    var = pd.DataFrame({"hv": np.arange(12) < 5}, index=names)
    anndata.AnnData(x, var=var).write_h5ad(folder / "all.h5ad")
    anndata.AnnData(x[:, :5], var=var[:5]).write_h5ad(folder / "few.h5ad")
    frame = pd.DataFrame(x, columns=names).assign(depth=x.sum(axis=1), cell="c")
    frame.to_csv(folder / "all.csv", index=False)
    logs = np.log1p(1e4 * x / x.sum(axis=1, keepdims=True))[:, :5]
    wanted = PrimedPCA(2).fit_transform(logs)
    beside = ["--exclude", "depth,cell"]
    chosen = {"all.h5ad": ["--mask", "hv"], "all.csv": ["--columns", "g0,g1,g2,g3,g4", *beside]}
    for data, options in chosen.items():
        words = ["-k", "2", "--map", "log_cp10k", "-o", "lt.safetensors", "--force"]
        answer("fit", data, *words, *options, cwd=folder)
        same = beside if data == "all.csv" else []
        for given in (same, options):
            words = ("lt.safetensors", "-o", "lt.npy", "--force", *given)
            answer("transform", data, *words, cwd=folder)
            np.testing.assert_allclose(np.load(folder / "lt.npy"), wanted, atol=1e-6)
        found = answer("certify", data, "lt.safetensors", "--tol", "1deg", *same, cwd=folder)
        assert found["met"] is True
    words = ("transform", "all.csv", "lt.safetensors", "-o", "no.npy", "--exclude", "cell")
    assert "log_cp10k of 13 columns, but the model" in primedpca(*words, cwd=folder).stderr
    answer(
        "fit",
        "all.h5ad",
        "-k",
        "2",
        "--mask",
        "hv",
        "--map",
        "log_cp10k",
        "-o",
        "lh.safetensors",
        cwd=folder,
    )
    words = ("transform", "few.h5ad", "lh.safetensors", "-o", "no.npy")
    said = primedpca(*words, cwd=folder).stderr
    assert "log_cp10k of 12 columns. The totals" in said
    assert "Give DATA with all columns" in said
    # A model of all columns takes the totals of its own columns.
    answer("fit", "few.h5ad", "-k", "2", "--map", "log_cp10k", "-o", "lf.safetensors", cwd=folder)
    answer("transform", "all.h5ad", "lf.safetensors", "-o", "lf.npy", cwd=folder)
    own = np.log1p(1e4 * x[:, :5] / x[:, :5].sum(axis=1, keepdims=True))
    np.testing.assert_allclose(
        np.load(folder / "lf.npy"), PrimedPCA(2).fit_transform(own), atol=1e-6
    )


def test_a_full_decomposition_ends_with_0_unless_tol_is_below_the_default(folder):
    np.save(folder / "ties.npy", np.eye(100)[np.arange(1000) % 100])
    words = ("fit", "ties.npy", "-k", "8", "--priming", "exact", "--tol")
    assert answer(*words, "pi/1024", cwd=folder)["status"] == "exact"
    answer(*words, "1e-9", cwd=folder, code=3)
    answer("fit", "wine.npy", "-k", "2", "--tol", "1e-30", cwd=folder, code=3)


def test_rules_for_k(folder):
    line = ("choose", "wine.csv", "--exclude", "kind", "--scale", "std", "--seed", "0")
    found = answer(*line, cwd=folder)
    wanted = choose_k(WINE.data, scale="std", random_state=0)
    for one in wanted.suggestions:
        if one.rule != "parallel analysis":  # columns of files are drawn, not shuffled
            assert found["rules"][one.rule]["n_components"] == one.n_components
    assert found["rules"]["parallel analysis"]["n_components"] == 3
    done = primedpca(*line, cwd=folder)
    assert done.stdout.splitlines()[1].split()[:3] == ["parallel", "analysis", "3"]
    assert "fit DATA -k 3" in done.stdout


def test_noise_is_not_advised_to_be_fitted(folder):
    np.save(folder / "noise.npy", np.random.default_rng(1).normal(size=(200, 20)))
    line = ("choose", "noise.npy", "--seed", "0")
    assert answer(*line, cwd=folder)["rules"]["parallel analysis"]["n_components"] == 0
    said = primedpca(*line, cwd=folder).stdout
    assert said.endswith("Parallel analysis finds no more than noise in any component.\n")
    assert "-k" not in said


def test_words_about_a_constant_table_and_about_memory_at_its_worst(tmp_path):
    (tmp_path / "const.csv").write_text("a,b\n1,2\n1,2\n1,2\n")
    said = primedpca("fit", "const.csv", "-k", "1", cwd=tmp_path).stdout
    assert "Component 1 has no variance beyond rounding, so its direction is arbitrary." in said
    rows = "".join(f"{i % 7},{i * 3 % 11},{i * i % 13}\n" for i in range(1, 30))
    (tmp_path / "full.csv").write_text("a,b,c\n" + rows)
    error = answer("fit", "full.csv", "-k", "3", "--max-memory", "10MB", cwd=tmp_path, code=1)
    assert "A limit counts memory at its worst; without one, `plan` states" in error["error"]
