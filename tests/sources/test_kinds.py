"""The other kinds of data: each equals the answer in memory, stays sparse, and refuses damage."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import zipfile

import anndata
import catalogue
import dask.array
import h5py
import numpy as np
import pandas as pd
import polars
import pytest
import scipy.io
import scipy.sparse as sp
import torch
import xarray as xr
from bed_reader import to_bed

from primedpca import PrimedPCA, as_source, load
from primedpca import plan as make_plan
from primedpca._core.arrays import is_sparse
from primedpca.sources import base, maps
from primedpca.sources.files.common import CompressedFile
from primedpca.sources.memory import iterables as blocks
from primedpca.sources.memory import sparse

RNG = np.random.default_rng


def counts(n=60, d=12, seed=0):
    """Counts, most of them zero, with some structure."""
    rng = RNG(seed)
    rates = rng.gamma(0.3, 2.0, (n, 3)) @ rng.gamma(0.5, 2.0, (3, d))
    return rng.poisson(rates).astype(np.float64)


def reference(X, k=3):
    """Variances and components by LAPACK in float64."""
    centred = X - X.mean(axis=0)
    _, s, vt = np.linalg.svd(centred, full_matrices=False)
    return s[:k] ** 2 / (len(X) - 1), vt[:k]


def agrees(model, X):
    variances, components = reference(X, model.n_components_)
    np.testing.assert_allclose(model.explained_variance_, variances, rtol=1e-5)
    np.testing.assert_allclose(np.abs((model.components_ * components).sum(axis=1)), 1, rtol=1e-5)


def dense_of(source):
    parts = [b.toarray() if is_sparse(b) else np.asarray(b) for _, b in source.scan()]
    return np.concatenate(parts, axis=source.axis)


# -- every kind gives the answer that the array gives -----------------------------------------


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", catalogue.KINDS)
def test_every_kind_gives_the_answer_in_memory(name, tmp_path):
    X = counts()
    given = catalogue.KINDS[name](X, tmp_path)
    model = PrimedPCA(3, random_state=0).fit(given)
    agrees(model, X)
    expected = (X - model.mean_) @ model.components_.T
    np.testing.assert_allclose(np.asarray(model.transform(given)), expected, atol=1e-8)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", [name for name in catalogue.KINDS if "tensors" not in name])
def test_missing_values_of_every_kind(name, tmp_path):
    X = counts() + 1.0  # so that nothing is left unstored
    holes = RNG(1).random(X.shape) < 0.1
    filled = np.where(holes, np.nan, X)
    given = catalogue.KINDS[name](filled, tmp_path)
    count, first = holes.sum(), np.argwhere(holes)[0]
    with pytest.raises(ValueError, match=rf"NaN: {count} non-finite.*first at row") as refused:
        PrimedPCA(3).fit(given)
    if as_source(given).axis == 0:
        assert f"row {first[0]}, column {first[1]}" in str(refused.value)
    assert len(re.findall(r"\(\d+, \d+\)", str(refused.value))) == 4
    means = np.nanmean(filled, axis=0)
    model = PrimedPCA(3, missing="mean", random_state=0).fit(given)
    np.testing.assert_allclose(model.mean_, means)
    agrees(model, np.where(holes, means, X))
    expected = np.where(holes, 0, X - means) @ model.components_.T
    np.testing.assert_allclose(model.transform(given), expected, atol=1e-8)


def test_the_places_named_are_those_of_the_bad_entries():
    X = np.ones((30, 4))
    X[[3, 9, 20], [1, 0, 3]] = np.nan
    for given in (X, sp.csr_array(X), sp.csc_array(X), np.asfortranarray(X)):
        with pytest.raises(ValueError, match="3 non-finite") as refused:
            PrimedPCA(2).fit(given)
        text = str(refused.value)
        first = re.search(r"row (\d+), column (\d+)", text).groups()
        found = [first, *re.findall(r"\((\d+), (\d+)\)", text)]
        assert sorted((int(a), int(b)) for a, b in found) == [(3, 1), (9, 0), (20, 3)]
        assert "and so on" not in text


@pytest.mark.parametrize("name", ["npz, csr", "h5ad, csc", "blocks, sparse", "mapped, csr"])
def test_the_plan_counts_what_is_stored(name, tmp_path):
    """Not the zeros: 400 MB of them, in a budget of 100 MB."""
    X = sp.random_array((5_000, 10_000), density=1e-4, rng=RNG(0), format="csr")
    builders = {
        "npz, csr": lambda: sp.save_npz(tmp_path / "a.npz", X, compressed=False),
        "h5ad, csc": lambda: anndata.AnnData(sp.csc_array(X)).write_h5ad(tmp_path / "a.h5ad"),
    }
    if name in builders:
        builders[name]()
        given = tmp_path / ("a.npz" if "npz" in name else "a.h5ad")
    else:
        given = catalogue.Blocks(X) if "blocks" in name else as_source(X, map=maps.log1p)
    found = make_plan(given, 2, max_memory="100MB")
    assert min(way.memory for way in found.ways) < 1e8


# -- sparse files -----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz"])
@pytest.mark.parametrize("kind", ["coo", "dense"])
def test_matrix_market(kind, suffix, tmp_path):
    X = counts()
    path = tmp_path / f"ünder a dash{suffix}"
    with (gzip.open if suffix.endswith("gz") else open)(path, "wb") as file:
        scipy.io.mmwrite(file, sp.coo_array(X) if kind == "coo" else X)
    source = as_source(path)
    assert is_sparse(source.read(0)) == (kind == "coo")
    np.testing.assert_array_equal(dense_of(source), X)
    agrees(PrimedPCA(3).fit(str(path)), X)


def test_a_symmetric_matrix_market_file_is_whole(tmp_path):
    X = counts(12, 12)
    X = X + X.T
    scipy.io.mmwrite(tmp_path / "a.mtx", sp.coo_array(X), symmetry="symmetric")
    np.testing.assert_array_equal(dense_of(as_source(tmp_path / "a.mtx")), X)


LYING = {
    "rows": ("60 12 ", "999999999999 12 "),
    "columns": ("60 12 ", "60 999999999999 "),
    "entries": (r"60 12 (\d+)", "60 12 99999999999"),
    "fewer rows": ("60 12 ", "5 12 "),
    "no header": ("%%MatrixMarket", "%%Market"),
    "letters": (r"60 12 \d+\n", "60 twelve 3\n"),
    "an index outside": (r"\n\d+ (\d+ \S+\n)$", r"\n61 \1"),
    "complex": ("real", "complex"),
}


@pytest.mark.parametrize("name", LYING)
def test_a_matrix_market_file_that_lies_is_refused(name, tmp_path):
    path = tmp_path / "a.mtx"
    scipy.io.mmwrite(path, sp.coo_array(counts()))
    text = path.read_text().replace("integer", "real")
    changed = re.sub(*LYING[name], text, count=1)
    assert changed != text
    path.write_text(changed)
    with pytest.raises(ValueError, match=re.escape(str(path))):
        as_source(path)


def write_npz(path, **changes):
    """A sparse .npz with some members replaced."""
    X = sp.csr_array(counts())
    members = {
        "format": np.array(b"csr"),
        "shape": np.array(X.shape),
        "data": X.data,
        "indices": X.indices,
        "indptr": X.indptr,
    }
    members |= changes
    np.savez(path, **{name: part for name, part in members.items() if part is not None})
    return path


X0 = sp.csr_array(counts())
BROKEN = {
    "index too large": ({"indices": np.where(X0.indices == 3, 99, X0.indices)}, "index 99"),
    "index negative": ({"indices": np.where(X0.indices == 3, -1, X0.indices)}, "index -1"),
    "indptr falls": ({"indptr": np.r_[X0.indptr[:5], 0, X0.indptr[6:]]}, "ascend"),
    "indptr too long": ({"indptr": np.r_[X0.indptr, X0.indptr[-1]]}, "indptr"),
    "indptr beyond": ({"indptr": np.r_[X0.indptr[:-1], 10**9]}, "1000000000"),
    "no indices": ({"indices": None}, "indices"),
    "no indptr": ({"indptr": None}, "indptr"),
    "floats as indices": ({"indices": X0.indices.astype(float)}, "not integers|indices"),
    "objects": ({"data": X0.data.astype(object)}, "objects"),
    "text": ({"data": X0.data.astype("U3")}, "dtype str.*real numbers"),
    "unknown format": ({"format": np.array(b"xyz")}, "'xyz'"),
    "shape of three": ({"shape": np.array([2, 3, 4])}, r"shape is \(2, 3, 4\)"),
    "shape too large": ({"shape": np.array([10**12, 12])}, "indptr"),
    "shape too narrow": ({"shape": np.array([60, 5])}, "index"),
}


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "deflated"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_sparse_npz_is_refused_by_name(name, stored, tmp_path):
    changes, message = BROKEN[name]
    path = write_npz(tmp_path / "a b.npz", **changes)
    if not stored:
        with zipfile.ZipFile(path) as old:
            held = {info: old.read(info) for info in old.namelist()}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
            for member, content in held.items():
                new.writestr(member, content)
    with pytest.raises((ValueError, TypeError), match=message) as refused:
        dense_of(as_source(path))
    assert "a b.npz" in str(refused.value)


def test_a_flipped_byte_in_a_sparse_npz_is_caught(tmp_path):
    path = write_npz(tmp_path / "a.npz")
    raw = bytearray(path.read_bytes())
    place = raw.index(X0.data.tobytes()) + 40
    raw[place] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"a\.npz.*CRC"):
        as_source(path)


def test_a_sparse_npz_truncated_after_it_was_opened(tmp_path):
    path = write_npz(tmp_path / "a.npz")
    source = as_source(path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(OSError, match=r"a\.npz was truncated"):
        dense_of(source)


def test_duplicate_entries_in_a_file_add_up(tmp_path):
    X = sp.csr_array((np.ones(4), np.array([2, 2, 0, 1]), np.array([0, 3, 4])), shape=(2, 3))
    sp.save_npz(tmp_path / "a.npz", X, compressed=False)
    np.testing.assert_array_equal(dense_of(as_source(tmp_path / "a.npz")), X.toarray())


# -- AnnData ----------------------------------------------------------------------------------


def test_names_of_an_h5ad_file_are_those_of_the_model(tmp_path):
    path = catalogue.h5ad_file(sp.csr_array(counts()), tmp_path / "a.h5ad")
    model = PrimedPCA(2).fit(path)
    assert model.feature_names_in_.tolist() == [f"gene {j}" for j in range(12)]
    assert as_source(path).row_names[:2].tolist() == ["cell 0", "cell 1"]
    model.save(tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").transform(path).shape == (60, 2)
    turned = anndata.read_h5ad(path)[:, ::-1].copy()
    with pytest.raises(ValueError, match=r"'gene 11' as column 0.*'gene 0'"):
        model.transform(turned)


def test_another_matrix_of_an_h5ad_file(tmp_path):
    held = catalogue.annotated(counts())
    held.layers["counts"] = sp.csr_array(counts(seed=1))
    held.write_h5ad(tmp_path / "a.h5ad")
    agrees(PrimedPCA(3).fit(f"{tmp_path / 'a.h5ad'}::layers/counts"), counts(seed=1))
    with pytest.raises(ValueError, match="has no `layers/x`; it has X, layers/counts"):
        as_source(f"{tmp_path / 'a.h5ad'}::layers/x")


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("obs", "a table of labels"),
        ("obs/kind", "a column of labels"),
        ("obs/size", "a column"),
        ("obsm/table", "a table of labels"),
        ("layers", "a group"),
        ("uns/word", "a single value"),
        ("uns/cube", "an array of 3 dimensions"),
    ],
)
def test_parts_of_an_h5ad_file_that_are_not_matrices(part, kind, tmp_path):
    held = catalogue.annotated(counts())
    held.obs["kind"] = pd.Categorical(["p", "q"] * (held.n_obs // 2))
    held.obs["size"] = np.arange(1.0 * held.n_obs)
    held.obsm["table"] = pd.DataFrame({"u": np.arange(1.0 * held.n_obs)}, index=held.obs_names)
    held.layers["counts"] = sp.csr_array(counts(seed=1))
    held.uns |= {"word": "hello", "cube": np.zeros((2, 2, 2))}
    held.write_h5ad(tmp_path / "a.h5ad")
    words = f"a.h5ad::{part} is {kind}, not a matrix. Name one of its matrices: X, layers/counts.$"
    with pytest.raises(ValueError, match=words):
        as_source(f"{tmp_path / 'a.h5ad'}::{part}")


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")  # of anndata
@pytest.mark.parametrize("store", ["v2", "v3", "h5"])
def test_anndata_in_other_stores_is_read_by_its_x_or_refused(store, tmp_path):
    def written(held, name):
        path = tmp_path / f"{name}.{'h5' if store == 'h5' else 'zarr'}"
        if store == "h5":
            held.write_h5ad(path)
        else:
            with anndata.settings.override(zarr_write_format=int(store[1])):
                held.write_zarr(path)
        return path

    x = counts()
    embedded = {"X_pca": counts(d=2)}
    obs = pd.DataFrame({"kind": pd.Categorical(["p", "q"] * (len(x) // 2))})
    obs.index = obs.index.astype(str)
    path = written(anndata.AnnData(sp.csr_array(x), obs, obsm=embedded), "sparse")
    for part in ("", "::X"):
        with pytest.raises(ValueError, match=r"'X' is a sparse matrix.*\.h5ad"):
            as_source(f"{path}{part}")
    for part, kind in (("obs", "a table of labels"), ("obs/kind", "a column of labels")):
        with pytest.raises(ValueError, match=f"'{part}' is {kind}, not a matrix.*X, obsm/X_pca"):
            as_source(f"{path}::{part}")
    np.testing.assert_array_equal(dense_of(as_source(f"{path}::obsm/X_pca")), counts(d=2))
    with pytest.raises(ValueError, match="'obsm/none'"):
        as_source(f"{path}::obsm/none")
    path = written(anndata.AnnData(x, obs, obsm=embedded), "dense")
    np.testing.assert_array_equal(dense_of(as_source(path)), x)
    path = written(anndata.AnnData(None, obs, obsm=embedded), "without")
    with pytest.raises(
        ValueError, match=r"AnnData without X; add '::name' for one of /?obsm/X_pca"
    ):
        as_source(path)


def test_names_of_other_matrices_of_an_h5ad_file(tmp_path):
    held = anndata.AnnData(counts(), layers={"counts": counts()})
    held.obsm["X_umap"], held.obsm["X_wide"] = counts(d=2), counts(d=12, seed=2)
    held.varm["PCs"], held.raw = np.ones((12, 3)), held.copy()
    held = held[:, :5].copy()
    held.write_h5ad(path := tmp_path / "a.h5ad")
    for part, rows, columns in (
        ("X", "obs", [*held.var_names]),
        ("layers/counts", "obs", [*held.var_names]),
        ("raw/X", "obs", [*held.raw.var_names]),
        ("obsm/X_umap", "obs", None),
        ("/obsm//X_wide", "obs", None),
        ("varm/PCs", "var", None),
    ):
        source = as_source(f"{path}::{part}")
        names = None if source.feature_names is None else source.feature_names.tolist()
        assert names == columns, part
        assert source.row_names.tolist() == [*getattr(held, f"{rows}_names")], part
        model = PrimedPCA(1).fit(source)
        assert hasattr(model, "feature_names_in_") == (columns is not None)
    with pytest.raises(ValueError, match="`obsm/X_umap` has no variables to choose"):
        as_source(f"{path}::obsm/X_umap", columns=["0", "1"])


@pytest.mark.parametrize("where", ["file", "backed", "memory"])
def test_nullable_columns_of_anndata(where, tmp_path):
    held = anndata.AnnData(counts(4, 3))
    held.obs["whole"] = pd.array([1, 2, 3, 4], dtype="Int64")
    held.obs["gaps"] = pd.array([1, None, 3, 4], dtype="Int64")
    held.var["mask"] = pd.array([True, False, True], dtype="boolean")
    held.var["unsure"] = pd.array([True, None, True], dtype="boolean")
    held.var["text"] = ["a", "b", "c"]
    held.var["category"] = pd.Categorical([True, False, True])
    held.var["open"] = pd.Categorical([True, None, True])
    held.write_h5ad(path := tmp_path / "a.h5ad")
    given = {"file": path, "memory": held}.get(where) or anndata.read_h5ad(path, backed="r")
    found = as_source(given, label_column="whole", mask_var="mask")
    assert found.labels.tolist() == [1, 2, 3, 4]
    assert found.traits.headings == ("name", "whole")
    np.testing.assert_array_equal(dense_of(found), counts(4, 3)[:, [0, 2]])
    assert found.feature_names.tolist() == ["0", "2"]
    found = as_source(given, mask_var="category")
    np.testing.assert_array_equal(dense_of(found), counts(4, 3)[:, [0, 2]])
    with pytest.raises(ValueError, match="`mask_var`='open' has 1 missing value; replace"):
        as_source(given, mask_var="open")
    with pytest.raises(ValueError, match="no `var\\['none'\\]`; columns of `var`: '") as told:
        as_source(given, mask_var="none")
    assert "damaged" not in str(told.value)
    assert as_source(given, label_column="gaps").labels.tolist() == [1, None, 3, 4]
    with pytest.raises(ValueError, match="`mask_var`='unsure' has 1 missing value; replace"):
        as_source(given, mask_var="unsure")
    with pytest.raises(ValueError, match="`mask_var`='text' must be bools"):
        as_source(given, mask_var="text")
    with pytest.raises(ValueError, match="columns of `obs`: "):
        as_source(given, label_column="none")
    for option in ("label_column", "mask_var"):
        with pytest.raises(TypeError, match=rf"`{option}`=\['gaps'\] must be the name of one col"):
            as_source(given, **{option: ["gaps"]})


def test_a_view_of_a_backed_anndata_is_refused(tmp_path):
    path = catalogue.h5ad_file(sp.csr_array(counts()), tmp_path / "a.h5ad")
    with pytest.raises(ValueError, match="to_memory"):
        as_source(anndata.read_h5ad(path, backed="r")[:10])


def test_an_h5ad_file_is_read_in_blocks(tmp_path, monkeypatch):
    """A column-compressed file by columns, with no block that holds more than its share."""
    monkeypatch.setattr(sparse, "BLOCK_ENTRIES", 50)
    monkeypatch.setattr(sparse, "OUTPUT_RATIO", 0)
    for kind, axis in ((sp.csr_array, 0), (sp.csc_array, 1)):
        path = catalogue.h5ad_file(kind(counts()), tmp_path / f"{axis}.h5ad")
        source = as_source(path)
        assert isinstance(source, CompressedFile)
        assert source.axis == axis
        assert len(source.blocks) > 3
        assert max(block.nnz for _, block in source.scan()) < X0.nnz / 2


def change_h5(path, change):
    with h5py.File(path, "r+") as file:
        change(file)


def replaced(name, values):
    def change(file):
        attributes = dict(file["X"].attrs)
        del file[f"X/{name}"]
        file[f"X/{name}"] = values
        file["X"].attrs.update(attributes)

    return change


def promised(name, length):
    """A dataset that is said to be long, and of which nothing is stored."""

    def change(file):
        kind = file[f"X/{name}"].dtype
        del file[f"X/{name}"]
        file["X"].create_dataset(name, (length,), kind, chunks=(1000,))

    return change


BROKEN_H5 = {
    "index too large": (replaced("indices", np.where(X0.indices == 3, 99, X0.indices)), "index 99"),
    "indptr falls": (replaced("indptr", np.r_[X0.indptr[:5], 0, X0.indptr[6:]]), "ascend"),
    "indptr beyond": (replaced("indptr", np.r_[X0.indptr[:-1], 10**9]), "1000000000"),
    "data of two dimensions": (replaced("data", np.ones((3, 3))), "2 dimensions"),
    "nothing stored": (promised("data", 10**12), "0 bytes are stored"),
    "indptr of nothing": (promised("indptr", 10**12), "0 bytes are stored"),
    "no indptr": (lambda file: file.pop("X/indptr"), "damaged"),
    "shape": (lambda file: file["X"].attrs.update(shape=[10**12, 12]), "indptr"),
    "no shape": (lambda file: file["X"].attrs.pop("shape"), "does not say its shape"),
    "format": (lambda file: file["X"].attrs.update({"encoding-type": "dia"}), "'dia'"),
}


@pytest.mark.parametrize("name", BROKEN_H5)
def test_a_broken_h5ad_file_is_refused_by_name(name, tmp_path):
    change, message = BROKEN_H5[name]
    path = catalogue.h5ad_file(X0, tmp_path / "a.h5ad")
    change_h5(path, change)
    with pytest.raises(ValueError, match=message) as refused:
        dense_of(as_source(path))
    assert "a.h5ad" in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    for name in ("a.h5ad", "a.mtx", "a.bed"):
        with pytest.raises(FileNotFoundError, match="a\\."):
            as_source(tmp_path / name)


# -- genotypes --------------------------------------------------------------------------------


def genotypes(n=37, d=21):
    X = RNG(3).binomial(2, RNG(2).uniform(0.1, 0.9, d), (n, d)).astype(np.float64)
    X[RNG(4).random((n, d)) < 0.05] = np.nan
    X[:, 5] = 2.0  # all alike
    return X


def bed_file(folder, X=None):
    path = folder / "people.bed"
    to_bed(path, genotypes() if X is None else X)
    return path


def decoded(path, n, d):
    """Two bits a genotype, lowest first: what the format's description says."""
    raw = np.frombuffer(path.read_bytes()[3:], "u1").reshape(d, -1)
    codes = (raw[:, :, None] >> np.array([0, 2, 4, 6])) & 3
    return np.array([2, np.nan, 1, 0])[codes.reshape(d, -1)[:, :n].T]


