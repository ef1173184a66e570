"""Triton kernels, run on the CPU by Triton's interpreter, and exact products of bytes.

The interpreter does not multiply bfloat16: tests/test_gpu.py tests that on a card.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

torch = pytest.importorskip("torch")

from primedpca import PrimedPCA  # noqa: E402
from primedpca._core import device_sparse  # noqa: E402
from primedpca._operator import gpu_products, kernels  # noqa: E402
from primedpca._operator.operator import Centred  # noqa: E402
from primedpca._operator.preparation import Columns  # noqa: E402
from primedpca.metrics import angles  # noqa: E402

SCRIPT = """
import torch
from primedpca._operator import gpu_products

torch.manual_seed(0)
for n, d, p in ((300, 70, 20), (129, 33, 16), (1000, 65, 3), (64, 200, 33), (40, 700, 70)):
    x = torch.randn(n, d + 5)[:, :d]
    v, y = torch.randn(d, p), torch.randn(n, p)
    torch.testing.assert_close(gpu_products.forward(x, v).double(), x.double() @ v.double(),
                               rtol=0, atol=1e-6 * d)
    torch.testing.assert_close(gpu_products.adjoint(x, y), x.double().T @ y.double(),
                               rtol=0, atol=1e-6 * n)
    half = x.half()
    torch.testing.assert_close(gpu_products.forward(half, v).double(), half.double() @ v.double(),
                               rtol=0, atol=1e-6 * d)
    torch.testing.assert_close(gpu_products.adjoint(half, y), half.double().T @ y.double(),
                               rtol=0, atol=1e-6 * n)
    for block in (x, half, (10 * x).to(torch.int8)):
        wide, few = block.double(), min(p, 32)
        v64, y64 = v[:, :few].double(), y[:, :few].double()
        torch.testing.assert_close(gpu_products.forward(block, v64), wide @ v64,
                                   rtol=0, atol=1e-12)
        torch.testing.assert_close(gpu_products.adjoint(block, y64), wide.T @ y64,
                                   rtol=0, atol=1e-12)
        norm, sums = gpu_products.statistics(block)
        torch.testing.assert_close(norm, (wide * wide).sum(), rtol=1e-14, atol=0)
        torch.testing.assert_close(sums, wide.sum(dim=0), rtol=0, atol=1e-12)
"""


SPARSE_SCRIPT = """
import numpy as np, scipy.sparse as sp, torch
from primedpca._core import device_sparse

device_sparse.uses_kernel = lambda data: True
rng = np.random.default_rng(0)
for form in ("csr", "csc"):
    for dtype in ("float32", "float64"):
        some = sp.random_array((60, 700), density=0.05, rng=rng)
        full = sp.csr_array(rng.random((2, 700)))  # more entries than a segment
        x = sp.vstack([some, full, sp.csr_array((3, 700))]).astype(dtype).asformat(form)
        block = device_sparse.DeviceSparse.sent(x, "cpu", dtype)
        for p in (1, 20, 70):
            v, u = rng.random((700, p)).astype(dtype), rng.random((65, p)).astype(dtype)
            np.testing.assert_allclose((block @ torch.tensor(v)).numpy(), x @ v, rtol=1e-5)
            found = (block.T @ torch.tensor(u)).numpy()
            np.testing.assert_allclose(found, x.T @ u, rtol=1e-5, atol=1e-6)
