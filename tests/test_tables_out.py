"""Results that leave: loadings and contributions as frames, scores in files with row names."""

import subprocess
import sys

import anndata
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import xarray as xr
import zarr
from bed_reader import to_bed
from sklearn.datasets import load_wine

from primedpca import PrimedPCA, as_source, load
from primedpca._model.columns import correlations

WINE = load_wine(as_frame=True)
X = WINE.data


@pytest.fixture(scope="module")
def model():
    return PrimedPCA(3, scale="std", random_state=0).fit(X)


# -- frames -----------------------------------------------------------------------------------


def test_loadings_name_features_and_components(model):
    found = model.loadings()
    assert found.columns.tolist() == ["PC1", "PC2", "PC3"]
    assert found.index.tolist() == X.columns.tolist()
    np.testing.assert_array_equal(found.to_numpy(), model.components_.T)


def test_scaled_loadings_of_scaled_columns_are_correlations(model):
    scores = model.transform(X)
    wanted = np.corrcoef(X.to_numpy().T, scores.T)[:13, 13:]
    np.testing.assert_allclose(model.loadings(scaled=True).to_numpy(), wanted, atol=1e-10)


@pytest.mark.parametrize("weights", [[1.0] * 6, [3.0, 1, 1, 2, 5, 1], [0.3] * 6, [10.0] * 6])
def test_scaled_loadings_are_correlations_with_few_and_weighted_rows(weights):
    rows = np.random.default_rng(0).normal(size=(6, 3))
    rows[:, 1] = rows[:, 0] * 2 + 0.01 * rows[:, 1]
    pca = PrimedPCA(2, scale="std", random_state=0).fit(rows, sample_weight=weights)
    both = np.cov(rows.T, pca.transform(rows).T, aweights=weights, ddof=0)
    roots = np.sqrt(np.diag(both))
    wanted = (both / np.outer(roots, roots))[:3, 3:]
    np.testing.assert_allclose(pca.loadings(scaled=True).to_numpy(), wanted, atol=1e-10)
    plain = PrimedPCA(2, random_state=0).fit(rows, sample_weight=weights)
    given = plain.components_.T * np.sqrt(plain.explained_variance_)  # covariances
    np.testing.assert_allclose(plain.loadings(scaled=True).to_numpy(), given)


def test_frames_are_of_the_library_of_the_fit(tmp_path):
    polars = PrimedPCA(2).fit(pl.from_pandas(X))
    assert isinstance(polars.loadings(), pl.DataFrame)
    assert polars.loadings().columns == ["feature", "PC1", "PC2"]
    assert isinstance(polars.contributions(pl.from_pandas(X)), pl.DataFrame)
    assert isinstance(polars.contributions(X), pd.DataFrame)
    arrow = PrimedPCA(2).fit(pa.Table.from_pandas(X))
    assert isinstance(arrow.contributions(), pa.Table)
    plain = PrimedPCA(2).fit(X.to_numpy())
    assert plain.loadings().index.tolist()[:2] == ["x0", "x1"]
    polars.save(tmp_path / "m.safetensors")  # a file does not know the library
    assert isinstance(load(tmp_path / "m.safetensors").loadings(), pd.DataFrame)


