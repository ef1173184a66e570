"""Budgets of memory: scores in files, matrices refused by size, and growth that is measured."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from primedpca import PrimedPCA


def rows(n=300, d=20, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) * np.arange(d, 0, -1)


# -- scores in files --------------------------------------------------------------------------


def kinds(tmp_path):
    X = rows()
    np.save(tmp_path / "data.npy", X)
    wide = rows(20, 300)
    return {
        "float64": X,
        "float32": X.astype(np.float32),
        "wide": wide,
        "sparse": sp.csr_array(np.where(np.abs(X) > 5, X, 0)),
        "torch": torch.from_numpy(X),
        "file": np.load(tmp_path / "data.npy", mmap_mode="r"),
        "by columns": np.asfortranarray(X),
    }


@pytest.mark.parametrize("whiten", [False, True])
def test_scores_in_a_file_are_the_scores(tmp_path, whiten):
    for name, X in kinds(tmp_path).items():
        model = PrimedPCA(3, whiten=whiten).fit(X)
        path = tmp_path / f"{name} scores.npy"
        found = model.transform(X, out=path)
        assert isinstance(found, np.memmap)
        assert not found.flags.writeable
        wanted = np.asarray(model.transform(X))
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.load(path), wanted)
        assert np.load(path).dtype == wanted.dtype
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_many_blocks_of_a_file(tmp_path):
    X = rows(40000, 100).astype(np.float32)
    np.save(tmp_path / "data.npy", X)
    model = PrimedPCA(3).fit(X)
    mapped = np.load(tmp_path / "data.npy", mmap_mode="r")
    found = model.transform(mapped, out=str(tmp_path / "scores.npy"))
    np.testing.assert_allclose(found, model.transform(X), rtol=1e-4, atol=1e-4)
    again = PrimedPCA(3).fit_transform(mapped, out=tmp_path / "again.npy")
    np.testing.assert_allclose(again, found, rtol=1e-4, atol=1e-3)


def test_nothing_is_overwritten_and_nothing_half_written_is_left(tmp_path):
    X = rows()
    model, path = PrimedPCA(3).fit(X), tmp_path / "scores.npy"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=r"scores\.npy"):
        model.transform(X, out=path)
    with pytest.raises(FileExistsError, match=r"scores\.npy"):
        PrimedPCA(3).fit_transform(X, out=path)
    assert path.read_text() == "mine"
    with pytest.raises(ValueError, match=r"must end in \.npy"):
        model.transform(X, out=tmp_path / "scores.csv")
    with pytest.raises(FileNotFoundError, match="no folder"):
        model.transform(X, out=tmp_path / "nowhere" / "scores.npy")
    bad = X.copy()
    bad[-1, 0] = np.nan
    with pytest.raises(ValueError, match=r"NaN|finite"):
        model.transform(bad, out=tmp_path / "bad.npy")
    assert sorted(os.listdir(tmp_path)) == ["scores.npy"]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes as Linux has them")
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path):
    code = (
        "import resource, signal, sys, numpy as np\nfrom primedpca import PrimedPCA\n"
        "X = np.random.default_rng(0).normal(size=(20000, 10))\n"
        "model = PrimedPCA(5).fit(X)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "model.transform(X, out=sys.argv[1])\n"
    )
    path = tmp_path / "scores.npy"
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60
    )
    assert "OSError" in done.stderr.splitlines()[-1]
    assert "scores.npy" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


# -- matrices of order n_features -------------------------------------------------------------


def test_large_squares_are_refused_by_size():
    X = np.random.default_rng(0).normal(size=(5, 300_000)).astype(np.float32)
    model = PrimedPCA(2).fit(X)
    for method in (model.get_covariance, model.get_precision):
        with pytest.raises(MemoryError, match=r"720,000,000,000 bytes.*`components_`"):
            method()
    model = PrimedPCA(2, max_memory="100MB").fit(rows(50, 40))
    assert model.get_covariance().shape == (40, 40)
    with pytest.raises(MemoryError, match="max_memory"):
        model.set_params(max_memory="10KB").get_precision()
