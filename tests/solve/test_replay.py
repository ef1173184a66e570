"""Replayed steps of stochastic primings, here on the CPU, where nothing is captured."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from primedpca import PrimedPCA, prime  # noqa: E402
from primedpca._solve import replay  # noqa: E402
from primedpca.priming import EigenGame, Krasulina, MuEigenGame, Oja  # noqa: E402
from primedpca.result import DivergenceError  # noqa: E402


def rows(n=250, d=12, dtype="float32"):
    rng = np.random.default_rng(0)
    return torch.tensor((rng.standard_normal((n, d)) * 0.8 ** np.arange(d) + 3).astype(dtype))


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Let CPU tensors take the way of CUDA tensors."""
    called = []

    def suits(data, priming):
        called.append(priming)
        return priming.replays

    monkeypatch.setattr(replay, "suits", suits)
    monkeypatch.setattr(replay, "AHEAD", 16)  # several sendings
    return called


OPTIONS = [{}, {"learning_rate": 1e-2}, {"schedule": "1/t"}, {"momentum": 0.0}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", [EigenGame, MuEigenGame, Oja])
@pytest.mark.parametrize("size", [50, 90])  # equal batches, and batches of 83 and 84 rows
def test_replayed_steps_are_those_of_prime(kind, options, size, request):
    priming = kind(steps=60, **options)

    def run():
        return list(prime(rows(), priming, 4, batch_size=size, random_state=5))

    wanted = run()
    called = request.getfixturevalue("on_a_gpu")
    found = run()
    assert called
    assert [s.step for s in found] == [s.step for s in wanted]
    np.testing.assert_allclose([s.passes for s in found], [s.passes for s in wanted])
    for i in (0, 1, 10, 59):  # states do not change afterwards
        torch.testing.assert_close(found[i].directions, wanted[i].directions, atol=1e-4, rtol=0)


@pytest.mark.parametrize("scale", [None, "std"])
def test_other_types_and_scales(scale, request):
    X = (20 * rows()).to(torch.uint8)

    def run():
        *_, last = prime(X, Oja(steps=80), 3, batch_size=100, random_state=1, scale=scale)
        return last.directions

    wanted = run()
    request.getfixturevalue("on_a_gpu")
    torch.testing.assert_close(run(), wanted, atol=1e-3, rtol=0)


def test_krasulina_looks_at_its_vectors(on_a_gpu):
    assert not Krasulina.replays
    *_, last = prime(rows(), Krasulina(steps=60), 3, batch_size=50, random_state=0)
    assert last.step == 60


def test_divergence_is_noticed(on_a_gpu):
    with pytest.raises(DivergenceError, match=r"`learning_rate`=1e\+06 is too large"):
        for _ in prime(rows(), Oja(steps=200, learning_rate=1e6), 3, batch_size=50):
            pass


@pytest.mark.usefixtures("on_a_gpu")
def test_fits_do_not_replay_because_a_checkpoint_could_not(tmp_path):
    options = {"priming": EigenGame(steps=60), "random_state": 0, "batch_size": 50}
    one = PrimedPCA(3, **options).fit(rows())
    two = PrimedPCA(3, **options, checkpoint=tmp_path / "kept").fit(rows())
    assert one.status_.name == "CERTIFIED"
    assert np.array_equal(one.components_, two.components_)


def test_what_suits():
    class Data:
        class traits:  # noqa: N801
            array = np.zeros((3, 3))

    assert not replay.suits(Data, Oja())  # NumPy
    Data.traits.array = torch.zeros(3, 3)
    assert not replay.suits(Data, "oja")
    assert not replay.suits(Data, Oja(steps=3))


def test_large_vectors_are_replayed_one_by_one(monkeypatch, on_a_gpu):
    X, priming = rows(), Oja(steps=60)
    several = list(prime(X, priming, 4, batch_size=90, random_state=5))
    monkeypatch.setattr(replay, "SMALL", 0)
    single = list(prime(X, priming, 4, batch_size=90, random_state=5))
    for some, one in zip(several, single, strict=True):
        assert torch.equal(some.directions, one.directions)
