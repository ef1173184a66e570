"""`primedpca.scanpy.pca` against `scanpy.pp.pca`, where scanpy is installed, and on its own."""

import inspect
import warnings

import anndata
import numpy as np
import pytest
import scipy.sparse as sp

import primedpca.scanpy

RNG = np.random.default_rng(0)
COUNTS = (RNG.poisson(2.0, (120, 70)) * RNG.gamma(1.0, size=70)).astype("float32")


def cells(x=COUNTS, masked=False):
    adata = anndata.AnnData(x.copy())
    if masked:
        adata.var["highly_variable"] = np.arange(70) % 3 > 0
    return adata


def scanpy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its imports
        return pytest.importorskip("scanpy")


def same(one, other, scores=1e-4):
    for name, tolerance in (("variance", 1e-5), ("variance_ratio", 1e-5)):
        np.testing.assert_allclose(one.uns["pca"][name], other.uns["pca"][name], rtol=tolerance)
    assert one.uns["pca"]["params"] == other.uns["pca"]["params"]
    assert one.obsm["X_pca"].dtype == other.obsm["X_pca"].dtype == np.float32
    size = np.abs(other.obsm["X_pca"]).max()
    np.testing.assert_allclose(one.obsm["X_pca"], other.obsm["X_pca"], atol=scores * size)
    assert one.varm["PCs"].dtype == other.varm["PCs"].dtype
    np.testing.assert_allclose(one.varm["PCs"], other.varm["PCs"], atol=10 * scores)


def test_the_signature_is_scanpys():
    ours = inspect.signature(primedpca.scanpy.pca).parameters
    theirs = inspect.signature(scanpy().pp.pca).parameters
    assert list(ours) == list(theirs)
    for name in ours.keys() - {"mask_var"}:  # theirs is a private token, ours the word "auto"
        assert ours[name].default == theirs[name].default, name
        assert ours[name].kind == theirs[name].kind, name


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix, sp.csc_matrix, sp.csr_array])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_comps": 5},
        {"n_comps": 5, "svd_solver": "covariance_eigh"},
        {"n_comps": 4, "zero_center": False, "svd_solver": "arpack"},
        {"n_comps": 5, "mask_var": None},
    ],
)
def test_results_are_those_of_scanpy(container, options):
    one, other = cells(container(COUNTS), masked=True), cells(container(COUNTS), masked=True)
    assert primedpca.scanpy.pca(one, **options) is None
    scanpy().pp.pca(other, **options)
    same(one, other)
    proof = one.uns["pca"]["certificate"]
    assert proof["angle_bounds"].max() < 1e-3
    assert set(other.uns["pca"]) == set(one.uns["pca"]) - {"certificate"}


@pytest.mark.parametrize("shape", [(20, 70), (120, 9), (50, 50), (51, 60)])
def test_the_default_number_of_components(shape):
    one, other = (cells(COUNTS[: shape[0], : shape[1]]) for _ in range(2))
    primedpca.scanpy.pca(one)
    scanpy().pp.pca(other)
    assert (
        one.obsm["X_pca"].shape == other.obsm["X_pca"].shape == (shape[0], min(50, min(shape) - 1))
    )


def test_layers_keys_copies_and_arrays():
    adata = cells()
    adata.layers["log"] = np.log1p(COUNTS)
    changed = primedpca.scanpy.pca(adata, 3, layer="log", key_added="first", copy=True)
    assert "first" not in adata.obsm
    assert changed.uns["first"]["params"]["layer"] == "log"
    scores, parts, ratio, variance = primedpca.scanpy.pca(np.log1p(COUNTS), 3, return_info=True)
    np.testing.assert_array_equal(changed.obsm["first"], scores)
    np.testing.assert_array_equal(changed.varm["first"], parts.T)
    np.testing.assert_array_equal(changed.uns["first"]["variance_ratio"], ratio)
    np.testing.assert_array_equal(changed.uns["first"]["variance"], variance)
    mask = np.arange(70) < 30
    few = primedpca.scanpy.pca(sp.csr_matrix(COUNTS), 3, mask_var=mask, dtype="float64")
    assert few.dtype == np.float64
    np.testing.assert_allclose(few, primedpca.scanpy.pca(COUNTS[:, mask], 3), atol=1e-4)


