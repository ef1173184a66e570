"""The same results on an accelerator: with PyTorch on CUDA, and with CuPy if it is installed.

Needs no pytest: ``python tests/test_gpu.py`` runs it on a machine without.
"""

import os
import tempfile
import warnings

import numpy as np

try:
    import torch

    CUDA = torch.cuda.is_available()
except ImportError:
    CUDA = False
try:
    import pytest

    pytestmark = pytest.mark.skipif(not CUDA, reason="PyTorch finds no CUDA device here")
except ImportError:
    pytest = None

from primedpca import certify, prime, refine
from primedpca._operator.operator import Centred
from primedpca._solve.audit import audit
from primedpca.metrics import angles
from primedpca.priming import REGISTRY


def data(n, d, dtype, mean=0.0):
    rng = np.random.default_rng(0)
    return (rng.standard_normal((n, d)) * 0.8 ** np.arange(d) + mean).astype(dtype)


def accelerated(X):
    """Yield the data on the device, in every installed library."""
    yield torch.tensor(X, device="cuda")
    try:
        import cupy
    except ImportError:
        return
    yield cupy.asarray(X)


def test_every_priming_agrees_with_numpy():
    for n, d in ((3000, 20), (30, 400)):
        X = data(n, d, "float64", mean=3.0)
        for name in sorted(REGISTRY):
            *_, here = prime(X, name, 8, random_state=0, max_passes=40)
            wanted = refine(X, here.directions, 4)
            for Y in accelerated(X):
                *_, there = prime(Y, name, 8, random_state=0, max_passes=40)
                found = refine(Y, there.directions, 4)
                off = angles(found.components, wanted.components).max()
                assert off < 1e-6, (name, type(Y), off)
                np.testing.assert_allclose(
                    found.explained_variance, wanted.explained_variance, rtol=1e-8
                )


def test_float32_far_from_zero():
    X = data(5000, 20, "float32", mean=800.0)
    wide = X.astype(np.longdouble)
    s = np.linalg.svd((wide - wide.mean(axis=0)).astype(float), compute_uv=False)
    variances = s**2 / (X.shape[0] - 1)
    for Y in accelerated(X):
        *_, last = prime(Y, "exact", 5)
        found = refine(Y, last.directions)
        error = np.abs(found.explained_variance - variances[:5]).max() / variances[0]
        assert error < 1e-5, (type(Y), error)


def test_certificates_on_a_device():
    X = data(3000, 60, "float32", mean=3.0)
    truth = np.linalg.svd(X - X.mean(axis=0, dtype="f8"), full_matrices=False)[2][:5]
    for Y in accelerated(X):
        right = certify(Y, truth, random_state=0)
        assert right.angle_bounds.max() < 1e-6, type(Y)
        assert certify(Y, truth[1:], random_state=0).streak(0.5) == 0


def test_proofs_on_a_device():
    X = data(4000, 300, "float32", mean=3.0)
    wide = X.astype("f8") - X.mean(axis=0, dtype="f8")
    truth = np.linalg.svd(wide, full_matrices=False)[2][:6]
    for Y in accelerated(X):
        operator = Centred(Y, float64=True)
        vectors = operator.like.asarray(np.ascontiguousarray(truth.T))
        found = audit(operator, vectors, None, 1e-6, 0, 20)
        assert found.angle_bounds.max() < 1e-5, type(Y)
        assert found.kind in ("deterministic", "probabilistic")


def test_the_estimator_on_a_device():
    try:
        from primedpca import PrimedPCA
    except ImportError:  # scikit-learn is not everywhere
        return
    X = data(2000, 30, "float32")
    host = PrimedPCA(4).fit(X)
    for pca, Z in (
        (PrimedPCA(4).fit(torch.tensor(X, device="cuda")), torch.tensor(X, device="cuda")),
        (PrimedPCA(4, device="cuda").fit(X), X),
        (PrimedPCA(4, device="cuda", priming="subspace_iteration", tol=1e-5).fit(X), X),
        (PrimedPCA(4, device="cuda", priming="block_krylov").fit(X), X),
        (PrimedPCA(4, device="cuda", priming="frequent_directions").fit(X), X),
        (PrimedPCA(4, device="cuda", priming="eigengame").fit(X), X),
    ):
        assert pca.status_.name == "CERTIFIED"
        assert angles(pca.components_, host.components_).max() < 2 * pca.tol
        scores = pca.transform(Z)
        assert type(scores) is type(Z)
        scores = scores.cpu().numpy() if isinstance(scores, torch.Tensor) else scores
        np.testing.assert_allclose(scores, host.transform(X), atol=4 * np.abs(X).max() * pca.tol)
    share = PrimedPCA(0.9).fit(X).n_components_
    assert PrimedPCA(0.9, device="cuda").fit(X).n_components_ == share


