"""Ranks of torch.distributed: the same bits on any number of them, and errors that reach all."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import rank_jobs
import torch
import torch.distributed as dist
from clusters import cluster
from rank_jobs import ERRORS, FITS, ROOM, SMALL, noise
from rank_starts import Ranks, free_port

from primedpca import PrimedPCA
from primedpca._core.checksum import checksum, mixed
from primedpca._operator.operator import Centred
from primedpca.engines import as_engine
from primedpca.engines.base import FixedTree
from primedpca.engines.local import LocalEngine
from primedpca.engines.torch.engine import TorchDistributed, shares
from primedpca.protocols import Engine, Parts
from primedpca.sources import RankRows

pytestmark = pytest.mark.integration

GOOD = [f"{kind} {name}" for kind in ("fit", "rows") for name in FITS]
GOOD += ["weighted", "weighted rows", "refined", "own files"]
#: Data that one process and several ranks cut into the same blocks.
ALIKE = [name for name in FITS if name not in ("wide", "sparse columns", "zarr", "npy", "npz")]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    started = Ranks(tmp_path_factory.mktemp("ranks"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def workers():
    with cluster(2) as client:
        yield client


@pytest.fixture(scope="module")
def found(ranks):
    """Results of every rank for every job, by number of ranks."""
    bad = [f"error {name}" for name in ERRORS]
    stops = ["stopped", "stopped by rank 0"]
    jobs = {1: stops, 2: [*bad, "drawn", "listening", *stops], 4: ["drawn", *stops]}
    return {size: ranks.run(size, *GOOD, *more) for size, more in jobs.items()}


def gave(found, job, *sizes):
    return [told.get(job, told["text"]) for size in sizes for told in found[size]]


@pytest.mark.parametrize("job", GOOD)
def test_the_number_of_ranks_changes_no_bit(found, job):
    told = gave(found, job, 1, 2, 4)
    assert told == told[:1] * 7


@pytest.mark.parametrize("name", FITS)
def test_the_engine_of_one_machine_gives_the_same_bits(found, name, ranks):
    own = ranks.run(1, f"local {name}")[0][f"local {name}"]
    assert gave(found, f"fit {name}", 2) == [own] * 2
    if name in ALIKE:
        assert gave(found, f"rows {name}", 4) == [own] * 4


@pytest.mark.parametrize("name", ["zarr", "npy", "npz"])
def test_dask_gives_the_same_bits_of_the_same_file(found, name, ranks, workers, monkeypatch):
    monkeypatch.setenv("RANKS_FILES", str(ranks.folder))
    for module, constant, value in SMALL:
        monkeypatch.setattr(module, constant, value)
    path, options = FITS[name]()
    pca = PrimedPCA(3, engine=workers, random_state=0, **options).fit(path)
    assert [rank_jobs.bits(pca)] * 2 == [one["bits"] for one in gave(found, f"fit {name}", 2)]


def test_weights_of_own_rows_are_those_of_all(found):
    assert gave(found, "weighted rows", 4) == gave(found, "weighted", 4)


def test_without_a_seed_all_ranks_draw_the_same_and_have_one_history(found):
    for size in (2, 4):
        told = gave(found, "drawn", size)
        assert told == told[:1] * size
    assert gave(found, "drawn", 2)[0]["bits"] != gave(found, "drawn", 4)[0]["bits"]


def test_rank_0_decides_when_callbacks_end_a_fit(found):
    told = gave(found, "stopped", 1, 2, 4) + gave(found, "stopped by rank 0", 1, 2, 4)
    assert told == told[:1] * 14
    assert told[0]["status"] == "STOPPED"


def test_ranks_on_one_machine_listen_on_loopback_alone(found):
    first, second = gave(found, "listening", 2)
    assert second
    assert set(second) <= {"0100007F"}  # 127.0.0.1; rank 0 also hosts the rendezvous store
    assert "0100007F" in first


# -- errors -----------------------------------------------------------------------------------

OUT_OF_SYNC = ("out of sync at 'a pass: product': rank 1 computes another product",) * 2
WORDS = {
    "other signs": OUT_OF_SYNC,
    "other order of columns": OUT_OF_SYNC,
    "control characters": ("rank 1 of 2 failed: OSError: \x01\x01", "\x01" * 900),
    "no Unicode": ("rank 1 of 2 failed: OSError: torn: ?", "torn: \udc80"),
    "width": ("rank 1 has `shape`=(700, 19), but rank 0 has (700, 18)",) * 2,
    "width of own rows": ("rank 1 has rows with columns=19, but rank 0 has 18",) * 2,
    "dtype": ("rank 1 has `dtype`=float32, but rank 0 has float64",) * 2,
    "dtype of own rows": ("rank 1 has rows with dtype=float32, but rank 0 has float64",) * 2,
    "parameter": ("rank 1 has `n_components`=4, but rank 0 has 3",) * 2,
    "other contents": ("rank 1 has `contents`=",) * 2,
    "bad option": ("rank 1 of 2 failed: ValueError: `tol`=-1 must", "`tol`=-1 must"),
    "no such file": (
        "rank 1 of 2 failed: FileNotFoundError: File not found: `X`='/none.npy'",
        "File not found",
    ),
    "NaN": ("contains NaN: 1 non-finite value(s), the first at row 650, column 9",) * 2,
    "NaN in own rows": ("the first at row 403 of rank 1, row 650, column 9",) * 2,
    "NaN in one block": ("the first at row 10 of rank 0, row 10, column 1",) * 2,
    "unreadable block": ("rank 1 of 2 failed: OSError: block 7 is torn", "block 7 is torn"),
    "memory": ("rank 1 of 2 failed: MemoryError: too much", "too much"),
    "memory between passes": ("rank 1 of 2 failed: MemoryError: no room here", "no room here"),
    "other order": ("out of sync: rank 0 is at 'collect' and rank 1 at 'a pass",) * 2,
    "weights missing": ("rank 1 has no `sample_weight`",) * 2,
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_reaches_every_rank_and_they_can_go_on(found, name):
    for told, words in zip(gave(found, f"error {name}", 2), WORDS[name], strict=True):
        assert words in told["words"]
        assert told["quick"]
        assert told["after"] == gave(found, "fit few blocks", 1)[0]["bits"]


STORE = "the rendezvous store (often hosted by rank 0)"


@pytest.mark.parametrize(
    ("job", "size", "struck", "words"),
    [
        ("kill reduce", 3, 2, "rank 2 of 3 is lost"),
        ("kill pass", 4, 3, "rank 3 of 4 is lost"),  # of four in a ring, no neighbour of 1
        ("kill pass", 4, 1, "rank 1 of 4 is lost"),
        ("kill pass", 3, 0, f"{STORE} is lost"),
        ("stop pass", 3, 2, "rank 2 of 3 did not answer for 4 s (`timeout`): it gives no sign"),
        pytest.param(  # it waits for all its limits
            *("stop pass", 3, 0, f"{STORE} does not answer"), marks=pytest.mark.slow
        ),
        ("hang pass", 3, 1, "rank 1 of 3 did not answer for 4 s (`timeout`): it is alive"),
        ("memory reduce", 4, 3, "rank 3 of 4 failed: MemoryError"),
    ],
)
def test_a_rank_that_is_lost_is_named(ranks, job, size, struck, words):
    limit = "600" if "kill" in job or "memory" in job else "4"
    told = ranks.run(size, job, struck=struck, limit=90, RANKS_LIMIT=limit)
    for one in (one for r, one in enumerate(told) if r != struck):
        assert f"RankError: {words}" in one["text"]


def test_a_rank_that_has_more_to_do_is_not_taken_for_lost(ranks):
    late = {"RANKS_SLOW": "1", "RANKS_LATE": "9"}
    for told in ranks.run(3, "kill pass", struck=2, **late)[:2]:
        assert "RankError: rank 2 of 3 is lost" in told["text"]


def test_machines_that_count_restarts_differently_find_each_other(ranks):
    for told in ranks.run(3, "kill reduce", struck=2, RANKS_RESTARTS="own")[:2]:
        assert "RankError: rank 2 of 3 is lost" in told["text"]


@pytest.mark.parametrize("where", ROOM)
def test_a_rank_without_room_for_what_it_receives_lets_go_of_the_others(ranks, where):
    """The rank stays alive, and the others raise long before the limit of ten minutes."""
    struck = 0 if where == "sums" else 1  # with a single block, the first of two ranks has none
    limits = {"limit": 60, "RANKS_LIMIT": "600"}
    told = ranks.run(2, f"no room {where}", struck=struck, **limits)[1 - struck]
    assert f"RankError: rank {struck} of 2 failed: " in told["text"]
    assert "Unable to allocate" in told["text"]


# -- checkpoints ------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["certify", "refine"])
def test_a_fit_that_was_struck_goes_on_to_the_same_bits(ranks, tmp_path, phase):
    folder = str(tmp_path / "kept")
    whole = ranks.run(1, f"nothing {phase}")[0][f"nothing {phase}"]
    ranks.run(3, f"kill {phase}", struck=2, RANKS_FOLDER=folder)
    job = f"nothing {phase}"
    told = [one[job] for one in ranks.run(2, job, RANKS_FOLDER=folder)]  # one rank fewer
    assert [one["bits"] for one in told] == [whole["bits"]] * 2
    assert all(0 < one["swept"] < whole["swept"] for one in told)
    again = ranks.run(2, job, RANKS_FOLDER=folder)[1][job]
    assert again == {"bits": whole["bits"], "swept": 0}


# -- one process ------------------------------------------------------------------------------


def test_a_process_by_itself_is_the_only_rank_and_opens_no_connection():
    engine = as_engine("torch_distributed")
    assert isinstance(engine, Engine)
    X = noise(300, 12)
    alone, usual = (PrimedPCA(3, engine=one, random_state=0).fit(X) for one in (engine, None))
    np.testing.assert_array_equal(alone.components_, usual.components_)
    rows = PrimedPCA(3, engine=engine, random_state=0).fit(RankRows(X))
    np.testing.assert_array_equal(rows.components_, usual.components_)
    assert not dist.is_initialized()


RELEASED = """
import atexit, weakref
import numpy as np
from primedpca import PrimedPCA
from primedpca.engines.torch.ranks import connect

