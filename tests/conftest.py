"""Settings and fixtures of all tests."""

import os
import signal
import sys
import tempfile
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from threadpoolctl import threadpool_limits

import primedpca
from primedpca.sources import base
from primedpca.sources.files import images as decoded
from primedpca.sources.files import plink, tables
from primedpca.sources.memory import dense, sparse
from primedpca.sources.memory import iterables as blocks

# Thousands of tiny products: on a busy machine threads would wait for each other.  With a worker
# on every core, two threads of BLAS made the fuzzes of the certificates take three times as long.
torch.set_num_threads(1)
if "PYTEST_XDIST_WORKER" in os.environ:
    import scipy.linalg  # noqa: F401  (only a library that is loaded can be limited)

    threadpool_limits(1, user_api="blas")

# A shell lets its background jobs ignore SIGINT, which some tests raise.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]
METADATA = tempfile.TemporaryDirectory(prefix="primedpca-")


def declare_commands(group="primedpca.commands"):
    """Declare entry points as an installation would, here and in processes that tests start.

    Tests may run from a source tree that is not installed, or was before pyproject.toml changed.
    """
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][group]
    if {(entry.name, entry.value) for entry in entry_points(group=group)} == set(wanted.items()):
        return
    folder = Path(METADATA.name) / "primedpca-0.dist-info"
    folder.mkdir()
    head = f"Metadata-Version: 2.1\nName: primedpca\nVersion: {primedpca.__version__}\n"
    (folder / "METADATA").write_text(head)
    lines = [f"{name} = {value}" for name, value in wanted.items()]
    (folder / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    sys.path.insert(0, METADATA.name)
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [METADATA.name, known]))


declare_commands()


def shrink_blocks(monkeypatch):
    monkeypatch.setattr(dense, "BLOCK_BYTES", 2**10)
    monkeypatch.setattr(sparse, "BLOCK_ENTRIES", 32)
    monkeypatch.setattr(sparse, "OUTPUT_RATIO", 1)
    monkeypatch.setattr(tables, "WHOLE", 1)
    monkeypatch.setattr(decoded, "BLOCK_BYTES", 2**6)
    monkeypatch.setattr(plink, "LEAST", 1)
    for module in (base, plink):
        monkeypatch.setattr(module, "READ_BYTES", 2**9)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2**9)
    monkeypatch.setattr(base, "BLOCK_BYTES", 2**10)
    monkeypatch.setattr(base, "GROUP_BYTES", 2**10)


@pytest.fixture
def small_blocks(monkeypatch):
    """Many blocks and several groups of batches, although the data are small."""
    shrink_blocks(monkeypatch)


@pytest.fixture(scope="module")
def small_blocks_throughout():
    """As ``small_blocks``, for sources that all tests of a module share."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink_blocks(monkeypatch)
        yield
