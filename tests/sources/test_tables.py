"""Selection, tables, the headline and figure 2's claim, on rows whose answers are known."""

import csv
import io
import math
import re

import numpy as np
import pytest
import results_folder as known

from primedpca_paper.claims import below, claims_files
from primedpca_paper.datasets import SETS
from primedpca_paper.draw import draw, draw_results
from primedpca_paper.headline import (
    cost_of,
    headline_files,
    mean_speed_up,
    our_speed_up,
    their_speed_up,
)
from primedpca_paper.protocol import EXTRAS, PAPERS, THRESHOLDS
from primedpca_paper.published import ABSTRACT, published
from primedpca_paper.records import Records, Run
from primedpca_paper.selection import angular_errors, best_setting
from primedpca_paper.tables import settings_files, table_files
from primedpca_paper.tabular import Cell, Table, digits, spread_cell
from primedpca_paper.traces import ALONE, Results, Summary, Trace, curve

V = math.pi / 8


@pytest.fixture
def results(tmp_path):
    """EigenGame on two sets, one with its grid; our methods on one."""
    records, selection = known.new(tmp_path / "out"), known.new(tmp_path / "selection")
    known.write_grid(selection, "mnist", "eigengame", {0.1: 1.0, 0.01: 0.5, 0.001: 0.7})
    known.write_priming(records, "mnist", "eigengame", 0.01)
    known.write_priming(records, "linear", "eigengame", 1.0)
    known.write_ours(records, "mnist")
    return Results(Records.of(records.folder), Records.of(selection.folder))


# ---------------------------------------------------------------- selection


def grid_rows(angles, seeds=(0, 1), steps=(1, 3, 101)):
    for setting, angle in angles.items():
        for seed in seeds:
            run = Run("mnist", "oja", setting, 0, seed)
            yield from (known.row_of(run, step, angle, False) for step in steps)


def test_the_least_summed_angular_error_wins():
    rows = list(grid_rows({1e-3: 0.5, 1e-4: 0.25, 1e-5: 0.75}))
    assert best_setting(rows, "mnist", "oja") == 1e-4
    # 16 components, 2 runs, from step 1 to 101.
    errors = angular_errors(rows)["mnist", "oja"]
    assert list(errors) == [1e-3, 1e-4, 1e-5]
    assert errors[1e-4] == pytest.approx(16 * 2 * 100 * 0.25)


def test_steps_are_summed_by_trapezoids():
    run = Run("mnist", "oja", 1e-3, 0, 0)
    rows = [known.row_of(run, step, 1 / step, False) for step in (4, 1, 2)]
    assert angular_errors(rows)["mnist", "oja"][1e-3] == pytest.approx(
        16 * ((1 + 1 / 2) / 2 + 2 * (1 / 2 + 1 / 4) / 2)
    )


@pytest.mark.parametrize("lost", [np.nan, np.inf])
def test_what_is_not_finite_is_a_right_angle_off(lost):
    assert angular_errors(grid_rows({1e-3: lost}))["mnist", "oja"][1e-3] == pytest.approx(
        16 * 2 * 100 * math.pi / 2
    )


def test_a_run_that_ended_early_keeps_its_last_answer():
    rows = list(grid_rows({1e-3: 0.5}, steps=(1, 3))) + list(grid_rows({1e-4: 0.25}))
    assert angular_errors(rows)["mnist", "oja"][1e-3] == pytest.approx(16 * 2 * 100 * 0.5)


def test_of_two_that_tie_the_larger_setting_is_kept():
    assert best_setting(grid_rows({1e-5: 0.5, 1e-3: 0.5, 1e-4: 0.5}), "mnist", "oja") == 1e-3


def test_only_seeds_that_all_settings_share_are_compared():
    rows = list(grid_rows({1e-3: 0.5}, seeds=(0,))) + list(grid_rows({1e-4: 0.4}, seeds=(0, 1)))
    assert best_setting(rows, "mnist", "oja") == 1e-4
    rows = list(grid_rows({1e-3: 0.5}, seeds=(0,))) + list(grid_rows({1e-4: 0.4}, seeds=(1,)))
    with pytest.raises(ValueError, match="seed in common"):
        best_setting(rows, "mnist", "oja")


