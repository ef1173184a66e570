"""Figures drawn from a results folder: that they are there, and show what the rows hold."""

import subprocess
import sys

import numpy as np
import pytest
import results_folder as known

from primedpca.plots.canvas import new_figure
from primedpca_paper.datasets import SETS
from primedpca_paper.draw import TARGETS, draw, draw_results
from primedpca_paper.figures import APPENDIX, _streaks, _variances
from primedpca_paper.protocol import THRESHOLDS
from primedpca_paper.records import Run
from primedpca_paper.style import COLOURS
from primedpca_paper.traces import ALONE, Results

matplotlib = pytest.importorskip("matplotlib")
FIGURES = [target for target in TARGETS if target.startswith("figure")]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """EigenGame and Oja on MNIST, EigenGame on the exponential set with 16 and 5 components."""
    folder = tmp_path_factory.mktemp("results")
    records, selection = known.new(folder / "out"), known.new(folder / "selection")
    known.write_grid(selection, "exponential", "eigengame", {1.0: 1.0, 0.1: 0.5})
    known.write_priming(records, "exponential", "eigengame", 0.1)
    known.write_priming(records, "exponential-k5", "eigengame", 0.1)
    for method in ("eigengame", "oja"):
        known.write_priming(records, "mnist", method, 0.01)
    known.write_ours(records, "mnist")
    return Results(records, selection)


def pixels(path):
    from matplotlib.image import imread

    return (imread(path)[..., :3] * 255).round().astype(int)


def has_colour(path, colour):
    """Whether some pixels have exactly this colour, ``#rrggbb``."""
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return bool((np.abs(pixels(path) - wanted).max(axis=2) <= 1).sum() > 20)


@pytest.fixture(scope="module")
def drawn(results, tmp_path_factory):
    """A folder, and a function that draws a target into it once."""
    folder, done = tmp_path_factory.mktemp("drawn"), {}

    def once(target):
        if target not in done:
            done[target] = draw_results(target, results, folder)
        return done[target]

    return folder, once


@pytest.mark.integration
@pytest.mark.parametrize("target", ["figure-1", "figure-2", "figure-3", "figure-9"])
def test_figures_are_drawn(drawn, target):
    folder, once = drawn
    pictures = [path for path in once(target) if path.suffix == ".png"]
    assert folder / f"{target}.png" in pictures
    for path in pictures:
        image = pixels(path)
        assert min(image.shape[:2]) > 400
        assert 0.01 < (image.min(axis=2) < 250).mean() < 0.5
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    assert "Machine: a_machine" in (folder / f"{target}.txt").read_text()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_every_figure_of_the_paper_that_rows_can_give_is_a_target():
    assert [f"figure-{number}" for number in (1, 2, 3, 7, 8, 9, 10, 11)] == FIGURES
    assert list(APPENDIX.values()) == list(SETS)


def test_only_what_was_run_has_its_colour(drawn):
    folder, once = drawn
    once("figure-9")
    assert has_colour(folder / "figure-9.png", COLOURS["eigengame"])
    assert has_colour(folder / "figure-9.png", COLOURS["oja"])
    assert not has_colour(folder / "figure-9.png", COLOURS["power_method"])
    text = (folder / "figure-9.txt").read_text()
    assert "Not run: EigenGame on Linear synthetic, CIFAR-10, NIPS bag of words;" in text


def test_the_same_rows_give_the_same_bytes(drawn, results, tmp_path):
    first = {path.name: path.read_bytes() for path in drawn[1]("figure-1")}
    again = draw_results("figure-1", results, tmp_path)
    assert {path.name: path.read_bytes() for path in again} == first


def test_figures_of_an_empty_folder_say_so(tmp_path):
    records = known.new(tmp_path / "out")
    for target in FIGURES[:2]:
        paths = draw(target, records, None, tmp_path / "drawn")
        assert all(path.stat().st_size for path in paths)
    assert "EigenGame on all sets" in (tmp_path / "drawn" / "figure-1.txt").read_text()


def test_a_panel_shows_mean_streaks_against_steps_and_time(results):
    for unit in ("steps", "seconds"):
        axis = new_figure(3, 2).subplots()
        begin = _streaks(axis, results, "exponential", THRESHOLDS[0], unit)
        curves = [line for line in axis.lines if len(line.get_xdata()) > 1]
        assert len(curves) == 4
        for line, extra in zip(curves, (ALONE, 0, 2, 4), strict=True):
            reached = [known.first_step(THRESHOLDS[0], extra, seed) for seed in (0, 1)]
            streaks = [16 * np.mean([step >= r for r in reached]) for step in known.STEPS]
            assert line.get_ydata().tolist() == streaks
            refining = known.REFINING * (extra is not ALONE)
            x = np.array(known.STEPS) * (1 if unit == "steps" else known.STEP)
            x = x + (refining if unit == "seconds" else 0)
            assert line.get_xdata() == pytest.approx(x)
            assert (line.get_linestyle() == "-") == (extra is not ALONE)
        # pPCA_4 has its first streak at step 1.
        first = 1 if unit == "steps" else known.STEP + known.REFINING
        assert begin == pytest.approx(first / 2)


