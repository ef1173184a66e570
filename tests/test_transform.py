"""The short way of `transform` for small arrays: the scores and errors of the long one."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_wine

from primedpca import PrimedPCA, estimator, load
from primedpca.monitoring import limits, statistics

RNG = np.random.default_rng(0)
X = RNG.normal(size=(700, 40)) * np.arange(1, 41) + 20
OPTIONS = [
    {},
    {"whiten": True},
    {"scale": "std"},
    {"scale": "std", "whiten": True},
    {"center": False},
    {"missing": "mean"},
]


def long_way(pca, x, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(estimator, "SMALL_BYTES", 0)
        return pca.transform(x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rows", [1, 3, 700])
def test_scores_are_those_of_the_long_way(rows, options, dtype, monkeypatch):
    pca = PrimedPCA(5, random_state=0, **options).fit(X.astype(dtype))
    some = X[:rows].astype(dtype)
    short = pca._scores_at_once(some)
    true = (some.astype(np.float64) - pca.mean_) / (1 if pca.scale_ is None else pca.scale_)
    true = true @ pca.components_.T.astype(np.float64)
    true /= np.sqrt(pca.explained_variance_) if pca.whiten else 1
    close = {"rtol": 1e-3, "atol": 1e-3} if dtype == "float32" else {"rtol": 1e-10, "atol": 1e-10}
    assert short.dtype == dtype
    np.testing.assert_allclose(short, true, **close)
    np.testing.assert_allclose(short, long_way(pca, some, monkeypatch), **close)


def test_rows_with_a_large_mean_keep_their_digits():
    far = X + 1e9
    pca = PrimedPCA(3, random_state=0).fit(far)
    true = (far - pca.mean_) @ pca.components_.T
    np.testing.assert_allclose(pca.transform(far[:5]), true[:5], rtol=1e-9)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_raise_the_same_error(value, monkeypatch):
    pca = PrimedPCA(3, random_state=0).fit(X)
    bad = X[:4].copy()
    bad[2, 7] = value
    said = []
    for call in (pca.transform, lambda x: long_way(pca, x, monkeypatch)):
        with pytest.raises(ValueError, match=r"non-finite|NaN|inf") as error:
            call(bad)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_missing_values_are_filled():
    pca = PrimedPCA(3, missing="mean", random_state=0).fit(X)
    gap, mean = X[:1].copy(), X[:1].copy()
    gap[0, 5], mean[0, 5] = np.nan, pca.mean_[5]
    np.testing.assert_allclose(pca.transform(gap), pca.transform(mean), rtol=1e-10)


def test_checks_of_columns_and_names_are_made():
    pca = PrimedPCA(3, random_state=0)
    with pytest.raises(Exception, match="not fitted yet"):
        pca.transform(X)
    pca.fit(X)
    with pytest.raises(ValueError, match="X has 10 features, but PrimedPCA is expecting 40"):
        pca.transform(X[:, :10])
    with pytest.raises(ValueError, match="Expected 2D array"):
        pca.transform(X[0])
    with pytest.raises(ValueError, match="minimum of 1"):
        pca.transform(X[:0])
    wine = load_wine(as_frame=True).data
    named = PrimedPCA(3, random_state=0).fit(wine)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        named.transform(wine.to_numpy())


@pytest.mark.parametrize("change", [np.asfortranarray, lambda x: x[::-1][::-1]])
def test_the_layout_of_an_array_does_not_matter(change):
    pca = PrimedPCA(3, random_state=0).fit(X)
    np.testing.assert_allclose(pca.transform(change(X)), pca.transform(X), rtol=1e-12, atol=1e-12)


def test_other_types_take_the_long_way():
    pca = PrimedPCA(3, random_state=0).fit(X)
    np.testing.assert_allclose(pca.transform(X[:6].tolist()), pca.transform(X[:6]))
    assert pca._scores_at_once(X[:6].astype("float32")) is None
    assert pca._scores_at_once(np.ones((2, 40), dtype=int)) is None


def test_rows_that_are_seen_in_batches_are_transformed():
    pca = PrimedPCA(3)
    pca.partial_fit(X[:300]).partial_fit(X[300:])
    true = (X - X.mean(axis=0)) @ pca.components_.T
    np.testing.assert_allclose(pca.transform(X[:2]), true[:2], rtol=1e-9)


@pytest.mark.parametrize("dtype", [object, "U9", "datetime64[s]"])
def test_out_of_no_numbers_is_refused(dtype):
    rows = np.random.default_rng(0).normal(size=(20, 4))
    with pytest.raises(TypeError, match="does not hold floats"):
        PrimedPCA(2).fit(rows).transform(rows, out=np.empty((20, 2), dtype))


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_out_of_whole_numbers_is_refused(dtype):
    rows = np.random.default_rng(0).normal(size=(20, 4))
    out = np.zeros((20, 2), dtype)
    with pytest.raises(TypeError, match="does not hold floats"):
        PrimedPCA(2).fit(rows).transform(rows, out=out)
    assert not out.any()
    tensor = torch.zeros((20, 2), dtype=getattr(torch, dtype))
    with pytest.raises(TypeError, match="does not hold floats"):
        PrimedPCA(2).fit(rows).transform(rows, out=tensor)
    assert not tensor.any()


@pytest.mark.parametrize("given", [np.asarray, torch.as_tensor])
def test_out_may_be_of_another_library_and_must_hold_the_scores(given):
    pca = PrimedPCA(2).fit(X)
    wanted = pca.transform(X)
    for out in (np.empty((700, 2)), torch.empty((700, 2), dtype=torch.float64)):
        assert pca.transform(given(X), out=out) is out
        np.testing.assert_allclose(np.asarray(out), wanted)
    for out in (np.zeros((700, 2), "float16"), torch.zeros((700, 2), dtype=torch.float16)):
        with pytest.raises(ValueError, match=r"float16, which cannot hold a score of .* Use "):
            pca.transform(given(X * 1e5), out=out)
        assert not out.any()
    with pytest.raises(ValueError, match="`out` is read-only"):
        pca.transform(given(X), out=np.broadcast_to(0.0, (700, 2)))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_scores_in_another_order_are_refused(frame):
    pca = PrimedPCA(3).fit(X)
    scores = pca.transform(X[:5])
    back = pca.inverse_transform(scores)
    for names in (["PC1", "PC2", "PC3"], ["a", "b", "c"]):
        named = frame(dict(zip(names, scores.T, strict=True)))
        np.testing.assert_allclose(pca.inverse_transform(named), back)
    swapped = frame({"PC1": scores[:, 0], "PC3": scores[:, 2], "PC2": scores[:, 1]})
    with pytest.raises(ValueError, match="`X` has the column PC3, where the scores have PC2"):
        pca.inverse_transform(swapped)


def test_inverse_transform_of_other_types():
    torch = pytest.importorskip("torch")
    rows = np.random.default_rng(0).normal(size=(20, 4))
    pca = PrimedPCA(2).fit(rows)
    scores = np.round(pca.transform(rows) * 8)
    wanted = pca.inverse_transform(scores)
    for dtype in (torch.float32, torch.float64, torch.int64):
        back = pca.inverse_transform(torch.tensor(scores).to(dtype))
        assert back.dtype == torch.float64
        np.testing.assert_allclose(back.numpy(), wanted)
    np.testing.assert_allclose(pca.inverse_transform(scores.astype(object)), wanted)
    np.testing.assert_allclose(pca.inverse_transform(np.ma.array(scores)), wanted)
    single = PrimedPCA(2).fit(rows.astype(np.float32))
    assert single.inverse_transform(scores.astype(np.float32)).dtype == np.float32
    masked = np.ma.array(scores, mask=scores > 0)
    for bad in (scores * 1j, masked, np.full((3, 2), "a"), sparse.csr_matrix(scores)):
        with pytest.raises(ValueError, match="`X`"):
            pca.inverse_transform(bad)


@pytest.mark.parametrize("index", [["x", "y", "z"], [7, 3, 5]])
def test_inverse_transform_of_arrow_tables_with_an_index_of_pandas(index):
    rows = np.random.default_rng(0).normal(size=(3, 4))
    pca = PrimedPCA(2).fit(rows)
    scores = pd.DataFrame(pca.transform(rows), index, ["PC1", "PC2"])
    for given in (pa.Table.from_pandas(scores), pa.RecordBatch.from_pandas(scores)):
        np.testing.assert_array_equal(pca.inverse_transform(given), pca.inverse_transform(scores))
    with pytest.raises(ValueError, match="has the column PC2, where the scores have PC1"):
        pca.inverse_transform(pa.Table.from_pandas(scores[["PC2", "PC1"]]))


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, torch.tensor])
@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_scores_that_are_not_finite_are_refused_as_rows_are(kind, value, name):
    pca = PrimedPCA(3, random_state=0).fit(X)
    scores = pca.transform(X[:4])
    scores[2, 1] = value
    words = rf"Input X contains {name}: 1 non-finite value\(s\), the first at row 2, column 1"
    with pytest.raises(ValueError, match=rf"{words} .* Drop or replace it\.$"):
        pca.inverse_transform(kind(scores))


# -- missing values in rows that are not centred ---------------------------------------------


def gaps():
    """Rows far from zero with missing values, and the same rows filled with column means."""
    rng = np.random.default_rng(0)
    holes = rng.normal(size=(60, 4)) * [4, 3, 2, 1] + 2
    holes[0, 1] = holes[3, 2] = holes[7, 0] = np.nan
    return holes, np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)


def in_batches(model, x):
    return model.partial_fit(x[:20]).partial_fit(x[20:])


def merged(model, x):
    other = PrimedPCA(**model.get_params()).partial_fit(x[20:])
    return model.partial_fit(x[:20]).merge(other)


WAYS = {"fit": PrimedPCA.fit, "partial_fit": in_batches, "merge": merged}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"scale": "std"}, {"whiten": True}], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_missing_values_are_filled_by_means_without_centring(way, options, dtype, tmp_path):
    holes, filled = (x.astype(dtype) for x in gaps())
    pca = WAYS[way](PrimedPCA(4, center=False, missing="mean", **options), holes)
    true = filled / (1 if pca.scale_ is None else pca.scale_) @ pca.components_.T
    true /= np.sqrt(pca.explained_variance_) if pca.whiten else 1
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-11, "atol": 1e-11}
    np.testing.assert_allclose(pca.transform(holes), true, **close)
    np.testing.assert_allclose(pca.fill_, filled.mean(axis=0), rtol=1e-5)
    pca.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        load(tmp_path / "model.safetensors").transform(holes), pca.transform(holes)
    )


def test_everything_that_reads_rows_fills_them_alike(tmp_path):
    holes, filled = gaps()
    pca = PrimedPCA(2, center=False, missing="mean").fit(holes)
    close = {"rtol": 1e-11, "atol": 1e-11}
    for given in (sparse.csr_array(holes), np.asfortranarray(holes), pd.DataFrame(holes)):
        other = PrimedPCA(2, center=False, missing="mean")
        np.testing.assert_allclose(other.fit_transform(given), pca.transform(filled), **close)
    np.testing.assert_allclose(pca.score_samples(holes), pca.score_samples(filled), **close)
    here, there = pca.contributions(holes), pca.contributions(filled)
    np.testing.assert_allclose(here.contribution, there.contribution, **close)
    for mine, theirs in zip(statistics(pca, holes), statistics(pca, filled), strict=True):
        np.testing.assert_allclose(mine, theirs, **close)
    lazy = pytest.importorskip("dask.array").from_array(holes, chunks=(25, 3))
    np.testing.assert_allclose(pca.transform(lazy).compute(), pca.transform(filled), **close)
    pca.transform(holes, out=tmp_path / "scores.npy")
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), pca.transform(filled), **close)


def test_a_model_that_does_not_know_the_means_refuses_missing_values(tmp_path):
    """Models of before 0.2 filled with zeros; so did models of data without missing values."""
    holes, filled = gaps()
    pca = PrimedPCA(2, center=False, missing="mean").fit(holes)
    del pca.fill_
    pca.save(tmp_path / "old.safetensors")
    plain = PrimedPCA(2, center=False).fit(filled).set_params(missing="mean")
    for model in (load(tmp_path / "old.safetensors"), plain):
        assert model.transform(filled).shape == (60, 2)
        with pytest.raises(ValueError, match=r"column 1,.*Fit it again with"):
            model.transform(holes)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("center", [True, False])
def test_centring_is_that_of_the_fit_whatever_the_parameter_says_later(center, way, tmp_path):
    holes, _ = gaps()
    pca = WAYS[way](PrimedPCA(2, center=center, missing="mean"), holes)
    assert pca.center_ is center
    scores, bounds = pca.transform(holes), limits(pca)
    pca.set_params(center=not center)
    np.testing.assert_array_equal(pca.transform(holes), scores)
    assert limits(pca) == bounds
    pca.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "model.safetensors").transform(holes), scores)


def test_without_centring_means_that_are_not_known_are_not_taken_for_zeros():
    holes, filled = gaps()
    pca = PrimedPCA(2, center=False).fit(filled).set_params(center=True, missing="mean")
    with pytest.raises(ValueError, match=r"column 1,.*Fit it again with"):
        pca.transform(holes)


def test_a_fit_forgets_the_means_of_an_earlier_one():
    holes, filled = gaps()
    pca = PrimedPCA(2, center=False, missing="mean").fit(holes)
    assert pca.set_params(center=True).fit(holes).fill_ is None
    np.testing.assert_allclose(pca.transform(holes), pca.transform(filled), atol=1e-12)


@pytest.mark.parametrize("name", ["scores.csv", "scores.npy"])
def test_scores_that_are_written_are_no_frame(tmp_path, name):
    X = np.random.default_rng(0).normal(size=(20, 4))
    pca = PrimedPCA(2).fit(X).set_output(transform="pandas")
    with pytest.raises(ValueError, match="`out` returns what was written, not the data frame"):
        pca.transform(X, out=tmp_path / name)
    assert not list(tmp_path.iterdir())
    pca.set_output(transform="default").transform(X, out=tmp_path / name)
    assert (tmp_path / name).exists()


@pytest.mark.parametrize(("kind", "frame"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_lazy_scores_become_the_frame_that_is_asked_for(kind, frame):
    lazy = pytest.importorskip("dask.array").from_array(X[:50], chunks=(25, X.shape[1]))
    pca = PrimedPCA(3).fit(X)
    wanted = pca.transform(X[:50])
    found = pca.set_output(transform=kind).transform(lazy)
    assert isinstance(found, frame)
    assert list(found.columns) == ["PC1", "PC2", "PC3"]
    np.testing.assert_allclose(found.to_numpy(), wanted)