def test_backed_and_chunked_cells_are_read_by_blocks(tmp_path):
    cells().write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    whole = cells()
    primedpca.scanpy.pca(whole, 4)
    for options in ({}, {"chunked": True, "chunk_size": 30}):
        primedpca.scanpy.pca(backed, 4, **options)
        size = np.abs(whole.obsm["X_pca"]).max()
        np.testing.assert_allclose(backed.obsm["X_pca"], whole.obsm["X_pca"], atol=0.01 * size)
        assert backed.uns["pca"]["certificate"]["angle_bounds"].max() < np.pi / 1024
    backed.file.close()


def test_results_survive_a_file(tmp_path):
    adata = cells(masked=True)
    primedpca.scanpy.pca(adata, 4)
    adata.write_h5ad(tmp_path / "out.h5ad")
    again = anndata.read_h5ad(tmp_path / "out.h5ad").uns["pca"]["certificate"]
    np.testing.assert_array_equal(
        again["angle_bounds"], adata.uns["pca"]["certificate"]["angle_bounds"]
    )
    assert again["kind"] == adata.uns["pca"]["certificate"]["kind"]


def test_a_seed_gives_the_same_bits_and_zero_is_the_default():
    one = primedpca.scanpy.pca(COUNTS, 3, svd_solver="randomized")
    np.testing.assert_array_equal(one, primedpca.scanpy.pca(COUNTS, 3, svd_solver="randomized"))
    state = primedpca.scanpy.pca(COUNTS, 3, random_state=np.random.RandomState(0))
    np.testing.assert_allclose(one, state, atol=1e-2)


def test_words_of_invalid_arguments():
    with pytest.warns(FutureWarning, match="`use_highly_variable` is deprecated"):
        primedpca.scanpy.pca(cells(masked=True), 3, use_highly_variable=True)
    with (
        pytest.warns(FutureWarning, match="deprecated"),
        pytest.raises(ValueError, match="incompatible"),
    ):
        primedpca.scanpy.pca(cells(masked=True), 3, use_highly_variable=True, mask_var=None)
    with pytest.warns(UserWarning, match="Ignoring svd_solver='lobpcg' and using 'arpack'"):
        primedpca.scanpy.pca(COUNTS, 3, svd_solver="lobpcg")
    with pytest.raises(ValueError, match="`layer`='log' needs an AnnData"):
        primedpca.scanpy.pca(COUNTS, 3, layer="log")
    with pytest.raises(ValueError, match="`mask_var` must be 70 bools"):
        primedpca.scanpy.pca(COUNTS, 3, mask_var=np.arange(70))


@pytest.mark.parametrize("where", ["backed", "dask"])
def test_variances_without_centring_are_those_of_the_scores_wherever_the_data_are(tmp_path, where):
    here, there = cells(COUNTS + 3), cells(COUNTS + 3)
    if where == "backed":
        there.write_h5ad(tmp_path / "a.h5ad")
        there = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    else:
        dask = pytest.importorskip("dask.array")
        there = anndata.AnnData(dask.from_array(COUNTS + 3, chunks=(40, 70)))
    for adata in (here, there):
        primedpca.scanpy.pca(adata, n_comps=4, zero_center=False)
        found = adata.uns["pca"]
        scores = adata.obsm["X_pca"].astype("f8")
        np.testing.assert_allclose(found["variance"], scores.var(axis=0), rtol=1e-4)
        whole = (COUNTS + 3).astype("f8").var(axis=0).sum()
        np.testing.assert_allclose(found["variance_ratio"], scores.var(axis=0) / whole, rtol=1e-4)
        assert "variance_bounds" not in found["certificate"]  # they would be of second moments