def test_checkpoints_of_fits_on_a_device():
    try:
        from primedpca import PrimedPCA
    except ImportError:  # scikit-learn is not everywhere
        return

    def lost_after(passes):
        def told(row):
            if row["passes"] >= passes:
                raise InterruptedError

        return told

    X = data(3000, 200, "float32", mean=3.0)
    for priming in ("block_krylov", "subspace_iteration", "oja"):
        for certificate in ("auto", "none"):
            options = {"priming": priming, "certificate": certificate, "random_state": 0}
            options |= {"max_passes": 30, "tol": 1e-4, "device": "cuda"}
            want = PrimedPCA(6, **options).fit(X)
            with tempfile.TemporaryDirectory() as folder:
                options["checkpoint"] = f"{folder}/kept"
                lost = 0
                for passes in (2, 4):
                    try:
                        PrimedPCA(6, verbose=lost_after(passes), **options).fit(X)
                    except InterruptedError:
                        lost += bool(os.listdir(options["checkpoint"]))
                found = PrimedPCA(6, **options).fit(X)
            words = f"{priming}, {certificate}"
            assert lost, words
            assert found.components_.tobytes() == want.components_.tobytes(), words
            assert found.explained_variance_.tobytes() == want.explained_variance_.tobytes(), words
            assert found.n_passes_ == want.n_passes_, words
            if certificate == "auto":
                assert found.angle_bounds_.tobytes() == want.angle_bounds_.tobytes(), words


def test_captured_steps_are_those_of_prime():
    from primedpca._core.arrays import like_block
    from primedpca.priming import EigenGame, Oja
    from primedpca_paper.lockstep import Batches, LockstepPower, LockstepSGD

    X = data(250, 12, "float32", mean=3.0)
    rows = np.concatenate([X - X.mean(axis=0, dtype="f8"), np.zeros((1, 12))])
    x = torch.tensor(rows, dtype=torch.float32, device="cuda")
    like = like_block(x, 12)
    for rule in (EigenGame, Oja):
        batches = Batches(250, 90, (0, 5))  # of 83 and 84 rows
        many = LockstepSGD(x, like, rule(), (1e-2, 1e-3), 4, batches)
        many.run_to(1)
        many.run_to(300)
        for i, seed in enumerate(batches.seeds):
            for j, rate in enumerate((1e-2, 1e-3)):
                own = rule(learning_rate=rate, steps=300)
                *_, last = prime(X, own, 4, batch_size=90, random_state=seed)
                off = np.abs(many.vectors[i, j].cpu().numpy() - last.directions).max()
                assert off < 1e-3, (rule, seed, rate, off)
    power = LockstepPower(x[:-1], like, (1e-6,), 3, (0,))
    power.run_to(2000)
    truth = np.linalg.svd(rows[:-1], full_matrices=False)[2][:3]
    assert power.finished.all()
    assert angles(power.vectors[0].T.cpu().numpy(), truth).max() < 1e-3


def test_activations_on_a_device():
    from primedpca.sources.wrappers.activations import Activations

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).double()
    images = np.random.default_rng(0).random((20, 3, 9, 9))
    source = Activations(
        network, images, blocks=["1"], transform=None, device="cuda", dtype="float64", batch=4
    )
    rows = torch.cat([block for _, block in source.scan()])
    with torch.inference_mode():
        wanted = network(torch.tensor(images)).flatten(1)
    assert rows.device.type == "cuda"
    assert float((rows.cpu() - wanted).abs().max()) < 1e-10
    assert torch.equal(source.rows(np.array([5, 2])), rows[[5, 2]])