@pytest.mark.usefixtures("small_blocks")
def test_genotypes_are_those_in_the_file(tmp_path):
    path = bed_file(tmp_path)
    source = as_source(path)
    assert len(source.blocks) > 1
    np.testing.assert_array_equal(dense_of(source), decoded(path, 37, 21))
    np.testing.assert_array_equal(dense_of(source), genotypes())
    index = np.array([30, 2, 7])
    np.testing.assert_array_equal(source.rows(index), genotypes()[index])
    assert source.sample(0.5, 0).traits.missing == "mean"


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("standardise", [False, True])
def test_missing_genotypes_take_the_mean_of_their_variant(standardise, tmp_path):
    X = genotypes()
    source = as_source(bed_file(tmp_path), standardise=standardise)
    model = PrimedPCA(3, random_state=0).fit(source)
    means = np.nanmean(X, axis=0)
    p = means / 2
    scale = np.where(p < 1, np.sqrt(2 * p * (1 - p)), 1.0) if standardise else np.ones(21)
    M = np.where(np.isnan(X), 0, X - means) / scale
    agrees(model, M)
    # New individuals are seen with the frequencies of those fitted.
    (tmp_path / "new").mkdir()
    fresh = bed_file(tmp_path / "new", X[:9])
    expected = M[:9] @ model.components_.T
    for given in (fresh, as_source(fresh, standardise=True)):
        np.testing.assert_allclose(model.transform(given), expected, atol=1e-5)