def test_refined_rows_and_extra_directions_take_no_part_in_the_choice():
    rows = list(grid_rows({1e-3: 0.5, 1e-4: 0.4}))
    for extra, refined in ((0, True), (2, True), (2, False)):
        run = Run("mnist", "oja", 1e-3, extra, 0)
        rows += [known.row_of(run, step, 0.0, refined) for step in (1, 101)]
    assert best_setting(rows, "mnist", "oja") == 1e-4
    with pytest.raises(ValueError, match="'oja' on 'nips'"):
        best_setting(rows, "nips", "oja")


# ---------------------------------------------------------------- traces


def test_time_to_a_streak_in_closed_form(results):
    for extra in (ALONE, *EXTRAS):
        steps = [known.first_step(V, extra, seed) for seed in (0, 1)]
        seconds = [s * known.STEP + known.REFINING * (extra is not ALONE) for s in steps]
        found = results.time("mnist", "eigengame", extra, V)
        assert found.mean == pytest.approx(np.mean(seconds))
        assert found.spread == pytest.approx(np.std(seconds, ddof=1))
        assert results.time("mnist", "eigengame", extra, V, "steps").mean == np.mean(steps)
    # By hand: 2/x < pi/8 from x = 8 on, 4/x from 16 on.
    assert results.time("mnist", "eigengame", ALONE, V, "steps").mean == 12


def test_one_run_that_fails_makes_it_unknown(results):
    # Alone, seed 0 reaches 2/1024 < pi/1024 and seed 1 does not reach 4/1024.
    found = results.time("mnist", "eigengame", ALONE, math.pi / 1024)
    assert (found.known, found.runs, found.reached) == (False, 2, 1)
    assert results.time("mnist", "eigengame", 0, math.pi / 1024).known
    assert results.time("nips", "eigengame", 0, V) is None


def test_the_first_time_counts_even_if_the_streak_is_lost_again():
    run = Run("mnist", "oja", 1e-3, 0, 0)
    rows = [known.row_of(run, step, angle, True) for step, angle in ((8, 1.0), (4, 0.1), (2, 1.0))]
    trace = Trace.of(rows)
    assert trace.steps[trace.reached(V)] == 4


def test_our_methods_are_asked_for_each_threshold(results):
    for threshold in THRESHOLDS:
        assert results.time("mnist", "block_krylov", 0, threshold).mean == 0.125
        assert results.time("mnist", "exact", 0, threshold).mean == 0.25


def test_only_the_best_setting_is_looked_at(tmp_path):
    records, selection = known.new(tmp_path / "out"), known.new(tmp_path / "selection")
    known.write_grid(selection, "mnist", "oja", {0.001: 0.5, 0.0001: 0.4})
    known.write_priming(records, "mnist", "oja", 0.001)
    assert Results(records, selection).time("mnist", "oja", 0, V) is None
    assert Results(records).time("mnist", "oja", 0, V) is not None
    known.write_priming(records, "mnist", "oja", 0.0001)
    assert Results(records, selection).setting("mnist", "oja") == 0.0001
    with pytest.raises(ValueError, match=r"\[0\.0001, 0\.001\]"):
        Results(records).time("mnist", "oja", 0, V)


def test_a_curve_is_a_mean_with_its_standard_error():
    def trace(seed, steps, streak_lengths):
        run = Run("mnist", "oja", 1e-3, 0, seed)
        angles = [np.where(np.arange(16) < length, 0.0, 1.0) for length in streak_lengths]
        pairs = zip(steps, angles, strict=True)
        return Trace.of([known.row_of(run, s, a, False, 0.5 * s * (1 + seed)) for s, a in pairs])

    traces = [trace(0, (1, 2, 4), (2, 4, 8)), trace(1, (1, 4), (0, 16))]
    found = curve(traces, lambda trace: trace.streaks(V))
    assert found.steps.tolist() == [1, 2, 4]
    assert found.mean.tolist() == [1, 2, 12]
    assert found.error == pytest.approx([1, 2, 4])
    assert found.seconds == pytest.approx([0.75, 1.5, 3.0])
    # Past its end a run counts with its last answer.
    assert curve(traces, lambda trace: trace.streaks(V), np.array([9.0])).mean.tolist() == [12]
    assert curve(traces[:1], lambda trace: trace.streaks(V)).error.tolist() == [0, 0, 0]


