"""The runs behind the paper's tables, and the command that makes them."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

from primedpca import prime, refine
from primedpca.metrics import angles
from primedpca_paper.arena import Arena, true_components
from primedpca_paper.datasets import Dataset, load_set, synthetic
from primedpca_paper.protocol import METHODS, SETS, THRESHOLDS, Protocol, priming_of
from primedpca_paper.records import Records, Run
from primedpca_paper.reproduce import ABOUT, TARGETS, reproduce
from primedpca_paper.runs import K5, Runner, rows_at


def small(repeats=2, steps=60):
    """The paper's protocol, cut short, with three settings a grid."""
    full = Protocol.full(repeats)
    return dataclasses.replace(
        full,
        settings=dict.fromkeys(full.settings, (0.01, 0.001, 0.0001)),
        steps=dict.fromkeys(full.steps, steps),
        n_evaluations=8,
    )


def runner(folder, protocol, resume=False, **options):
    records = Records(folder, "a machine", {}, resume)
    return Runner(
        records, Records(folder / "selection", "a machine", {}, resume), protocol, **options
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "out"
    everything = runner(path, small())
    for method in METHODS:
        everything.run("exponential", method)
    return path


def rows_of(folder, method, extra=0, refined=True, seed=0):
    rows = Records.of(folder).rows()
    return [
        row
        for row in rows
        if (row.run.method, row.run.extra, row.run.seed) == (method, extra, seed)
        and row.refined == refined
    ]


@pytest.mark.integration
@pytest.mark.parametrize("method", ["eigengame", "oja"])
@pytest.mark.parametrize("extra", [0, 2, 4])
def test_rows_are_what_prime_and_refine_give(folder, method, extra):
    X = load_set("exponential").X
    truth = synthetic("exponential")[1][:16]
    last = rows_of(folder, method, extra)[-1]
    own = priming_of(method, last.run.setting, last.step)
    *_, snapshot = prime(X, own, 16 + extra, random_state=0)
    found = refine(X, snapshot.directions, 16)
    assert last.step == 60
    np.testing.assert_allclose(last.angles, angles(found.components, truth), atol=2e-3)
    np.testing.assert_allclose(last.variances, found.explained_variance, rtol=1e-3)
    if extra == 0:
        raw = rows_of(folder, method, refined=False)[-1]
        expected = angles(snapshot.directions.T, truth)
        np.testing.assert_allclose(raw.angles, expected, atol=2e-3)
        v = snapshot.directions / np.linalg.norm(snapshot.directions, axis=0)
        np.testing.assert_allclose(raw.variances, ((X @ v) ** 2).sum(0) / 4999, rtol=1e-2)
    else:
        assert not rows_of(folder, method, extra, refined=False)


def test_the_clock_runs_on_and_refining_is_on_it(folder):
    raw = rows_of(folder, "eigengame", refined=False)
    refined = rows_of(folder, "eigengame")
    spaced = {round(60 ** (i / 7)) for i in range(8)}
    assert [row.step for row in raw] == sorted(spaced | {-(-step // 5) * 5 for step in spaced})
    assert (np.diff([row.seconds for row in raw]) > 0).all()
    assert all(b.seconds > a.seconds > 0 for a, b in zip(raw, refined, strict=True))
    assert all(row.refining > 0 for row in refined)
    # Files hold seven digits.
    steps = [row.seconds - row.refining for row in refined]
    assert steps == pytest.approx([row.seconds for row in raw], rel=1e-5, abs=1e-7)


def test_the_setting_with_the_least_error_is_timed(folder):
    errors = {}
    selection = Records.of(folder / "selection")
    for row in selection.rows():
        if row.run.method == "eigengame":
            errors.setdefault(row.run.setting, []).append(row.angles.sum())
    timed = {row.run.setting for row in Records.of(folder).rows() if row.run.method == "eigengame"}
    assert set(errors) == {1e-2, 1e-3, 1e-4}
    assert timed == {min(errors, key=lambda setting: errors[setting][-1])}
    assert all(np.isnan(row.seconds) for row in selection.rows())


def test_components_that_are_not_begun_are_a_right_angle_off(folder):
    for row in rows_of(folder, "power_method", refined=False):
        assert row.angles[-1] == pytest.approx(np.pi / 2)
        assert row.angles[0] < 1.57
        assert np.isnan(row.variances[-1])


def test_our_own_rows(folder):
    for method in ("block_krylov", "certified"):
        rows = rows_of(folder, method)
        assert sorted(row.run.setting for row in rows) == pytest.approx(
            sorted(THRESHOLDS), rel=1e-5
        )
        for row in rows:
            assert row.streak(row.run.setting * (1 + 1e-5)) == 16
    (row,) = rows_of(folder, "exact")
    assert row.streak(np.pi / 1024) == 16
    expected = np.geomspace(1000, 1, 50)[:16]
    np.testing.assert_allclose(row.variances, expected, rtol=1e-3)


def test_condition_b_is_recorded_where_refining_shortens_a_streak():
    # The second component has more variance than what the span holds of the first.
    half = np.diag(np.sqrt([9.0, 8.5, 1.0])).astype(np.float32)
    data = Dataset("a", "A", np.concatenate([half, -half]), "drawn")
    tilt = np.radians(20)
    directions = np.array([[np.cos(tilt), 0], [0, 1], [np.sin(tilt), 0]], dtype=np.float32)
    run = Run("a", "eigengame", 1e-3, 0, 0)
    before, after = rows_at(Arena(data, "cpu", 2), run, 1, 0.0, directions)
    assert (before.streak(np.pi / 8), after.streak(np.pi / 8)) == (2, 0)
    assert after.promised[0] == 0
    assert np.isnan(after.promised[1:]).all()  # there was no streak to shorten
    assert np.isnan(before.promised).all()


def test_finished_runs_are_not_repeated(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.csv")}
    lost = Records.of(folder).path(Run("exponential", "oja", 1e-4, 2, 1))
    if lost not in before:
        lost = next(path for path in before if "oja" in path.name and "l2" in path.name)
    lost.unlink()
    again = runner(folder, small(), resume=True)
    for method in METHODS:
        again.run("exponential", method)
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*.csv")}
    assert after.keys() == before.keys()
    assert [path for path in after if after[path] != before[path]] == [lost]


def test_an_interruption_loses_nothing(tmp_path):
    told = []

    def stop(words):
        told.append(words)
        if "run 2" in words:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path / "out", small(), progress=stop).run("exponential", "oja")
    done = sorted(path.name for path in (tmp_path / "out" / "rows").iterdir())
    assert len(done) == 1
    assert done[0].endswith("s0.csv")
    runner(tmp_path / "out", small(), resume=True).run("exponential", "oja")
    assert len(list((tmp_path / "out" / "rows").iterdir())) == 6


def test_the_truth_is_lapack_on_either_side():
    rng = np.random.default_rng(0)
    for shape in ((60, 20), (20, 60)):
        rows = rng.normal(size=shape) * np.geomspace(9, 1, shape[1])
        rows -= rows.mean(axis=0)
        values, vectors, square = true_components(rows, 5)
        _, sizes, right = np.linalg.svd(rows, full_matrices=False)
        np.testing.assert_allclose(values, sizes[:5] ** 2 / (shape[0] - 1))
        assert angles(vectors.T, right[:5]).max() < 1e-6
        assert (square is None) == (shape[0] < shape[1])


def test_sparse_and_dense_sets_are_one_arena():
    rng = np.random.default_rng(0)
    x = (rng.poisson(0.3, size=(40, 70)) * np.geomspace(9, 1, 70)).astype(np.float32)
    dense, sparse = (
        Arena(Dataset("a", "A", data, "drawn"), "cpu", 3) for data in (x, sp.csr_array(x))
    )
    v = np.linalg.qr(rng.normal(size=(70, 6)))[0].astype(np.float32)
    np.testing.assert_allclose(dense.variances(v), sparse.variances(v))
    np.testing.assert_allclose(dense.promised(v), sparse.promised(v))
    found = [arena.refine(v, 0)[0].explained_variance for arena in (dense, sparse)]
    np.testing.assert_allclose(*found, rtol=1e-5)
    assert dense.angles(v * np.float32(1e-30)).max() <= np.pi / 2
    assert (dense.angles(v * np.nan) == np.pi / 2).all()


# -- the command -----------------------------------------------------------------------------


CALL = "from primedpca.cli import main; main()"


def command(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", CALL, "reproduce", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.integration
def test_a_figure_survives_a_kill(tmp_path):
    out = tmp_path / "my results"
    arguments = ("figure-3", "--quick", "--out", out)
    process = command(*arguments)
    deadline = time.monotonic() + 600
    while not list(out.glob("runs/rows/*.csv")) and time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    kept = {path: path.read_bytes() for path in out.rglob("*.csv")}
    assert kept
    refused = command(*arguments)
    _, error = refused.communicate()
    assert refused.returncode == 1
    assert error.count("\n") == 1
    assert "--resume" in error
    resumed = command(*arguments, "--resume")
    text, error = resumed.communicate()
    assert resumed.returncode == 0, error
    assert {path: path.read_bytes() for path in kept} == kept
    assert {"figure-3.png", "figure-3.pdf"} <= {path.name for path in (out / "drawn").iterdir()}
    assert "figure-3.png" in text
    again = command(*arguments, "--resume", "--json")
    text, error = again.communicate()
    assert "run 1" not in error  # drawn again, not run again
    assert '"drawn"' in text


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        ("table-3", {}, "table-1, table-2"),
        ("table-1", {"repeats": 0}, "at least 1"),
        ("table-1", {"sets": ["minst"]}, "mnist"),
        ("table-1", {"device": "cuda:7"}, "`device`='cuda:7'"),
        ("table-1", {"device": "gpu"}, "`device`='gpu'"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_written(tmp_path, target, options, words):
    with pytest.raises(ValueError, match=words):
        reproduce(target, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_missing_data_are_named_before_the_first_run(tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(FileNotFoundError, match="mnist"):
        reproduce("table-1", tmp_path / "out", data_dir=tmp_path / "data", quick=True)
    assert not (tmp_path / "out").exists()


def test_folders_that_are_no_results_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="`out`="):
        reproduce("figure-3", tmp_path, quick=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_damaged_results_are_named(folder, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    victim = sorted((copy / "rows").iterdir())[0]
    victim.write_bytes(victim.read_bytes()[:-20])
    with pytest.raises(ValueError, match="damaged"):
        list(Records.of(copy).rows())
    (copy / "experiment.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        Records.of(copy)


def test_the_targets_are_those_of_the_paper():
    figures = {f"figure-{i}" for i in range(1, 12)} - {"figure-6"}
    more = {"table-1", "table-2", "headline", "lobsters", "activations", "all"}
    assert set(TARGETS) == {*more, *figures}
    assert set(ABOUT) == set(TARGETS)
    assert K5 not in SETS


@pytest.mark.integration
@pytest.mark.parametrize("target", ["figure-1", "figure-3"])
def test_a_figure_of_variances_is_drawn_from_a_fresh_folder(target, tmp_path):
    from matplotlib.image import imread

    drawn = reproduce(target, tmp_path / "new", quick=True, repeats=1)
    (picture,) = (path for path in drawn if path.suffix == ".png")
    pixels = imread(picture)[..., :3]
    coloured = np.ptp(pixels, axis=2) > 0.2  # axes and text are grey
    assert coloured.sum() > 1000