def test_missing_genotypes_can_be_refused(tmp_path):
    with pytest.raises(ValueError, match="contains NaN"):
        PrimedPCA(2).fit(as_source(bed_file(tmp_path), missing="error"))


def test_a_variant_that_nobody_has_is_to_be_removed(tmp_path):
    X = genotypes()
    X[:, 3] = np.nan
    with pytest.raises(ValueError, match=r"first: column 3 \(.*Remove them from the data\.$"):
        PrimedPCA(2).fit(bed_file(tmp_path, X))


def test_streams_of_genotypes_need_what_is_known_of_all(tmp_path):
    with pytest.raises(ValueError, match="means of all rows"):
        PrimedPCA(2).partial_fit(bed_file(tmp_path))
    scaled = as_source(bed_file(tmp_path, np.eye(9, 5)), missing="error", standardise=True)
    with pytest.raises(ValueError, match="scale of its own"):
        PrimedPCA(2).partial_fit(scaled)


def test_names_of_genotypes(tmp_path):
    path = tmp_path / "a.bed"
    to_bed(path, genotypes()[:3, :2].copy(), {"iid": ["a", "b", "c"], "sid": ["rs1", "rs2"]})
    source = as_source(path)
    assert source.row_names.tolist() == ["a", "b", "c"]
    assert PrimedPCA(1).fit(path).feature_names_in_.tolist() == ["rs1", "rs2"]