# ---------------------------------------------------------------- the paper's numbers


def test_the_abstract_follows_from_the_papers_table():
    ratios = {method: [their_speed_up(name, method).ratio for name in SETS] for method in ABSTRACT}
    assert [round(r, 1) for r in ratios["eigengame"]] == [16.9, 11.1, 12.0, 6.4, 6.1]
    known_ratios = [round(r, 1) for r in ratios["oja"] if math.isfinite(r)]
    assert known_ratios == [4.6, 10.7, 6.2]
    for method, said in ABSTRACT.items():
        assert round(mean_speed_up(their_speed_up(name, method) for name in SETS), 1) == said


def test_every_cell_of_the_papers_tables_is_there():
    cells = [
        published(name, method, extra, math.pi / denominator)
        for denominator in (8, 32, 128)
        for method in PAPERS
        for extra in ((ALONE, 0) if method == "power_method" else (ALONE, *EXTRAS))
        for name in SETS
    ]
    assert len(cells) == 150
    assert None not in cells
    missing = [cell for cell in cells if math.isnan(cell.mean)]
    assert len(missing) == 3 + 7 + 27
    assert published("mnist", "power_method", 2, V) is None
    assert published("mnist", "eigengame", 0, math.pi / 64) is None
    assert published("cifar10", "oja", 4, math.pi / 128) == (27.88, 4.82)
    assert published("nips", "power_method", 0, math.pi / 128) == (6.39, 0.58)


# ---------------------------------------------------------------- tables


def lines_of(markdown):
    return [[c.strip() for c in line.strip("|").split("|")] for line in markdown.split("\n")]


def test_table_1_reads_as_the_papers(results):
    files = table_files("table-1", results)
    lines = lines_of(files["table-1.md"])
    mnist = 1 + SETS.index("mnist")
    alone, ppca = [line for line in lines if line[0] in ("EigenGame", "+ pPCA")][:2]
    # Steps 8 and 16, of a quarter of a second each: 2 and 4 s.
    assert alone[mnist] == "3.00 ± 1.41"
    assert ppca[mnist] == "**2.00 ± 0.71**"
    assert alone[1 + SETS.index("nips")] == "—"
    krylov = next(line for line in lines if line[0] == "Block Krylov")
    assert krylov[mnist] == "**0.125 ± 0.000**"
    assert "pPCA₂" not in files["table-1.md"]
    assert [line for line in files["table-1.md"].split("\n") if line.startswith("## ")] == [
        "## V = π/8",
        "## V = π/32",
    ]
    steps = lines_of(files["table-1-steps.md"])
    assert next(line for line in steps if line[0] == "EigenGame")[mnist] == "12.0 ± 5.7"


def test_table_2_has_extra_directions_and_every_threshold(results):
    files = table_files("table-2", results)
    assert "+ pPCA₄" in files["table-2.md"]
    assert files["table-2.md"].count("## V") == 3
    assert files["table-2-all.md"].count("## V") == len(THRESHOLDS)
    last = files["table-2-all.md"].split("## V")[-1]
    assert next(line for line in lines_of(last) if line[0] == "EigenGame")[3] == "n.a."


def test_the_tidy_table_holds_the_numbers(results):
    rows = list(csv.DictReader(io.StringIO(table_files("table-2", results)["table-2.csv"])))
    row = next(
        row
        for row in rows
        if (row["set"], row["method"], row["l"], row["refined"], row["V"])
        == ("mnist", "eigengame", "4", "1", "pi/8")
    )
    # Steps 1 and 2 of a gain of 8, and one refining.
    assert (float(row["steps"]), float(row["seconds"])) == (1.5, 0.875)
    assert (row["paper_seconds"], row["setting"], row["runs"]) == ("0.78", "0.01", "2")
    assert row["machine"] == known.MACHINE
    failed = next(
        row
        for row in rows
        if row["set"] == "mnist" and row["V"] == "pi/1024" and row["refined"] == "0"
    )
    assert (failed["seconds"], failed["reached"]) == ("", "1")


