"""The large-scale experiments: what a run keeps, what is refused, and that figures are drawn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from primedpca import refine
from primedpca._operator.operator import Centred
from primedpca.metrics import angles, captured_variance
from primedpca.sources.base import OneBlock
from primedpca.sources.files.images import ImageFolder
from primedpca_paper import large_scale
from primedpca_paper.datasets import data_folder
from primedpca_paper.large_scale import (
    Curve,
    draw_figure_4,
    draw_figure_5,
    draw_lobsters,
    draw_variances,
    reproduce_large_scale,
    run_large_scale,
)
from primedpca_paper.large_scale.__main__ import main
from primedpca_paper.large_scale.curves import normalised
from primedpca_paper.large_scale.measures import measure
from primedpca_paper.large_scale.results import METHODS, RunFolder
from primedpca_paper.large_scale.runs import held_on
from primedpca_paper.large_scale.thumbnails import shrunk

SHAPE = (20, 30, 3)


def pictures(n=40, seed=0):
    """Images with a steep spectrum, ``(n, d)`` of uint8."""
    rng = np.random.default_rng(seed)
    d = int(np.prod(SHAPE))
    axes = np.linalg.qr(rng.standard_normal((d, 12)))[0].T
    scores = rng.standard_normal((n, 12)) * 500 * 0.7 ** np.arange(12)
    return np.clip(scores @ axes + 128, 0, 255).astype(np.uint8)


def images(n=40):
    source = OneBlock(pictures(n))
    source.image_shape = SHAPE
    return source


OPTIONS = {
    "name": "toy",
    "n_components": 4,
    "steps": 40,
    "batch_size": 20,
    "share": 0.5,
    "n_evaluations": 5,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy") / "run"
    return run_large_scale(images(), folder, seed=(0, 1), **OPTIONS)


# -- one projection tells all -----------------------------------------------------------------


def test_what_is_measured_is_what_refining_gives():
    X = pictures().astype(np.float64)
    directions = np.random.default_rng(1).standard_normal((X.shape[1], 6))
    chosen = np.arange(0, 40, 2)
    found = measure(Centred(X), directions, 4, chosen)
    plain = captured_variance(X, directions.T[:4])
    np.testing.assert_allclose(found.variances["eigengame"], plain, rtol=1e-9)
    refined = refine(X, directions, 4)
    np.testing.assert_allclose(found.variances["ppca"], refined.explained_variance, rtol=1e-9)
    assert angles(found.components("ppca", directions), refined.components).max() < 1e-6
    # Refined with some rows about the mean of all, measured with all rows.
    basis = np.linalg.qr(directions)[0]
    inside = (X[chosen] - X.mean(axis=0)) @ basis
    turn = np.linalg.svd(inside)[2][:4].T
    of_share = captured_variance(X, (basis @ turn).T)
    np.testing.assert_allclose(found.variances["ppca_share"], of_share, rtol=1e-9)


def test_angles_come_from_scores():
    X = pictures().astype(np.float64)
    m = X - X.mean(axis=0)
    truth = np.linalg.svd(m, full_matrices=False)[2][:4]
    directions = truth.T @ np.diag([1.0, 2, 3, 4]) + 0.02 * np.random.default_rng(2).normal(
        size=(X.shape[1], 4)
    )
    found = measure(Centred(X), directions, 4, np.arange(40))
    for method in ("eigengame", "ppca"):
        expected = angles(found.components(method, directions), truth)
        np.testing.assert_allclose(found.angles(method, m @ truth.T), expected, atol=1e-6)


def test_dependent_directions_are_borne():
    X = pictures().astype(np.float64)
    one = np.random.default_rng(1).standard_normal((X.shape[1], 1))
    found = measure(Centred(X), np.concatenate([one, one, 2 * one], axis=1), 3, np.arange(40))
    assert (found.variances["ppca"][1:] == 0).all()
    assert np.isfinite(found.angles("ppca", np.ones((40, 3)))).all()


# -- a run ------------------------------------------------------------------------------------


def test_what_a_run_keeps(finished):
    run = RunFolder.of(finished)
    X = pictures().astype(np.float64)
    _, sizes, truth = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(run.certified["explained_variance"], sizes[:4] ** 2 / 39, rtol=1e-6)
    assert max(run.certified["angle_bounds"]) < 1e-3
    rows = run.rows()
    steps = run.settings["evaluations"]
    assert steps[0] == 1
    assert steps[-1] == 40
    assert 30 in steps
    assert [(row.seed, row.method, row.step) for row in rows] == [
        (seed, method, step) for seed in (0, 1) for step in steps for method in METHODS
    ]
    trained = [row.seconds for row in rows if row.seed == 0 and row.method == "eigengame"]
    assert trained == sorted(trained)
    assert trained[0] > 0
    top = np.array(run.certified["explained_variance"])
    for row in rows:
        assert (np.cumsum(row.variances) <= np.cumsum(top) * (1 + 1e-5)).all() or (
            row.method == "eigengame"
        )  # its vectors need not be orthogonal
    last = [row for row in rows if row.step == 40 and row.seed == 0]
    assert last[1].angles.max() < 0.5 < rows[0].angles.max()
    kept = run.arrays("pictures")
    assert set(kept) == {f"{m} {s}" for m in ("eigengame", "ppca") for s in (30, 40)}
    certified = run.arrays("certified_pictures")["certified"]
    for vector, picture in zip(truth, certified, strict=False):
        along = np.corrcoef(vector, picture.ravel())[0, 1]
        assert abs(along) > 0.999
    found = run.arrays("images")
    np.testing.assert_array_equal(found["examples"][0].ravel(), X[0])
    assert np.abs(found["mean"].ravel() - X.mean(axis=0)).max() <= 0.51


def test_every_row_says_where_it_comes_from(finished):
    lines = (finished / "rows--s0.csv").read_text().splitlines()
    assert lines[0].startswith("dataset,method,extra,seed,step,seconds,variance 1")
    assert "numpy" in lines[1]
    assert RunFolder.of(finished).settings["machine"] in lines[1].replace('"', "")
    assert lines[-1] == "end"


def test_data_that_are_no_images(tmp_path):
    folder = run_large_scale(pictures(20), tmp_path / "run", **OPTIONS | {"steps": 5})
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["certified.json", "certified.npz", "rows--s0.csv", "run.json"]
    with pytest.raises(FileNotFoundError, match="rows are images"):
        draw_lobsters(folder, tmp_path / "lobsters")


def test_tensors(tmp_path):
    folder = run_large_scale(torch.tensor(pictures(20)), tmp_path / "run", **OPTIONS | {"steps": 5})
    assert len(RunFolder.of(folder).rows()) == 15


def test_without_steps_only_the_certificate(tmp_path):
    folder = run_large_scale(images(), tmp_path / "run", **OPTIONS | {"steps": 0})
    assert RunFolder.of(folder).certified
    assert RunFolder.of(folder).rows() == []
    with pytest.raises(FileNotFoundError, match="finished training run"):
        draw_figure_4(folder, tmp_path / "figure-4")


def test_results_are_refused_or_resumed(tmp_path):
    options = OPTIONS | {"steps": 5}
    folder = run_large_scale(images(), tmp_path / "run", **options)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FileExistsError, match="already holds results"):
        run_large_scale(images(), folder, **options)
    with pytest.raises(ValueError, match="steps = 5, not 6"):
        run_large_scale(images(), folder, resume=True, **options | {"steps": 6})
    run_large_scale(images(), folder, resume=True, **options)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    # A run that was killed before its rows were written is made again, the same but for time.
    was = RunFolder.of(folder).rows()
    (folder / "rows--s0.csv").unlink()
    run_large_scale(images(), folder, resume=True, **options)
    again = RunFolder.of(folder).rows()
    for a, b in zip(was, again, strict=True):
        np.testing.assert_array_equal(a.variances, b.variances)
    assert (folder / "certified.json").read_bytes() == before["certified.json"]


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds other files"):
        run_large_scale(images(), tmp_path, **OPTIONS)
    with pytest.raises(FileExistsError, match="is a file"):
        run_large_scale(images(), tmp_path / "mine.txt", **OPTIONS)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_damaged_results_are_named(tmp_path):
    folder = run_large_scale(images(), tmp_path / "run", **OPTIONS | {"steps": 5})
    rows = folder / "rows--s0.csv"
    rows.write_text(rows.read_text()[:-20])
    with pytest.raises(ValueError, match=r"rows--s0\.csv is damaged"):
        draw_figure_4(folder, tmp_path / "x")
    (folder / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json is damaged"):
        draw_figure_4(folder, tmp_path / "x")
    with pytest.raises(FileNotFoundError, match="large-scale results"):
        draw_figure_4(tmp_path / "nowhere", tmp_path / "x")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_components": 41}, "`n_components`=41"),
        ({"share": 0.0}, "`share`"),
        ({"steps": -1}, "`steps`"),
        ({"learning_rate": -1.0}, "`learning_rate`"),
    ],
)
def test_bad_requests_write_nothing(tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        run_large_scale(images(), tmp_path / "run", **OPTIONS | options)
    assert not (tmp_path / "run").exists()


# -- pictures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [draw_figure_4, draw_figure_5, draw_lobsters])
def test_figures_are_drawn_from_files(finished, tmp_path, draw):
    paths = draw(finished, tmp_path / "new" / "figure-x.y")
    assert [path.name for path in paths] == ["figure-x.y.png", "figure-x.y.pdf"]
    assert paths[1].read_bytes()[:5] == b"%PDF-"
    values = np.asarray(Image.open(paths[0]).convert("RGB"))
    assert min(values.shape[:2]) > 200
    assert values.std() > 10  # not a white page


def test_shading_is_the_standard_error():
    from matplotlib.figure import Figure

    rng = np.random.default_rng(0)
    values = 10 + rng.random((5, 8, 1))
    axis = Figure().subplots()
    draw_variances(axis, {"one": Curve(np.arange(8), values)})
    np.testing.assert_allclose(axis.lines[0].get_ydata(), values.mean(axis=0)[:, 0])
    points = axis.collections[0].get_paths()[0].vertices
    mean, error = values[:, 3, 0].mean(), values[:, 3, 0].std(ddof=1) / np.sqrt(5)
    here = np.sort(np.unique(points[points[:, 0] == 3][:, 1]))
    np.testing.assert_allclose([here[0], here[-1]], [mean - error, mean + error])


def test_curves_are_divided_by_their_last_five():
    values = np.arange(1.0, 21).reshape(1, 10, 2)
    found = normalised(values)
    np.testing.assert_allclose(found[0, :, 0], values[0, :, 0] / values[0, 5:, 0].mean())
    assert np.isfinite(normalised(np.zeros((1, 6, 1)))).all()


def test_small_pictures_are_means():
    image = np.arange(8 * 6 * 1.0)
    np.testing.assert_allclose(
        shrunk(image, (8, 6, 1), 4)[:, :, 0], image.reshape(4, 2, 3, 2).mean(axis=(1, 3))
    )


# -- the whole --------------------------------------------------------------------------------


@pytest.fixture
def small_data(tmp_path, monkeypatch):
    """A data folder with a few photographs, and one quick case."""
    folder = tmp_path / "data" / "retina"
    folder.mkdir(parents=True)
    for i, row in enumerate(pictures(20)):
        Image.fromarray(row.reshape(SHAPE)).save(folder / f"{i:02}.png")
    cases = tuple(
        large_scale.reproduce.Case("r", "R", "retina", 1, steps=5, share=0.9) for _ in range(1)
    )
    monkeypatch.setattr(large_scale.reproduce, "QUICK", cases)
    return folder.parent


@pytest.mark.integration
def test_reproduce(small_data, tmp_path, capsys):
    out = tmp_path / "out"
    targets = ["figure-4", "figure-5", "lobsters"]  # the activations have other data
    drawn = reproduce_large_scale(targets, small_data, out, quick=True)
    assert sorted(path.name for path in drawn) == sorted(
        f"{name}.{kind}" for name in targets for kind in ("png", "pdf")
    )
    with pytest.raises(FileExistsError):
        reproduce_large_scale("figure-5", small_data, out, quick=True)
    assert reproduce_large_scale("figure-5", small_data, out, quick=True, resume=True)
    words = ["figures", "--quick", "--data-dir", str(small_data), "--out", str(out)]
    for name in targets:
        words += ["--target", name]
    assert main(words) == 1
    assert "already holds results" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0


@pytest.mark.integration
def test_activations_of_a_network(tmp_path, monkeypatch):
    from primedpca_paper.datasets import Dataset
    from primedpca_paper.large_scale import activations

    rng = np.random.default_rng(0)
    images = rng.random((40, 8)) @ rng.random((8, 3072))
    data = Dataset("cifar10", "CIFAR-10", (images / images.max()).astype(np.float32), "drawn")
    monkeypatch.setattr(activations, "load_set", lambda name, folder: data)
    size = activations.Network(1, 2, 40, 4, 20, 0.5, (0, 1), 4)
    monkeypatch.setattr(activations, "QUICK", size)
    drawn = reproduce_large_scale("activations", tmp_path, tmp_path / "out", quick=True)
    assert {path.name for path in drawn} == {"activations.png", "activations.pdf"}
    run = large_scale.results.RunFolder.of(tmp_path / "out" / "activations")
    assert run.settings["shape"] == [40, 2 * 32 * 32]
    assert {row.seed for row in run.rows()} == {0, 1}
    assert run.certified["kind"] == "exact"
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError, match="CIFAR-10"):
        reproduce_large_scale("activations", tmp_path, tmp_path / "new", quick=True)


def test_the_full_network_is_as_wide_as_a_million():
    from primedpca_paper.large_scale.activations import FULL, residual_network

    assert FULL.blocks * FULL.width * 32 * 32 >= 1_000_000
    assert (FULL.images, len(FULL.seeds)) == (50_000, 3)
    first, again = (residual_network(1, 2).state_dict() for _ in range(2))
    assert all((first[name] == again[name]).all() for name in first)


def test_refining_is_timed_with_all_rows_and_with_some(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 12)) * np.geomspace(9, 1, 12)
    folder = run_large_scale(X, tmp_path / "r", name="x", n_components=2, steps=8, share=0.5)
    rows = large_scale.results.RunFolder.of(folder).rows()
    seconds = {
        method: np.array([row.seconds for row in rows if row.method == method])
        for method in ("eigengame", "ppca", "ppca_share")
    }
    for method in ("ppca", "ppca_share"):  # one median for the whole run
        more = seconds[method] - seconds["eigengame"]
        assert (more > 0).all()
        assert more == pytest.approx(more[0], rel=1e-3, abs=1e-6)


def test_missing_data_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"not found: .*retina"):
        reproduce_large_scale("figure-5", tmp_path, tmp_path / "out", quick=True)
    with pytest.raises(ValueError, match="`target`='figure-9'"):
        reproduce_large_scale("figure-9", tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_from_the_command_line(tmp_path):
    np.save(tmp_path / "x.npy", pictures(20).reshape(20, *SHAPE))
    words = ["run", str(tmp_path / "x.npy"), "--out", str(tmp_path / "out"), "--steps", "3"]
    assert main([*words, "--n-components", "3", "--share", "0.5"]) == 0
    settings = json.loads((tmp_path / "out" / "run.json").read_text())
    assert settings["image_shape"] == list(SHAPE)
    assert settings["name"] == "x.npy"


@pytest.mark.slow
def test_retina_certified_against_lapack():
    """At an eighth of the size, where LAPACK can check."""
    folder = data_folder()
    if folder is None or not (folder / "retina").is_dir():
        pytest.skip("no retina photographs in PRIMEDPCA_DATA")
    from primedpca import PrimedPCA

    source = ImageFolder(folder / "retina", shrink=8)
    found = PrimedPCA(8, random_state=0).fit(source)
    x = source.rows(np.arange(103)).astype(np.float64)
    x -= x.mean(axis=0)
    truth = np.linalg.svd(x, full_matrices=False)[2][:8]
    assert found.converged_
    assert (angles(found.components_, truth) <= found.angle_bounds_).all()


def test_rows_are_moved_to_a_device_block_by_block(tmp_path):
    for i, row in enumerate(pictures(9)):
        Image.fromarray(row.reshape(SHAPE)).save(tmp_path / f"{i}.png")
    source = ImageFolder(tmp_path)
    assert held_on(source, "cpu") is source
    moved = held_on(source, "cpu:0")
    assert isinstance(moved.array, torch.Tensor)
    np.testing.assert_array_equal(moved.array.numpy(), pictures(9))
    with pytest.raises(ValueError, match="`device`='cuda'"):
        held_on(source, "cuda")
    with pytest.raises(ValueError, match="`device`='cuda'"):
        run_large_scale(source, tmp_path / "run", device="cuda", **OPTIONS)
    assert not (tmp_path / "run").exists()


FIT = """
import sys, scipy.linalg
from primedpca import PrimedPCA
print("begin", flush=True)
sys.stdin.readline()
found = PrimedPCA(8, max_memory="8GB", random_state=0).fit(sys.argv[1])
print(found.converged_, found.components_.shape[1], found.components_.dtype, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "d"), [("retina", 36_636_672), ("person.mp4", 995_328)])
def test_eight_gigabytes_are_enough(name, d):
    """The resident memory of a fit at full size, sampled from here."""
    folder = data_folder()
    if folder is None or not (folder / name).exists():
        pytest.skip(f"no {name} in PRIMEDPCA_DATA")
    if os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 9e9:
        pytest.skip("less than 9 GB of memory are free")
    words = [sys.executable, "-c", FIT, str(folder / name)]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout.readline() == "begin\n"
        before = peak = _resident(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        while process.poll() is None:
            peak = max(peak, _resident(process.pid))
            time.sleep(0.02)
        assert process.stdout.read() == f"True {d} float32\n"
    assert peak - before <= 8e9


def _resident(number):
    try:
        pages = int(Path(f"/proc/{number}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it has just ended
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
