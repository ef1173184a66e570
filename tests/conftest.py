"""What holds for all tests."""

import pytest
import torch

from primedpca.sources import base
from primedpca.sources.files import decoded_rows as decoded
from primedpca.sources.files import plink, tables
from primedpca.sources.memory import dense, sparse, torch_data
from primedpca.sources.memory import iterables as blocks

# Thousands of tiny products: on a busy machine torch's threads would wait for each other.
torch.set_num_threads(1)


@pytest.fixture
def small_blocks(monkeypatch):
    """Many blocks and several groups of batches, although the data are small."""
    monkeypatch.setattr(dense, "BLOCK_BYTES", 2**10)
    monkeypatch.setattr(sparse, "BLOCK_ENTRIES", 32)
    monkeypatch.setattr(sparse, "OUTPUT_RATIO", 1)
    monkeypatch.setattr(tables, "WHOLE", 1)
    monkeypatch.setattr(decoded, "BLOCK_BYTES", 2**6)
    monkeypatch.setattr(plink, "LEAST", 1)
    for module in (base, plink):
        monkeypatch.setattr(module, "READ_BYTES", 2**9)
    for module in (blocks, torch_data):
        monkeypatch.setattr(module, "BLOCK_BYTES", 2**9)
    monkeypatch.setattr(base, "BLOCK_BYTES", 2**10)
    monkeypatch.setattr(base, "GROUP_BYTES", 2**10)
