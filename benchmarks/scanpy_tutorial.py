"""scanpy's PBMC3k tutorial with its own PCA and under `patch_sklearn`: neighbours and times.

    PRIMEDPCA_DATA=folder python benchmarks/scanpy_tutorial.py [--repeats 3]

The folder holds ``pbmc3k_counts.npz`` and ``pbmc3k_genes.txt``.  Needs scanpy.  The steps are those
of the tutorial, from filtering to the graph of neighbours; nothing differs but the patch.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import anndata
import numpy as np
import scanpy as sc
import scipy.sparse as sp

import primedpca
import primedpca.scanpy


def cells():
    """Return the counts of 2,700 blood cells."""
    folder = Path(os.environ["PRIMEDPCA_DATA"])
    adata = anndata.AnnData(sp.load_npz(folder / "pbmc3k_counts.npz").astype("float32"))
    adata.var_names = (folder / "pbmc3k_genes.txt").read_text().split()
    adata.var_names_make_unique()
    return adata


def prepared(adata):
    """Return the cells filtered, normalised and scaled, as in the tutorial."""
    sc.pp.filter_cells(adata, min_genes=200)
    sc.pp.filter_genes(adata, min_cells=3)
    adata.var["mt"] = adata.var_names.str.startswith("MT-")
    sc.pp.calculate_qc_metrics(adata, qc_vars=["mt"], percent_top=None, log1p=False, inplace=True)
    few = (adata.obs.n_genes_by_counts < 2500) & (adata.obs.pct_counts_mt < 5)
    adata = adata[few, :].copy()
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    sc.pp.highly_variable_genes(adata, min_mean=0.0125, max_mean=3, min_disp=0.5)
    adata = adata[:, adata.var.highly_variable].copy()
    sc.pp.scale(adata, max_value=10)
    return adata


def neighbours(adata, pca):
    """Run PCA and the graph of neighbours; return the cells and the seconds that PCA took."""
    adata = adata.copy()
    begun = time.perf_counter()
    pca(adata, svd_solver="arpack")
    seconds = time.perf_counter() - begun
    sc.pp.neighbors(adata, n_neighbors=10, n_pcs=40)
    return adata, seconds


def edges(adata):
    """Return the set of neighbouring pairs."""
    return set(zip(*adata.obsp["distances"].nonzero(), strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    data = prepared(cells())
    neighbours(data, sc.pp.pca)  # the first graph compiles its code
    spent = {"scanpy": [], "patch_sklearn": [], "primedpca.scanpy": []}
    found = {}
    for _ in range(repeats):
        found["scanpy"], seconds = neighbours(data, sc.pp.pca)
        spent["scanpy"].append(seconds)
        with primedpca.patch_sklearn():
            found["patch_sklearn"], seconds = neighbours(data, sc.pp.pca)
        spent["patch_sklearn"].append(seconds)
        found["primedpca.scanpy"], seconds = neighbours(data, primedpca.scanpy.pca)
        spent["primedpca.scanpy"].append(seconds)
    print(f"{data.n_obs} cells, {data.n_vars} genes, {data.X.dtype}, 50 components")
    print(
        f"{'PCA by':<18} {'seconds':>8} {'same neighbours':>16} {'largest change of a score':>26}"
    )
    reference = edges(found["scanpy"])
    for name, adata in found.items():
        same = len(reference & edges(adata)) / len(reference)
        change = np.abs(adata.obsm["X_pca"] - found["scanpy"].obsm["X_pca"]).max()
        print(f"{name:<18} {min(spent[name]):>8.2f} {same:>16.2%} {change:>26.1e}")
    worst = found["primedpca.scanpy"].uns["pca"]["certificate"]["angle_bounds"].max()
    print(f"proven: every component is within {worst:.1e} rad of the true one")


if __name__ == "__main__":
    main()