"""


@pytest.mark.parametrize("script", ["SCRIPT", "SPARSE_SCRIPT"])
def test_the_kernels_multiply(script):
    pytest.importorskip("triton", reason="Triton is not installed here")
    env = {**os.environ, "TRITON_INTERPRET": "1"}  # read when Triton is imported
    subprocess.run([sys.executable, "-c", globals()[script]], env=env, check=True, timeout=300)


@pytest.fixture
def on_a_card(monkeypatch):
    """Blocks count as those of a card that multiplies float32 in float64; PyTorch multiplies."""

    def is_widened(block, columns):
        single = block.dtype == columns.dtype == torch.float32
        return single and columns.shape[1] <= gpu_products.COLUMNS_WIDE

    monkeypatch.setattr(gpu_products, "_is_there", torch.is_tensor)
    monkeypatch.setattr(gpu_products, "_is_recent", lambda device: True)
    monkeypatch.setattr(gpu_products, "_kernels", lambda: gpu_products)
    monkeypatch.setattr(gpu_products, "_is_widened", is_widened)
    monkeypatch.setattr(gpu_products, "_forward", lambda block, v: block.to(v.dtype) @ v)
    monkeypatch.setattr(gpu_products, "_adjoint", lambda block, y: block.T.double() @ y.double())
    monkeypatch.setattr(gpu_products, "sums", lambda block: False)
    for name in ("ENTRIES", "ENTRIES_WIDE"):
        monkeypatch.setattr(gpu_products, name, 1)


@pytest.mark.usefixtures("on_a_card")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("p", [3, 32, 33, 64, 70, 97, 129, 150, 160, 200, 256])
def test_all_readings_of_a_block_have_one_type(p, weighted):
    rng = np.random.default_rng(p)
    X, V = (rng.standard_normal((300, m)).astype("f4") for m in (300, p))
    root = rng.random(300).astype("f4") if weighted else None
    given = {"lift": None, "columns": Columns(), "unit": 1.0, "gather": False}
    of_tensors = None if root is None else torch.tensor(root)
    block, vectors = torch.tensor(X), torch.tensor(V)
    found = kernels.product(block, vectors=vectors, root=of_tensors, **given)
    wanted = kernels.product(X, vectors=V, root=root, **given)
    for part, other in zip(found.sums, wanted.sums, strict=True):
        np.testing.assert_allclose(part.numpy(), other, rtol=1e-3, atol=1e-2)


@pytest.mark.usefixtures("on_a_card")
@pytest.mark.parametrize("k", [10, 140])
def test_weighted_fits_of_any_number_of_components(k):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((900, 400)) * np.arange(1, 401) ** -0.5).astype("f4")
    weight = rng.integers(1, 4, 900)
    pca = PrimedPCA(k, priming="block_krylov", random_state=0)
    pca.fit(torch.tensor(X), sample_weight=weight)
    rows = np.repeat(X, weight, axis=0).astype("f8")
    truth = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:k]
    assert pca.status_.name == "CERTIFIED"
    assert (angles(pca.components_, truth) <= pca.angle_bounds_).all()


def whole_rows(kind, n=300, d=1500):
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((n, 8)) * 0.7 ** np.arange(8)
    X = 20 * scores @ rng.standard_normal((8, d)) / 3 + rng.standard_normal((n, d))
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    return np.clip(np.rint(X + (low + high) / 2), low, high).astype(kind)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_gram_matrices_of_bytes_are_exact(kind, monkeypatch):
    X = whole_rows(kind)
    monkeypatch.setattr(gpu_products, "SLAB", 400)
    square, sums, shift = gpu_products.counted_square(torch.tensor(X))
    moved = X.astype(np.int64) - int(shift)
    np.testing.assert_array_equal(square.numpy(), moved @ moved.T)
    np.testing.assert_array_equal(sums.numpy(), moved.sum(axis=0))


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_fits_by_exact_gram_matrices(kind, monkeypatch):
    X, calls = whole_rows(kind), []

    def counts(block):
        calls.append(block)
        return True

    monkeypatch.setattr(gpu_products, "counts", counts)
    wide = X.astype(np.float64)
    wide -= wide.mean(axis=0)
    truth = scipy.linalg.svd(wide, full_matrices=False)
    pca = PrimedPCA(6, priming="exact", random_state=0).fit(torch.tensor(X))
    assert calls
    assert pca.status_.name == "CERTIFIED"
    assert angles(pca.components_, truth[2][:6]).max() < 1e-5
    np.testing.assert_allclose(pca.mean_, X.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(pca.singular_values_, truth[1][:6], rtol=1e-6)
    gram = Centred(torch.tensor(X), float64=True).gram()
    np.testing.assert_allclose(gram, wide @ wide.T / X.shape[0], atol=1e-9 * truth[1][0] ** 2)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_moments_of_sparse_blocks_are_those_of_the_host(layout, holes):
    rng = np.random.default_rng(0)
    x = sp.random_array((300, 40), density=0.2, rng=rng, format=layout)
    x.data = x.data - 0.3
    if holes:
        x.data[::7] = np.nan
    block, kind = device_sparse.DeviceSparse.sent(x, "cpu", "float64"), torch.float64
    shift, factor = rng.standard_normal(40), rng.uniform(0.5, 2, 40)
    for given in (Columns(shift), Columns(shift, None, factor)):
        there = Columns(*(part if part is None else torch.tensor(part) for part in given[:3]))
        wanted = kernels.moments(x, dtype=np.float64, columns=given, root=None, unit=0.5, axis=0)
        found = kernels.moments(block, dtype=kind, columns=there, root=None, unit=0.5, axis=0)
        for part, other in zip(found.sums, wanted.sums, strict=True):
            np.testing.assert_allclose(part.numpy(), other, rtol=1e-12, atol=1e-12)
