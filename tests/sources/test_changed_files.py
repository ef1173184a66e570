"""Files that are replaced between two readings, of the kinds that libraries open anew each time."""

import io
import os
import time

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


@pytest.mark.parametrize("name", ["x.npy", "x.csv", "x.parquet", "x.png", "x.bin", "x.npz", "x.h5"])
def test_a_change_whose_date_was_set_back_is_seen(tmp_path, name):
    """Bytes changed in their place, then the old date of writing: only the system's own tells."""
    rng, path = np.random.default_rng(0), tmp_path / name
    values, options = rng.normal(size=(9, 4)), {}
    if name == "x.npy":
        np.save(path, values)
    elif name == "x.csv":
        path.write_text("a,b\n1.5,2.5\n3.5,4.5\n")
    elif name == "x.parquet":
        pandas = pytest.importorskip("pandas")
        pandas.DataFrame(values, columns=list("abcd")).to_parquet(path)
    elif name == "x.png":
        pillow = pytest.importorskip("PIL.Image")
        pillow.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(path)
        options = {"cache": 0}
    elif name == "x.bin":
        path.write_bytes(values.tobytes())
        options = {"shape": (9, 4), "dtype": "float64"}
    elif name == "x.npz":
        sparse(path, rng)
    else:
        with pytest.importorskip("h5py").File(path, "w") as file:
            file["X"] = values
    source = as_source(path, **options)
    source.read(0)
    before = path.stat()
    time.sleep(0.02)  # more than a tick of the file system's clock
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(OSError, match=rf"{name} was changed.* since it was opened"):
        source.read(0)


def test_a_dataset_that_is_open_for_writing_may_be_written_to(tmp_path):
    h5py = pytest.importorskip("h5py")
    X = np.random.default_rng(0).normal(size=(9, 4))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["X"] = X
        file.flush()
        source = as_source(file["X"])
        file["X"][0] = X[0] = 7.0
        file["more"] = np.zeros(1000)
        file.flush()
        assert np.array_equal(source.read(0), X)


def test_a_dataset_of_a_file_that_is_only_in_memory(tmp_path):
    h5py = pytest.importorskip("h5py")
    X = np.random.default_rng(0).normal(size=(9, 4))
    held = io.BytesIO()
    with h5py.File(held, "w") as file:
        file["X"] = X
    with h5py.File(held, "r") as file:
        assert np.array_equal(as_source(file["X"]).read(0), X)