groups = []
atexit.register(lambda: print([group() is None for group in groups]))  # after all others
engine = PrimedPCA(2, engine="torch_distributed").fit(np.eye(6)).engine
ranks = connect(600.0)
groups += [weakref.ref(ranks._group), weakref.ref(ranks.world)]
"""


def test_groups_are_released_before_the_interpreter_ends():
    """Otherwise gloo's threads may free their last arrays too late, which aborts the process."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "RANK": "0"}
    place |= os.environ | {"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    done = subprocess.run(
        [sys.executable, "-c", RELEASED], env=place, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "[True, True]\n", done.stderr
    assert done.returncode == 0


def test_what_cannot_be_asked_for():
    with pytest.raises(ValueError, match="`timeout`=0 must be a positive number"):
        TorchDistributed(0)
    with pytest.raises(ValueError, match=r"`engine`='mpi' is not available.*'torch_distributed'"):
        as_engine("mpi")


def test_one_machine_refuses_rows_that_are_elsewhere():
    rows = RankRows(noise(3000, 200))
    rows._local = rows.local[1:]
    with pytest.raises(
        ValueError, match=r"this process holds 1 of the 2 blocks.*torch_distributed"
    ):
        Centred(rows, LocalEngine(1)).covariance_product(np.ones((200, 1)))


# -- shares and sums --------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 3, 16, 40, 700, 5000])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_shares_hold_every_block_once_and_are_even(blocks, size):
    found = shares(blocks, size)
    assert [i for part in found for i in part] == list(range(blocks))
    assert max(map(len, found)) <= max(1.125 * blocks / size, blocks / size + 1)
    if blocks == 5000:
        assert all(part.start % 16 == 0 for part in found)


@pytest.mark.parametrize("count", [1, 17, 300, 4200])
def test_trees_that_are_put_together_add_in_the_same_order(count):
    parts, blocks = noise(count, 5), tuple((i, i + 1) for i in range(count))
    rng = np.random.default_rng(count)

    def tree(first, last):
        grown = FixedTree(blocks, first)
        for part in parts[first:last]:
            grown.add(Parts((part,)))
        return grown

    wanted = tree(0, count).total().sums[0]
    for pieces in (1, 2, 3, 4, 9):
        edges = [0, *sorted(rng.integers(0, count + 1, pieces - 1).tolist()), count]
        joined = FixedTree(blocks)
        for first, last in pairwise(edges):
            for node in tree(first, last).nodes():
                joined.graft(node)
        np.testing.assert_array_equal(joined.total().sums[0], wanted)


def changed(x):
    """``x`` with one bit, a sign, a column's signs, two entries or two columns changed."""
    for change in range(5):
        y = x.copy(order="K")
        if change == 0:
            y[3, 2] = np.nextafter(y[3, 2], y.dtype.type(9))
        elif change == 1:
            y[1, 1] *= -1
        elif change == 2:
            y[:, 1] *= -1
        elif change == 3:
            y[[0, 1], 2] = y[[1, 0], 2]
        else:
            y[:, [0, 1]] = y[:, [1, 0]]
        yield y


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "convert", [np.ascontiguousarray, np.asfortranarray, torch.tensor], ids=["C", "F", "torch"]
)
def test_the_checksum_changes_with_any_bit(convert, dtype):
    x = noise(6, 4).astype(dtype)
    sums = [checksum({"x": convert(y), "n": None}) for y in (x, x.copy(), *changed(x))]
    assert sums[0] == sums[1]
    assert len(set(sums)) == len(sums) - 1


def test_the_checksum_changes_with_shape_order_and_numbers():
    x = noise(6, 4)
    values = ([1.0, 2.0], [2.0, 1.0], [x], [x.reshape(4, 6)], [x, None], [x, 0], {"a": 1}, {})
    assert len({checksum(value) for value in values}) == len(values)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.uint8])
def test_what_is_mixed_on_a_device_changes_with_any_bit(dtype, monkeypatch):
    monkeypatch.setattr("primedpca._core.checksum.PIECE", 5)
    x = noise(6, 4)
    sums = [mixed(torch.tensor(y).reshape(-1)) for y in (x, x.copy(), *changed(x))]
    assert sums[0] == sums[1]
    assert len(set(sums)) == len(sums) - 1
    other = torch.arange(24).to(dtype)
    assert mixed(other) != mixed(other.flip(0))


def test_every_error_has_its_words():
    assert set(WORDS) == set(rank_jobs.ERRORS)
