"""Every picture of `primedpca.plots`, on data that come with scikit-learn.

    python examples/pictures.py --out docs/figures/plots

writes the pictures of docs/plots.md, one small PNG for each function.
"""

import argparse
import io
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from primedpca import PrimedPCA, choose_k, plan, plots, prime
from primedpca.monitoring import limits


def pictures():
    """Yield the name of each picture and its figure."""
    digits, wine = load_digits(), load_wine(as_frame=True)
    pixels = digits.data
    pca = PrimedPCA(16, priming="block_krylov", random_state=0).fit(pixels)
    scores = pca.transform(pixels)
    yield "scree", plots.scree(pca)
    yield "certificate", plots.certificate(pca)
    yield "convergence", plots.convergence(pca)
    run = prime(pixels, "subspace_iteration", 20, max_passes=15, random_state=0)
    yield "streaks", plots.streaks(run, pca.components_)
    yield "scores", plots.scores(scores, labels=digits.target, model=pca)
    yield "component_images", plots.component_images(pca, (8, 8), range(8))

    wines = PrimedPCA(5, scale="std", random_state=0).fit(wine.data)
    kinds = np.array(["cultivar 1", "cultivar 2", "cultivar 3"])[wine.target]
    yield "biplot", plots.biplot(wines, wines.transform(wine.data), labels=kinds)
    yield "correlation_circle", plots.correlation_circle(wines)
    yield "loadings", plots.loadings(wines, component=1, n_largest=8)
    yield "contributions", plots.contributions(wines)
    yield "outliers", plots.outliers(PrimedPCA(3, scale="std").fit(wine.data), wine.data, 0.001)
    yield "choose_k", plots.choose_k(choose_k(wine.data, scale="std", random_state=0))

    cells = load_breast_cancer()
    benign, others = cells.data[cells.target == 1], cells.data[cells.target == 0]
    known, new = benign[:250], np.concatenate([benign[250:], others[:40]])
    model = PrimedPCA(6, scale="std", random_state=0).fit(known)
    yield "monitor", plots.monitor(model, new, known=limits(model, 0.99, known))

    yield "plans", plots.plans(plan(np.broadcast_to(np.float32(1), (20_000, 4_000)), 50))


def write(figure, path):
    """As a PNG of few colours, which is a third as large."""
    kept = io.BytesIO()
    figure.savefig(kept, dpi=90)
    Image.open(kept).convert("RGB").quantize(64).save(path, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("pictures"))
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    with plots.style("white"):
        for name, figure in pictures():
            write(figure, folder / f"{name}.png")
            print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
