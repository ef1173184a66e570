"""n.a. under other run lengths, settings and rules."""

import csv
import io
import math

import pytest
import results_folder as known

from primedpca_paper.agreement import CUTS, TAKEN, Again, agreement_files, independent_results, main
from primedpca_paper.draws import Draw
from primedpca_paper.prose import REASONS
from primedpca_paper.protocol import EXTRAS, PAPERS, THRESHOLDS
from primedpca_paper.published import published
from primedpca_paper.raw_rows import write_raw
from primedpca_paper.records import Run
from primedpca_paper.recount import STREAKS, Setup
from primedpca_paper.traces import ALONE, Results

BEST = {"eigengame": 0.01, "oja": 0.001, "power_method": 0.001}
LINES = {
    **dict.fromkeys(("eigengame", "oja"), (ALONE, *EXTRAS)),
    "power_method": (ALONE, 0),
}


@pytest.fixture
def folder(tmp_path):
    """MNIST with all primings at one setting, and the power method at another."""
    records, selection = known.new(tmp_path / "out"), known.new(tmp_path / "selection")
    records.note_data("mnist", (60_000, 784), "mnist_train.npz")
    for method, setting in BEST.items():
        extras = (0,) if method == "power_method" else EXTRAS
        known.write_priming(records, "mnist", method, setting, extras=extras)
        known.write_grid(selection, "mnist", method, {setting: 0.5, setting / 10: 1.0})
    return records, selection


def agreeing(method, length):
    """Cells of MNIST that agree if runs end here, from the closed form of the folder."""
    count = 0
    for threshold in (THRESHOLDS[0], THRESHOLDS[2], THRESHOLDS[4]):
        for extra in LINES[method]:
            steps = [known.first_step(threshold, extra, seed) for seed in (0, 1)]
            ours = all(step is not None and step <= length for step in steps)
            theirs = published("mnist", method, extra, threshold).mean
            count += ours == math.isfinite(theirs)
    return count


def test_cells_that_agree_by_length_are_those_of_the_closed_form(folder):
    records, selection = folder
    again = Again(Results(records, selection), list(selection.rows()))
    assert again.lengths("mnist") == [*(cut for cut in CUTS if cut < 1024), 1024]
    for method in ("eigengame", "oja"):
        for length in (2, 8, 32, *again.lengths("mnist")):
            setting, count = again.at_length("mnist", method, length)
            assert (setting, count) == (BEST[method], (agreeing(method, length), 0, 12))
    totals = {
        length: agreeing("eigengame", length) + agreeing("oja", length)
        for length in again.lengths("mnist")
    }
    best = again.best("mnist")
    assert best.stochastic.agreeing == totals[best.length] == max(totals.values())


def test_a_setting_that_was_not_refined_is_not_counted(folder):
    records, selection = folder
    again = Again(Results(records, selection), list(selection.rows()))
    cells = again.of("mnist", "eigengame")
    assert again.count(cells, 0.5) == (0, 12, 12)
    assert again.count(cells, 0.5).text == "0 of 12, 12 not run"
    assert again.settings("mnist", "eigengame") == [0.01]


def test_runs_of_another_folder_are_used_where_these_lack_them(folder, tmp_path):
    records, selection = folder
    other = known.new(tmp_path / "other")
    for seed in (0, 1):
        run = Run("mnist", "power_method", 1e-4, 0, seed)
        rows = [known.row_of(run, 4, 1e-3, refined) for refined in (False, True)]
        other.write(run, rows)
    results = Results(records, selection)
    again = Again(results, list(selection.rows()), [Results(other)])
    assert again.settings("mnist", "power_method") == [1e-3, 1e-4]
    # The paper has n.a. only alone at pi/128, and here every line reaches it.
    assert again.count(again.of("mnist", "power_method"), 1e-4).agreeing == 5
    # Both have every printed time: the larger is taken.
    assert again.shortest("mnist", "power_method") == Setup(1e-3)


def test_each_differing_cell_has_a_reason_and_a_measurement(folder):
    records, selection = folder
    files = agreement_files(Results(records, selection), selection)
    cells = list(csv.DictReader(io.StringIO(files["agreement-cells.csv"])))
    expected = sum((6 if m == "power_method" else 12) - agreeing(m, 1024) for m in PAPERS)
    assert len(cells) == expected > 0
    for cell in cells:
        assert cell["reason"] in REASONS
        assert cell["explanation"]
        assert cell["reached"] != cell["runs"] or cell["last_step"]
    lines = list(csv.DictReader(io.StringIO(files["agreement.csv"])))
    ours = [line for line in lines if line["choice"] == "first reached (ours)"]
    assert [line["agreeing"] for line in ours] == [str(30 - expected)]
    assert f"of these {expected} cells" in files["agreement.md"]