def lowered(X):
    """Data on their way to the card in small pieces, some of them kept."""
    from primedpca import as_source
    from primedpca.sources.wrappers import on_device as module

    module.PIECE_BYTES, module.STREAM_BYTES = 2**14, 2**17
    try:
        for room in (0.0, 3e5, np.inf):
            yield module.OnDevice(as_source(X), "cuda:0", room)
    finally:
        module.PIECE_BYTES, module.STREAM_BYTES = 2**25, 2**28


def test_streamed_data():
    from primedpca._core.arrays import to_numpy

    for dtype in ("float32", "float64", "uint8", "int16"):
        X = (40 + 10 * data(4000, 60, "float64")).astype(dtype)
        with tempfile.TemporaryDirectory() as folder:
            np.save(f"{folder}/x.npy", X)
            np.save(f"{folder}/f.npy", np.asfortranarray(X))
            for given in (X, np.asfortranarray(X), f"{folder}/x.npy", f"{folder}/f.npy"):
                for source in lowered(given):
                    for _ in range(2):
                        parts = [to_numpy(block) for _, block in source.scan()]
                        assert (np.concatenate(parts, axis=source.axis) == X).all(), source
                    operator = Centred(source)
                    vectors = operator.like.asarray(np.eye(60)[:, :5])
                    found = to_numpy(operator.covariance_product(vectors))
                    wide = X.astype("f8") - X.astype("f8").mean(axis=0)
                    wanted = wide.T @ wide[:, :5] / len(X)
                    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max(), source


def test_sparse_data():
    import scipy.sparse as sp

    from primedpca._core.device_sparse import DeviceSparse

    rng = np.random.default_rng(0)
    for form in ("csr", "csc"):
        some = sp.random_array((3000, 700), density=0.03, rng=rng)
        X = sp.vstack([some, sp.csr_array(rng.random((5, 700)))]).asformat(form)
        for dtype, size in (("float32", 1e-5), ("float64", 1e-12)):
            block = DeviceSparse.sent(X.astype(dtype), "cuda:0", dtype)
            for p in (1, 20, 70):
                v, u = rng.random((700, p)).astype(dtype), rng.random((3005, p)).astype(dtype)
                V, U = torch.tensor(v, device="cuda"), torch.tensor(u, device="cuda")
                for found, wanted in ((block @ V, X @ v), (block.T @ U, X.T @ u)):
                    worst = np.abs(found.cpu().numpy() - wanted).max()
                    assert worst < size * np.abs(wanted).max(), (form, dtype, p, worst)
                assert torch.equal(block.T @ U, block.T @ U)


def test_large_copies_to_the_host():
    from primedpca._core.arrays import to_numpy

    made = torch.Generator(device="cuda").manual_seed(0)
    x = 100 * torch.randn((3001, 4999), generator=made, device="cuda")
    for kind in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8):
        for tensor in (x.to(kind), x.to(kind).T, x.to(kind)[::2, 3:]):
            found, wanted = to_numpy(tensor), tensor.cpu()
            wanted = wanted.float() if kind == torch.bfloat16 else wanted
            assert np.array_equal(found, wanted.numpy())


def test_sparse_fits():
    try:
        from primedpca import PrimedPCA
    except ImportError:  # scikit-learn is not everywhere
        return
    import scipy.sparse as sp

    X = sp.random_array((3000, 700), density=0.03, rng=np.random.default_rng(0), dtype=np.float32)
    X = sp.csr_array(X * (0.98 ** np.arange(700, dtype=np.float32))[None])
    host = PrimedPCA(6, random_state=0).fit(X)
    wide = X.toarray().astype("f8")
    truth = np.linalg.svd(wide - wide.mean(axis=0), full_matrices=False)[2][:6]
    with tempfile.TemporaryDirectory() as folder:
        sp.save_npz(f"{folder}/x.npz", X)
        parts = (X.indptr, X.indices, X.data, X.shape)
        with warnings.catch_warnings():  # PyTorch calls such tensors a beta feature
            warnings.simplefilter("ignore", UserWarning)
            tensor = torch.sparse_csr_tensor(*parts, device="cuda", check_invariants=True)
        for given in (X, X.tocsc(), f"{folder}/x.npz", tensor):
            fits = [PrimedPCA(6, device="cuda", random_state=0).fit(given) for _ in range(2)]
            found, again = fits
            assert "cuda" in found.where_, found.where_
            assert found.status_.name == "CERTIFIED"
            assert angles(found.components_, truth).max() < found.tol
            assert found.components_.tobytes() == again.components_.tobytes()
            scores = found.transform(given)
            assert np.abs(np.abs(scores) - np.abs(host.transform(X))).max() < 0.05