def test_beside_the_paper(results):
    lines = lines_of(table_files("table-1", results)["table-1-beside.md"])
    alone = next(line for line in lines if line[0] == "EigenGame")
    assert alone[1 + SETS.index("mnist")] == "3.00 / 9.33 / 3.1×"
    assert alone[1 + SETS.index("nips")] == "— / 7.54 / —"


def test_what_was_not_run_is_said(results):
    text = table_files("table-1", results)["table-1.md"]
    assert (
        "—: not run (EigenGame on Exponential synthetic, CIFAR-10, NIPS bag of words; Oja's" in text
    )
    assert "Power method on all sets" in text
    assert "+ pPCA" not in text.split("not run")[1].split("\n")[0]
    assert "Exact on Exponential synthetic, Linear synthetic, CIFAR-10" in text


def test_fewer_runs_are_said(tmp_path):
    records = known.new(tmp_path / "out")
    known.write_priming(records, "mnist", "oja", 0.001, seeds=(0, 1, 2))
    known.write_priming(records, "nips", "oja", 0.001, seeds=(0,), extras=(0,))
    text = table_files("table-1", Results(records))["table-1.md"]
    assert "runs: 3, but Oja's method on NIPS bag of words 1, Oja's method + pPCA on NIPS" in text
    cell = next(line for line in lines_of(text) if line[0] == "Oja's method")[5]
    assert cell == "2.00"  # of one run there is no spread


def test_the_settings_table(results):
    files = settings_files(results)
    lines = lines_of(files["settings.md"])
    mnist = 1 + SETS.index("mnist")
    found = {line[0]: line[mnist] for line in lines if line[0].startswith("learning rate")}
    # 16 components, 2 runs, 1023 steps.
    assert found == {
        "learning rate 0.1": f"{16 * 2 * 1023 * 1.0:.4g}",
        "learning rate 0.01": f"**{16 * 2 * 1023 * 0.5:.4g}**",
        "learning rate 0.001": f"{16 * 2 * 1023 * 0.7:.4g}",
    }
    rows = list(csv.DictReader(io.StringIO(files["settings.csv"])))
    assert [row["setting"] for row in rows if row["kept"] == "1"] == ["0.01"]


def test_digits_and_cells():
    assert [digits(value) for value in (0.0123, 0.5, 1.0, 12.3, 123.0, 12345.0)] == [
        4,
        3,
        2,
        1,
        0,
        0,
    ]
    assert spread_cell(Summary(0.0123456, 0.001, 3, 3)).text == "0.0123 ± 0.0010"
    assert spread_cell(Summary(math.nan, math.nan, 3, 2)).text == "n.a."
    assert spread_cell(None).text == "—"


def assert_sound(tex):
    """Braces and environments are balanced, specials escaped, lines as wide as the head."""
    assert tex.isascii()
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", tex):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{([a-z*]+)\}", tex):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    bare = re.sub(r"^%.*$", "", tex, flags=re.MULTILINE)
    assert not re.search(r"(?<!\\)[%#~^]", bare)
    assert not re.search(r"(?<!\\)_", re.sub(r"\$[^$]*\$", "", bare))
    assert len(re.findall(r"(?<!\\)\$", bare)) % 2 == 0
    for table in re.findall(
        r"\\begin\{(?:tabular|longtable)\}\{(l?c*)\}(.*?)\\bottomrule", bare, re.S
    ):
        rows = [line for line in table[1].split("\n") if re.search(r"(?<!\\)&", line)]
        assert rows
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(table[0]) - 1}
        assert all(row.endswith(r"\\") for row in rows)


def test_latex_is_sound(results):
    files = {
        **table_files("table-1", results),
        **table_files("table-2", results),
        **settings_files(results),
        **headline_files(results),
    }
    texts = {name: text for name, text in files.items() if name.endswith(".tex")}
    assert len(texts) == 10
    for tex in texts.values():
        assert_sound(tex)
    assert r"a\_machine \& 100\% more" in texts["table-1.tex"]
    assert r"\quad + pPCA$_4$" in texts["table-2.tex"]
    assert "longtable" in texts["table-2-all.tex"]
    assert "longtable" not in texts["table-2.tex"]


