"""Settings of the paper, its published cells and the formulas, written down a second time.

A change to one of them changes every number of the tables without breaking anything else.
"""

import math

import numpy as np
import pytest
import results_folder as known

from primedpca_paper import protocol
from primedpca_paper.arena import Arena
from primedpca_paper.comparison import gain, paper_gain
from primedpca_paper.datasets import PAPER_SHAPES, SETS, SHAPES, TITLES, Dataset, load_set
from primedpca_paper.headline import mean_speed_up, our_speed_up, their_speed_up
from primedpca_paper.large_scale.reproduce import FULL, QUICK
from primedpca_paper.lockstep import Batches, LockstepPower, LockstepSGD
from primedpca_paper.protocol import EXTRAS, Protocol, priming_of
from primedpca_paper.published import ABSTRACT, published
from primedpca_paper.records import Run, streak_of
from primedpca_paper.runs import K5, Runner, rows_at
from primedpca_paper.selection import angular_errors, best_setting
from primedpca_paper.traces import ALONE, Results, Trace, curve

V = math.pi / 8

# ---------------------------------------------------------------- section 5 of the paper


def test_settings_of_section_5():
    assert protocol.N_COMPONENTS == 16
    assert protocol.EXTRAS == (0, 2, 4)
    assert protocol.BATCH == 1000
    assert protocol.MOMENTUM == 0.9
    assert [round(math.pi / v, 9) for v in protocol.THRESHOLDS] == [2**i for i in range(3, 11)]


def test_grids_of_section_5():
    grids = {
        "eigengame": [1, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6],
        "oja": [1e-3, 1e-4, 1e-5, 1e-6],
        "power_method": [1e-3, 1e-4, 1e-5, 1e-6, 1e-7],
    }
    assert list(protocol.PAPERS) == list(grids)
    for method, grid in grids.items():
        assert protocol.PAPERS[method] == pytest.approx(grid, rel=1e-12)
        for name in SETS:
            assert Protocol.full().settings[name, method] == protocol.PAPERS[method]


def test_numbers_of_runs_and_evaluations():
    full, quick = Protocol.full(), Protocol.shortened()
    assert (full.repeats, full.n_evaluations, full.quick) == (10, 60, False)
    assert (quick.repeats, quick.n_evaluations, quick.quick) == (2, 24, True)


def test_run_lengths():
    lengths = {
        "exponential": (10_000, 10_000),
        "linear": (10_000, 10_000),
        "mnist": (20_000, 10_000),
        "cifar10": (20_000, 10_000),
        "nips": (10_000, 10_000),
    }
    quick = {
        "exponential": (4000, 4000),
        "linear": (4000, 4000),
        "mnist": (1500, 1000),
        "cifar10": (1000, 100),
        "nips": (300, 200),
    }
    for made, expected in ((Protocol.full(), lengths), (Protocol.shortened(), quick)):
        for name, (batches, passes) in expected.items():
            assert made.steps[name, "eigengame"] == made.steps[name, "oja"] == batches
            assert made.steps[name, "power_method"] == passes


def test_quick_settings_are_in_the_grids():
    best = {
        ("eigengame", "exponential"): (1e-4, 1e-5),
        ("eigengame", "linear"): (1e-5, 1e-4),
        ("eigengame", "mnist"): (1e-2, 1e-3),
        ("eigengame", "cifar10"): (1e-3, 1e-2),
        ("eigengame", "nips"): (1e-4, 1e-3),
        ("oja", "exponential"): (1e-4, 1e-5),
        ("oja", "linear"): (1e-4, 1e-5),
        ("oja", "mnist"): (1e-3, 1e-4),
        ("oja", "cifar10"): (1e-3, 1e-4),
        ("oja", "nips"): (1e-4, 1e-5),
        **{("power_method", name): (1e-3, 1e-4) for name in SETS},
    }
    assert {
        (method, name): grid for (name, method), grid in Protocol.shortened().settings.items()
    } == best


def test_primings_take_their_setting_and_nesterovs_momentum():
    for method in ("eigengame", "oja"):
        priming = priming_of(method, 1e-3, 70)
        assert (priming.learning_rate, priming.steps, priming.momentum) == (1e-3, 70, 0.9)
        assert priming.schedule == "constant"
    assert priming_of("power_method", 1e-4, 70).epsilon == 1e-4