def test_genotypes_that_count_other_alleles_are_refused(tmp_path):
    counts, path = genotypes(), tmp_path / "new.bed"
    d = counts.shape[1]
    for name, first in (("old", ["A"] * d), ("new", ["G", *["A"] * (d - 1)])):
        to_bed(tmp_path / f"{name}.bed", counts, {"allele_1": first, "allele_2": ["T"] * d})
    model = PrimedPCA(2, random_state=0).fit(tmp_path / "old.bed")
    scores = model.transform(tmp_path / "old.bed")
    model.save(tmp_path / "model.safetensors")
    for one in (model, load(tmp_path / "model.safetensors")):
        with pytest.raises(ValueError, match=r"first alleles .*\(plink --a1-allele\)"):
            one.transform(path)
    # The other allele does not matter: PLINK writes 0 where nobody has it.
    to_bed(path, counts, {"allele_1": ["a"] * d, "allele_2": ["0"] * d})
    np.testing.assert_array_equal(model.transform(path), scores)


BROKEN_BED = {
    "truncated": (lambda raw: raw[:-2], "211 bytes.*take 213"),
    "grown": (lambda raw: raw + b"x", "214 bytes.*take 213"),
    "other magic": (lambda raw: b"xx" + raw[2:], "not a PLINK"),
    "by individuals": (lambda raw: raw[:2] + b"\0" + raw[3:], "make-bed"),
    "empty": (lambda raw: b"", "not a PLINK"),
}