def test_latex_and_markdown_escape_what_they_must():
    table = Table(
        "t", r"100% of a_b & {c} \d #1 $2 ~ ^ < >", ["", "x"], [("", [[Cell("a|b")] * 2])]
    )
    assert_sound(table.latex())
    assert r"a\|b" in table.markdown()


# ---------------------------------------------------------------- the headline


def test_the_headline_in_closed_form(results):
    # Alone 3 s; pPCA_4 steps 1 and 2: 0.75 and 1 s.  In steps 12 over 1.5.
    seconds = our_speed_up(results, "mnist", "eigengame")
    assert (seconds.alone, seconds.refined, seconds.extra) == (3.0, 0.875, 4)
    assert our_speed_up(results, "mnist", "eigengame", "steps").ratio == 8
    assert our_speed_up(results, "nips", "eigengame") is None
    lines = lines_of(headline_files(results)["headline.md"])
    eigengame, oja = [line for line in lines if line[0] in ("EigenGame", "Oja's method")][:2]
    assert eigengame[1:] == ["3.43", "8.00", "10.5", "10.5", "2 / 5"]
    assert oja[1:] == ["n.a.", "n.a.", "7.17", "7.2", "0 / 3"]


def test_sets_where_a_run_fails_are_left_out(tmp_path):
    records = known.new(tmp_path / "out")
    known.write_priming(records, "mnist", "oja", 0.001)
    run = Run("nips", "oja", 0.001, 0, 0)
    rows = [known.row_of(run, 1, 1.0, False, 1.0), known.row_of(run, 1, 0.1, True, 1.0)]
    records.write(run, rows)
    results = Results(records)
    found = [our_speed_up(results, name, "oja") for name in SETS]
    assert math.isnan(found[SETS.index("nips")].ratio)
    assert mean_speed_up(found) == found[SETS.index("mnist")].ratio
    assert math.isnan(mean_speed_up([None]))


def test_costs_split_into_steps_and_refining(results):
    cost = cost_of(results, "mnist", "eigengame")
    assert (cost.steps_alone, cost.steps_refined) == (12, 1.5)
    assert cost.ms_alone == pytest.approx(1e3 * known.STEP)
    assert cost.ms_refined == pytest.approx(1e3 * known.STEP)
    assert cost.refining_ms == pytest.approx(1e3 * known.REFINING)
    assert cost.share == pytest.approx(100 * known.REFINING / 0.875)


def test_a_speed_up_is_shown_in_steps_and_without_refining(results):
    text = headline_files(results)["headline.md"]
    line = next(line for line in lines_of(text) if line[0] == "MNIST")
    assert line[1:4] == ["3.00 / 9.33", "0.875 (l = 4) / 0.78 (l = 4)", "3.43 / 12.0"]
    # In steps 12 over 1.5; in seconds 3 over 0.875 less one refining of half a second.
    assert line[6:] == ["8.00", "8.00"]


def test_our_methods_against_the_best_of_the_papers(results):
    text = headline_files(results)["headline.md"].split("Speed-up of our own methods")[1]
    krylov = next(line for line in lines_of(text) if line[0] == "π/8")
    # 0.875 s over 0.125 s.
    assert krylov[1 + SETS.index("mnist")] == "7.00×"
    assert krylov[1 + SETS.index("nips")] == "—"


# ---------------------------------------------------------------- figure 2's claim


def promised(length):
    found = known.NOT_PROMISED.copy()
    found[0] = length
    return found


def angles_of(streak):
    return np.where(np.arange(16) < streak, 0.0, 1.0)