def test_shapes_of_the_sets():
    assert SHAPES == {
        "exponential": (5000, 50),
        "linear": (5000, 50),
        "mnist": (60_000, 784),
        "cifar10": (50_000, 3072),
        "nips": (5811, 11_463),
    }
    assert PAPER_SHAPES == {
        "exponential": (5000, 50),
        "linear": (5000, 50),
        "mnist": (60_000, 768),
        "cifar10": (50_000, 3092),
        "nips": (5812, 11_463),
    }
    assert list(TITLES) == list(SETS)


@pytest.mark.parametrize(
    ("name", "spectrum"), [("exponential", np.geomspace), ("linear", np.linspace)]
)
def test_synthetic_spectra_fall_from_1000_to_1(name, spectrum):
    x = load_set(name).X.astype(np.float64)
    values = np.linalg.eigvalsh(np.cov(x.T))[::-1]
    np.testing.assert_allclose(values, spectrum(1000, 1, 50), rtol=1e-3)


def test_large_scale_settings():
    names = {case.name: case for case in FULL}
    assert {name: (case.steps, case.batch_size, case.share) for name, case in names.items()} == {
        "retina-quarter": (300, 1024, 0.5),
        "retina-half": (300, 1024, 0.5),
        "retina-full": (300, 1024, 0.5),
        "video": (300, 348, 0.1),
    }
    assert {name: case.shrink for name, case in names.items()} == {
        "retina-quarter": 4,
        "retina-half": 2,
        "retina-full": 1,
        "video": 1,
    }
    assert [case.steps for case in QUICK] == [60, 60]


# ---------------------------------------------------------------- published cells

#: Columns of the paper's table 2: EigenGame alone and with l = 0, 2, 4, Oja's method the same,
#: the power method alone and with l = 0; a line for each of pi/8, pi/32 and pi/128.
COLUMNS = {
    "exponential": """
        4.55±0.67 3.48±0.87 0.89±0.58 0.27±0.11 0.23±0.09
        0.08±0.03 0.05±0.01 0.05±0.01 0.21±0.01 0.23±0.01
        5.81±0.83 4.58±0.95 2.35±0.61 0.80±0.34 0.34±0.09
        0.15±0.05 0.09±0.02 0.07±0.01 0.22±0.01 0.23±0.01
        - - 3.05±0.71 1.60±0.35 0.46±0.10
        0.23±0.06 0.14±0.03 0.09±0.01 0.22±0.01 0.23±0.01
    """,
    "linear": """
        12.24±4.14 4.04±2.30 1.64±0.62 1.10±0.20 0.32±0.18
        0.11±0.09 0.03±0.01 0.04±0.00 0.67±0.07 0.68±0.07
        - 7.45±3.00 2.92±0.93 1.94±0.44 0.58±0.24
        0.19±0.10 0.05±0.01 0.05±0.01 - 0.69±0.07
        - - 4.84±1.57 2.93±0.63 0.92±0.29
        0.29±0.11 0.07±0.02 0.06±0.01 - 0.69±0.07
    """,
    "mnist": """
        9.33±3.64 2.21±0.59 1.15±0.37 0.78±0.43 -
        11.53±5.74 8.03±3.32 6.83±0.86 6.32±0.80 6.33±0.80
        - 3.44±0.57 2.18±0.57 1.58±0.57 -
        19.74±7.31 13.07±4.45 11.96±1.44 6.38±0.80 6.38±0.80
        - - - - -
        29.88±8.00 19.45±4.69 17.60±1.71 - 6.46±0.80
    """,
    "cifar10": """
        15.79±8.33 5.02±0.73 3.17±1.54 2.45±0.91 -
        - 14.38±7.24 11.58±2.02 9.63±1.13 9.63±1.13
        28.37±10.09 6.92±0.79 5.09±1.42 4.61±1.10 -
        - 26.32±9.60 18.97±3.80 9.73±1.13 9.74±1.13
        - - - - -
        - 40.01±11.90 27.88±4.82 - 9.80±0.94
    """,
    "nips": """
        7.54±2.19 3.81±1.37 1.66±0.54 1.24±0.62 5.67±2.15
        2.68±1.71 1.07±0.30 0.91±0.14 4.47±0.38 4.48±0.38
        - 6.57±2.31 3.18±0.38 2.59±0.59 10.03±2.98
        4.54±1.98 1.90±0.43 1.61±0.21 4.52±0.38 4.54±0.38
        - - - - -
        - - - - 6.39±0.58
    """,
}
LINES = [
    *(("eigengame", extra) for extra in (ALONE, 0, 2, 4)),
    *(("oja", extra) for extra in (ALONE, 0, 2, 4)),
    *(("power_method", extra) for extra in (ALONE, 0)),
]


