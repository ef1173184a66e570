"""Principal components of single-cell counts, coloured by marker genes.

python examples/single_cell.py --data-dir FOLDER --out pbmc3k.png

reads FOLDER/pbmc3k_counts.npz (cells by genes, SciPy sparse) and FOLDER/pbmc3k_genes.txt.  The
counts become log(1 + counts per million) as they are read; they stay sparse and on disk they
stay as they are.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from primedpca import PrimedPCA, as_source
from primedpca.sources import maps

#: A gene that tells a kind of cell.
MARKERS = {
    "CD3D": "T cells",
    "MS4A1": "B cells",
    "LYZ": "monocytes",
    "NKG7": "NK, cytotoxic T",
    "PPBP": "platelets",
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    folder = os.environ.get("PRIMEDPCA_DATA")
    parser.add_argument("--data-dir", type=Path, default=folder, required=folder is None)
    parser.add_argument("--out", type=Path, required=True, help="the picture, such as a.png")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    source = as_source(args.data_dir / "pbmc3k_counts.npz", map=maps.log_cpm)
    model = PrimedPCA(4, random_state=0).fit(source)
    scores = model.transform(source)
    print(f"{source}: {model.certificate_}")
    genes = (args.data_dir / "pbmc3k_genes.txt").read_text().split()
    cells = maps.log_cpm(sp.csr_array(sp.load_npz(args.data_dir / "pbmc3k_counts.npz")))

    figure, axes = plt.subplots(2, 5, figsize=(13, 5.4), layout="constrained")
    shares = 100 * model.explained_variance_ratio_
    for row, (i, j) in enumerate([(0, 1), (1, 2)]):
        for ax, (gene, what) in zip(axes[row], MARKERS.items(), strict=True):
            level = cells[:, [genes.index(gene)]].toarray()[:, 0]
            order = np.argsort(level)  # the cells that have the gene on top
            ax.scatter(*scores[order][:, [i, j]].T, c=level[order], s=2, cmap="viridis_r")
            ax.set_title(f"{gene} ({what})" if row == 0 else "", fontsize=10)
            ax.set_xlabel(f"component {i + 1} ({shares[i]:.1f} %)")
            ax.set_ylabel(f"component {j + 1} ({shares[j]:.1f} %)" if gene == "CD3D" else "")
            ax.set(xticks=[], yticks=[])
            ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"PBMC3k: {source.shape[0]:,} cells, {source.shape[1]:,} genes, log(1 + counts per million)"
    )
    figure.savefig(args.out, dpi=75)


if __name__ == "__main__":
    main()