def test_without_any_library_of_frames_the_extra_is_named():
    code = (
        "import sys\n"
        "class Guard:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('pandas', 'polars', 'pyarrow'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Guard())\n"
        "import numpy as np\nfrom primedpca import PrimedPCA\n"
        "PrimedPCA(1).fit(np.random.default_rng(0).normal(size=(9, 3))).loadings()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "A data frame needs pandas: pip install 'primedpca[frames]'" in done.stderr


def test_contributions_of_features_are_squared_loadings(model):
    found = model.contributions()
    np.testing.assert_allclose(found.sum(), 100)
    np.testing.assert_allclose(found["PC2"], 100 * model.components_[1] ** 2)


def test_contributions_of_rows_and_cosines_are_those_of_the_definition(model):
    rows = X.set_index(pd.Index([f"wine {i}" for i in range(len(X))]))
    found = model.contributions(rows)
    scaled = (X - X.mean()) / X.std(ddof=0)
    scores = scaled.to_numpy() @ np.linalg.svd(scaled, full_matrices=False)[2][:3].T
    one = found[found.component == "PC2"]
    assert one.row.tolist() == rows.index.tolist()
    np.testing.assert_allclose(
        one.contribution, 100 * scores[:, 1] ** 2 / (scores[:, 1] ** 2).sum()
    )
    np.testing.assert_allclose(one.cos2, scores[:, 1] ** 2 / (scaled**2).sum(axis=1), rtol=1e-8)
    np.testing.assert_allclose(found.groupby("component").contribution.sum(), 100)
    whole = PrimedPCA(None).fit(X).contributions(X)
    np.testing.assert_allclose(whole.groupby("row").cos2.sum(), 1, rtol=1e-9)


def test_a_row_at_the_mean_has_no_direction():
    model = PrimedPCA(2).fit(np.array([[1.0, 0, 0], [-1, 0, 0], [0, 2, 0], [0, -2, 0]]))
    found = model.contributions(np.zeros((1, 3)))
    assert found.cos2.tolist() == [0.0, 0.0]
    assert found.contribution.tolist() == [0.0, 0.0]


def test_a_rotation_that_does_not_exist_is_refused(model):
    with pytest.raises(ValueError, match="`rotation`='oblimin' must be 'varimax' or 'promax'"):
        model.loadings(rotation="oblimin")


# -- files of scores --------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".tsv", ".parquet", ".zarr"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_scores_are_written_in_every_format(model, suffix, order, tmp_path):
    out, rows = tmp_path / f"s{suffix}", np.asarray(X.to_numpy(), order=order)
    names = pd.DataFrame(rows, columns=X.columns, index=[f"w{i}" for i in range(len(rows))])
    found = model.transform(names, out=out)
    wanted = model.transform(X)
    if suffix == ".npy":
        read = np.load(out)
    elif suffix == ".zarr":
        read = found[...]
        assert isinstance(found, zarr.Array)
        assert found.attrs["columns"] == ["PC1", "PC2", "PC3"]
        assert as_source(out).shape == wanted.shape
    else:
        assert found == out
        sep = "\t" if suffix == ".tsv" else ","
        table = (
            pd.read_parquet(out)
            if suffix == ".parquet"
            else pd.read_csv(out, sep=sep, float_precision="round_trip")
        )
        assert table.columns.tolist() == ["name", "PC1", "PC2", "PC3"]
        assert table.name.tolist() == names.index.tolist()
        read = table.drop(columns="name").to_numpy()
    np.testing.assert_array_equal(read, wanted)
    with pytest.raises(FileExistsError, match="already exists"):
        model.transform(X, out=out)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_a_store_that_cannot_be_finished_is_not_left_behind(model, tmp_path):
    bad = X.copy()
    bad.iloc[100, 3] = np.nan
    for suffix in (".zarr", ".csv", ".parquet", ".npy"):
        with pytest.raises(ValueError, match="NaN"):
            model.transform(bad, out=tmp_path / f"s{suffix}")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"`out`='s\.txt' must end in one of \.npy, \.csv"):
        model.transform(X, out="s.txt")


def test_names_of_columns_of_a_table_are_kept(tmp_path):
    table = X.assign(bottle=[f"b{i}" for i in range(len(X))], kind=WINE.target)
    table.to_parquet(tmp_path / "wine.parquet")
    source = as_source(tmp_path / "wine.parquet", id_column="bottle", label_column="kind")
    model = PrimedPCA(2).fit(source)
    read = pd.read_csv(model.transform(source, out=tmp_path / "s.csv"))
    assert read.columns.tolist() == ["bottle", "kind", "PC1", "PC2"]
    assert read.kind.tolist() == WINE.target.tolist()


def test_rows_of_fields_and_dates_are_named(tmp_path):
    days = pd.date_range("2020-01-01", periods=30)
    rain = np.random.default_rng(0).gamma(2.0, size=(30, 4, 5))
    field = xr.DataArray(rain, dims=("day", "lat", "lon"), coords={"day": days})
    model = PrimedPCA(2).fit(field)
    read = pd.read_csv(model.transform(field, out=tmp_path / "s.csv"), parse_dates=["day"])
    assert read.day.tolist() == days.tolist()
    frame = pd.DataFrame(rain.reshape(30, -1), index=days)
    table = pd.read_parquet(PrimedPCA(2).fit(frame).transform(frame, out=tmp_path / "s.parquet"))
    assert pd.to_datetime(table.name).tolist() == days.tolist()


def test_genotypes_keep_the_names_of_individuals(tmp_path):
    rng = np.random.default_rng(0)
    people = {"iid": [f"person {i}".replace(" ", "_") for i in range(20)]}
    to_bed(tmp_path / "g.bed", rng.integers(0, 3, (20, 8)).astype(float), properties=people)
    source = as_source(tmp_path / "g.bed")
    read = pd.read_csv(PrimedPCA(2).fit(source).transform(source, out=tmp_path / "s.csv"))
    assert read.name.tolist() == people["iid"]


