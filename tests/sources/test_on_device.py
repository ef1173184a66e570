"""Every kind of data sent to a device; here to PyTorch on the CPU, which runs the same code.

Copies through page-locked memory and streams are tested on a card, in tests/test_gpu.py.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from catalogue import BYTE_SOURCES, FEW_SOURCES, FILES, KINDS, SOURCES, TEXT_FILES

torch = pytest.importorskip("torch")

from primedpca import PrimedPCA, as_source, plan  # noqa: E402
from primedpca._core.arrays import is_sparse, to_numpy  # noqa: E402
from primedpca._core.device_sparse import DeviceSparse  # noqa: E402
from primedpca._core.process import one_blas_thread  # noqa: E402
from primedpca._operator.operator import Centred  # noqa: E402
from primedpca.engines import LocalEngine  # noqa: E402
from primedpca.metrics import angles  # noqa: E402
from primedpca.priming import EigenGame  # noqa: E402
from primedpca.protocols import Parts  # noqa: E402
from primedpca.sources import maps  # noqa: E402
from primedpca.sources.wrappers import on_device as module  # noqa: E402
from primedpca.sources.wrappers.on_device import OnDevice, on_device  # noqa: E402

MAKERS = SOURCES | FILES | KINDS | TEXT_FILES | BYTE_SOURCES
#: Bytes of the data of :func:`rows_of` that may stay on the device.
ROOMS = {"all kept": np.inf, "some kept": 300.0, "none kept": 0.0}
CASES = [(name, "some kept") for name in MAKERS]
CASES += [
    (name, room) for name in (*FEW_SOURCES, "npy, rows") for room in ("all kept", "none kept")
]


def host_array(block):
    return to_numpy(block.toarray() if is_sparse(block) else block)


def rows_of(name, shape=(75, 6)):
    rng = np.random.default_rng(0)
    if name in BYTE_SOURCES:
        return rng.integers(0, 255, shape).astype(np.uint8)
    X = rng.standard_normal(shape) * (rng.random(shape) < 0.5)
    X[:, 0] = np.arange(1, shape[0] + 1)
    return X.astype(np.float64 if name in TEXT_FILES else np.float32)


@pytest.fixture
def small_pieces(monkeypatch):
    for name, size in (("PIECE_BYTES", 128), ("STREAM_BYTES", 600), ("DEVICE_ENTRIES", 64)):
        monkeypatch.setattr(module, name, size)


@pytest.mark.usefixtures("small_blocks", "small_pieces")
@pytest.mark.parametrize(("name", "room"), CASES)
def test_every_kind_arrives(name, room, tmp_path):
    X = rows_of(name)
    source = OnDevice(as_source(MAKERS[name](X, tmp_path)), "cpu", ROOMS[room])
    for _ in range(2):  # the second time, blocks that were kept
        whole = [host_array(block) for _, block in source.scan()]
        np.testing.assert_array_equal(np.concatenate(whole, axis=source.axis), X)
    for _, block in source.scan():
        assert isinstance(block, (torch.Tensor, DeviceSparse))
    if room == "none kept":
        assert not source._held
    for seed in (None, 3):
        wanted = source.source.batches(10, seed)
        for (index, rows), (other, _) in zip(source.batches(10, seed), wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(index), np.asarray(other))
            np.testing.assert_array_equal(host_array(rows), X[index])


def problem(n=900, d=60, dtype="float32", mean=3.0):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, d)) * 0.85 ** np.arange(d)
    if dtype in ("uint8", "int8", "int16", "uint16"):
        return np.clip(np.rint(20 * X + 60), 0, 120).astype(dtype)
    return (X + mean).astype(dtype)


def truth(X, k=5):
    wide = X.astype(np.float64)
    return np.linalg.svd(wide - wide.mean(axis=0), full_matrices=False)[2][:k]


DTYPES = ("float32", "float64", "float16", "uint8", "int8", "int16", "uint16", "int64")


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(900, 60), (50, 700)])
def test_fits_are_proven_and_right(dtype, shape):
    X = problem(*shape, dtype=dtype)
    for room in ROOMS.values():
        pca = PrimedPCA(5, random_state=0).fit(OnDevice(as_source(X), "cpu", room))
        assert pca.status_.name == "CERTIFIED"
        found = angles(pca.components_, truth(X))
        slack = 1e-3 if pca.components_.dtype == np.float32 else 1e-8
        assert (found <= pca.angle_bounds_ + slack).all()
        assert found.max() < pca.tol


def test_bfloat16_is_exact_as_it_is_stored():
    X = torch.tensor(problem()).bfloat16()
    pca = PrimedPCA(5, random_state=0).fit(OnDevice(as_source(X), "cpu", 0.0))
    assert angles(pca.components_, truth(X.double().numpy())).max() < pca.tol


PRIMINGS = ("block_krylov", "exact", EigenGame(steps=20), "frequent_directions", "power_method")


@pytest.mark.parametrize("priming", PRIMINGS)
@pytest.mark.parametrize("options", [{}, {"scale": "std"}, {"center": False}, {"weights": True}])
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_sparse_fits_are_those_of_the_host(form, options, priming):
    rng = np.random.default_rng(2)
    X = sp.random_array((700, 90), density=0.1, rng=rng, dtype=np.float32).asformat(form)
    X = (X * (0.9 ** np.arange(90, dtype=np.float32))[None]).asformat(form)
    options = dict(options)
    weights = rng.integers(0, 4, 700) if options.pop("weights", False) else None
    pca = PrimedPCA(4, priming=priming, random_state=0, **options)
    host = pca.fit(X, sample_weight=weights)
    components, scores, score = host.components_, host.transform(X), host.score(X)
    source = OnDevice(as_source(X), "cpu")
    there = pca.fit(source, sample_weight=weights)
    assert angles(there.components_, components).max() < 2 * pca.tol
    np.testing.assert_allclose(there.transform(source), scores, atol=0.02)
    assert there.score(source) == pytest.approx(score, rel=1e-5)


def test_sparse_rows_far_from_zero():
    rng = np.random.default_rng(3)
    dense = rng.standard_normal((400, 20)).astype(np.float32) * (rng.random((400, 20)) < 0.3)
    dense[:, 3] = 5000 + rng.standard_normal(400)
    source = OnDevice(as_source(sp.csr_array(dense)), "cpu")
    pca = PrimedPCA(4, random_state=0).fit(source)
    assert angles(pca.components_, truth(dense, 4)).max() < pca.tol


@pytest.mark.parametrize("sparse", [False, True])
def test_a_share_of_the_rows(sparse):
    X = problem()
    given = as_source(sp.csr_array(X) if sparse else X)
    options = {"priming": "block_krylov", "refine_share": 0.5, "certificate": "none"}
    pca = PrimedPCA(3, random_state=0, **options)
    wanted = pca.fit(given).components_
    found = pca.fit(OnDevice(given, "cpu")).components_
    assert angles(found, wanted).max() < 1e-2


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_sparse_tensors(layout):
    X = sp.random_array((300, 40), density=0.2, rng=np.random.default_rng(4), dtype=np.float32)
    dense = torch.tensor(X.toarray())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls compressed tensors a beta feature
        given = getattr(dense, {"coo": "to_sparse"}.get(layout, f"to_sparse_{layout}"))()
    source = as_source(given)
    assert source.traits.sparse
    found = PrimedPCA(4, random_state=0).fit(given)
    wanted = PrimedPCA(4, random_state=0).fit(X.tocsr())
    assert angles(found.components_, wanted.components_).max() < 2 * found.tol
    assert isinstance(found.transform(given), np.ndarray)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_sparse_tensors_of_float16(layout):
    dense = torch.tensor(np.arange(600) % 7, dtype=torch.float16).reshape(60, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = getattr(dense, {"coo": "to_sparse"}.get(layout, f"to_sparse_{layout}"))()
    np.testing.assert_array_equal(as_source(given).read(0).toarray(), dense.float().numpy())


@pytest.mark.parametrize("layout", ["bsr", "bsc"])
def test_blocked_tensors_are_to_be_converted(layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = getattr(torch.eye(6), f"to_sparse_{layout}")((3, 2))
        with pytest.raises(TypeError, match=rf"layout torch.sparse_{layout}. Pass X.to_sparse\(\)"):
            as_source(given)
        np.testing.assert_array_equal(as_source(given.to_sparse()).read(0).toarray(), np.eye(6))


@pytest.mark.parametrize("sparse", [False, True])
def test_scores_are_written_block_by_block(sparse, tmp_path):
    X = problem()
    source = OnDevice(as_source(sp.csr_array(X) if sparse else X), "cpu", 0.0)
    pca = PrimedPCA(3, random_state=0).fit(source)
    found = pca.transform(source, out=tmp_path / "scores.npy")
    np.testing.assert_allclose(found, pca.transform(X), atol=1e-4)


@pytest.mark.parametrize("sparse", [False, True])
def test_non_finite_values_are_located(sparse):
    X = problem()
    X[7, 3] = np.nan
    source = OnDevice(as_source(sp.csr_array(X) if sparse else X), "cpu")
    with pytest.raises(ValueError, match=r"NaN: 1 non-finite value\(s\), the first at row 7"):
        PrimedPCA(3).fit(source)


def test_names_and_maps_are_kept():
    import pandas as pd

    frame = pd.DataFrame(abs(problem()), columns=[f"c{i}" for i in range(60)])
    source = OnDevice(as_source(frame, map=maps.log1p), "cpu")
    assert list(source.traits.feature_names()) == list(frame.columns)
    assert PrimedPCA(3, random_state=0).fit(source).map_ == "log1p"


def test_data_are_not_written_to():
    X = problem()
    before = X.copy()
    PrimedPCA(3, random_state=0).fit(OnDevice(as_source(X), "cpu"))
    np.testing.assert_array_equal(X, before)


def test_a_tensor_with_a_gradient_is_left_alone():
    X = torch.tensor(problem(), requires_grad=True)
    PrimedPCA(3, random_state=0).fit(X)
    assert X.requires_grad
    assert X.grad is None


def test_a_device_that_is_not_there():
    device = "cuda:77"
    with pytest.raises(ValueError, match="`device`='cuda:77' is not available"):
        PrimedPCA(3, device=device).fit(problem())


def test_types_that_no_device_has():
    with pytest.raises(ValueError, match=r"does not support `X` of dtype longdouble|float128"):
        OnDevice(as_source(problem().astype(np.longdouble)), "cpu")


def test_plans_know_what_is_kept(tmp_path):
    X = problem(6000, 300)
    np.save(tmp_path / "x.npy", X)
    kept = OnDevice(as_source(tmp_path / "x.npy"), "cpu")
    passing = OnDevice(as_source(tmp_path / "x.npy"), "cpu", 0.0)
    assert kept.traits.in_memory
    assert not passing.traits.in_memory
    seconds = [plan(s, 5, certificate="none").ways[0].seconds for s in (kept, passing)]
    assert seconds[0] < seconds[1]


def test_blocks_obey_max_memory():
    X = np.zeros((4000, 2000), dtype=np.float32)
    source = OnDevice(as_source(X), "cpu", 4e7, max_memory=8e7)
    largest = max(b - a for a, b in source.blocks) * 2000 * 4
    assert largest <= 8e7 / 64 + 2000 * 4
    assert source.cache_bytes <= 4e7


def test_on_device_leaves_data_that_are_there():
    X = as_source(torch.tensor(problem()))
    assert on_device(X, "cpu") is X
    assert on_device(X, None) is X
    assert on_device(as_source(problem()), torch.device("cpu")).device is None


# -- memory that runs out ----------------------------------------------------------------------


class OutOfMemoryError(RuntimeError):
    """Named as PyTorch's."""