@pytest.mark.parametrize("name", BROKEN_BED)
def test_a_broken_bed_file_is_refused_by_name(name, tmp_path):
    change, message = BROKEN_BED[name]
    path = bed_file(tmp_path)
    source = as_source(path)
    path.write_bytes(change(path.read_bytes()))
    for attempt in (lambda: as_source(path), lambda: source.read(0)):
        with pytest.raises(ValueError, match=message) as refused:
            attempt()
        assert "people.bed" in str(refused.value)


def test_the_other_two_files_must_be_there_and_fit(tmp_path):
    path = bed_file(tmp_path)
    with open(path.with_suffix(".fam"), "a") as file:
        file.write("x y 0 0 0 0\n" * 8)
    with pytest.raises(ValueError, match="45 individuals"):
        as_source(path)
    path.with_suffix(".fam").unlink()
    with pytest.raises(FileNotFoundError, match=r"people\.fam"):
        as_source(path)


# -- datasets, fields, blocks -----------------------------------------------------------------


def test_pictures_of_a_dataset_are_flattened():
    class Pictures(torch.utils.data.Dataset):
        def __len__(self):
            return 60

        def __getitem__(self, i):
            return torch.tensor(counts()[i].reshape(3, 2, 2))

    agrees(PrimedPCA(3).fit(Pictures()), counts())
    agrees(PrimedPCA(3).fit(torch.utils.data.DataLoader(Pictures(), batch_size=7)), counts())


def test_what_changes_from_reading_to_reading_is_refused():
    class Noisy(catalogue.Rows):
        def __getitem__(self, i):
            return torch.rand(12)

    class Shuffled:
        def __iter__(self):
            return iter([counts()[RNG().permutation(60)]])

    class Shrinking:
        def __init__(self):
            self.left = 5

        def __iter__(self):
            self.left -= 1
            return iter([counts(20, 12)] * self.left)

    loader = torch.utils.data.DataLoader
    rows = catalogue.Rows(counts())
    refused = {
        "row 0 differs": Noisy(counts()),
        "loader that shuffles": loader(rows, batch_size=4, shuffle=True),
        "drop_last=False": loader(rows, batch_size=7, drop_last=True),
        "other rows in block 0": Shuffled(),
        "yields": Shrinking(),
    }
    for message, given in refused.items():
        with pytest.raises(ValueError, match=message):
            PrimedPCA(3).fit(given)