# -- .h5ad ------------------------------------------------------------------------------------


def cells(path, kind=sp.csr_matrix):
    rng = np.random.default_rng(0)
    x = rng.poisson(1.5, (60, 20)).astype("float32")
    obs = pd.DataFrame(
        {
            "cluster": pd.Categorical(np.array(["T", "B", "NK"])[np.arange(60) % 3]),
            "depth": x.sum(1),
        },
        index=[f"cell{i}" for i in range(60)],
    )
    var = pd.DataFrame(
        {"highly_variable": np.arange(20) % 2 == 0}, index=[f"g{j}" for j in range(20)]
    )
    anndata.AnnData(kind(x), obs=obs, var=var).write_h5ad(path)
    return x, obs, var


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_matrix, np.asarray])
def test_masks_and_labels_of_h5ad(kind, tmp_path):
    x, obs, var = cells(tmp_path / "a.h5ad", kind)
    source = as_source(tmp_path / "a.h5ad", mask_var="highly_variable", label_column="cluster")
    mask = var.highly_variable.to_numpy()
    assert source.shape == (60, 10)
    assert source.traits.labels().tolist() == obs.cluster.tolist()
    model = PrimedPCA(2, random_state=0).fit(source)
    wanted = np.linalg.svd(x[:, mask] - x[:, mask].mean(0))[1][:2] ** 2 / 59
    np.testing.assert_allclose(model.explained_variance_, wanted, rtol=1e-5)
    assert model.feature_names_in_.tolist() == var.index[mask].tolist()
    read = pd.read_csv(model.transform(source, out=tmp_path / "s.csv"))
    assert read.columns.tolist() == ["name", "cluster", "PC1", "PC2"]
    assert read.name.tolist() == obs.index.tolist()
    assert read.cluster.tolist() == obs.cluster.tolist()
    same = as_source(tmp_path / "a.h5ad", columns=model.feature_names_in_.tolist())
    np.testing.assert_array_equal(model.transform(same), read[["PC1", "PC2"]].astype("float32"))


def test_wrong_masks_and_labels_are_refused(tmp_path):
    path = tmp_path / "a.h5ad"
    cells(path)
    with pytest.raises(ValueError, match=r"no `obs\['kind'\]`.*'cluster'"):
        as_source(path, label_column="kind")
    with pytest.raises(ValueError, match=r"no `var\['hvg'\]`.*'highly_variable'"):
        as_source(path, mask_var="hvg")
    with pytest.raises(ValueError, match="has 0 variables 'g99', not one"):
        as_source(path, columns=["g99"])
    with pytest.raises(ValueError, match="Omit one"):
        as_source(path, columns=["g1"], mask_var="highly_variable")
    adata = anndata.read_h5ad(path)
    adata.var["score"], adata.var["none"] = np.arange(20.0), False
    adata.write_h5ad(path)
    for name in ("score", "none"):
        with pytest.raises(ValueError, match=f"`mask_var`='{name}' must be bools"):
            as_source(path, mask_var=name)


def test_parameters_set_after_a_fit_do_not_change_what_the_model_says(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6)) @ rng.standard_normal((6, 6))
    model = PrimedPCA(3, scale="std", random_state=0).fit(X)
    before = model.loadings(scaled=True)
    model.set_params(scale=None, center=False)
    np.testing.assert_array_equal(model.loadings(scaled=True), before)
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        load(tmp_path / "model.safetensors").loadings(scaled=True), before
    )
    given = PrimedPCA(3, scale=X.std(axis=0) * 3, random_state=0).fit(X)
    before = given.loadings(scaled=True)
    given.set_params(scale="std")
    np.testing.assert_array_equal(given.loadings(scaled=True), before)
    with pytest.raises(ValueError, match="Pass `X`, or fit with `scale`='std'"):
        correlations(given)


@pytest.mark.parametrize("scale", [None, "std"])
def test_a_stream_of_one_row_has_no_loadings_yet(scale):
    model = PrimedPCA(3, scale=scale).partial_fit(np.arange(5.0)[None])
    assert np.asarray(model.loadings(scaled=True)).shape == (5, 0)
    with pytest.raises(ValueError, match="has no components yet"):
        model.loadings(rotation="varimax")