def too_large(limit):
    def kernel(block, *, left):
        if block.shape[0] > limit:
            raise OutOfMemoryError
        return Parts((block.T @ left,), (block[:, :2] * 1.0,))

    return kernel


def test_blocks_shrink_when_memory_is_short():
    X = torch.tensor(problem(64, 5))
    left = torch.ones(64, 1)
    source = OnDevice(as_source(X), "cpu")
    found = LocalEngine(1).sweep(source, too_large(10), {}, {"left": left})
    torch.testing.assert_close(found.sums[0].float(), X.T @ left)
    torch.testing.assert_close(found.stacks[0], X[:, :2])
    with pytest.raises(MemoryError, match=r"too little memory.*max_memory"):
        LocalEngine(1).sweep(source, too_large(0), {}, {"left": left})


def test_blocks_kept_are_given_up(monkeypatch):
    monkeypatch.setattr(module, "PIECE_BYTES", 1000)
    monkeypatch.setattr(module, "DEVICE_BLOCK_BYTES", 4000)
    X = problem(500, 10)
    source = OnDevice(as_source(X), "cpu")
    first = [host_array(block) for _, block in source.scan()]
    before = len(source._held)
    scan = source.scan()
    next(scan)
    source.release()  # in the middle of a pass
    rest = [host_array(block) for _, block in scan]
    assert len(source._held) <= before // 2
    np.testing.assert_array_equal(np.concatenate(rest), np.concatenate(first[1:]))
    again = [host_array(block) for _, block in source.scan()]
    np.testing.assert_array_equal(np.concatenate(again), X)


# -- switches of PyTorch -----------------------------------------------------------------------


def test_switches_for_reduced_precision_are_off_inside_and_restored():
    switch = torch.backends.cuda.matmul
    before = switch.fp32_precision
    switch.fp32_precision = "tf32"
    try:
        with one_blas_thread:
            assert switch.fp32_precision == "ieee"
            with one_blas_thread:
                pass
            assert switch.fp32_precision == "ieee"
        assert switch.fp32_precision == "tf32"
    finally:
        switch.fp32_precision = before


def test_products_of_the_operator_are_those_of_the_host():
    X = problem()
    V = np.linalg.qr(np.random.default_rng(0).standard_normal((60, 4)))[0].astype("f4")
    wanted = Centred(X).covariance_product(V)
    found = Centred(OnDevice(as_source(X), "cpu", 0.0)).covariance_product(torch.tensor(V))
    np.testing.assert_allclose(to_numpy(found), wanted, atol=1e-5 * np.abs(wanted).max())