class Several:
    def __init__(self, *given):
        self.given = given

    def __iter__(self):
        return iter(self.given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Several(), "yields no blocks"),
        (Several(np.ones(3)), r"shape \(3,\) as block 0"),
        (Several(np.ones((2, 3)), np.ones((2, 4))), "4 columns of float64 after one of 3"),
        (
            Several(np.ones((2, 3)), np.ones((2, 3), "f4")),
            "float32 after one of 3 columns of float64",
        ),
        (
            Several(np.ones((2, 3)), sp.csr_array(np.ones((2, 3)))),
            "float64 in sparse storage after one of 3 columns of float64; all must be alike",
        ),
        (Several("text"), "a str as block 0"),
        (Several(np.ma.masked_equal(np.eye(3), 1)), "masked array, whose masked entries would be"),
        ((block for block in [np.ones((2, 3))]), "only once.*partial_fit"),
        (iter([np.ones((2, 3))]), "only once"),
    ],
)
def test_blocks_that_cannot_be_read_are_refused(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        as_source(given)


def test_blocks_are_iterated_over_once_a_pass(monkeypatch):
    """Although blocks are worked on by several threads."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2**9)
    starts = []

    class Counted(catalogue.Blocks):
        def __iter__(self):
            starts.append(1)
            return super().__iter__()

    source = as_source(Counted(counts(600)))
    assert len(source.blocks) > 50
    model = PrimedPCA(3, random_state=0).fit(source)
    # The scan that counts, one to look at the first block for each arithmetic, one a guess.
    assert len(starts) <= model.n_passes_ + 8
    starts.clear()
    source.sample(0.5, 0).rows(np.arange(5))
    assert len(starts) == 1
    for i in range(20):
        source.read(i)
    assert len(starts) == 2


def test_a_block_may_come_in_the_room_of_the_last_one(monkeypatch):
    class Reused:
        def __iter__(self):
            room = np.empty((10, 12))
            for a in range(0, 60, 10):
                room[...] = counts()[a : a + 10]
                yield room

    for size in (2**9, 2**12, 2**22):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", size)
        agrees(PrimedPCA(3, random_state=0).fit(Reused()), counts())


def test_components_of_fields_go_back_to_their_coordinates():
    lat, lon = [10.0, 20.0, 30.0], [1.0, 2.0, 3.0, 4.0]
    field = xr.DataArray(
        counts().reshape(60, 3, 4).transpose(1, 0, 2),
        dims=("lat", "time", "lon"),
        coords={"lat": lat, "lon": lon, "time": np.arange(60), "height": 2.0},
    )
    source = as_source(field, sample="time")
    model = PrimedPCA(2).fit(source)
    agrees(model, counts())
    maps_ = source.unstack(model.components_)
    assert maps_.dims == ("component", "lat", "lon")
    assert maps_.sel(lat=20.0, lon=3.0, component=1).item() == model.components_[1, 1 * 4 + 2]
    assert float(maps_.height) == 2.0
    assert source.unstack(model.mean_).sel(lat=30.0, lon=4.0).item() == model.mean_[-1]
    assert source.row_names[5] == 5
    with pytest.raises(ValueError, match="12 entries"):
        source.unstack(np.ones((2, 5)))
    with pytest.raises(ValueError, match="`sample`='depth'"):
        as_source(field, sample="depth")
    with pytest.raises(TypeError, match=r"pick one of its arrays \(rain\)"):
        as_source(field.to_dataset(name="rain"))


# -- maps -------------------------------------------------------------------------------------


def by_hand(X):
    totals = X.sum(axis=1, keepdims=True)
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    million = 1e6 * X / np.where(totals == 0, 1, totals)
    return {
        "log1p": np.log1p(X),
        "sqrt": np.sqrt(X),
        "counts_per_million": million,
        "log_cpm": np.log1p(million),
        "log_cp10k": np.log1p(million / 100),
        "normalise_rows": X / np.where(lengths == 0, 1, lengths),
    }


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["float64", "float32", "int16", "uint8", "int64"])
@pytest.mark.parametrize("given", ["numpy", "wide", "csr", "csc", "torch", "h5ad, csc", "npz, csr"])
@pytest.mark.parametrize("name", sorted(by_hand(counts())))
def test_ready_maps(name, given, kind, tmp_path):
    X = np.vstack([counts(20), np.zeros((1, 12))])
    X = np.ascontiguousarray(X.T if given == "wide" else X).astype(kind)
    x = X if given == "wide" else (catalogue.SOURCES | catalogue.KINDS)[given](X, tmp_path)
    source = as_source(x, map=getattr(maps, name))
    wide = kind in ("float64", "int64")
    expected = by_hand(X.astype(np.float64))[name]
    np.testing.assert_allclose(dense_of(source), expected, rtol=1e-12 if wide else 1e-5)
    assert str(source.dtype).endswith("float64" if wide else "float32")
    assert all(is_sparse(block) == ("cs" in given) for _, block in source.scan())
    index = np.array([8, 0, 3])
    rows = source.rows(index)
    rows = rows.toarray() if is_sparse(rows) else np.asarray(rows)
    np.testing.assert_allclose(rows, expected[index], rtol=1e-12 if wide else 1e-5)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("given", ["numpy", "csr", "csc", "h5ad, csr", "torch"])
def test_a_map_of_ones_own(given, tmp_path):
    X = counts()

    def root_of_half(rows):
        if is_sparse(rows):
            return (rows[:, :6] / 2).sqrt()
        return (rows[:, :6] / 2) ** 0.5

    source = as_source((catalogue.SOURCES | catalogue.KINDS)[given](X, tmp_path), map=root_of_half)
    assert source.shape == (60, 6)
    agrees(PrimedPCA(3, random_state=0).fit(source), np.sqrt(X[:, :6] / 2))


CHOSEN = [f"g{j}" for j in (1, 4, 5, 9)]


def cells(X, kind, folder):
    """Counts with a mask of the chosen genes, as AnnData in memory or in a file."""
    names = [f"g{j}" for j in range(12)]
    var = pd.DataFrame({"hv": np.isin(names, CHOSEN)}, index=names)
    made = {"dense": np.array, "csr": sp.csr_matrix, "csc": sp.csc_matrix}[kind.split()[0]]
    x = anndata.AnnData(made(X), var=var)
    if "file" not in kind:
        return x
    x.write_h5ad(folder / "cells.h5ad")
    return folder / "cells.h5ad"


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_raw_counts_of_anndata_are_read(kind, tmp_path):
    X = counts()
    x = cells(X, kind, tmp_path)
    x.raw = x.copy()
    source = as_source(x.raw, map=maps.log_cp10k, mask_var="hv")
    expected = by_hand(X)["log_cp10k"][:, [1, 4, 5, 9]]
    np.testing.assert_allclose(dense_of(source), expected, rtol=1e-12)
    assert list(source.feature_names) == CHOSEN
    agrees(PrimedPCA(2, random_state=0).fit(x.raw), X)
    with pytest.raises(ValueError, match=r"without obs\. Pass X\.to_adata\(\)"):
        as_source(x.raw, label_column="kind")


WITH_TOTALS = ["counts_per_million", "log_cpm", "log_cp10k", "normalise_rows"]


@pytest.mark.parametrize("name", WITH_TOTALS)
@pytest.mark.parametrize("kind", ["dense", "csr", "csc", "dense file", "csr file", "csc file"])
def test_totals_are_those_of_all_genes(name, kind, tmp_path):
    X = counts()
    x, function = cells(X, kind, tmp_path), getattr(maps, name)
    expected = by_hand(X)[name][:, [1, 4, 5, 9]]
    source = as_source(x, map=function, mask_var="hv")
    np.testing.assert_allclose(dense_of(source), expected, rtol=1e-12)
    if "file" in kind:
        np.testing.assert_array_equal(
            dense_of(as_source(x, map=function, columns=CHOSEN)), dense_of(source)
        )
    pca = PrimedPCA(2, random_state=0).fit(source)
    agrees(pca, expected)
    assert pca.map_ == f"{name} of 12 columns"
    pca.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    np.testing.assert_allclose(again.transform(source), pca.transform(source), atol=1e-12)
    frame = pd.DataFrame(X[:, [1, 4, 5, 9]], columns=CHOSEN)
    alone = as_source(frame, map=function)
    with pytest.raises(ValueError, match="The totals must be those of the same columns"):
        again.transform(alone)


TABLES_OF_COUNTS = {
    "pandas": lambda frame, folder: frame,
    "polars": lambda frame, folder: polars.from_pandas(frame),
    "csv": lambda frame, folder: frame.to_csv(folder / "t.csv", index=False) or folder / "t.csv",
    "parquet": lambda frame, folder: frame.to_parquet(folder / "t.pq") or folder / "t.pq",
}


@pytest.mark.parametrize("kind", TABLES_OF_COUNTS)
@pytest.mark.parametrize("rows", [60, 5])
def test_totals_of_tables_leave_out_what_is_not_data(kind, rows, tmp_path):
    X = counts()[:rows]
    frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(12)])
    frame["cell"], frame["depth"] = [f"c{i}" for i in range(rows)], X.sum(axis=1)
    x = TABLES_OF_COUNTS[kind](frame, tmp_path)
    options = {"id_column": "cell", "exclude": "depth", "map": maps.log_cp10k}
    expected = by_hand(X)["log_cp10k"]
    some = as_source(x, columns=["g5", "g1"], **options)
    np.testing.assert_allclose(dense_of(some), expected[:, [5, 1]], rtol=1e-12)
    assert list(some.feature_names) == ["g5", "g1"]
    assert some.traits.map_name == "log_cp10k of 12 columns"
    np.testing.assert_allclose(dense_of(as_source(x, **options)), expected, rtol=1e-12)
    first = as_source(as_source(x, columns=["g5", "g1"]), map=maps.log_cp10k)
    np.testing.assert_allclose(dense_of(first), by_hand(X[:, [5, 1]])["log_cp10k"], rtol=1e-12)
    with pytest.raises(ValueError, match="is both in `columns` and in `exclude`"):
        as_source(x, columns=["g5", "depth"], **options)
    with pytest.raises(ValueError, match=r"'cell'.*`exclude`"):  # text is never left out silently
        as_source(x, columns=["g5"], map=maps.log_cp10k)


def writes(rows):
    rows *= 2
    return rows


class Growing:
    """More columns for more rows than were tried."""

    def __call__(self, rows):
        return rows if len(rows) <= 8 else np.hstack([rows, rows])


MAPS = {
    "fewer rows": (lambda rows: rows[1:], "turned 8 rows into shape"),
    "one dimension": (lambda rows: rows[:, 0], "turned 8 rows into shape"),
    "nothing": (lambda rows: None, "turned 8 rows into NoneType"),
    "by column": (lambda rows: rows - rows.mean(axis=0), "mixes rows"),
    "random": (lambda rows: rows + RNG().random(rows.shape), "different values for the same rows"),
    "writes": (writes, "writes to the rows"),
    "text": (lambda rows: rows.astype("U3"), "dtype str.*real numbers"),
    "growing": (Growing(), "24 columns of float64 after 12"),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_map_that_is_none_is_refused(name):
    function, message = MAPS[name]
    with pytest.raises((ValueError, TypeError), match=message):
        PrimedPCA(2).fit(as_source(counts(), map=function))


class Views(base.BlockSource):
    """A source of a user's own whose blocks are views of the data."""

    def __init__(self, x):
        self.x, self.shape, self.dtype = x, x.shape, x.dtype
        self.blocks = base.cut_evenly(x.shape[0], 30)

    def read(self, i):
        return self.x[slice(*self.blocks[i])]


OWNED = {
    "torch": torch.tensor,
    "torch, by columns": lambda X: torch.tensor(X.T.copy()).T,
    "TensorDataset": lambda X: torch.utils.data.TensorDataset(torch.tensor(X)),
    "numpy": np.copy,
    "csr": sp.csr_array,
    "views": lambda X: Views(X.copy()),
    "views, csr": lambda X: Views(sp.csr_array(X)),
}


def halves_large(rows):
    values = rows.data if is_sparse(rows) else rows
    values[values > 5] *= 0.5
    return rows


@pytest.mark.parametrize("kind", OWNED)
def test_a_map_that_writes_leaves_the_data_as_they_are(kind):
    X = counts()
    X[40:, 3] += 100  # the rows that are tried have nothing to write
    X[:8] = np.minimum(X[:8], 5)
    x = OWNED[kind](X)
    if kind in ("torch", "torch, by columns", "TensorDataset"):  # nobody can lock a tensor
        found = PrimedPCA(3, random_state=0).fit(as_source(x, map=halves_large))
        agrees(found, np.where(X > 5, X / 2, X))
    else:
        with pytest.raises(ValueError, match="writes to the rows"):
            PrimedPCA(3, random_state=0).fit(as_source(x, map=halves_large))
    np.testing.assert_array_equal(dense_of(as_source(x)), X)
    x = x.x if isinstance(x, Views) else x
    if not isinstance(x, (torch.Tensor, torch.utils.data.TensorDataset)):
        assert (x.data if is_sparse(x) else x).flags.writeable


def test_a_map_may_replace_the_values_of_sparse_rows():
    def rooted(rows):
        rows.data = np.sqrt(rows.data)
        return rows

    X = sp.csr_array(counts())
    agrees(PrimedPCA(3, random_state=0).fit(as_source(X, map=rooted)), np.sqrt(counts()))
    np.testing.assert_array_equal(X.toarray(), counts())


MASKED = {
    "dask": lambda M: dask.array.from_array(M, chunks=(20, 12)),
    "list": list,
    "blocks": lambda M: [M[:30], M[30:]],
    "torch dataset": catalogue.Flow,
    "views": Views,
}


@pytest.mark.parametrize("kind", MASKED)
def test_masked_entries_are_not_read(kind):
    M = np.ma.masked_greater(np.where(counts() > 6, 1e20, counts()), 1e10)
    assert M.mask.any()
    for missing in ("error", "mean"):
        with pytest.raises(TypeError, match="a masked array, whose masked entries would be read"):
            PrimedPCA(2, missing=missing).fit(MASKED[kind](M))


def test_maps_keep_sparse_rows_sparse(tmp_path):
    with pytest.raises(ValueError, match="made sparse rows dense"):
        as_source(X0, map=lambda rows: rows.toarray() + 1)
    with pytest.raises(TypeError, match="must be a function"):
        as_source(X0, map="log1p")
    path = catalogue.h5ad_file(sp.csc_array(X0), tmp_path / "a.h5ad")
    with pytest.raises(ValueError, match="needs whole rows, but H5adSparse"):
        as_source(path, map=np.sqrt)


def test_a_map_does_not_undo_a_scale(tmp_path):
    with pytest.raises(ValueError, match=r"`map`.*scale"):
        as_source(bed_file(tmp_path), standardise=True, map=maps.sqrt)


def test_an_option_that_a_kind_does_not_have_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"`standardise` for numpy.ndarray.*none"):
        as_source(counts(), standardise=True)
    with pytest.raises(TypeError, match=r"`shrink` for .*missing, standardise"):
        as_source(bed_file(tmp_path), shrink=2)


