"""The plan: what would be done, why, and within which memory."""

import dataclasses
import inspect
import math
import re

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from catalogue import PROBLEMS, planted

from primedpca import PrimedPCA, plan
from primedpca._core.parameters import DEFAULTS, as_bytes
from primedpca._operator.operator import Centred
from primedpca._planning.costs import Load, krylov_passes, krylov_way
from primedpca._planning.plan import make_plan
from primedpca._solve.driver import Goal, _Fit
from primedpca._solve.history import silent
from primedpca.engines import LocalEngine
from primedpca.metrics import angles
from primedpca.priming import BlockKrylov, Exact, Oja, SubspaceIteration


def blank(n, d, dtype="f4"):
    """Rows that take no memory: the planner looks at shapes, not at entries."""
    return np.broadcast_to(np.zeros((), dtype), (n, d))


def empty(n, d, density):
    rng = np.random.default_rng(0)
    count = int(n * d * density)
    places = rng.choice(n * d, count, replace=False)
    return sp.csr_array((np.ones(count, "f4"), (places // d, places % d)), shape=(n, d))


@pytest.mark.parametrize(
    ("X", "k", "options", "wanted"),
    [
        (blank(100_000, 50), 10, {}, "Exact()"),
        (
            blank(400, 300_000),
            10,
            {},
            "side='left', keep_images=False, first_look=1, explicit=True",
        ),
        (
            blank(60_000, 784),
            16,
            {},
            "side='right', keep_images=False, first_look=1, explicit=True",
        ),
        (blank(3000, 2500), None, {}, "Exact()"),
        (blank(100_000, 4000), 16, {}, "BlockKrylov(block_size=20, max_basis=None, side='right'"),
        (
            empty(20_000, 5000, 0.001),
            50,
            {},
            "BlockKrylov(block_size=16, max_basis=None, side='right'",
        ),
        (blank(4000, 100_000), 16, {"certificate": "none"}, "left"),
        (empty(3000, 20_000, 0.01), 50, {"certificate": "none"}, "left"),
    ],
    ids=["narrow", "few rows", "few columns", "all", "large", "sparse", "wide", "sparse, few rows"],
)
def test_the_table_of_choices(X, k, options, wanted):
    made = plan(X, k, engine=LocalEngine(2), **options)  # the workers that choices are made for
    assert wanted in repr(made.priming)
    seconds = [way.seconds for way in made.ways]
    if "slowly" in str(made):  # the choice is that of usual spectra
        seconds = seconds[1:]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("priming", ["auto", "block_krylov", "subspace_iteration", "oja"])
def test_the_number_of_workers_changes_the_seconds_and_nothing_else(tmp_path, priming):
    np.save(tmp_path / "x.npy", np.zeros((12_000, 700), "f4"))  # read in several blocks
    made = [
        plan(x, 8, priming=priming, engine=LocalEngine(workers), certificate=kind)
        for x in (tmp_path / "x.npy", blank(20_000, 3000), blank(2000, 100_000))
        for kind in ("none", "auto")
        for workers in (1, 2, 16)
    ]
    for several in (made[i : i + 3] for i in range(0, len(made), 3)):
        facts = {
            (repr(one.priming), one.n_directions, one.overhead, one.patience, one.room)
            for one in several
        }
        assert len(facts) == 1
        if priming == "auto":
            seconds = [one.ways[0].seconds for one in several]
            assert seconds == sorted(seconds, reverse=True)
            assert seconds[0] > seconds[2]


def test_the_sentence():
    words = str(plan(blank(100_000, 4000), 16))
    assert words.startswith("16 components and 4 extra directions by block Krylov with blocks of")
    assert " passes, " in words
    assert " of memory, against " in words
    assert words.endswith(" for a full decomposition.")
    assert "as requested" in str(plan(blank(1000, 40), 3, priming="oja"))


def test_plans_for_all_and_for_the_likeliest_number():
    assert plan(PROBLEMS[0].X, "mle").n_components == 24
    assert plan(PROBLEMS[0].X).n_components == 24
    assert str(plan(PROBLEMS[0].X, 0.9)).startswith("Fewest components that explain 90 %")


def test_a_way_has_its_price():
    X = empty(20_000, 5000, 0.001)
    best = plan(X, 50).ways[0]
    assert best.passes > 1
    assert best.bytes == best.passes * X.nnz * 8
    assert best.flops > 4 * X.nnz * 16 * best.passes
    assert best.memory > 5000 * 16 * best.passes * 8
    assert best.seconds > 0


def test_options_are_those_of_the_estimator():
    signature = inspect.signature(PrimedPCA).parameters
    ours = {name: p.default for name, p in signature.items() if name != "n_components"}
    assert ours == DEFAULTS
    with pytest.raises(TypeError, match="Unknown option: `primng`"):
        plan(np.ones((9, 3)), 2, primng="oja")
    with pytest.raises(ValueError, match="`tol`=-1"):
        plan(np.ones((9, 3)), 2, tol=-1)


@pytest.mark.integration
def test_expected_passes_are_about_right():
    # Of a slow spectrum, from above and below: the planner must not be off by half.
    X = planted("slow", 3000, 1200, 1 / np.arange(1, 1201)).X.astype("f4")
    for k, block in ((10, 14), (40, 16), (40, 44)):
        way = BlockKrylov(block_size=block)
        pca = PrimedPCA(k, priming=way, tol=math.pi / 128, certificate="none", random_state=0)
        steps = len(pca.fit(X).history_)
        assert 0.5 <= krylov_passes(k + 4, block, pca.tol) / steps <= 2


# -- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (None, math.inf),
        (1000, 1000),
        (np.int64(9), 9),
        ("2GB", 2e9),
        ("1.5 gb", 1.5e9),
        ("500 MB", 5e8),
        ("7b", 7),
    ],
)
def test_budgets_in_words(words, count):
    assert as_bytes(words) == count


def test_a_budget_beyond_all_memory_is_none():
    assert as_bytes(10**400) == np.inf


@pytest.mark.parametrize("bad", ["2", "GB", "much", 0, -1, True, [1], "2 GiB", "1.2.3GB"])
def test_bad_budgets_are_refused(bad):
    with pytest.raises(ValueError, match="must be a positive number of bytes"):
        PrimedPCA(2, max_memory=bad).fit(np.eye(5))


def test_a_budget_chooses_another_way_or_restarts():
    X = empty(4000, 30_000, 0.002)
    load = Load.of(Centred(X))
    free = krylov_way(load, 54, 16, "right", 0.01, False)
    tight = krylov_way(load, 54, 16, "right", 0.01, False, budget=free.memory - 1e6)
    assert free.priming.max_basis is None
    assert 54 + 2 * 16 <= tight.priming.max_basis < 16 * free.passes
    assert tight.memory <= free.memory - 1e6
    assert tight.seconds > free.seconds
    with pytest.raises(ValueError, match=r"`max_memory`=1 MB is less than the \d+ MB that block"):
        plan(X, 20, max_memory="1MB")
    with pytest.raises(ValueError, match="`max_memory`=1 byte is less than"):
        plan(X, 20, max_memory=1)
    big = blank(100_000, 700)
    assert plan(big, 60).priming.explicit
    assert isinstance(plan(big, 300).priming, Exact)
    assert not plan(big, 60, max_memory="45MB").priming.explicit


def test_images_are_kept_where_they_fit():
    assert plan(empty(3000, 20_000, 0.03), 50, certificate="none").priming.keep_images
    load = Load.of(Centred(empty(4000, 30_000, 0.03)))
    options = (54, 16, "left", 0.01, False)
    kept, lean = krylov_way(load, *options), krylov_way(load, *options, budget=100e6)
    assert kept.priming.keep_images
    assert not lean.priming.keep_images
    assert kept.passes == lean.passes - 1
    assert kept.seconds < lean.seconds
    # Where they would take more than anybody expects, or more time than the pass.
    long = dataclasses.replace(load, d=300_000, entries=100 * load.entries)
    assert not krylov_way(long, *options).priming.keep_images
    thin = dataclasses.replace(load, entries=load.entries // 100)
    assert not krylov_way(thin, *options).priming.keep_images
    assert not krylov_way(load, 54, 16, "right", 0.01, False).priming.keep_images


def test_a_restarted_basis_is_certified_too():
    problem = planted("slow tail", 1200, 500, 1 / np.arange(1, 200))
    way = BlockKrylov(block_size=4, max_basis=30)
    pca = PrimedPCA(8, priming=way, random_state=0, max_passes=200).fit(problem.X)
    assert 4 * pca.n_passes_ > 30  # so it was cut back
    assert pca.status_.name == "CERTIFIED"
    assert (angles(pca.components_, problem.components[:8]) <= pca.angle_bounds_ + 1e-9).all()


def test_a_budget_is_kept_by_primings_that_were_asked_for():
    X = empty(4000, 30_000, 0.002)
    workers = LocalEngine(2)
    tight = plan(X, 20, priming="block_krylov", max_memory="230MB", engine=workers)
    assert tight.n_directions < tight.priming.max_basis < 12 * tight.n_directions
    tight = plan(X, 20, priming="subspace_iteration", max_memory="330MB", engine=workers)
    assert tight.n_directions < tight.max_basis < 12 * tight.n_directions
    big = blank(100_000, 700)
    assert plan(big, 10, priming="exact", max_memory="200MB").priming == Exact()
    for name in ("oja", "exact", "frequent_directions", "block_krylov", "power_method"):
        with pytest.raises(ValueError, match=r"`max_memory`=1 MB is less than the \d+ MB that"):
            plan(big, 10, priming=name, max_memory="1MB")
    with pytest.raises(ValueError, match=r"`max_memory` .*`n_components`="):
        plan(big, 0.9, max_memory="1GB")


@pytest.mark.parametrize("certificate", ["auto", "none"])
@pytest.mark.parametrize(
    "name",
    [
        *("oja", "power_method", "subspace_iteration"),
        *("frequent_directions", "exact", "block_krylov"),
    ],
)
def test_the_memory_that_a_message_states_is_enough(name, certificate):
    for X in (blank(400, 150), blank(1500, 1500), empty(400, 150, 0.3)):
        for k in (1, 100):
            options = {"n_components": k, "priming": name, "certificate": certificate}
            with pytest.raises(ValueError, match=r"^`max_memory`=10 kB is less than") as refused:
                plan(X, **options, max_memory="10KB")
            stated = re.search(r"less than the (\d+ [kM]B) that", str(refused.value))[1]
            assert plan(X, **options, max_memory=stated.replace(" ", "")).n_components == k


def test_reading_is_probed_for_data_on_disk_only(tmp_path):
    X = np.random.default_rng(0).normal(size=(3000, 1500)).astype(np.float32)
    np.save(tmp_path / "data.npy", X)
    found = plan(np.load(tmp_path / "data.npy", mmap_mode="r"), 5)
    total = found.ways[0].bytes
    assert f"{total / 1e6:.0f} MB are read in all" in str(found)
    assert str(found).endswith("/s of a short probe.")
    assert "probe" not in str(plan(X, 5))
    model = PrimedPCA(5).fit(np.load(tmp_path / "data.npy", mmap_mode="r"))
    assert model.plan_.priming == found.priming  # what is done does not hang on the probe


# -- extra directions --------------------------------------------------------------------------


def test_extra_directions_follow_the_study():
    data = Centred(blank(5000, 800))
    assert make_plan(data, 16, Oja(), "auto").n_directions == 32
    assert make_plan(data, 16, BlockKrylov(), "auto").n_directions == 20
    assert make_plan(data, 16, Exact(), "auto").n_directions == 16
    assert make_plan(data, 16, Oja(), 2).n_directions == 18
    assert Load.of(Centred(empty(200, 100, 0.1))).overhead == 0


def snapshots(data, plan, max_passes):
    """The steps of the first stage of a fit."""
    goal = Goal(max_passes=max_passes, proven=False)
    return _Fit(data, plan, goal, silent).first(None).snapshots()


@pytest.mark.parametrize(
    ("spectrum", "narrower"),
    [(np.r_[np.full(5, 10.0), np.full(395, 0.01)], True), (1 / np.sqrt(np.arange(1, 401)), False)],
    ids=["a step", "slow"],
)
def test_subspace_iteration_changes_its_width_by_what_it_sees(spectrum, narrower):
    data = Centred(planted("x", 1000, 400, spectrum).X)
    made = make_plan(data, 5, SubspaceIteration(), "auto")
    widths = [snapshot.directions.shape[1] for snapshot in snapshots(data, made, 5)]
    assert widths[:2] == [made.n_directions] * 2
    assert widths[2] == widths[-1]
    assert widths[2] < 10 if narrower else widths[2] > 15
    fixed = make_plan(data, 5, SubspaceIteration(), 7)
    steps = list(snapshots(data, fixed, 5))  # one pass refines
    assert [s.directions.shape[1] for s in steps] == [12] * 4
    assert [s.step for s in steps] == [1, 2, 3, 4]


def test_a_plan_reads_next_to_nothing():
    data = Centred(PROBLEMS[0].X)
    make_plan(data, 4, "auto", "auto")
    assert data.passes == 0


@pytest.mark.parametrize("options", [{}, {"scale": "std"}, {"missing": "mean"}], ids=str)
@pytest.mark.parametrize("certificate", ["auto", "none"])
def test_the_pass_that_learns_scales_and_means_is_planned(tmp_path, options, certificate):
    X = np.random.default_rng(0).standard_normal((900, 20))
    np.save(tmp_path / "x.npy", X)
    planned = plan(tmp_path / "x.npy", 3, certificate=certificate, **options)
    made = PrimedPCA(3, certificate=certificate, **options).fit(tmp_path / "x.npy")
    assert planned.ways[0].passes == made.n_passes_ == 1 + bool(options)
    assert planned.ways[0].bytes == made.n_passes_ * X.nbytes
    assert ("2 passes" in str(planned)) == bool(options)


def test_a_share_that_takes_half_of_the_space_ends_in_a_full_decomposition():
    assert plan(np.zeros((2100, 2100)), 0.9).patience == 33
    assert plan(np.zeros((2000, 2100)), 0.9).patience is None  # that is one already
    assert plan(np.zeros((2100, 2100)), 0.9, priming="block_krylov").patience is None


@pytest.mark.slow
def test_a_share_of_a_slow_spectrum_is_proven():
    X = np.random.default_rng(0).normal(size=(2600, 2100)) * np.arange(1, 2101) ** -0.5
    model = PrimedPCA(0.95, random_state=0).fit(X)
    values = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    assert model.status_.name == "CERTIFIED"
    assert model.n_components_ == 1 + np.searchsorted(np.cumsum(values) / values.sum(), 0.95)


def test_memory_on_a_device_does_not_depend_on_workers():
    torch = pytest.importorskip("torch")
    X = torch.empty((20_000_000, 400), device="meta")  # planned as on a GPU, where blocks queue
    few, many = (plan(X, 4, engine=LocalEngine(workers)).ways for workers in (2, 16))
    assert [way.memory for way in few] == [way.memory for way in many]
    assert few[0].memory < 8e9  # two blocks of a gigabyte, and a float64 copy of each


# -- a sample of rows ------------------------------------------------------------------------


def test_a_sample_of_rows_shows_a_flat_spectrum():
    """The method stays that of a fit; passes and time are those of its way."""
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((5000, 2000), dtype=np.float32)
    falling = flat * np.float32(1 / np.arange(1, 2001))
    slow, usual = plan(flat, 10), plan(falling, 10)
    assert slow.priming == usual.priming == PrimedPCA(10).fit(falling).plan_.priming
    assert "slowly" in str(slow)
    assert "slowly" not in str(usual)
    assert slow.ways[0].seconds > 2 * usual.ways[0].seconds
    assert str(plan(flat, 10)) == str(slow)


def test_sparse_rows_are_sampled_without_being_made_dense():
    rng = np.random.default_rng(0)
    flat = sp.random_array((6000, 50_000), density=0.002, format="csr", rng=rng, dtype=np.float32)
    level = sp.diags_array(1 / np.arange(1.0, 50_001)).astype(np.float32)
    slow, usual = plan(flat, 20), plan(sp.csr_array(flat @ level), 20)
    assert "slowly" in str(slow)
    assert slow.ways[0].passes > usual.ways[0].passes
    assert slow.priming == usual.priming


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_sample_with_values_that_a_fit_refuses_is_left_to_the_fit(value):
    flat = np.random.default_rng(0).standard_normal((5000, 1500))
    flat[:, 3] = value
    assert "slowly" not in str(plan(flat, 10))
    sparse = sp.random_array((6000, 9000), density=0.01, format="csr", rng=np.random.default_rng(0))
    assert "slowly" in str(plan(sparse, 10))
    sparse.data[::50] = value
    assert "slowly" not in str(plan(sparse, 10))


def test_tensors_of_any_type_are_sampled():
    flat = torch.randn(5000, 1500, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        assert "slowly" in str(plan(flat.to(dtype), 10))


def test_rows_that_are_scaled_or_weighted_are_not_sampled():
    flat = np.random.default_rng(0).standard_normal((5000, 2000), dtype=np.float32)
    assert "slowly" not in str(plan(flat, 10, scale="std"))
    assert "slowly" not in str(plan(flat, 10, missing="mean"))
    assert "slowly" not in str(plan(flat, 10, sample_weight=np.arange(5000.0)))
    assert "slowly" not in str(plan(flat[:150], 40))  # too few rows


def test_one_row_is_refused_as_by_a_fit():
    with pytest.raises(ValueError, match="Found 1 sample in `X`"):
        plan(np.ones((1, 5)), 1)
