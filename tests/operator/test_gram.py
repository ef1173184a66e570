"""Wide data read in rows: their Gram matrix and adjoint from groups of rows in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from primedpca import PrimedPCA, plan
from primedpca._operator.operator import Centred
from primedpca._operator.wide_rows import are_wide_rows, groups
from primedpca._planning.costs import Load, exact_way
from primedpca.engines import LocalEngine
from primedpca.metrics import angles
from primedpca.sources.base import BlockSource, cut_evenly


class Rows(BlockSource):
    """An array that is read in blocks of three rows, and counts what is read."""

    def __init__(self, x, step=3):
        self.x, self.shape, self.dtype = x, tuple(x.shape), x.dtype
        self.blocks, self.count = cut_evenly(x.shape[0], step), 0

    def read(self, i):
        start, stop = self.blocks[i]
        self.count += stop - start
        return self.x[start:stop]


def wide(n=14, d=400, kind=np.float64, mean=50.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) * (1 + 30 * rng.random((n, 1))) + mean * rng.random(d)
    return np.clip(x + 60, 0, 255).astype(kind) if kind == np.uint8 else x.astype(kind)


def gram_of(x, weight=None, center=True, scale=None):
    """The same by textbook NumPy."""
    x = x.astype(np.float64)
    w = np.ones(x.shape[0]) if weight is None else weight
    x = x - (w @ x / w.sum() if center else 0)
    x = x / (1 if scale is None else scale) * np.sqrt(w)[:, None]
    return x @ x.T / w.sum(), x


#: Bytes of rows that may be held: all of them, several groups, and less than one block.
ROOMS = {"whole": 2.0**31, "three groups": 0.7, "many groups": 0.4, "single blocks": 1e-9}


def room_of(name, x):
    return ROOMS[name] if name == "whole" else ROOMS[name] * x.nbytes


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"center": False},
        {"sample_weight": np.arange(14) % 4},
        {"scale": np.linspace(0.5, 3, 400)},
    ],
    ids=["centred", "not centred", "weighted", "scaled"],
)
def test_gram_and_adjoint(room, kind, options):
    x = wide(kind=kind)
    data = Centred(Rows(x), float64=True, **options)
    data = data.view(room=room_of(room, x))
    weight = options.get("sample_weight")
    expected, m = gram_of(x, weight, options.get("center", True), options.get("scale"))
    np.testing.assert_allclose(data.gram(), expected, rtol=0, atol=1e-12 * expected.max())
    left = np.linalg.qr(np.random.default_rng(1).standard_normal((14, 3)))[0]
    size = np.sqrt((m**2).sum())
    np.testing.assert_allclose(data.adjoint(left), m.T @ left, rtol=0, atol=1e-12 * size)
    assert data.total == pytest.approx((m**2).sum() / data.weight, rel=1e-12)


@pytest.mark.parametrize("room", ROOMS)
def test_far_from_zero(room):
    x = wide(mean=1e8)
    data = Centred(Rows(x), float64=True)
    data = data.view(room=room_of(room, x))
    expected = gram_of(x)[0]
    np.testing.assert_allclose(data.gram(), expected, rtol=0, atol=1e-7 * expected.max())


@pytest.mark.parametrize("room", ROOMS)
def test_a_sample_keeps_the_mean_of_all(room):
    x = wide()
    data = Centred(Rows(x), float64=True)
    part = data.sample(0.5, 3)
    part = part.view(room=room_of(room, x))
    m = x[part.source.index] - x.mean(axis=0)
    np.testing.assert_allclose(part.gram(), m @ m.T / m.shape[0], atol=1e-9)


@pytest.mark.parametrize("room", ["whole", "many groups"])
def test_nothing_depends_on_the_number_of_workers(room):
    x, found = wide(kind=np.float32), []
    for workers in (1, 2, 4):
        data = Centred(Rows(x), LocalEngine(workers))
        data = data.view(room=room_of(room, x))
        found.append((data.gram().tobytes(), data.adjoint(np.eye(14, 2, dtype="f4")).tobytes()))
    assert found[0] == found[1] == found[2]


def test_torch_rows():
    x = wide()
    for room in ("whole", "many groups"):
        data = Centred(Rows(torch.tensor(x)))
        data = data.view(room=room_of(room, x))
        np.testing.assert_allclose(data.gram().numpy(), gram_of(x)[0], atol=1e-8)
        assert data.adjoint(torch.eye(14, 2, dtype=torch.float64)).shape == (400, 2)


def test_missing_values_are_filled():
    x = wide()
    x[3, 7] = x[9, 8] = np.nan
    filled = np.where(np.isnan(x), np.nanmean(x, axis=0), x)
    for room in ROOMS:
        data = Centred(Rows(x), missing="mean")
        data = data.view(room=room_of(room, x))
        np.testing.assert_allclose(data.gram(), gram_of(filled)[0], atol=1e-8)


def test_what_is_no_number_is_named():
    x = wide()
    x[11, 123] = np.nan
    for room in ROOMS:
        data = Centred(Rows(x))
        data = data.view(room=room_of(room, x))
        with pytest.raises(ValueError, match="row 11, column 123"):
            data.gram()


def test_rows_are_read_as_often_as_it_says():
    x = wide(n=24)
    for room, passes in (("whole", 1.0), ("single blocks", 1 + 4.5)):
        source = Rows(x)  # eight blocks
        data = Centred(source)
        data, source.count = data.view(room=room_of(room, x)), 0
        data.gram()
        assert data.passes == passes
        # The first group is not read again for the last pair: (g + 1) / 2 counts a little more.
        assert source.count == {"whole": 24, "single blocks": 24 + 105}[room]
        before, source.count = data.passes, 0
        data.adjoint(np.eye(24, 2))
        assert data.passes - before == 1 == source.count / 24


def test_groups():
    source = Rows(np.zeros((14, 100)))
    assert groups(source, 14 * 800) == [(0, 5)]
    assert groups(source, 14 * 800 - 1) == [(0, 2), (2, 4), (4, 5)]
    assert groups(source, 1) == [(i, i + 1) for i in range(5)]
    for room in range(100, 14 * 800, 700):
        found = groups(source, room)
        assert [a for a, _ in found[1:]] == [b for _, b in found[:-1]]
        assert found[0][0] == 0
        assert found[-1][1] == 5


def test_only_wide_rows():
    assert are_wide_rows(Centred(Rows(wide())))
    assert not are_wide_rows(Centred(Rows(wide(n=50, d=20))))
    assert not are_wide_rows(Centred(wide()))  # an array in memory is cut into columns


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64])
def test_the_certificate_holds(room, kind, monkeypatch):
    x = wide(n=20, d=3000, kind=kind)
    monkeypatch.setattr("primedpca._operator.operator.HELD_BYTES", room_of(room, x))
    monkeypatch.setattr("primedpca._planning.costs.HELD_BYTES", room_of(room, x))
    pca = PrimedPCA(4, random_state=0).fit(Rows(x))
    assert type(pca.plan_.priming).__name__ == "Exact"
    assert pca.components_.dtype == (np.float64 if kind == np.float64 else np.float32)
    m = x.astype(np.float64)
    _, sizes, truth = np.linalg.svd(m - m.mean(axis=0), full_matrices=False)
    assert (angles(pca.components_, truth[:4]) <= pca.angle_bounds_).all()
    assert pca.angle_bounds_.max() < 1e-6
    low, high = pca.certificate_.eigenvalue_bounds.T
    assert (low <= sizes[:4] ** 2 / 19).all()
    assert (sizes[:4] ** 2 / 19 <= high).all()


def load(stored=4e9, budget_rows=100):
    n, d = budget_rows, int(stored // budget_rows)
    return Load(n, d, n * d, n * d, 8, False, 0, n, 2, 1e9)


def test_a_budget_decides_what_is_held():
    rows = load()
    budgets = (6.8e9, 7.5e9, 8e9, 1.2e10)
    found = [exact_way(rows, 8, budget) for budget in budgets]
    for way, budget in zip(found, budgets, strict=True):
        assert way.memory <= budget
        assert way.room >= rows.stored or way.passes > 2
    passes = [way.passes for way in found]
    assert passes == sorted(passes, reverse=True)
    assert passes[0] > passes[-1]
    assert passes[-1] == 2
    too_little = exact_way(rows, 8, 1e9)
    assert too_little.memory > 2 * 8 * rows.d * 8  # and it says so


def test_the_plan_hands_the_room_on():
    x = wide(n=30, d=200_000, kind=np.uint8)
    assert plan(Rows(x), 2).room == 2.0**31
    tight = plan(Rows(x), 2, max_memory="95MB")
    assert type(tight.priming).__name__ == "Exact"
    assert tight.ways[0].memory <= 95e6
    with pytest.raises(ValueError, match="`max_memory`=20 MB"):
        plan(Rows(x), 2, max_memory="20MB")
