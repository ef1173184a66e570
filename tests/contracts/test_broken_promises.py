"""Sources, iterables, primings and callbacks of the user's own that break their promise."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import dask.array
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from primedpca import PrimedPCA
from primedpca.engines import FixedTree, LocalEngine, read_and_apply
from primedpca.priming import (
    BasePriming,
    BlockKrylov,
    Given,
    Krasulina,
    orthonormalise,
    random_basis,
)
from primedpca.result import Status
from primedpca.sources.base import BlockSource, cut_evenly

ROWS = np.random.default_rng(0).normal(size=(300, 12)) * 0.8 ** np.arange(12)
PRIMINGS = ["exact", "block_krylov", "subspace_iteration", "frequent_directions", "oja"]


class Own(BlockSource):
    """What it says, unless a subclass changes that."""

    library = "numpy"
    changed: Any = staticmethod(lambda block: block)

    def __init__(self, blocks=None):
        self.shape, self.dtype = ROWS.shape, ROWS.dtype
        self.blocks = cut_evenly(len(ROWS), 50) if blocks is None else blocks

    def read(self, i):
        start, stop = self.blocks[i]
        return self.changed(ROWS[start:stop])


class Scanned(Own):
    """Blocks that come in order, without the scan of the base class."""

    sequential = True

    def scan(self, start=0):
        for i in range(start, len(self.blocks)):
            yield i, self.read(i)


CHANGES = {
    "fewer rows": (lambda block: block[:-5], r"Block 0 of .* shape \(45, 12\).*\(50, 12\)"),
    "more rows": (lambda block: np.concatenate([block, block]), r"shape \(100, 12\)"),
    "fewer columns": (lambda block: block[:, :-1], r"shape \(50, 11\)"),
    "a list": (lambda block: block.tolist(), "is a list"),
    "nothing": (lambda block: None, "is a NoneType"),
}


@pytest.mark.parametrize("priming", PRIMINGS)
@pytest.mark.parametrize("kind", [Own, Scanned])
@pytest.mark.parametrize("change", CHANGES)
def test_a_block_of_another_shape_is_refused(change, kind, priming):
    source = kind()
    source.changed, words = CHANGES[change]
    with pytest.raises(ValueError, match=words):
        PrimedPCA(2, priming=priming, engine=LocalEngine(1), random_state=0).fit(source)


@pytest.mark.parametrize(
    "blocks",
    [
        [(0, 100), (150, 300)],
        [(0, 200), (100, 300)],
        [(0, 100), (100, 250)],
        [(0, 100), (100, 350)],
        [(100, 300), (0, 100)],
        [],
    ],
)
def test_blocks_that_do_not_cover_the_rows_are_refused(blocks):
    with pytest.raises(ValueError, match="do not cover its 300 rows one after another"):
        PrimedPCA(2).fit(Own(blocks))


class Frames:
    """Yields frames whenever it is iterated over."""

    def __init__(self, *frames):
        self.frames = frames

    def __iter__(self):
        return iter(self.frames)


NAMES = list("abcdefghijkl")
FRAME = pd.DataFrame(ROWS, columns=NAMES)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (FRAME[150:][NAMES[::-1]], "column 'l' in block 1 where the first block has 'a'"),
        (FRAME[150:].rename(columns={"c": "z"}), "column 'z' in block 1 .* has 'c'"),
        (ROWS[150:], "'no name' in block 1 where the first block has 'a'"),
    ],
)
def test_frames_with_other_columns_are_refused(second, words):
    with pytest.raises(ValueError, match=words):
        PrimedPCA(2).fit(Frames(FRAME[:150], second))


def test_frames_that_are_alike_keep_their_names():
    found = PrimedPCA(2, random_state=0).fit(Frames(FRAME[:150], FRAME[150:]))
    assert found.feature_names_in_.tolist() == NAMES
    wanted = np.linalg.eigvalsh(np.cov(ROWS.T))[::-1][:2]
    np.testing.assert_allclose(found.explained_variance_, wanted)


class Chooses:
    """An engine that applies the kernel to some of the blocks."""

    def __init__(self, choose):
        self.choose = choose

    def sweep(self, source, kernel, whole, mine):
        tree = FixedTree(source.blocks)
        for i in self.choose(len(source.blocks)):
            tree.add(read_and_apply(source, kernel, whole, mine, i))
        return tree.total()


@pytest.mark.parametrize(
    ("choose", "words"),
    [
        (lambda count: range(count - 1), "only 5 of 6 blocks. An engine must add every block"),
        (lambda count: [], "only 0 of 6 blocks"),
        (lambda count: [0, *range(count)], "has all 6 blocks already. An engine must add every"),
    ],
)
def test_an_engine_that_skips_or_repeats_a_block_is_refused(choose, words):
    with pytest.raises(ValueError, match=words):
        PrimedPCA(2, engine=Chooses(choose)).fit(Own())


class State(NamedTuple):
    basis: Any
    square: Any


@dataclass(frozen=True)
class Remembers(BasePriming):
    """Reads the data in its first step only."""

    visits = "whole"

    def init(self, like, n_directions, seed, start=None):
        return State(random_basis(like, n_directions, seed, start), None)

    def step(self, state, data):
        square = state.square
        if square is None:
            square = data.covariance_product(np.eye(len(state.basis)))
        return State(orthonormalise(square @ state.basis)[0], square)

    def directions(self, state, data):
        return state.basis


def answers(name, answer):
    """A priming whose method ``name`` returns ``answer`` of the right directions."""
    changed = {name: lambda self, state, data=None: answer(state.basis)}
    return type("Mine", (Remembers,), changed)()


ANSWERS = [
    ("directions", lambda basis: basis * np.nan, "contain nan at index"),
    ("directions", lambda basis: basis.T, r"shape \(5, 12\), but `X` has 12 features. Transpose"),
    ("directions", lambda basis: basis[:, 0], r"must be an array .* got \(12,\)"),
    ("directions", lambda basis: basis.tolist(), "must be an array .* got list"),
    ("directions", lambda basis: None, "must be an array .* got NoneType"),
    ("change", lambda basis: np.zeros(2), r"`change` .* array of shape \(2,\). Return one angle"),
    ("change", lambda basis: 0.0, r"`change` .* array of shape \(\)"),
    ("change", lambda basis: "x", "`change` must hold numbers"),
    ("change", lambda basis: -np.ones(5), "returned the angle -1. Return one angle"),
]


@pytest.mark.parametrize("certificate", ["none", "auto"])
@pytest.mark.parametrize(("name", "answer", "words"), ANSWERS)
def test_answers_of_a_priming_are_checked(name, answer, words, certificate):
    options = {"certificate": certificate, "max_passes": 4, "extra_components": 2}
    with pytest.raises(ValueError, match=words):
        PrimedPCA(3, priming=answers(name, answer), random_state=0, **options).fit(ROWS)


@pytest.mark.parametrize(
    "answer",
    [
        lambda basis: True,
        lambda basis: (basis[:, :2], np.ones(2)),
        lambda basis: (2 * basis, np.ones(5)),
        lambda basis: (basis, np.ones(2)),
        lambda basis: (basis, -np.ones(5)),
        lambda basis: (basis, np.full(5, np.nan)),
        lambda basis: (basis, np.eye(5)),
    ],
)
def test_refined_components_are_checked(answer):
    options = {"certificate": "none", "max_passes": 4, "extra_components": 2}
    with pytest.raises(ValueError, match="`refined` of the priming returned"):
        PrimedPCA(3, priming=answers("refined", answer), random_state=0, **options).fit(ROWS)


def test_algorithms_derived_from_those_of_the_library_are_not_checked_for_their_number():
    kind = type("Mine", (BlockKrylov,), {})
    found = PrimedPCA(3, priming=kind(block_size=1), random_state=0, certificate="none").fit(ROWS)
    assert found.status_ is Status.CONVERGED


def test_directions_of_too_few_dimensions_are_refused_unless_they_are_completed():
    few = answers("directions", lambda basis: basis[:, :2] @ np.ones((2, 9)))
    options = {"priming": few, "max_passes": 20, "random_state": 0}
    with pytest.raises(ValueError, match="of `priming` span 1 dimensions, too few for"):
        PrimedPCA(3, certificate="none", **options).fit(ROWS)
    assert PrimedPCA(3, **options).fit(ROWS).status_ is Status.CERTIFIED


def test_a_change_that_is_not_known_is_no_reason_to_stop():
    unknown = answers("change", lambda basis: np.full(5, np.nan))
    found = PrimedPCA(3, priming=unknown, certificate="none", max_passes=4, random_state=0)
    with pytest.warns(UserWarning, match="max_passes"):
        assert found.fit(ROWS).status_ is Status.MAX_PASSES


class Odd:
    visits = "rowz"
    init = step = directions = None


@pytest.mark.parametrize("kind", [Odd, type("Odd", (Krasulina,), {"visits": "rowz"})])
def test_other_visits_are_refused(kind):
    with pytest.raises(ValueError, match="`visits` of the priming Odd is 'rowz'"):
        PrimedPCA(3, priming=kind()).fit(ROWS)


@pytest.mark.parametrize("given", ["x", [1], [[1.0], [2.0]], np.ones(5), None])
def test_given_directions_are_an_array_with_two_axes(given):
    with pytest.raises(ValueError, match="directions must be an array of shape"):
        PrimedPCA(1, priming=Given(given)).fit(ROWS)


@pytest.mark.parametrize("certificate", ["none", "auto"])
def test_steps_that_read_nothing_are_counted(certificate):
    found = PrimedPCA(
        3, priming=Remembers(), max_passes=20, certificate=certificate, random_state=0
    ).fit(ROWS)
    assert len(found.history_) <= 41  # 20 of its own, and those of a proof


class Stop:
    """A callback of scikit-learn's that ends a fit after its first pass."""

    def setup(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        return context.task_name == "pass"

    def teardown(self, estimator, context): ...


@pytest.mark.skipif(not hasattr(PrimedPCA, "set_callbacks"), reason="needs scikit-learn 1.9")
@pytest.mark.parametrize("certificate", ["none", "auto"])
@pytest.mark.parametrize(
    "priming", ["power_method", "oja", "eigengame", "krasulina", "subspace_iteration"]
)
def test_a_fit_that_a_callback_stops_has_not_converged(priming, certificate):
    rows = np.random.default_rng(1).normal(size=(400, 30))  # a flat spectrum: nothing settles
    model = PrimedPCA(3, priming=priming, certificate=certificate, random_state=0)
    found = model.set_callbacks(Stop()).fit(rows)
    assert found.status_ is Status.STOPPED
    assert not found.converged_


NUMBERS = {
    "complex": (lambda block: block + 1j, ValueError, "Complex data not supported.* complex128"),
    "masked": (lambda block: np.ma.masked_less(block, 0), TypeError, "`X` is a masked array"),
    "objects": (lambda block: block.astype(object), TypeError, "`X` has dtype object"),
    "text": (lambda block: block.astype(str), TypeError, "`X` has dtype str"),
    "coordinates": (
        sp.coo_array,
        TypeError,
        r"of Mine is sparse .* 'coo'.*block.tocsr\(\)",
    ),
    "lazy": (
        dask.array.from_array,
        TypeError,
        r"of Mine is a Array. Return numpy.asarray\(block\)",
    ),
    "a sparse tensor": (
        lambda block: torch.tensor(block).to_sparse(),
        TypeError,
        r"of Mine is a Tensor. Return block.to_dense\(\)",
    ),
    "a frame": (pd.DataFrame, TypeError, r"of Mine is a DataFrame. Return numpy.asarray\(block\)"),
}


class Mine:
    """A source with the members of the protocol alone, which declares float64."""

    axis, device = 0, None

    def __init__(self, change=lambda block: block, first=0, **declared):
        self.change, self.first = change, first
        own = {"shape": ROWS.shape, "dtype": ROWS.dtype, "blocks": tuple(cut_evenly(300, 50))}
        vars(self).update(own | {"local": tuple(range(6))} | declared)

    def read(self, i):
        block = ROWS[50 * i : 50 * (i + 1)]
        return block if i < self.first else self.change(block)

    def scan(self, start=0):
        for i in range(start, 6):
            yield i, self.read(i)

    def batches(self, size, seed, epoch=0, start=0):
        for i in range(start, 6):
            yield np.arange(50 * i, 50 * (i + 1)), self.read(i)

    def sample(self, share, seed): ...


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("change", NUMBERS)
def test_blocks_of_other_than_real_numbers_are_refused_by_name(change, first):
    make, kind, words = NUMBERS[change]
    source = Mine(make, first)
    for priming in PRIMINGS:
        with pytest.raises(kind, match=words):
            PrimedPCA(2, priming=priming, random_state=0).fit(source)
    with pytest.raises(kind, match=words):
        PrimedPCA(2).fit(ROWS).transform(source)
    model = PrimedPCA(2).partial_fit(ROWS)
    with pytest.raises(kind, match=words):
        model.partial_fit(source)
    assert model.n_samples_ == 300


def test_blocks_that_are_dense_and_sparse_by_turns_are_refused():
    own = Own()
    own.read = lambda i: ROWS[:50] if i else sp.csr_array(ROWS[:50])
    with pytest.raises(TypeError, match="Some blocks of `X` are dense, others sparse"):
        PrimedPCA(2, priming="oja").fit(own)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"blocks": np.array([[0, 300]])}, "`blocks` of Mine has type ndarray. Set it to a tuple"),
        ({"blocks": (0, 300)}, "`blocks` of Mine holds 0. Set it to a tuple of pairs"),
        ({"blocks": ((0.0, 300.0),)}, r"`blocks` of Mine holds \(0.0, 300.0\)"),
        ({"shape": (300,)}, r"`shape` of Mine is \(300,\). Set it to \(n_samples, n_features\)"),
        ({"shape": None}, "`shape` of Mine is None"),
        ({"axis": 2}, "`axis` of Mine is 2. Set it to 0 for blocks of rows"),
        ({"feature_names": ["a", "b"]}, r"`feature_names` of Mine is of shape \(2,\).* 12 columns"),
        ({"feature_names": "abcdefghijkl"}, "`feature_names` of Mine is str"),
    ],
)
def test_what_a_source_declares_is_checked(declared, words):
    for fit in (PrimedPCA(2).fit, PrimedPCA(2).partial_fit):
        with pytest.raises((TypeError, ValueError), match=words):
            fit(Mine(**declared))


@pytest.mark.parametrize("values", [["a"] * 3, ["a"] * 301, 3, np.zeros((300, 2))])
@pytest.mark.parametrize("name", ["labels", "row_names"])
def test_labels_are_one_for_each_row(name, values, tmp_path):
    source = Mine(**{name: values})
    with pytest.raises(ValueError, match=f"`{name}` of Mine is .* declares 300 rows. Set it to"):
        PrimedPCA(2).fit(ROWS).transform(source, out=tmp_path / "scores.csv")
