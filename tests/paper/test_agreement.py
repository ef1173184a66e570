"""n.a. under other run lengths, settings and rules."""

import csv
import io
import math

import pytest
import results_folder as known

from primedpca_paper.agreement import CUTS, Again, agreement_files, main
from primedpca_paper.protocol import EXTRAS, PAPERS, THRESHOLDS
from primedpca_paper.published import published
from primedpca_paper.raw_rows import write_raw
from primedpca_paper.records import Run
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


def test_each_differing_cell_has_a_reason_and_a_measurement(folder):
    records, selection = folder
    files = agreement_files(Results(records, selection), selection)
    cells = list(csv.DictReader(io.StringIO(files["agreement-cells.csv"])))
    expected = sum((6 if m == "power_method" else 12) - agreeing(m, 1024) for m in PAPERS)
    assert len(cells) == expected > 0
    for cell in cells:
        assert cell["reason"] in ("run length", "rate", "ε", "touched", "not explained")
        assert cell["explanation"]
        assert cell["reached"] != cell["runs"] or cell["last_step"]
    lines = list(csv.DictReader(io.StringIO(files["agreement.csv"])))
    ours = [line for line in lines if line["choice"] == "first reached (ours)"]
    assert [line["agreeing"] for line in ours] == [str(30 - expected)]
    assert f"of these {expected} cells" in files["agreement.md"]


def test_the_command_writes_the_files_from_raw_rows(folder, tmp_path):
    write_raw(*folder, tmp_path / "raw")
    assert main([str(tmp_path / "raw")]) == 0
    for name, text in agreement_files(Results(*folder), folder[1]).items():
        assert (tmp_path / "raw" / name).read_text(encoding="utf-8") == text