# -- damage and memory, in processes of their own ---------------------------------------------

READ = """
import sys, numpy as np
from primedpca import PrimedPCA
for path in sys.argv[1:]:
    try:
        print("fine", PrimedPCA(2).fit(path).explained_variance_[0])
    except (ValueError, TypeError, OSError) as error:
        assert path.rpartition("/")[2].partition(".")[0] in str(error), (path, error)
        print("refused", str(error)[:90].replace(chr(10), " "))
with open("/proc/self/status") as status:  # getrusage would count the parent's memory, too
    peak = next(line for line in status if line.startswith("VmHWM"))
print("peak", int(peak.split()[1]) // 1024)
"""


def child(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def damaged(path, folder):
    """Copies of a file cut short, and with single bytes of its first part changed."""
    raw, rng = path.read_bytes(), RNG(0)
    for number in range(40):
        changed = bytearray(raw)
        if number < 8:
            changed = changed[: len(raw) * number // 8]
        else:
            place = int(rng.integers(0, min(len(raw), 4000)))
            changed[place] ^= int(rng.integers(1, 256))
        copy = folder / f"copy{number}{''.join(path.suffixes)}"
        copy.write_bytes(changed)
        for other in (".fam", ".bim"):
            if path.suffix == ".bed":
                copy.with_suffix(other).write_bytes(path.with_suffix(other).read_bytes())
        yield copy


@pytest.mark.integration
@pytest.mark.parametrize(
    "kind", ["a.h5ad", "dense.h5ad", "a.npz", "z.npz", "a.mtx", "a.mtx.gz", "people.bed"]
)
def test_damage_is_named_and_kills_nobody(kind, tmp_path):
    path = tmp_path / kind
    if kind.endswith(".h5ad"):
        catalogue.h5ad_file(counts() if kind == "dense.h5ad" else X0, path)
    elif kind.endswith(".npz"):
        sp.save_npz(path, X0, compressed=kind == "z.npz")
    elif kind.endswith(".bed"):
        bed_file(tmp_path)
    else:
        with (gzip.open if kind.endswith("gz") else open)(path, "wb") as file:
            scipy.io.mmwrite(file, X0)
    (tmp_path / "copies").mkdir()
    *lines, peak = child(READ, *damaged(path, tmp_path / "copies"))
    assert len(lines) == 40
    assert sum(line.startswith("refused") for line in lines) >= 7  # all that were cut short
    assert int(peak.split()[1]) < 700


@pytest.mark.parametrize("kind", ["h5ad", "npz"])
def test_nothing_is_densified(kind, tmp_path):
    """8,000 x 40,000 would be 1.3 GB dense; the file has 6 MB."""
    rng = RNG(0)
    n, d, each = 8_000, 40_000, 100
    indices = np.sort(rng.integers(0, d // each, (n, each)) + np.arange(each) * (d // each), axis=1)
    X = sp.csr_array(
        (rng.random(n * each, np.float32), indices.ravel(), np.arange(0, n * each + 1, each)),
        shape=(n, d),
    )
    path = tmp_path / f"a.{kind}"
    if kind == "npz":
        sp.save_npz(path, X, compressed=False)
    else:
        anndata.AnnData(X).write_h5ad(path)
    code = """
import sys
import scipy.sparse, scipy.linalg, sklearn.utils
from primedpca import PrimedPCA
from primedpca.sources import as_source, maps
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
before = peak()
PrimedPCA(2, tol=0.5, max_passes=6, certificate="none").fit(as_source(sys.argv[1], map=maps.log1p))
print((peak() - before) // 1024)
"""
    (grown,) = child(code, path)
    assert int(grown) < 400


def test_extras_are_named(tmp_path):
    path = bed_file(tmp_path)
    catalogue.h5ad_file(X0, tmp_path / "a.h5ad")
    code = """
import sys
class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ("h5py", "bed_reader"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Guard())
from primedpca import as_source
for path in sys.argv[1:]:
    try:
        as_source(path).read(0)
    except ImportError as error:
        print(error)
"""
    lines = child(code, path, tmp_path / "a.h5ad")
    assert len(lines) == 2
    assert all("primedpca[disk]" in line for line in lines)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("megabytes", [1, 3, 5, 9, 20])
def test_arrays_of_two_megabytes_are_cut_into_an_even_number_of_blocks(megabytes, dtype):
    n = megabytes * 2**20 // (50 * np.dtype(dtype).itemsize)
    for shape in ((n, 50), (50, n)):
        source = as_source(np.broadcast_to(np.zeros(1, dtype), shape))
        sizes = [stop - start for start, stop in source.blocks]
        assert sum(sizes) == n
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) * 50 * np.dtype(dtype).itemsize <= 2**22
        assert len(sizes) == 1 if megabytes == 1 else len(sizes) % 2 == 0


def test_integers_of_128_bits_are_not_rounded():
    pl = pytest.importorskip("polars")
    if not hasattr(pl, "Int128"):
        pytest.skip("polars has no Int128")
    rows = {"b": np.random.default_rng(0).normal(size=20)}
    far = [2**70 + i for i in range(20)]
    with pytest.raises(ValueError, match="column 'a' holds 1180591620717411303425"):
        PrimedPCA(1).fit(pl.DataFrame({"a": pl.Series(far, dtype=pl.Int128), **rows}))
    with pytest.raises(ValueError, match="column 'a'"):
        PrimedPCA(1).fit(pl.DataFrame({"a": pl.Series(far, dtype=pl.Int128)}))
    alone = pl.DataFrame({"a": pl.Series([*range(19), None], dtype=pl.Int128)})
    np.testing.assert_array_equal(dense_of(as_source(alone))[:, 0], [*range(19), np.nan])
    near = pl.DataFrame({"a": pl.Series(range(20), dtype=pl.Int128), **rows})
    assert PrimedPCA(1).fit(near).explained_variance_[0] == pytest.approx(35, rel=0.01)


def test_sparse_frames_with_another_fill_value():
    pd = pytest.importorskip("pandas")
    rows = np.random.default_rng(0).normal(size=(30, 4))
    wanted = PrimedPCA(2).fit(rows).explained_variance_
    for fill in (np.nan, 1.0, 0.0):
        frame = pd.DataFrame(rows, columns=list("abcd")).astype(pd.SparseDtype("float", fill))
        np.testing.assert_allclose(PrimedPCA(2).fit(frame).explained_variance_, wanted)


@pytest.mark.parametrize(
    "rest", ["\t\n1\t2\n3\t4\n", "1\t2\n\t\n3\t4\n", "1\t2\n3\t4\n\t\n", "1\t2\n3\t4\n\t"]
)
@pytest.mark.parametrize("comment", [None, "#"])
def test_a_row_of_empty_fields_between_tabs_is_a_row(tmp_path, rest, comment):
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\n" + rest)
    wanted = pd.read_csv(path, sep="\t").to_numpy()
    source = as_source(path, comment=comment)
    found = np.concatenate([block for _, block in source.scan()])
    np.testing.assert_array_equal(found, wanted)


def test_another_scale_does_not_replace_that_of_genotypes(tmp_path):
    source = as_source(bed_file(tmp_path), standardise=True)
    with pytest.raises(ValueError, match="`scale`='std' would replace the scale that Genotypes"):
        PrimedPCA(2, scale="std").fit(source)