def test_limited_memory_and_files():
    try:
        from primedpca import PrimedPCA
    except ImportError:  # scikit-learn is not everywhere
        return
    X = data(200_000, 400, "float32", mean=3.0)
    wanted = PrimedPCA(4, random_state=0).fit(X)
    # The libraries of CUDA keep workspaces, whatever the data: the first fit allocates them.
    PrimedPCA(4, priming="block_krylov").fit(torch.tensor(X[:5000], device="cuda"))
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", X)
        for given in (X, f"{folder}/x.npy", np.load(f"{folder}/x.npy", mmap_mode="r")):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            options = {"device": "cuda", "max_memory": "200MB", "random_state": 0}
            found = PrimedPCA(4, **options).fit(given)
            peak = torch.cuda.max_memory_allocated() - before
            assert found.status_.name == "CERTIFIED"
            assert angles(found.components_, wanted.components_).max() < 2 * found.tol
            assert peak < 200e6, peak


def test_memory_that_runs_out():
    from primedpca import as_source
    from primedpca.sources.wrappers.on_device import OnDevice

    X = data(400_000, 512, "float32")
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    source = OnDevice(as_source(X), "cuda:0")
    hog = torch.empty(int(free - 1.5e9), dtype=torch.uint8, device="cuda")
    try:
        operator = Centred(source)
        V = operator.like.asarray(np.eye(512)[:, :8])
        found = operator.covariance_product(V).cpu().numpy()
    finally:
        del hog
        torch.cuda.empty_cache()
    wide = X - X.mean(axis=0, dtype="f8")
    wanted = wide.T @ wide[:, :8] / len(X)
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_bytes():
    from primedpca._operator import gpu_products

    torch.manual_seed(0)
    for kind, low in ((torch.uint8, 0), (torch.int8, -128)):
        x = torch.randint(low, low + 256, (70_000, 2_005), device="cuda").to(kind)[:, :2000]
        v, y = torch.randn(2000, 20, device="cuda"), torch.randn(70_000, 20, device="cuda")
        assert gpu_products.serves(x, v)
        for found, wanted in (
            (gpu_products.forward(x, v), x.double() @ v.double()),
            (gpu_products.adjoint(x, y), x.double().T @ y.double()),
        ):
            error = float((found.double() - wanted).norm() / wanted.norm())
            assert error < 2e-6, (kind, error)
        wide = x[:600, :1999].contiguous()
        assert gpu_products.counts(wide)
        square, sums, shift = gpu_products.counted_square(wide)
        moved = wide.double() - shift
        assert torch.equal(square, moved @ moved.T)
        assert torch.equal(sums, moved.sum(dim=0))


def test_blocks_are_multiplied_as_they_are_stored():
    from primedpca._operator import gpu_products

    torch.manual_seed(0)
    x = torch.randn(70_000, 2_005, device="cuda") + 0.5
    for block in (x[:, :2000], x[:, :2000].half(), x[:, :2000].bfloat16()):
        v, y = torch.randn(2000, 20, device="cuda"), torch.randn(70_000, 20, device="cuda")
        for columns, rows, error in ((v, y, 2e-6), (v.double(), y.double(), 1e-14)):
            assert gpu_products.serves(block, columns)
            for found, wanted in (
                (gpu_products.forward(block, columns), block.double() @ columns.double()),
                (gpu_products.adjoint(block, rows), block.double().T @ rows.double()),
            ):
                off = float((found.double() - wanted).norm() / wanted.norm())
                assert off < error, (block.dtype, columns.dtype, off)
        norm, sums = gpu_products.statistics(block)
        assert abs(float(norm) - float((block.double() ** 2).sum())) < 1e-12 * float(norm)
        torch.testing.assert_close(sums, block.double().sum(dim=0), rtol=1e-12, atol=1e-9)


