"""Interoperability: column names, AnnData as scanpy fills it, xarray, pipelines."""

import warnings
from functools import partial

import anndata
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet
import pytest
import scipy.sparse as sp
import sklearn
import xarray as xr
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from primedpca import PrimedPCA, as_source, load
from primedpca.interop import pca_anndata, to_xarray
from primedpca.metrics import angles
from primedpca.scanpy import pca as scanpy_pca

WINE = load_wine(as_frame=True).data


# -- names of columns ------------------------------------------------------------------------


def write(kind, folder):
    path = folder / f"wine.{kind}"
    if kind == "csv":
        WINE.to_csv(path, index=False)
    elif kind == "parquet":
        WINE.to_parquet(path)
    else:
        pl.from_pandas(WINE).write_ipc(path)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_names_in_a_table_are_those_of_the_model(kind, tmp_path):
    path = write(kind, tmp_path)
    pca = PrimedPCA(2).fit(path)
    assert pca.feature_names_in_.tolist() == WINE.columns.tolist()
    np.testing.assert_allclose(pca.transform(WINE), pca.transform(path), atol=1e-6)
    with pytest.raises(ValueError, match="feature names should match"):
        pca.transform(WINE[WINE.columns[::-1]])
    turned = as_source(path, columns=WINE.columns[::-1].tolist())
    with pytest.raises(ValueError, match=r"'proline' as column 0.*'alcohol'"):
        pca.transform(turned)
    pca.save(tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").feature_names_in_.tolist() == WINE.columns.tolist()


def test_what_has_no_names_gets_none(tmp_path):
    WINE.to_csv(tmp_path / "bare.csv", index=False, header=False)
    assert not hasattr(
        PrimedPCA(2).fit(as_source(tmp_path / "bare.csv", header=False)), "feature_names_in_"
    )
    vectors = pyarrow.table({"embedding": WINE.to_numpy().tolist()})
    pyarrow.parquet.write_table(vectors, tmp_path / "v.parquet")
    assert not hasattr(PrimedPCA(2).fit(tmp_path / "v.parquet"), "feature_names_in_")
    assert not hasattr(PrimedPCA(2).fit(as_source(pd.DataFrame(np.eye(4)))), "feature_names_in_")


@pytest.mark.parametrize("make", [lambda x: x, pl.from_pandas], ids=["pandas", "polars"])
def test_a_frame_keeps_its_names_through_as_source(make):
    some = WINE.columns[[3, 1, 2]].tolist()
    pca = PrimedPCA(2).fit(as_source(make(WINE), columns=some, map=np.sqrt))
    assert pca.feature_names_in_.tolist() == some
    scores = pca.set_output(transform="polars").transform(as_source(make(WINE[some]), map=np.sqrt))
    assert scores.columns == ["PC1", "PC2"]


# -- scikit-learn ----------------------------------------------------------------------------


def test_a_column_transformer_in_a_pipeline():
    frame, y = load_breast_cancer(return_X_y=True, as_frame=True)
    numbers = frame.columns.tolist()
    frame["ward"] = np.where(frame["mean area"] > 500, "a", "b")
    model = make_pipeline(
        ColumnTransformer(
            [
                ("pca", make_pipeline(StandardScaler(), PrimedPCA(5)), numbers),
                ("ward", OneHotEncoder(sparse_output=False), ["ward"]),
            ]
        ),
        LogisticRegression(max_iter=1000),
    )
    assert cross_val_score(model, frame, y, cv=3).min() > 0.93
    names = model.fit(frame, y)[0].get_feature_names_out().tolist()
    assert names == [f"pca__PC{i}" for i in range(1, 6)] + ["ward__ward_a", "ward__ward_b"]
    out = model[:-1].set_output(transform="pandas").fit_transform(frame)
    assert out.columns.tolist() == names
    assert out.index.equals(frame.index)


def test_scores_keep_the_index_of_their_frame():
    frame = WINE.set_axis([f"bottle {i}" for i in range(len(WINE))])
    scores = PrimedPCA(2).set_output(transform="pandas").fit_transform(frame)
    assert scores.index[3] == "bottle 3"


# -- AnnData ---------------------------------------------------------------------------------


def cells(kind=sp.csr_matrix, n=80, d=30):
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(0.5, 2.0, (n, 4)) @ rng.gamma(0.5, 2.0, (4, d)))
    x = np.log1p(counts.astype("float32"))
    adata = anndata.AnnData(kind(x))
    adata.var_names = [f"gene {j}" for j in range(d)]
    adata.layers["twice"] = kind(2 * x)
    return adata, x.astype(np.float64)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_an_anndata_is_filled_as_scanpy_fills_it(kind, tmp_path):
    adata, x = cells(kind)
    pca = pca_anndata(adata, 4, random_state=0)
    theirs = PCA(4, svd_solver="full").fit(x)
    assert angles(adata.varm["PCs"].T, theirs.components_).max() < 1e-4
    np.testing.assert_allclose(np.abs(adata.obsm["X_pca"]), np.abs(theirs.transform(x)), atol=1e-4)
    about = adata.uns["pca"]
    np.testing.assert_allclose(about["variance"], theirs.explained_variance_, rtol=1e-5)
    np.testing.assert_allclose(about["variance_ratio"], theirs.explained_variance_ratio_, rtol=1e-5)
    assert about["params"] == {
        "zero_center": True,
        "use_highly_variable": False,
        "mask_var": None,
    }
    assert about["angle_bounds"].max() < np.pi / 1024
    assert pca.feature_names_in_[1] == "gene 1"
    adata.write_h5ad(tmp_path / "a.h5ad")
    back = anndata.read_h5ad(tmp_path / "a.h5ad")
    np.testing.assert_array_equal(back.varm["PCs"], adata.varm["PCs"])
    np.testing.assert_array_equal(back.uns["pca"]["variance"], about["variance"])