@pytest.mark.parametrize(
    ("extra", "refined", "promise", "verdict"),
    [
        (0, 3, 1, "b fails"),
        (0, 3, 3, "b fails"),
        (0, 3, math.nan, "not explained"),
        (0, 3, 5, "against theory"),
        (0, 3, 4, "against theory"),
        (2, 3, 2, "b fails"),
        (2, 3, math.nan, "other runs"),
        (2, 3, 4, "against theory"),
        (0, 5, math.nan, None),
        (0, 6, math.nan, None),
    ],
)
def test_why_a_curve_lies_below(tmp_path, extra, refined, promise, verdict):
    records = known.new(tmp_path / "out")
    run = Run("mnist", "oja", 0.001, 0, 0)
    after = known.row_of(run, 7, angles_of(refined), True, 1.0, promised(promise))
    rows = [known.row_of(run, 7, angles_of(5), False, 1.0)]
    records.write(run, [*rows, after] if extra == 0 else rows)
    if extra:
        run = Run("mnist", "oja", 0.001, extra, 0)
        after = known.row_of(run, 7, angles_of(refined), True, 1.0, promised(promise))
        records.write(run, [after])
    results = Results(records)
    found = list(below(results, "mnist", "oja", extra, V))
    assert [point.verdict for point in found] == ([] if verdict is None else [verdict])
    if found:
        assert (found[0].step, found[0].priming, found[0].refined) == (7, 5, refined)
        assert found[0].shortened == (verdict != "other runs")


def test_the_claim_is_counted_and_listed(tmp_path):
    records = known.new(tmp_path / "out")
    for seed in (0, 1):
        run = Run("mnist", "oja", 0.001, 0, seed)
        rows = [known.row_of(run, step, angles_of(4), False, 1.0) for step in (1, 2, 4)]
        rows += [known.row_of(run, 1, angles_of(4), True, 1.0)]
        rows += [
            known.row_of(run, 2, angles_of(4 - seed), True, 1.0, promised(0 if seed else math.nan))
        ]
        rows += [known.row_of(run, 4, angles_of(9), True, 1.0)]
        records.write(run, rows)
    files = claims_files(Results(records))
    lines = lines_of(files["claims.md"])
    assert next(line for line in lines if line[0] == "π/8") == ["π/8", "1", "1", "0", "0", "0", "2"]
    assert "Of 3 points at each V" in files["claims.md"]
    listed = next(line for line in lines if line[0] == "MNIST")
    assert listed[1:] == ["Oja's method", "0", "2", "4.00", "3.50", "0.50", "1", "b fails"]
    # The same angles at the other thresholds, where no promise is on record.
    rows = list(csv.DictReader(io.StringIO(files["claims.csv"])))
    assert [row["verdict"] for row in rows] == ["b fails"] + ["not explained"] * 7


def test_the_power_methods_gain(tmp_path):
    records = known.new(tmp_path / "out")
    run = Run("mnist", "power_method", 1e-6, 0, 0)
    rows = [known.row_of(run, 1, 0.001, False, 9.0), known.row_of(run, 1, 0.001, True, 10.0)]
    records.write(run, rows)
    text = claims_files(Results(records))["claims.md"]
    line = next(line for line in lines_of(text) if line[0] == "π/8" and "/" in line[3])
    assert line[3] == "0.900 / 0.998"
    assert "In 3 of 3 cases pPCA is less than 25 % faster." in text


# ---------------------------------------------------------------- the entry point


def test_draw_writes_tables_whole(tmp_path, results):
    out = tmp_path / "drawn"
    for target in ("table-1", "table-2", "headline"):
        paths = draw_results(target, results, out)
        assert all(path.parent == out and path.stat().st_size for path in paths)
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    assert {path.name for path in out.glob("*.csv")} == {
        *("table-1.csv", "table-2.csv", "settings.csv", "headline.csv", "comparison.csv"),
    }


def test_draw_refuses_what_it_does_not_know(tmp_path):
    records = known.new(tmp_path / "out")
    with pytest.raises(ValueError, match="`target`='table-3' must be one of table-1, table-2"):
        draw("table-3", records, None, tmp_path / "drawn")
    assert not (tmp_path / "drawn").exists()


def test_tables_of_an_empty_folder_say_so(tmp_path):
    records = known.new(tmp_path / "out")
    for target in ("table-1", "table-2", "headline"):
        paths = draw(target, records, None, tmp_path / "drawn")
        for path in paths:
            if path.suffix == ".tex" and path.name != "settings.tex":
                assert_sound(path.read_text())
    text = (tmp_path / "drawn" / "table-1.md").read_text()
    assert "EigenGame on all sets" in text
    assert "runs: none" in text
    assert "The grid was not run" in (tmp_path / "drawn" / "settings.md").read_text()