def printed_steps(method):
    """Steps at which the closed form reaches the streaks for which the paper prints a time."""
    steps = []
    for threshold in (THRESHOLDS[0], THRESHOLDS[2], THRESHOLDS[4]):
        for extra in LINES[method]:
            if math.isfinite(published("mnist", method, extra, threshold).mean):
                steps += [known.first_step(threshold, extra, seed) for seed in (0, 1)]
    return steps


def test_shortest_runs_are_those_of_the_slowest_printed_time(folder):
    records, selection = folder
    again = Again(Results(records, selection), list(selection.rows()))
    for method in ("eigengame", "oja"):
        expected = Setup(BEST[method], max(printed_steps(method)))
        assert again.shortest("mnist", method) == expected
        assert again.shortest_at("mnist", method, BEST[method]) == expected
        # One evaluation earlier a printed time is missing, whatever the cells with n.a. say.
        cut = Setup(BEST[method], expected.length - 1)
        cells = [c for c in again.of("mnist", method) if math.isfinite(c.theirs)]
        assert all(again.has_streak(cell, expected) for cell in cells)
        assert not all(again.has_streak(cell, cut) for cell in cells)
    assert again.shortest("mnist", "power_method") == Setup(1e-3)


def test_of_two_tolerances_with_every_printed_time_the_larger_is_taken(tmp_path):
    records, selection = known.new(tmp_path / "out"), known.new(tmp_path / "selection")
    for epsilon in (1e-4, 1e-3):
        known.write_priming(records, "mnist", "power_method", epsilon, extras=(0,))
    known.write_grid(selection, "mnist", "power_method", {1e-4: 0.4, 1e-3: 0.5})
    again = Again(Results(records, selection), list(selection.rows()))
    assert all(again.has_streak(cell, Setup(1e-4)) for cell in again.of("mnist", "power_method"))
    assert again.shortest("mnist", "power_method") == Setup(1e-3)


def test_shortest_runs_have_the_rate_that_the_rule_chooses_for_their_length(tmp_path):
    records, selection = known.new(tmp_path / "out"), known.new(tmp_path / "selection")
    known.write_priming(records, "mnist", "eigengame", 0.01)
    for extra in EXTRAS:
        for seed in (0, 1):
            run = Run("mnist", "eigengame", 0.1, extra, seed)
            kinds = (False, True) if extra == 0 else (True,)
            records.write(run, [known.row_of(run, 1, 1.0, kind) for kind in kinds])
    # The larger rate is better up to step 64, then worse, and never has the printed times.
    for seed in (0, 1):
        for rate, late in ((0.1, 1.4), (0.01, 0.5)):
            run = Run("mnist", "eigengame", rate, 0, seed)
            early = 0.1 if rate == 0.1 else late
            rows = [(step, early if step <= 64 else late) for step in known.STEPS]
            selection.write(run, [known.row_of(run, step, angle, False) for step, angle in rows])
    again = Again(Results(records, selection), list(selection.rows()))
    assert max(printed_steps("eigengame")) < 64
    assert [again.chosen("mnist", "eigengame", cut) for cut in (64, 128, 256)] == [0.1, 0.1, 0.01]
    assert again.shortest("mnist", "eigengame") == Setup(0.01, 256)
    assert again.at("mnist", "eigengame", 64) == Setup(0.1, 64)


def test_without_a_run_that_has_every_printed_time_nothing_is_shortest(tmp_path):
    records, selection = known.new(tmp_path / "out"), known.new(tmp_path / "selection")
    for extra in EXTRAS:
        run = Run("mnist", "eigengame", 0.01, extra, 0)
        kinds = (False, True) if extra == 0 else (True,)
        records.write(
            run, [known.row_of(run, step, 1.0, kind) for step in (1, 2) for kind in kinds]
        )
    known.write_grid(selection, "mnist", "eigengame", {0.01: 0.5}, seeds=(0,))
    again = Again(Results(records, selection), list(selection.rows()))
    assert again.shortest("mnist", "eigengame") is None
    assert again.shortest_at("mnist", "eigengame", 0.01) is None


def test_rules_for_a_streak_differ_where_a_run_loses_or_lacks_it(folder):
    results = Results(*folder)
    traces = results.traces("mnist", "eigengame", ALONE)
    steps = [known.first_step(THRESHOLDS[0], ALONE, seed) for seed in (0, 1)]
    assert steps[0] < steps[1]
    early = [trace.only(trace.steps <= steps[0]) for trace in traces]
    found = {rule: has(early, THRESHOLDS[0], False) for rule, has in STREAKS.items()}
    assert found == {"reached": False, "held": False, "half": True, "mean": False}
    touched = [trace.only(trace.steps <= steps[1]) for trace in traces]
    found = {rule: has(touched, THRESHOLDS[0], False) for rule, has in STREAKS.items()}
    assert found == {"reached": True, "held": False, "half": True, "mean": True}


