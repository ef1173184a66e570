"""Files that are replaced between two readings, of the kinds that libraries open anew each time."""

import os

import numpy as np
import pytest
import scipy.sparse as sp

from primedpca import as_source


def bed(path, rng):
    pytest.importorskip("bed_reader").to_bed(path, rng.binomial(2, 0.3, (9, 20)).astype("int8"))


def h5ad(path, rng):
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(sp.csr_array(rng.binomial(2, 0.3, (9, 20)).astype("float32"))).write_h5ad(path)


def sparse(path, rng):
    matrix = sp.csr_array((rng.normal(size=30), np.arange(30) % 6, np.arange(0, 31, 3)))
    sp.save_npz(path, matrix, compressed=False)


def memory_map(path, rng):
    np.save(path, rng.normal(size=(9, 4)))


@pytest.mark.parametrize(
    ("name", "write"), [("x.bed", bed), ("x.h5ad", h5ad), ("x.npz", sparse), ("x.npy", memory_map)]
)
def test_another_file_in_its_place_is_refused(tmp_path, name, write):
    rng = np.random.default_rng(0)
    first, second = tmp_path / name, tmp_path / f"other {name}"
    write(first, rng)
    write(second, rng)
    source = as_source(np.load(first, mmap_mode="r") if write is memory_map else first)
    source.read(0)
    os.replace(second, first)
    with pytest.raises(OSError, match=rf"{name} was replaced by another file since it was opened"):
        source.read(0)
