"""Principal components of genotypes, coloured by population, each with its proven angle bound.

python examples/genotypes.py --data-dir FOLDER --out hapmap3.png

reads FOLDER/hapmap3/hapmap3.bed (with .bim and .fam) and FOLDER/hapmap3/populations.txt.
Missing genotypes take the mean of their variant; variants are divided by sqrt(2 p (1 - p)).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from primedpca import PrimedPCA, as_source


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    folder = os.environ.get("PRIMEDPCA_DATA")
    parser.add_argument("--data-dir", type=Path, default=folder, required=folder is None)
    parser.add_argument("--out", type=Path, required=True, help="the picture, such as a.png")
    return parser.parse_args()


def populations(path: Path) -> dict[str, str]:
    """The population of every individual, by its name."""
    header, *lines = [line.split() for line in path.read_text().splitlines()]
    person, population = header.index("IID"), header.index("population")
    return {line[person]: line[population] for line in lines}


def main() -> None:
    args = arguments()
    folder = args.data_dir / "hapmap3"
    source = as_source(folder / "hapmap3.bed", standardise=True)
    model = PrimedPCA(4, random_state=0).fit(source)
    scores = model.transform(source)
    print(f"{source}: {model.certificate_}")
    known = populations(folder / "populations.txt")
    labels = np.array([known.get(name, "unknown") for name in source.row_names])

    figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
    colours = plt.get_cmap("tab20").colors
    for (i, j), ax in zip([(0, 1), (2, 3)], axes, strict=True):
        for colour, label in zip(colours, np.unique(labels), strict=False):
            chosen = labels == label
            ax.scatter(*scores[chosen][:, [i, j]].T, s=7, color=colour, label=label)
        shares = 100 * model.explained_variance_ratio_
        ax.set_xlabel(f"component {i + 1} ({shares[i]:.1f} %)")
        ax.set_ylabel(f"component {j + 1} ({shares[j]:.1f} %)")
        ax.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right", markerscale=2)
    figure.suptitle(f"HapMap3: {source.shape[0]} individuals, {source.shape[1]:,} variants")
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
