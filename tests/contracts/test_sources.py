"""What every source promises (:class:`primedpca.protocols.DataSource`), whatever the data are."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from catalogue import BYTE_SOURCES, FEW_SOURCES, FILES, KINDS, SOURCES, TEXT_FILES
from distributed.protocol import pickle  # as sources go to workers

from primedpca import PrimedPCA, as_source, prime
from primedpca._core.arrays import dtype_name, is_sparse, to_numpy
from primedpca.priming import FrequentDirections, Oja, SubspaceIteration
from primedpca.protocols import DataSource
from primedpca.sources import base

SHAPES = {"tall": (75, 6), "wide": (6, 75)}
MAKERS = SOURCES | FILES | KINDS | TEXT_FILES | BYTE_SOURCES


pytestmark = pytest.mark.usefixtures("small_blocks_throughout")


CASES = [(name, "float64") for name in SOURCES]
CASES += [(name, "float32") for name in (*FEW_SOURCES, *FILES)]
CASES += [(name, "float64") for name in TEXT_FILES]
CASES += [(name, "float32") for name in KINDS]
CASES += [(name, "uint8") for name in BYTE_SOURCES]


@pytest.fixture(
    scope="module",
    params=[(*case, shape) for case in CASES for shape in SHAPES],
    ids=" ".join,
)
def case(request):
    """A kind of source, a type and a shape."""
    return request.param


@pytest.fixture(scope="module")
def X(case):  # noqa: N802
    """Distinct rows, half of the entries zero."""
    rng = np.random.default_rng(0)
    shape = SHAPES[case[2]]
    size = 40 if case[1] == "uint8" else 1
    values = abs(size * rng.standard_normal(shape)) if size > 1 else rng.standard_normal(shape)
    values = values.astype(case[1]) * (rng.random(shape) < 0.5)
    values[:, 0] = np.arange(1, shape[0] + 1)
    return values


@pytest.fixture(scope="module")
def given(case, X, small_blocks_throughout, tmp_path_factory):
    """What a user would pass; files are written once for all tests."""
    return MAKERS[case[0]](X, tmp_path_factory.mktemp("given"))


@pytest.fixture
def source(given):
    return as_source(given)


def dense_array(block):
    return block.toarray() if is_sparse(block) else to_numpy(block)


def assembled(source):
    pieces = [dense_array(block) for _, block in source.scan()]
    return np.concatenate(pieces, axis=source.axis)


def check_blocks(source, X):
    """Everything that is promised of blocks."""
    assert isinstance(source, DataSource)
    assert source.shape == X.shape
    assert dtype_name(source.dtype) == X.dtype.name
    assert source.device in (None, "cpu")
    assert source.axis in (0, 1)
    assert source.local == tuple(range(len(source.blocks)))
    edge = 0
    for start, stop in source.blocks:
        assert start == edge
        assert stop > start
        edge = stop
    assert edge == X.shape[source.axis]
    for i, block in source.scan():
        start, stop = source.blocks[i]
        expected = X[start:stop] if source.axis == 0 else X[:, start:stop]
        np.testing.assert_array_equal(dense_array(block), expected)
    np.testing.assert_array_equal(assembled(source), X)


def check_batches(source, X, size):
    """Everything that is promised of mini-batches of one size."""
    n = X.shape[0]

    def epoch(*arguments):
        return list(source.batches(size, *arguments))

    for seed in (None, 3):
        batches = epoch(seed)
        numbers = [np.asarray(index) for index, _ in batches]
        sizes = [index.size for index in numbers]
        assert max(sizes) <= size
        assert max(sizes) - min(sizes) <= 1
        assert len(sizes) == -(-n // size)
        np.testing.assert_array_equal(np.sort(np.concatenate(numbers)), np.arange(n))
        for index, (_, rows) in zip(numbers, batches, strict=True):
            np.testing.assert_array_equal(dense_array(rows), X[index])
        if seed is None:
            np.testing.assert_array_equal(np.concatenate(numbers), np.arange(n))


def order_of(source, size, seed, epoch=0, start=0):
    return [np.asarray(index).tolist() for index, _ in source.batches(size, seed, epoch, start)]


# -- blocks -----------------------------------------------------------------------------------


def test_blocks(source, X):
    check_blocks(source, X)
    assert len(source.blocks) > 1


def test_the_cut_is_fixed(given):
    assert as_source(given).blocks == as_source(given).blocks


def test_scan_equals_read(source):
    scanned = {i: dense_array(block).copy() for i, block in source.scan()}
    assert list(scanned) == list(range(len(source.blocks)))
    for i in reversed(source.local):  # in any order
        np.testing.assert_array_equal(dense_array(source.read(i)), scanned[i])


def test_scan_can_be_entered_anywhere(source):
    for start in {min(start, len(source.blocks) - 1) for start in (0, 1, 2)}:
        found = list(source.scan(start))
        assert [i for i, _ in found] == list(range(start, len(source.blocks)))
        for i, block in found:
            np.testing.assert_array_equal(dense_array(block), dense_array(source.read(i)))


def test_a_source_is_its_own_source(source):
    assert as_source(source) is source


def test_numpy_blocks_are_read_only(source):
    _, block = next(source.scan())
    for values in (block.data, block.indices) if is_sparse(block) else (block,):
        if isinstance(values, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                values[...] = 1


IN_MEMORY = ("AnnData", "blocks", "mapped", "npz, co", "torch", "xarray", "dask")


@pytest.mark.parametrize(
    "name", [name for name in [*FILES, *TEXT_FILES, *KINDS] if not name.startswith(IN_MEMORY)]
)
def test_files_travel_by_path_and_not_by_content(name, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 6)).astype(np.float32) * (rng.random((1500, 6)) < 0.5)
    monkeypatch.setattr(base, "READ_BYTES", 2**13)
    source = as_source((FILES | TEXT_FILES | KINDS)[name](X, tmp_path))
    source.read(0)  # what it keeps of a block does not travel
    sent = pickle.dumps(source)
    again = pickle.loads(sent)
    assert again.blocks == source.blocks
    np.testing.assert_array_equal(assembled(again), X)
    if name not in MANY_PIECES:
        assert len(sent) < X.nbytes / 2


#: Chunks or groups of a few numbers each, so that to say where they are takes more than they do.
MANY_PIECES = (
    "zarr 3",
    "zarr 3, shards",
    "zarr 2",
    "parquet",
    "parquet, vectors",
    "parquet, folder",
)


@pytest.mark.parametrize("name", BYTE_SOURCES)
def test_pictures_travel_by_path_and_not_by_content(name, tmp_path):
    X = np.random.default_rng(0).integers(0, 255, (30, 400)).astype(np.uint8)
    source = as_source(BYTE_SOURCES[name](X, tmp_path))
    source.read(0)
    sent = pickle.dumps(source)
    np.testing.assert_array_equal(assembled(pickle.loads(sent)), X)
    assert len(sent) < X.nbytes / 2


# -- X stays as it is -------------------------------------------------------------------------


def files_of(given):
    """The files that a path or a source of files reads."""
    if isinstance(given, str) and Path(given).is_file():
        return [Path(given)]
    if isinstance(given, str):
        path = Path(given.split("::")[0])
        found = path.rglob("*") if path.is_dir() else [path]
        return sorted(each for each in found if each.is_file())
    return [Path(path) for path in given.traits.paths]


def fingerprint(given):
    """A hash of every byte that belongs to what the user passed."""
    if isinstance(given, str) or (isinstance(given, DataSource) and given.traits.paths):
        parts = [np.frombuffer(path.read_bytes(), "u1") for path in files_of(given)]
    elif isinstance(given, np.ndarray):
        parts = [given]
    elif isinstance(given, torch.Tensor):
        parts = [given.numpy()]
    elif hasattr(given, "columns"):
        parts = [given.to_numpy(), np.array(list(given.columns), "U9")]
    elif not hasattr(given, "format"):
        parts = [assembled(as_source(given))]
    elif hasattr(given, "indptr"):
        parts = [given.data, given.indices, given.indptr]
    elif given.format == "lil":
        parts = [np.array(repr((given.data, given.rows)))]
    else:
        parts = [given.data, *given.coords]
    state = hashlib.sha256()
    for part in parts:
        state.update(repr((part.shape, part.dtype)).encode() + part.tobytes())
    return state.hexdigest()


def test_fitting_leaves_the_data_alone(given):
    before = fingerprint(given)
    PrimedPCA(3, random_state=0).fit(given).transform(given)
    assert fingerprint(given) == before


def test_priming_leaves_the_data_alone(given):
    before = fingerprint(given)
    for priming in (Oja(steps=10), FrequentDirections(sketch_size=4), SubspaceIteration()):
        *_, last = prime(given, priming, 2, batch_size=4, max_passes=2, random_state=0)
        assert last.directions.shape[1] == 2
        assert fingerprint(given) == before, priming


# -- mini-batches -----------------------------------------------------------------------------


def test_batches(source, X):
    for size in (1, 7, 1000):
        check_batches(source, X, size)


def test_the_order_is_drawn_from_seed_and_epoch(source):
    first = order_of(source, 4, seed=3)
    assert order_of(source, 4, seed=3) == first
    assert order_of(source, 4, seed=4) != first
    assert order_of(source, 4, seed=3, epoch=1) != first
    assert order_of(source, 4, seed=3, epoch=1) == order_of(source, 4, seed=3, epoch=1)


def test_an_epoch_can_be_reentered(source, X):
    for seed in (None, 3):
        whole = list(source.batches(2, seed, 5))
        # Every start of an epoch of three batches; of a longer one the ends and the middle.
        for start in {0, 1, 2, len(whole) // 2, len(whole) - 1, len(whole)}:
            rest = list(source.batches(2, seed, 5, start))
            assert len(rest) == len(whole) - start
            for (index, rows), (same, again) in zip(whole[start:], rest, strict=True):
                np.testing.assert_array_equal(index, same)
                np.testing.assert_array_equal(dense_array(rows), dense_array(again))


# -- a share of the rows ----------------------------------------------------------------------


def test_sample(source, X):
    n = X.shape[0]
    for share in (0.01, 0.5, 1.0):
        part = source.sample(share, 7)
        assert part.shape == (max(2, round(share * n)), X.shape[1])
        rows = assembled(part)
        numbers = rows[:, 0].astype(int) - 1  # the first column counts the rows
        assert np.unique(numbers).size == numbers.size
        np.testing.assert_array_equal(rows, X[numbers])
        check_blocks(part, rows)
        check_batches(part, rows, 4)
        assert order_of(part, 4, 3, 1, 1) == order_of(part, 4, 3, 1)[1:]


def test_a_sample_is_drawn_from_the_seed(source):
    one, again = (assembled(source.sample(0.5, 7)) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    others = [assembled(source.sample(0.5, seed)) for seed in range(5)]
    assert any((other != one).any() for other in others)


def test_a_sample_of_a_sample(source, X):
    part = source.sample(0.8, 1)
    rows = assembled(part)
    smaller = part.sample(0.7, 2)
    numbers = assembled(smaller)[:, 0]
    assert smaller.shape[0] == round(0.7 * rows.shape[0])
    assert np.isin(numbers, rows[:, 0]).all()
    np.testing.assert_array_equal(assembled(smaller), X[numbers.astype(int) - 1])