def test_after_the_first_epoch_only_its_ends_are_drawn(tmp_path):
    records = known.new(tmp_path)
    records.note_data("exponential", (64_000, 50), "drawn")  # 64 batches in an epoch
    known.write_priming(records, "exponential", "oja", 1e-4)
    axis = new_figure(3, 2).subplots()
    _streaks(axis, Results(records), "exponential", THRESHOLDS[0], "steps")
    assert axis.lines[0].get_xdata().tolist() == list(known.STEPS)
    records = known.new(tmp_path / "short")
    records.note_data("exponential", (5000, 50), "drawn")  # 5 batches; 8, 16, ... end none
    known.write_priming(records, "exponential", "oja", 1e-4)
    axis = new_figure(3, 2).subplots()
    _streaks(axis, Results(records), "exponential", THRESHOLDS[0], "steps")
    assert axis.lines[0].get_xdata().tolist() == [1, 2, 4]


def test_the_shading_is_the_standard_error(results):
    axis = new_figure(3, 2).subplots()
    _streaks(axis, results, "exponential", THRESHOLDS[0], "steps")
    heights = axis.collections[0].get_paths()[0].vertices
    # Alone at step 8: streaks 16 and 0, mean 8, standard error 8.
    at = heights[np.isclose(heights[:, 0], 8), 1]
    assert at.min() == pytest.approx(0)
    assert at.max() == pytest.approx(16)


def test_our_methods_are_marked_on_the_clock_only(results):
    for unit, count in (("seconds", 3), ("steps", 0)):
        axis = new_figure(3, 2).subplots()
        _streaks(axis, results, "mnist", THRESHOLDS[0], unit)
        marks = [line.get_xdata()[0] for line in axis.lines if len(line.get_xdata()) == 1]
        assert marks == [0.125, 0.125, 0.25][:count]


@pytest.mark.parametrize(("promise", "mark"), [(0.0, "x"), (np.nan, "+")])
def test_points_below_the_priming_are_marked(tmp_path, promise, mark):
    records = known.new(tmp_path / "out")
    run = Run("mnist", "oja", 0.001, 0, 0)
    rows = [known.row_of(run, step, 0.1, False, 1.0 * step) for step in (1, 2, 4)]
    promised = known.NOT_PROMISED.copy()
    promised[0] = promise
    for step, angle in ((1, 0.1), (2, 1.0), (4, 0.1)):
        told = promised if step == 2 else known.NOT_PROMISED
        rows.append(known.row_of(run, step, angle, True, 1.5 * step, told))
    records.write(run, rows)
    axis = new_figure(3, 2).subplots()
    _streaks(axis, Results(records), "mnist", THRESHOLDS[0], "seconds")
    marks = [line for line in axis.lines if len(line.get_xdata()) == 1]
    assert [(m.get_xdata()[0], m.get_ydata()[0], m.get_marker()) for m in marks] == [(3, 0, mark)]


def test_variances_and_their_normalised_curves(results):
    alone, refined = (results.traces("exponential", "eigengame", extra) for extra in (ALONE, 0))
    truth = np.geomspace(1000, 1, 50)[:16]
    for normalised in (False, True):
        axis = new_figure(3, 2).subplots()
        _variances(axis, alone, refined, normalised)
        assert len(axis.lines) == 32
        for lines, gain in ((axis.lines[:16], 1), (axis.lines[16:], 2)):
            shares = [
                [np.cos(known.angle_at(step, gain, seed)) ** 2 for step in known.STEPS]
                for seed in (0, 1)
            ]
            for line, value in zip(lines, truth, strict=True):
                runs = [np.array(share) * value for share in shares]
                if normalised:
                    runs = [run / run[-5:].mean() for run in runs]
                assert line.get_ydata() == pytest.approx(np.mean(runs, axis=0), rel=1e-5)


def test_without_matplotlib_the_extra_is_named(tmp_path):
    records = known.new(tmp_path / "out")
    code = (
        "import sys\nfrom pathlib import Path\n"
        "sys.modules['matplotlib'] = None\n"
        "from primedpca_paper.draw import draw\n"
        "from primedpca_paper.records import Records\n"
        f"records = Records.of(Path({str(records.folder)!r}))\n"
        f"draw('table-1', records, None, Path({str(tmp_path / 'drawn')!r}))\n"
        f"draw('figure-1', records, None, Path({str(tmp_path / 'drawn')!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'primedpca[plots]'" in done.stderr
    assert (tmp_path / "drawn" / "table-1.md").is_file()
    assert not (tmp_path / "drawn" / "figure-1.png").exists()
