"""The same results on an accelerator: with PyTorch on CUDA, and with CuPy if it is installed.

Needs no pytest: ``python tests/test_gpu.py`` runs it on a machine without.
"""

import os
import tempfile

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


if __name__ == "__main__":
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            test()
            print("passed", name)
