"""Real data: as right as is promised, and within the memory asked for.

Slow: run with ``make test-slow`` and ``PRIMEDPCA_DATA`` set.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, svds

from primedpca.metrics import angles

FOLDER = os.environ.get("PRIMEDPCA_DATA")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="PRIMEDPCA_DATA names no folder of real data"),
]

#: Fits in a fresh process; another thread samples its resident memory.
MEASURE = """
import json, sys, threading, time
import numpy as np, scipy.sparse as sp
from primedpca import PrimedPCA
path, out, kind = sys.argv[1:]
X = sp.load_npz(path).tocsr() if path.endswith("_bow.npz") else np.load(path)
X = X["X"] if hasattr(X, "files") else X
X = X.astype(kind) if kind else X
size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes
PrimedPCA(2).fit(np.random.default_rng(0).normal(size=(100, 5)))  # imports and buffers
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
before, peak, done = resident(), [0], threading.Event()
def watch():
    while not done.is_set():
        peak[0] = max(peak[0], resident())
        time.sleep(0.002)
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
pca = PrimedPCA(16, random_state=0).fit(X)
done.set(); watcher.join()
exact = type(pca.plan_.priming).__name__ == "Exact"
small = min(X.shape) ** 2 * 8 if exact else 0
kept = pca.plan_.n_directions
if not exact:  # the Krylov basis, and that of the probes, which ride on four passes or so
    kept = pca.plan_.priming.block_size * (len(pca.history_) + 1)
    kept += 16 * 5 * (pca.certificate_.kind == "probabilistic")
    kept *= 1.1  # what the allocator keeps of tall blocks that are free again
basis = kept * X.shape[1] * 8  # proofs are made in float64
np.savez(out, components=pca.components_, variances=pca.explained_variance_)
print(json.dumps({"extra": peak[0] - before, "allowed": 0.1 * size + basis + small + 2**26,
                  "status": pca.status_.name, "passes": pca.n_passes_}))
"""


def fit(path, tmp_path, kind=""):
    out = tmp_path / "fit.npz"
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path), str(out), kind],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    print(path.name, report)
    assert report["extra"] <= report["allowed"], report
    with np.load(out) as found:
        return found["components"], found["variances"]


def check(found, variances, components, angle):
    assert np.abs(found[1] - variances).max() <= 1e-5 * variances[0]
    assert angles(found[0], components).max() <= angle


def test_mnist_as_uint8(tmp_path):
    path = Path(FOLDER) / "mnist_train.npz"
    found = fit(path, tmp_path)
    with np.load(path) as archive:
        values, vectors = np.linalg.eigh(np.cov(archive["X"].T, dtype=np.float64))
    check(found, values[::-1][:16], vectors.T[::-1][:16], 1e-4)


@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_cifar_10(tmp_path, kind):
    parts = [np.load(Path(FOLDER) / f"cifar10_train_{part}.npz")["X"] for part in "abc"]
    X = np.concatenate(parts)
    path = tmp_path / "cifar10.npy"
    np.save(path, X)
    found = fit(path, tmp_path, kind)
    values, vectors = eigh(np.cov(X.T, dtype=np.float64), subset_by_index=(3072 - 16, 3071))
    check(found, values[::-1], vectors.T[::-1], np.pi / 1024)


def test_20_newsgroups_as_csr(tmp_path):
    path = Path(FOLDER) / "newsgroups20_bow.npz"
    found = fit(path, tmp_path)
    X = sp.load_npz(path).astype(np.float64)
    mean = np.asarray(X.mean(axis=0)).ravel()
    operator = LinearOperator(
        X.shape,
        matvec=lambda v: X @ v.ravel() - mean @ v.ravel(),
        rmatvec=lambda u: X.T @ u.ravel() - mean * u.sum(),
        dtype=np.float64,
    )
    _, s, vt = svds(operator, k=16, tol=1e-12, random_state=0)
    order = np.argsort(-s)
    check(found, s[order] ** 2 / (X.shape[0] - 1), vt[order], np.pi / 1024)


def test_400_by_500_000_in_float32(tmp_path):
    rng = np.random.default_rng(0)
    left = np.linalg.qr(rng.standard_normal((400, 400)))[0] * np.arange(1, 401) ** -0.5
    X = np.empty((400, 500_000), np.float32)
    for j in range(0, X.shape[1], 20_000):
        X[:, j : j + 20_000] = left @ rng.standard_normal((400, 20_000))
    path = tmp_path / "wide.npy"
    np.save(path, X)
    found = fit(path, tmp_path)
    mean, gram = X.mean(axis=0, dtype=np.float64), np.zeros((400, 400))
    for j in range(0, X.shape[1], 20_000):
        part = X[:, j : j + 20_000] - mean[j : j + 20_000]
        gram += part @ part.T
    values, vectors = np.linalg.eigh(gram)
    right = X.T @ vectors[:, ::-1][:, :16] - np.outer(mean, vectors[:, ::-1][:, :16].sum(axis=0))
    check(found, values[::-1][:16] / 399, right.T, 1e-4)
