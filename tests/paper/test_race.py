"""The race of primings: any contestant gets its row, and the page tells what the rows hold."""

import csv
import math
import re
from itertools import pairwise

import numpy as np
import pytest
from command import primedpca as run

from primedpca.metrics import angles
from primedpca_paper.commands.race import as_seconds
from primedpca_paper.race import board, contestants, running

MINE = """
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from primedpca.priming import BasePriming, orthonormalise, random_basis


class State(NamedTuple):
    basis: object


@dataclass(frozen=True)
class Mine(BasePriming):
    shift: float = 0.0
    visits = "whole"

    def init(self, like, n_directions, seed, start=None):
        return State(random_basis(like, n_directions, seed, start))

    def step(self, state, data):
        new = data.covariance_product(state.basis) - self.shift * state.basis
        return State(orthonormalise(new)[0])

    def directions(self, state, data):
        return state.basis


def sketch(X, p):
    return X.T @ np.random.default_rng(0).standard_normal((X.shape[0], p))


def full(X, k):
    return np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:k]


def broken(X, k):
    raise RuntimeError("out of <b>luck</b>")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "syntax.py").write_text("def f(: pass")
    (tmp_path / "imports.py").write_text("import no_such_module")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 12)) * 0.6 ** np.arange(12)
    np.save(tmp_path / "x.npy", X)
    return tmp_path


@pytest.mark.integration
def test_every_kind_of_contestant_gets_its_row_from_one_command(folder):
    words = ["race", "--data", "x.npy", "-k", "3", "--seeds", "2", "--budget", "1s"]
    primings = ["mine.py:Mine(shift=0.001)", "mine.py:sketch", "krasulina", "frequent_directions"]
    for priming in primings:
        words += ["--priming", priming]
    for peer in ("mine.py:full", "primedpca", "sklearn.arpack"):
        words += ["--peer", peer]
    assert run(*words).returncode == 0
    with open("race/table.csv", newline="") as file:
        rows = {(row["method"], row[""]): row for row in csv.DictReader(file)}
    for name in ("Mine(shift=0.001)", "sketch", "krasulina", "frequent_directions"):
        assert {(name, "alone"), (name, "refined")} <= set(rows)
    assert {("full", ""), ("primedpca", ""), ("sklearn arpack", "")} <= set(rows)
    assert float(rows["full", ""]["reached π/1024"]) > 0
    assert float(rows["Mine(shift=0.001)", "refined"]["passes"]) >= 2
    page = (folder / "race" / "page.html").read_text()
    assert page.count("<svg") == 1
    assert "krasulina" in page
    assert "src=" not in page  # nothing is loaded from elsewhere


def test_rows_hold_the_angles_that_the_metrics_give(folder):
    data = running.load_data("x.npy", 3)
    centred = data.X - data.X.mean(axis=0)
    truth = np.linalg.svd(centred)[2][:3]
    assert angles(data.truth, truth).max() < 1e-10
    plan = running.Plan(k=3, extra=1, seeds=1, budget=5.0)
    name, priming = contestants.priming_of("mine.py:Mine")
    rows = list(running.run_priming(data, name, priming, plan, 0))
    refined = [row for row in rows if row.kind == "refined"]
    assert refined[-1].streak(math.pi / 1024) == 3
    # One product of 4 columns in each direction for a pass, and the same for refining.
    last = refined[-1]
    assert last.gflop == pytest.approx(4e-9 * data.X.size * 4 * (last.step + 1))


def test_reached_and_held_are_different():
    first = ("x", 10, 3, 30, 1, "m", "refined", "", 0)
    good, bad = np.array([0.001]), np.array([1.0])
    rows = [
        running.Entry(*first, step, float(step), step, 0.0, found)
        for step, found in ((1, good), (2, bad), (3, good), (4, good))
    ]
    (place,) = board.places(rows)
    assert place.reached == (1.0, 1.0, 1.0, 1.0)
    assert place.held == (3.0, 3.0, 3.0, 3.0)


def test_a_legend_of_twelve_methods_is_legible(monkeypatch):
    from matplotlib.figure import Figure

    drawn, save = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: drawn.append(self) or save(self, *a, **k)
    )
    rows = [
        running.Entry(
            "x", 9, 3, 27, 1, f"a method ({i})", "refined", "", 0, s, s, s, 0.0, np.array([1 / s])
        )
        for i in range(12)
        for s in (1, 2, 3)
    ]
    page = board.curves(rows)
    assert all(f"a method ({i})" in page for i in range(12))
    (figure,) = drawn
    (legend,) = figure.legends
    looks = {(h.get_color(), str(h.get_linestyle()), h.get_marker()) for h in legend.legend_handles}
    assert len(looks) == 12
    box, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0
    assert box.x1 <= whole.x1
    assert box.y1 - box.y0 <= whole.height
    heights = [text.get_window_extent() for text in legend.texts]
    assert all(a.y0 >= b.y1 for a, b in pairwise(heights))  # none overlap
    assert len({str(board.look(i)) for i in range(70)}) == 70


def test_a_run_that_misses_makes_the_median_not_available():
    rows = [
        running.Entry("x", 10, 3, 30, 1, "m", "refined", "", seed, 1, 1.0, 1.0, 0.0, found)
        for seed, found in ((0, np.array([0.001])), (1, np.array([1.0])))
    ]
    (place,) = board.places(rows)
    assert all(math.isnan(value) for value in place.reached)


def test_what_a_solver_raises_is_a_row_and_is_escaped(folder):
    data = running.load_data("x.npy", 3)
    peer = contestants.peer_of("mine.py:broken")
    rows = list(running.run_peer(data, peer, running.Plan(k=3), 0))
    assert rows[0].note == "RuntimeError: out of <b>luck</b>"
    page = board.page(rows, board.places(rows), {})
    assert "<b>luck" not in page
    assert "&lt;b&gt;luck" in page


@pytest.mark.parametrize(
    ("raised", "note"),
    [
        ("KeyError('shift')", "KeyError: 'shift'"),
        ("RuntimeError()", "RuntimeError"),
        ("ValueError('one\\ntwo')", "ValueError: one"),
    ],
)
def test_whatever_a_contestant_raises_is_a_row(raised, note, folder):
    (folder / "bad.py").write_text(f"def bad(X, k):\n    raise {raised}\n")
    data, plan = running.load_data("x.npy", 3), running.Plan(k=3)
    found = list(running.run_peer(data, contestants.peer_of("bad.py:bad"), plan, 0))
    found += running.run_priming(data, *contestants.priming_of("bad.py:bad"), plan, 0)
    assert [row.note for row in found] == [note] * len(found)
    assert {row.kind for row in found} == {"solver", "refined"}


@pytest.mark.parametrize("made", ["X[0]", "None", "X[:k].T", "'text'", "X[:k] * 1j"])
def test_components_of_another_shape_are_named(made, folder):
    (folder / "bad.py").write_text(f"def bad(X, k):\n    return {made}\n")
    data = running.load_data("x.npy", 3)
    (row,) = running.run_peer(data, contestants.peer_of("bad.py:bad"), running.Plan(k=3), 0)
    assert "bad returned" in row.note
    assert "Return real components of shape (3, 12)" in row.note
    assert (row.angles == np.pi / 2).all()


@pytest.mark.integration
def test_results_of_two_machines_are_merged(folder):
    words = ["race", "--data", "x.npy", "-k", "3", "--seeds", "1", "--peer", "mine.py:full"]
    assert run(*words, "--out", "one").returncode == 0
    text = (folder / "one" / "rows.csv").read_text()
    machine = re.search(r"(?:AMD|Intel|ARM|.)[^,\n]*cores[^\"\n]*", text)
    assert machine is not None
    done = run("race", "--merge", "one/rows.csv", "--out", "both")
    assert done.returncode == 0
    assert board.read_rows(folder / "both" / "rows.csv")[0].method == "full"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--priming", "nobody"], "Unknown priming 'nobody'"),
        (["--priming", "oja(steps)"], "name=value"),
        (["--priming", "mine.py:Absent"], "has no 'Absent'"),
        (["--priming", "absent.py:Mine"], "File not found"),
        (["--priming", "oja(nope=1)"], "'nope'. Use learning_rate, steps"),
        (["--priming", "mine.py:Mine(nope=1)"], "'nope'. Use shift."),
        (["--priming", "syntax.py:f"], "'syntax.py' cannot be run (SyntaxError: "),
        (["--peer", "imports.py:f"], "'imports.py' cannot be run (ModuleNotFoundError: "),
        (["--peer", "no_such_module:f"], "Cannot import 'no_such_module' (ModuleNotFoundError: "),
        (["--peer", "nobody"], "Unknown peer 'nobody'"),
        (["--data", "x.npy", "-k", "12", "--peer", "primedpca"], "`k`=12"),
        (["--merge", "mine.py"], "not a file of rows"),
    ],
)
def test_invalid_requests_name_the_remedy(folder, words, message):
    done = run("race", *words)
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.integration
def test_an_existing_race_is_not_overwritten(folder):
    words = ["race", "--data", "x.npy", "-k", "3", "--seeds", "1", "--peer", "mine.py:full"]
    assert run(*words).returncode == 0
    assert "--force" in run(*words).stderr
    assert run(*words, "--force").returncode == 0


def test_times_are_parsed():
    assert [as_seconds(words) for words in ("60s", "2min", "0.5", "1h")] == [60, 120, 0.5, 3600]
