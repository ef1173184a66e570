"""Runs at other settings, with independent mini-batches, and on other draws of the linear set."""

import csv
import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from primedpca_paper.datasets import load_set
from primedpca_paper.draws import COLUMNS, draw_rows, power_on, read_draws
from primedpca_paper.lockstep import Batches, IndependentBatches
from primedpca_paper.other_settings import Job, main, run_jobs
from primedpca_paper.protocol import PAPERS, QUICK_SETTINGS, Protocol
from primedpca_paper.raw_rows import open_raw
from primedpca_paper.tabular import tidy

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"
SHORT = Protocol(2, QUICK_SETTINGS, {("linear", "oja"): 30, ("linear", "eigengame"): 30}, 5)


def test_independent_mini_batches_hold_a_row_once_and_share_rows_between_steps():
    batches = IndependentBatches(50, 20, (0, 1))
    rows = batches.rows(0, 6)
    assert rows.shape == (6, 2, 20)
    assert all(len(set(rows[step, seed])) == 20 for step in range(6) for seed in range(2))
    assert len(set(rows[:2, 0].ravel())) < 40  # two batches of an epoch would share no row
    assert not np.array_equal(rows[:, 0], rows[:, 1])
    np.testing.assert_array_equal(rows[3:], IndependentBatches(50, 20, (0, 1)).rows(3, 6))
    np.testing.assert_allclose(batches.shares(0, 3), 1 / 20)
    epoch = Batches(50, 20, (0,)).rows(0, 3)
    assert sorted(set(epoch[:, 0].ravel()) - {50}) == list(range(50))


def test_a_set_smaller_than_a_mini_batch_is_used_whole():
    assert sorted(IndependentBatches(7, 20, (0,)).rows(0, 1)[0, 0]) == list(range(7))


def test_jobs_are_read_from_words():
    assert Job.of("mnist:eigengame:0.1") == ("mnist", "eigengame", (0.1,))
    assert Job.of("linear:oja:1e-4,1e-5").rates == (1e-4, 1e-5)
    assert Job.of("linear:oja").rates == QUICK_SETTINGS["linear", "oja"]
    for wrong in ("mnist", "mnist:power_method:0.1", "faces:oja:0.1"):
        with pytest.raises(ValueError, match="is not a run"):
            Job.of(wrong)


def test_an_unknown_run_is_refused_with_the_remedy(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path / "out"), "--run", "faces:oja:0.1"])
    assert "SET:PRIMING:RATE" in capsys.readouterr().err


def test_other_settings_and_independent_mini_batches_give_raw_rows(tmp_path):
    jobs = [Job("linear", "oja", (1e-4, 1e-5)), Job("linear", "eigengame", (1e-4,))]
    found = {}
    for independent in (False, True):
        out = tmp_path / str(independent)
        run_jobs(jobs, out, SHORT, independent=independent)
        records, _ = open_raw(out, tmp_path / f"{independent} rows")
        assert records.settings.get("mini-batches") == ("independent" if independent else None)
        rows = list(records.rows())
        assert {row.run[1:4] for row in rows} == {
            (job.method, rate, extra) for job in jobs for rate in job.rates for extra in (0, 2, 4)
        }
        assert {row.run.seed for row in rows} == {0, 1}
        assert max(row.step for row in rows) == 30
        assert all(np.isnan(row.seconds) for row in rows)
        found[independent] = rows
    # The starts are equal, and the mini-batches differ.
    first = [min(rows, key=lambda row: row.step).angles for rows in found.values()]
    assert not np.allclose(*first)
    np.testing.assert_allclose(*first, atol=0.1)


def test_published_draws_are_those_of_the_command():
    published = read_draws(PUBLISHED / "draws.csv")
    assert [(one.dataset, one.draw, one.epsilon) for one in published] == [
        (name, draw, epsilon)
        for name in ("linear", "nips")
        for draw in range(20)
        for epsilon in PAPERS["power_method"][:2]
    ]
    (again,) = power_on(draw_rows("linear", 16), "linear", 16, [1e-3])
    text = tidy(COLUMNS, [again.line])
    assert list(csv.DictReader(io.StringIO(text))) == [
        line
        for line in csv.DictReader(io.StringIO((PUBLISHED / "draws.csv").read_text("utf-8")))
        if (line["set"], line["draw"], line["epsilon"]) == ("linear", "16", "0.001")
    ]
    # The paper's cells: alone only pi/8, and refined all three.
    assert (again.alone, again.refined) == ((10, 0, 0), (10, 10, 10))


def test_documents_are_drawn_with_replacement_and_gaps_are_those_of_the_rows(monkeypatch):
    rng = np.random.default_rng(0)
    axes = rng.standard_normal((60, 300)) * 0.8 ** np.arange(60)[:, None]
    counts = np.round(40 + 10 * rng.standard_normal((90, 60)) @ axes).clip(0)
    few = SimpleNamespace(X=sparse.csr_array(counts.astype(np.float32)))
    monkeypatch.setattr("primedpca_paper.draws.load_set", lambda name, folder: few)
    rows = draw_rows("nips", 3)
    assert rows.shape == (90, 300)
    assert len(np.unique(rows, axis=0)) < 75
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-9)
    # The rows are wide: the power method works on a square factor with the same variances.
    coarse, found = power_on(rows, "nips", 3, [0.5, 1e-5], runs=2)
    variances = np.linalg.svd(rows, compute_uv=False)[:17] ** 2 / 89
    gaps = variances[:-1] - variances[1:]
    np.testing.assert_allclose([found.smallest_gap, found.last_gap], [gaps.min(), gaps[-1]])
    assert found.refined == (2, 2, 2)
    # Directions of little variance do not change what the power method finds.
    monkeypatch.setattr("primedpca_paper.draws.LEADING", 40)
    assert power_on(rows, "nips", 3, [0.5, 1e-5], runs=2)[1].line == found.line
    assert coarse.refined != (2, 2, 2)


def test_gaps_differ_on_a_draw_and_are_equal_on_our_set():
    (draw,) = power_on(draw_rows("linear", 16), "linear", 16, [1e-2], runs=1)
    (ours,) = power_on(load_set("linear").X.astype(float), "linear", 0, [1e-2], runs=1)
    step = 999 / 49
    assert draw.smallest_gap < step / 3 < 2 * step < draw.last_gap
    np.testing.assert_allclose([ours.smallest_gap, ours.last_gap], step, rtol=1e-3)