def test_a_mask_of_columns_that_are_read_by_columns(tmp_path):
    adata, x = cells(sp.csc_matrix)
    adata.write_h5ad(tmp_path / "a.h5ad")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    mask = np.arange(30) % 3 == 1
    pca = pca_anndata(backed, 2, mask_var=mask)
    wanted = np.linalg.svd(x[:, mask] - x[:, mask].mean(0))[1][:2] ** 2 / (len(x) - 1)
    np.testing.assert_allclose(pca.explained_variance_, wanted, rtol=1e-5)
    assert pca.feature_names_in_.tolist() == adata.var_names[mask].tolist()
    backed.file.close()


@pytest.mark.parametrize("backed", [False, True])
@pytest.mark.parametrize("layer", [None, "twice"])
@pytest.mark.parametrize("masked", [False, True])
def test_layers_masks_and_files(backed, layer, masked, tmp_path):
    adata, x = cells()
    if masked:
        adata.var["highly_variable"] = np.arange(30) % 3 == 0
    if backed:
        adata.write_h5ad(tmp_path / "a.h5ad")
        adata = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    pca_anndata(adata, 3, layer=layer, random_state=0)
    used = np.arange(30)[:: 3 if masked else 1]
    theirs = PCA(3, svd_solver="full").fit((x if layer is None else 2 * x)[:, used])
    assert angles(adata.varm["PCs"][used].T, theirs.components_).max() < 1e-4
    assert not np.delete(adata.varm["PCs"], used, axis=0).any()
    np.testing.assert_allclose(adata.uns["pca"]["variance"], theirs.explained_variance_, rtol=1e-5)
    assert adata.uns["pca"]["params"].get("layer") == layer
    assert adata.uns["pca"]["params"]["use_highly_variable"] == masked
    if backed:
        adata.file.close()


def test_a_key_of_ones_own_and_a_mask_given_as_an_array():
    adata, _ = cells()
    mask = np.arange(30) < 10
    pca = pca_anndata(adata, 2, mask_var=mask, key_added="first", certificate="none")
    assert set(adata.obsm) == set(adata.varm) == set(adata.uns) == {"first"}
    assert pca.n_features_in_ == 10
    assert "angle_bounds" not in adata.uns["first"]


def test_what_an_anndata_cannot_do_is_told(tmp_path):
    adata, x = cells(sp.csc_matrix)
    with pytest.raises(TypeError, match=r"`adata` .*ndarray"):
        pca_anndata(x)
    with pytest.raises(ValueError, match=r"`layer`='raw' not found.*'twice'"):
        pca_anndata(adata, layer="raw")
    with pytest.raises(ValueError, match="`mask_var`='hvg' not found"):
        pca_anndata(adata, mask_var="hvg")
    with pytest.raises(ValueError, match="30 bools, got int64"):
        pca_anndata(adata, mask_var=np.arange(5))
    with pytest.raises(ValueError, match="`layer`"):
        pca_anndata(anndata.AnnData(obs=adata.obs), 2)
    adata.write_h5ad(tmp_path / "a.h5ad")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    with pytest.raises(ValueError, match="a view of a backed AnnData"):
        pca_anndata(backed[:40], 2)
    backed.file.close()


# -- xarray ----------------------------------------------------------------------------------