def test_resident_data_come_in_few_blocks():
    from primedpca.sources.memory.dense import DenseSource

    free, total = torch.cuda.mem_get_info()
    if free > 4 * 2**30:
        blocks = DenseSource(torch.empty(2**19, 1024, device="cuda")).blocks
        assert len(blocks) == (1 if total >= 64 * 2**30 else 2)


def test_switches_do_not_matter():
    X = torch.tensor(data(20_000, 300, "float32", mean=3.0), device="cuda")
    wanted = None
    before = torch.get_float32_matmul_precision()
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        try:
            *_, last = prime(X, "block_krylov", 12, random_state=0, max_passes=5)
            assert torch.get_float32_matmul_precision() == precision
        finally:
            torch.set_float32_matmul_precision(before)
        found = last.directions.cpu().numpy()
        assert wanted is None or found.tobytes() == wanted.tobytes()
        wanted = found


def test_steps_are_replayed():
    from primedpca._solve import replay
    from primedpca.priming import EigenGame, MuEigenGame, Oja

    X = data(2500, 40, "float32", mean=3.0)
    Y = torch.tensor(X, device="cuda")
    for kind in (EigenGame, MuEigenGame, Oja):
        for size in (100, 90):
            priming = kind(steps=120)
            assert replay.suits(Centred(Y), priming)
            there = list(prime(Y, priming, 4, batch_size=size, random_state=3))
            again = list(prime(Y, priming, 4, batch_size=size, random_state=3))
            here = list(prime(X, priming, 4, batch_size=size, random_state=3))
            for i in (0, 1, 20, 119):
                found = there[i].directions.cpu().numpy()
                assert np.abs(found - here[i].directions).max() < 1e-3, (kind, size, i)
                assert torch.equal(there[i].directions, again[i].directions), (kind, size, i)


def test_few_eigenpairs_of_a_large_matrix():
    from primedpca.priming.exact import leading

    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((400, 400)))[0]
    for values in (1 / np.arange(1, 401.0), np.ones(400), np.arange(400) < 30.0):
        square = (basis * values) @ basis.T
        there = torch.tensor(square, device="cuda")
        found, vectors = leading(there.clone, 20)
        vectors = vectors.cpu().numpy()
        wanted = np.linalg.eigvalsh(square)[::-1][:20]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
        np.testing.assert_allclose(square @ vectors, vectors * found, atol=1e-12)


def test_a_failed_capture_changes_nothing():
    from primedpca._core.graphs import recorded

    v, device = torch.ones(3, device="cuda"), torch.device("cuda", 0)
    torch.manual_seed(0)
    wanted = torch.randn(5, device="cuda"), torch.randn(5, device="cuda")
    torch.manual_seed(0)
    assert torch.equal(torch.randn(5, device="cuda"), wanted[0])
    for _ in range(2):
        try:
            recorded(lambda: v.mul_(float(v.sum())), device, warm=0)  # waits for the GPU
        except RuntimeError:
            continue
        raise AssertionError("this cannot be captured")
    assert torch.equal(torch.randn(5, device="cuda"), wanted[1])
    graph = recorded(lambda: v.mul_(2), device, warm=0)
    graph.replay()
    assert v.tolist() == [2, 2, 2]


def test_fits_in_threads_are_those_of_one():
    from concurrent.futures import ThreadPoolExecutor

    from primedpca import PrimedPCA

    rows = [data(3000 + 500 * i, 300, "float32", mean=i) for i in range(4)]

    def fit(X):
        there = torch.tensor(X, device="cuda")
        return PrimedPCA(12, priming="block_krylov", random_state=0).fit(there).components_

    wanted = [fit(X) for X in rows]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for found, one in zip(pool.map(fit, rows), wanted, strict=True):
                np.testing.assert_array_equal(found, one)


if __name__ == "__main__":
    import traceback

    failed = False
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                print("passed", name, flush=True)
            except Exception:  # the others still run
                failed = True
                traceback.print_exc()
                print("FAILED", name, flush=True)
    raise SystemExit(failed)
