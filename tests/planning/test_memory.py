"""Budgets of memory: scores in files, matrices refused by size, and growth that is measured."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from growth import grown

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
        # Rows of an array in memory are multiplied at once, those of a file block by block.
        close = 20 * np.finfo(wanted.dtype).eps * np.abs(wanted).max()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=close)
        np.testing.assert_array_equal(np.load(path), found)
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
    with pytest.raises(ValueError, match=r"must end in one of \.npy"):
        model.transform(X, out=tmp_path / "scores.xyz")
    with pytest.raises(FileNotFoundError, match="Folder not found"):
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
    # Under coverage, the process would write a file of its own, beyond the limit as well.
    plain = {name: value for name, value in os.environ.items() if "COVERAGE" not in name}
    words = [sys.executable, "-c", code, path]
    done = subprocess.run(words, env=plain, capture_output=True, text=True, timeout=60)
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


# -- growth, sampled from another process -----------------------------------------------------

CHILD = """
import json, sys, warnings
import numpy as np, scipy.sparse as sp
from primedpca import PrimedPCA
kind, shape, budget, certificate, priming, k, path = json.loads(sys.argv[1])
warnings.simplefilter("ignore")  # a flat spectrum need not converge
rng = np.random.default_rng(0)
for name in ("exact", "block_krylov"):  # imports, and what they keep
    PrimedPCA(2, priming=name, certificate=certificate).fit(rng.normal(size=(300, 50)))
if kind == "csr":
    n, d = shape
    start = np.sort(rng.integers(0, d, (n, d // 50)), axis=1).astype(np.int32)
    values = rng.random(start.size, dtype=np.float32)
    X = sp.csr_array((values, start.ravel(), np.arange(n + 1) * (d // 50)), shape=shape)
    X.sum_duplicates()
else:
    dtype = np.uint8 if kind == "uint8" else np.float32
    if kind == "file":
        X = np.lib.format.open_memmap(path, "w+", dtype, tuple(shape))
    else:
        X = np.empty(shape, dtype)
    axes = rng.normal(size=(40, shape[1])).astype(np.float32) * 0.3
    for a in range(0, shape[0], 500):
        b = min(a + 500, shape[0])
        rows = rng.normal(size=(b - a, 40)).astype(np.float32) @ axes
        rows += rng.random((b - a, shape[1]), dtype=np.float32)
        X[a:b] = np.clip(100 + 20 * rows, 0, 255) if kind == "uint8" else rows
    if kind == "file":
        X.flush()
        X = np.load(path, mmap_mode="r")
way = "auto" if priming == "stream" else priming
model = PrimedPCA(k, max_memory=budget, certificate=certificate, priming=way,
                  tol=np.pi / 128, max_passes=20, random_state=0)
print("ready", flush=True)
sys.stdin.readline()
try:
    if priming == "stream":
        for a in range(0, shape[0], 700):
            model.partial_fit(X[a : a + 700])
            model.components_
    else:
        model.fit(X)
except ValueError as error:
    print(json.dumps({"refused": str(error)}), flush=True)
else:
    print(json.dumps({"plan": str(model.plan_), "status": model.status_.name}), flush=True)
sys.stdin.readline()
"""


def check_growth(tmp_path, kind, shape, megabytes, certificate="auto", priming="auto", k=10):
    path = str(tmp_path / "data.npy")
    growth, said = grown(CHILD, kind, shape, f"{megabytes}MB", certificate, priming, k, path)
    if "refused" in said:  # in words that tell what would do
        assert f"`max_memory`={megabytes} MB is less than the" in said["refused"]
    assert growth <= megabytes * 1e6, said
    return said


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_small_fit_stays_within_its_budget(tmp_path):
    said = check_growth(tmp_path, "file", (6000, 1000), 110)
    assert "refused" not in said


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.parametrize("megabytes", [60, 150, 500])
@pytest.mark.parametrize("certificate", ["auto", "none"])
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("float32", (60_000, 800)),
        ("float32", (5_000, 20_000)),
        ("uint8", (100_000, 3_000)),
        ("file", (60_000, 800)),
        ("file", (40_000, 5_000)),
        ("csr", (100_000, 5_000)),
    ],
)
def test_growth_stays_within_budgets(tmp_path, kind, shape, certificate, megabytes):
    said = check_growth(tmp_path, kind, shape, megabytes, certificate)
    assert "refused" not in said or megabytes < 500


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.parametrize(
    "priming", ["exact", "block_krylov", "subspace_iteration", "frequent_directions", "oja"]
)
def test_growth_stays_within_budgets_of_primings_asked_for(tmp_path, priming):
    said = check_growth(tmp_path, "file", (40_000, 2_000), 400, priming=priming)
    assert "refused" not in said


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.parametrize("kind", ["float32", "file", "csr"])
def test_growth_of_streams_stays_within_budgets(tmp_path, kind):
    said = check_growth(tmp_path, kind, (3_000, 10_000), 120, priming="stream")
    assert "refused" not in said
