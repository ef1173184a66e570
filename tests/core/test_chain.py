"""Block Krylov's algebra on a GPU, here on the CPU, where it is the same but for the graphs."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from primedpca._core import chain  # noqa: E402
from primedpca._core.arrays import like_block  # noqa: E402
from primedpca._core.orthonormal import combine, draw, inner_products, side_by_side  # noqa: E402
from primedpca._operator.operator import Centred  # noqa: E402
from primedpca.priming import BlockKrylov, block_krylov  # noqa: E402

LENGTH, WIDTH, STEPS = 400, 8, 5


def covariance(decay=1.0):
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((LENGTH, LENGTH)))[0]
    return (basis * np.arange(1, LENGTH + 1.0) ** -decay) @ basis.T


def run(c, first=None):
    c32 = torch.tensor(c, dtype=torch.float32)
    if first is None:
        first = np.linalg.qr(np.random.default_rng(1).standard_normal((LENGTH, WIDTH)))[0]
    made = chain.Chain(like_block(c32, LENGTH), torch.tensor(first, dtype=torch.float32))
    for j in range(STEPS):
        made.extend(c32 @ made.block(j))
    return made


def test_the_relation_of_block_krylov_holds():
    c, made = covariance(), run(covariance())
    projected, coupling = made.matrices(STEPS)
    v = np.concatenate([made.block(j).numpy() for j in range(STEPS)], axis=1).astype("f8")
    newest = made.block(STEPS).numpy().astype("f8")
    whole = np.concatenate([v, newest], axis=1)
    np.testing.assert_allclose(whole.T @ whole, np.eye(whole.shape[1]), atol=2e-6)
    left = c @ v - v @ projected
    left[:, -WIDTH:] -= newest @ coupling
    assert np.linalg.norm(left, ord=2) < 2e-6  # some ulps of float32


def test_fewer_steps_are_those_made_first():
    made = run(covariance())
    projected, _ = made.matrices(3)
    whole, _ = made.matrices(STEPS)
    np.testing.assert_array_equal(projected, whole[: 3 * WIDTH, : 3 * WIDTH])


@pytest.mark.parametrize("rank", [1, WIDTH, 2 * WIDTH + 3])
def test_dependent_columns_are_noticed(rank):
    values, vectors = np.linalg.eigh(covariance())
    values[:-rank] = 0.0
    assert run((vectors * values) @ vectors.T).matrices(STEPS) is None


def test_not_a_number_is_noticed():
    c = covariance()
    c[3, 5] = np.nan
    assert run(c).matrices(STEPS) is None


def on_a_gpu(monkeypatch):
    monkeypatch.setattr(chain, "suits", lambda like, width: 24 * width <= like.n_features)


def from_the_same_start(monkeypatch):
    """A GPU draws other numbers than NumPy: let both begin with NumPy's."""
    monkeypatch.setattr(block_krylov, "draw", lambda *given, there=False: draw(*given))


def rows(rank=LENGTH):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((900, LENGTH)) * np.arange(1, LENGTH + 1.0) ** -0.8
    x[:, rank:] = 0
    return torch.tensor(x, dtype=torch.float32)


def ritz(x, first_look, steps):
    data = Centred(x)
    priming = BlockKrylov(block_size=WIDTH, first_look=first_look)
    state = priming.init(data.like, WIDTH, 0)
    for _ in range(steps):
        state = priming.step(state, data)
    return state, *priming.refined(state, data)


@pytest.mark.parametrize("steps", [1, 4, 11, 14])
@pytest.mark.parametrize("first_look", [1, 3, 40])
def test_block_krylov_is_the_same_with_a_chain(monkeypatch, first_look, steps):
    _, wanted, variances = ritz(rows(), 1, steps)
    on_a_gpu(monkeypatch)
    from_the_same_start(monkeypatch)
    state, found, others = ritz(rows(), first_look, steps)
    assert state.step == steps
    np.testing.assert_allclose(others, variances, rtol=2e-5)
    if steps > 1:  # before, vectors of close variances are not settled
        cosines = np.abs(np.einsum("ij,ij->j", wanted.numpy()[:, :4], found.numpy()[:, :4]))
        assert cosines.min() > 1 - 1e-3


def test_directions_drawn_on_the_device():
    like = like_block(torch.zeros(1, 4000), 4000)
    first = draw(like, 5, (0, 1), there=True)
    assert torch.equal(first, draw(like, 5, (0, 1), there=True))
    assert not torch.equal(first, draw(like, 5, (0, 2), there=True))
    square = (first.T @ first / 4000).numpy()
    np.testing.assert_allclose(square, np.eye(5), atol=0.1)  # six standard deviations


def test_neighbouring_blocks_are_multiplied_as_one():
    basis = torch.randn(50, 12, generator=torch.Generator().manual_seed(0))
    blocks = tuple(basis[:, a : a + 3] for a in (3, 6, 9))
    (joined,) = side_by_side(blocks)
    assert torch.equal(joined, basis[:, 3:])
    assert joined.data_ptr() == blocks[0].data_ptr()
    for others in (blocks[::-1], (blocks[0], blocks[2]), (*blocks[:2], blocks[2].clone())):
        assert side_by_side(others) == others
    side, turn = torch.ones(50, 2), np.ones((9, 2))
    like = like_block(basis[:1], 50)
    np.testing.assert_allclose(
        inner_products(blocks, side), basis[:, 3:].T.double() @ side.double(), atol=1e-12
    )
    found = combine(blocks, turn, like)
    np.testing.assert_allclose(found, basis[:, 3:].sum(dim=1)[:, None].expand(50, 2), atol=1e-5)


def test_data_of_low_rank_go_the_careful_way(monkeypatch):
    x = rows(rank=11)
    truth = np.linalg.eigvalsh(np.cov(x.numpy().astype("f8").T, bias=True))[::-1][:WIDTH]
    on_a_gpu(monkeypatch)
    state, _, variances = ritz(x, 3, 3)
    assert state.chain is None
    np.testing.assert_allclose(variances, truth, rtol=1e-4)


def test_buffers_are_used_again():
    def made():
        data = like_block(torch.zeros(1, LENGTH), LENGTH)
        return chain.Chain(data, torch.eye(LENGTH, WIDTH))

    with chain.given_back():
        first = made()
        buffers = first._buffers
    second = made()
    assert second._buffers is buffers
    assert made()._buffers is not buffers  # still in use
