"""What holds for all tests."""

import pytest
import torch

from primedpca.sources import base
from primedpca.sources.files import common as files
from primedpca.sources.files import decoded_rows as decoded
from primedpca.sources.files import h5ad, plink, tables
from primedpca.sources.files import raw_binary as raw_file
from primedpca.sources.memory import dense, sparse, torch_data
from primedpca.sources.memory import iterables as blocks
from primedpca.sources.memory import xarray_fields as fields

# Thousands of tiny products: on a busy machine torch's threads would wait for each other.
torch.set_num_threads(1)


def shrink_blocks(monkeypatch):
    monkeypatch.setattr(dense, "BLOCK_BYTES", 2**10)
    monkeypatch.setattr(sparse, "BLOCK_ENTRIES", 32)
    monkeypatch.setattr(sparse, "OUTPUT_RATIO", 1)
    monkeypatch.setattr(raw_file, "READ_BYTES", 2**9)
    monkeypatch.setattr(files, "READ_BYTES", 2**9)
    monkeypatch.setattr(tables, "WHOLE", 1)
    monkeypatch.setattr(decoded, "BLOCK_BYTES", 2**6)
    monkeypatch.setattr(plink, "LEAST", 1)
    for module in (h5ad, fields, plink):
        monkeypatch.setattr(module, "READ_BYTES", 2**9)
    for module in (blocks, torch_data):
        monkeypatch.setattr(module, "BLOCK_BYTES", 2**9)
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