@pytest.mark.parametrize("name", SETS)
def test_published_cells(name):
    cells = COLUMNS[name].split()
    assert len(cells) == 30
    for i, cell in enumerate(cells):
        method, extra = LINES[i % 10]
        found = published(name, method, extra, math.pi / (8, 32, 128)[i // 10])
        if cell == "-":
            assert math.isnan(found.mean)
            assert math.isnan(found.spread)
        else:
            assert tuple(found) == tuple(map(float, cell.split("±")))


def test_the_abstract():
    assert ABSTRACT == {"eigengame": 10.5, "oja": 7.2}


# ---------------------------------------------------------------- formulas


def test_a_streak_ends_at_the_first_angle_that_is_not_below_v():
    assert streak_of(np.array([V / 2, V / 3, 2 * V, V / 2]), V) == 2  # the paper's example
    assert streak_of(np.array([0.0, V, 0.0]), V) == 1
    assert streak_of(np.full(16, 0.1), V) == 16


def test_runs_have_the_streaks_of_their_rows():
    run = Run("mnist", "oja", 1e-3, 0, 0)
    for angle in (np.nextafter(V, 0), V, np.nextafter(V, 1), 1.04 * V):
        row = known.row_of(run, 1, np.where(np.arange(16) == 5, angle, 0.0), True)
        assert Trace.of([row]).streaks(V).tolist() == [row.streak(V)] == [16 if angle < V else 5]


def test_the_angular_error_is_summed_over_runs_steps_and_components():
    run = [Run("mnist", "oja", 1e-3, 0, seed) for seed in (0, 1)]
    rows = [known.row_of(run[s], step, 0.1 * (1 + s), False) for s in (0, 1) for step in (1, 5)]
    assert angular_errors(rows)["mnist", "oja"][1e-3] == pytest.approx(16 * 4 * (0.1 + 0.2))


def test_the_least_error_is_chosen_and_of_equal_ones_the_larger_setting(tmp_path):
    selection = known.new(tmp_path)
    known.write_grid(selection, "mnist", "oja", {1e-3: 0.5, 1e-4: 0.2, 1e-5: 0.2, 1e-6: 0.3})
    assert best_setting(selection.rows(), "mnist", "oja") == 1e-4


def test_the_spread_is_a_standard_deviation_and_the_shading_a_standard_error():
    def trace(seed, streak):
        run = Run("mnist", "oja", 1e-3, 0, seed)
        angles = np.where(np.arange(16) < streak, 0.0, 1.0)
        return Trace.of([known.row_of(run, 1, angles, True, 1.0)])

    found = curve([trace(0, 4), trace(1, 8), trace(2, 12), trace(3, 16)], lambda t: t.streaks(V))
    assert found.mean == [10]
    assert found.error == pytest.approx(np.std([4, 8, 12, 16], ddof=1) / 2)


def test_times_are_means_and_spreads_have_n_minus_1(tmp_path):
    records = known.new(tmp_path / "out")
    known.write_priming(records, "mnist", "oja", 1e-3, seeds=(0, 1, 2))
    seconds = [known.first_step(V, ALONE, seed) * known.STEP for seed in (0, 1, 2)]
    found = Results(records).time("mnist", "oja", ALONE, V)
    assert found.mean == pytest.approx(np.mean(seconds))
    assert found.spread == pytest.approx(np.std(seconds, ddof=1))


def test_the_headline_is_alone_over_the_best_at_pi_8(tmp_path):
    records = known.new(tmp_path / "out")
    known.write_priming(records, "mnist", "oja", 1e-3)
    results = Results(records)
    alone, best = (results.time("mnist", "oja", extra, V).mean for extra in (ALONE, 4))
    assert our_speed_up(results, "mnist", "oja").ratio == pytest.approx(alone / best)
    assert gain(results, "mnist", "oja", "best") == pytest.approx(alone / best)
    assert their_speed_up("linear", "oja").ratio == pytest.approx(0.32 / 0.03)
    assert paper_gain("linear", "oja", 4) == pytest.approx(0.32 / 0.04)
    assert mean_speed_up([our_speed_up(results, "mnist", "oja"), None]) == pytest.approx(
        alone / best
    )


X = np.random.default_rng(0).normal(size=(90, 6)).astype(np.float32) * np.geomspace(3, 1, 6).astype(
    np.float32
)


def covariance(rows):
    return (rows.T @ rows / len(rows)).astype(np.float64)


@pytest.mark.parametrize("method", ["oja", "eigengame"])
def test_steps_are_those_of_the_papers_section_2(method):
    """Nesterov's momentum 0.9 on the mean over a mini-batch of the paper's updates."""
    arena = Arena(Dataset("a", "A", X, "drawn"), "cpu", 3)
    rate, centred = 0.01, X - X.mean(axis=0, dtype=np.float64)
    batches = Batches(90, 30, (0,))
    run = LockstepSGD(arena.rows, arena.like, priming_of(method, rate, 9), (rate,), 3, batches)
    w = run.vectors[0, 0].astype(np.float64).copy()
    velocity = np.zeros_like(w)
    for step in range(4):
        c = covariance(centred[batches.rows(step, step + 1)[0, 0]])
        move = np.zeros_like(w)
        for m in range(3):
            if method == "oja":  # delta w_m = y_m (x - sum over l <= m of y_l w_l)
                move[:, m] = c @ w[:, m] - sum(
                    (w[:, i] @ c @ w[:, m]) * w[:, i] for i in range(m + 1)
                )
            else:  # the gradient of the utility of player m, on the sphere
                g = c @ w[:, m]
                for i in range(m):
                    g = g - (w[:, m] @ c @ w[:, i]) / (w[:, i] @ c @ w[:, i]) * (c @ w[:, i])
                move[:, m] = 2 * (g - (w[:, m] @ g) * w[:, m])
        velocity = 0.9 * velocity + move
        w = w + rate * (move + 0.9 * velocity)
        if method == "eigengame":
            w /= np.linalg.norm(w, axis=0)
        run.run_to(step + 1)
        np.testing.assert_allclose(run.vectors[0, 0], w, atol=1e-5)


def test_a_component_of_the_power_method_ends_when_it_moves_less_than_epsilon():
    arena = Arena(Dataset("a", "A", X, "drawn"), "cpu", 2)
    run = LockstepPower(arena.rows[:-1], arena.like, (1e-2,), 2, (0,))
    x = run.vectors[0, :, 0].astype(np.float64)
    c = covariance(X - X.mean(axis=0, dtype=np.float64))
    for step in range(1, 200):
        new = c @ x / np.linalg.norm(c @ x)
        run.run_to(step)
        assert run.found[0] == (np.linalg.norm(new - x) < 1e-2)
        if run.found[0]:
            return
        x = new
    pytest.fail("the first component did not converge")


def test_variances_are_divided_by_n_minus_1_and_pi_over_2_stands_for_nothing():
    arena = Arena(Dataset("a", "A", X, "drawn"), "cpu", 3)
    v = np.eye(6)[:, :3].astype(np.float32)
    np.testing.assert_allclose(arena.variances(v), X.var(axis=0, ddof=1)[:3], rtol=1e-5)
    first, _ = rows_at(arena, Run("a", "oja", 1e-3, 0, 0), 1, 0.0, v[:, :1])
    assert first.angles[1:3] == pytest.approx([math.pi / 2] * 2)


def test_the_time_of_ppca_is_that_of_its_priming_and_of_one_refining():
    arena = Arena(Dataset("a", "A", X, "drawn"), "cpu", 3)
    v = np.eye(6)[:, :3].astype(np.float32)
    alone, refined = rows_at(arena, Run("a", "oja", 1e-3, 0, 0), 1, 5.0, v)
    assert alone.seconds == 5.0
    assert refined.seconds == 5.0 + refined.refining
    assert 0 < refined.refining < 1
    assert math.isnan(alone.refining)


def test_every_line_of_the_tables_is_run(tmp_path, monkeypatch):
    seen = []

    def note(self, arena, run):
        seen.append((run.method, run.extra, run.seed))
        return []

    monkeypatch.setattr(Runner, "_sgd", note)
    monkeypatch.setattr(Runner, "_power", note)
    runner = Runner(known.new(tmp_path / "a"), known.new(tmp_path / "b"), Protocol.full(3))
    for method in ("eigengame", "oja", "power_method"):
        runner._timed("exponential", method, 1e-3)
    lines = [*(("eigengame", extra) for extra in EXTRAS), *(("oja", extra) for extra in EXTRAS)]
    lines.append(("power_method", 0))
    assert seen == [(*line, seed) for line in lines for seed in range(3)]
    seen.clear()
    runner._timed(K5, "eigengame", 1e-3)
    assert seen == [("eigengame", 0, seed) for seed in range(3)]
    assert runner.arena(K5).n_components == 5
    assert runner.arena("exponential").n_components == 16