def rain():
    rng = np.random.default_rng(0)
    return xr.DataArray(
        rng.gamma(2.0, 1.0, (3, 40, 4)).astype("float32"),
        dims=("lat", "time", "lon"),
        coords={
            "lat": [10.0, 20.0, 30.0],
            "lon": [1.0, 2.0, 3.0, 4.0],
            "time": pd.date_range("2000-01-01", periods=40),
            "month": ("time", np.arange(40) // 31),
            "height": 2.0,
        },
    )


def test_a_model_of_fields_comes_back_with_coordinates(tmp_path):
    field = rain()
    source = as_source(field, sample="time")
    pca = PrimedPCA(3).fit(source)
    found = to_xarray(pca, field, sample="time")
    xr.testing.assert_identical(found, to_xarray(pca, source))
    assert found.components.dims == ("component", "lat", "lon")
    assert found.component.values.tolist() == [1, 2, 3]
    assert found.components.sel(component=2, lat=20.0, lon=3.0).item() == pca.components_[1, 6]
    assert found.scores.sel(time="2000-01-03").month.item() == 0
    rebuilt = (found.components * found.scores).sum("component") + found.mean_field
    whole = to_xarray(PrimedPCA(12).fit(source), source)
    exact = (whole.components * whole.scores).sum("component") + whole.mean_field
    xr.testing.assert_allclose(exact.transpose(*field.dims), field, atol=1e-4)
    assert set(rebuilt.dims) == set(field.dims)
    assert (found.angle_bound < np.pi / 1024).all()
    found.to_zarr(tmp_path / "pca.zarr", zarr_format=2)
    xr.testing.assert_allclose(xr.open_zarr(tmp_path / "pca.zarr"), found)


def test_features_with_names_of_their_own():
    table = xr.DataArray(
        WINE.to_numpy(), dims=("bottle", "quantity"), coords={"quantity": WINE.columns.tolist()}
    )
    assert PrimedPCA(2).fit(table).feature_names_in_.tolist() == WINE.columns.tolist()
    assert not hasattr(PrimedPCA(2).fit(rain()), "feature_names_in_")


def test_what_cannot_be_turned_into_fields_is_told():
    field = rain()
    pca = PrimedPCA(2).fit(as_source(field, sample="time"))
    with pytest.raises(TypeError, match=r"`field` .*DataFrame"):
        to_xarray(pca, WINE)
    with pytest.raises(ValueError, match=r"`sample`='lat'.*'time'"):
        to_xarray(pca, as_source(field, sample="time"), sample="lat")
    with pytest.raises(ValueError, match="there are 40 samples"):
        as_source(field, sample="time").label(np.ones((3, 2)))
    with pytest.raises(ValueError, match="4 entries"):
        to_xarray(pca, field.isel(lat=[0]), sample="time")


@pytest.mark.parametrize("options", [{}, {"whiten": True}, {"scale": "std"}], ids=str)
def test_a_model_is_exported_to_onnx(options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of their imports
        skl2onnx = pytest.importorskip("skl2onnx")
        from onnx.reference import ReferenceEvaluator
    x = WINE.to_numpy().astype("float32")
    pca = PrimedPCA(3, random_state=0, **options).fit(x)
    onnx = skl2onnx.to_onnx(pca.to_sklearn(), x[:1])
    (scores,) = ReferenceEvaluator(onnx).run(None, {"X": x})
    np.testing.assert_allclose(scores, pca.transform(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_an_anndata_gets_arrays_where_estimators_return_frames(kind):
    X = np.random.default_rng(0).normal(size=(40, 6)) * np.arange(6, 0, -1)
    wanted, found = anndata.AnnData(X), anndata.AnnData(X)
    pca_anndata(wanted, 3)
    scanpy_pca(found.copy(), 3)
    with sklearn.config_context(transform_output=kind):
        pca_anndata(found, 3)
        np.testing.assert_array_equal(found.obsm["X_pca"], wanted.obsm["X_pca"])
        scanpy_pca(found, 3, dtype="float64")
        np.testing.assert_allclose(np.abs(found.obsm["X_pca"]), np.abs(wanted.obsm["X_pca"]))


def test_a_mask_with_labels_goes_by_name():
    X = np.random.default_rng(0).poisson(3.0, (30, 6)) * 1.0
    names = [f"g{j}" for j in range(6)]
    adata = anndata.AnnData(X, var=pd.DataFrame(index=names))
    mask = pd.Series([True, True, False, True, False, False], index=names)
    for pca in (partial(pca_anndata, n_components=2), partial(scanpy_pca, n_comps=2)):
        pca(adata, mask_var=mask[::-1])
        np.testing.assert_array_equal(adata.varm["PCs"].any(axis=1), mask)
        with pytest.raises(ValueError, match="`mask_var` has the label 'G0' for column 1"):
            pca(adata, mask_var=mask.rename(str.upper))