def test_protocols_are_compared_and_the_one_that_we_take_is_named(folder):
    records, selection = folder
    files = agreement_files(Results(records, selection), selection)
    lines = list(csv.DictReader(io.StringIO(files["agreement.csv"])))
    protocols = {line["choice"]: line for line in lines if line["question"] == "protocol"}
    again = Again(Results(records, selection), list(selection.rows()))
    taken = sum(agreeing(m, again.shortest("mnist", m).length) for m in PAPERS)
    assert protocols[TAKEN]["agreeing"] == str(taken)
    assert f"| **{TAKEN}** |" in files["agreement.md"]
    remaining = list(csv.DictReader(io.StringIO(files["agreement-remaining.csv"])))
    assert len(remaining) == 30 - taken
    times = [line for line in lines if line["question"] == "protocol, printed times"]
    # By construction, where some run length has every printed time.
    assert {t["agreeing"] for t in times if t["choice"] == TAKEN} == {times[0]["cells"]}


def test_independent_mini_batches_explain_a_cell_only_if_more_cells_agree(folder, tmp_path):
    records, selection = folder
    drawn = known.new(tmp_path / "drawn")
    for method, setting in (("eigengame", 0.01), ("oja", 0.001)):
        for seed in (0, 1):
            for extra in EXTRAS:
                run = Run("mnist", method, setting, extra, seed)
                rows = []
                for kind in (ALONE, 0) if extra == 0 else (extra,):
                    # An angle that has exactly the paper's streaks: the least printed V, halved.
                    printed = [
                        v
                        for v in (THRESHOLDS[0], THRESHOLDS[2], THRESHOLDS[4])
                        if math.isfinite(published("mnist", method, kind, v).mean)
                    ]
                    angle = min(printed) / 2 if printed else 1.0
                    rows.append(known.row_of(run, 1, angle, kind is not ALONE))
                drawn.write(run, rows)
    files = agreement_files(Results(records, selection), selection, (), independent_results(drawn))
    cells = list(csv.DictReader(io.StringIO(files["agreement-remaining.csv"])))
    mine = [cell for cell in cells if cell["method"] != "power_method"]
    assert mine
    assert {cell["reason"] for cell in mine} == {"mini-batches"}
    assert all("12 of 12 cells of this priming agree there" in cell["explanation"] for cell in mine)
    assert "# Independent mini-batches" in files["agreement.md"]


def test_other_draws_of_the_linear_set_explain_cells_of_the_power_method(tmp_path):
    records, selection = known.new(tmp_path / "out"), known.new(tmp_path / "selection")
    for method, setting in BEST.items():
        extras = (0,) if method == "power_method" else EXTRAS
        known.write_priming(records, "linear", method, setting, extras=extras)
        known.write_grid(selection, "linear", method, {setting: 0.5})
    results = Results(records, selection)
    paper = Draw("linear", 7, 1e-3, 5.0, 30.0, 10, (10, 2, 0), (10, 10, 10))
    other = Draw("linear", 8, 1e-3, 5.0, 10.0, 10, (9, 0, 0), (10, 10, 0))
    with_draws = agreement_files(results, selection, draws=[paper, other])
    cells = list(csv.DictReader(io.StringIO(with_draws["agreement-remaining.csv"])))
    found = [cell for cell in cells if cell["reason"] == "draw of the set"]
    assert [(cell["method"], cell["l"], cell["V"]) for cell in found] == [
        ("power_method", "alone", "pi/32"),
        ("power_method", "alone", "pi/128"),
    ]
    assert "agrees on 2 of 2 sets" in found[0]["explanation"]
    # Draws on which no more cells agree than on ours explain nothing.
    worse = agreement_files(results, selection, draws=[other])
    cells = list(csv.DictReader(io.StringIO(worse["agreement-remaining.csv"])))
    assert "draw of the set" not in {cell["reason"] for cell in cells}
    assert "6 of 6 cells of this priming agree on 1 of them" in found[0]["explanation"]


def test_the_command_writes_the_files_from_raw_rows(folder, tmp_path):
    write_raw(*folder, tmp_path / "raw")
    assert main([str(tmp_path / "raw")]) == 0
    for name, text in agreement_files(Results(*folder), folder[1]).items():
        assert (tmp_path / "raw" / name).read_text(encoding="utf-8") == text
