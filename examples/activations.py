"""Certified principal components of a ResNet's activations for a folder of images.

python examples/activations.py --images FOLDER --weights FILE --out DIR

compares EigenGame and pPCA during training, refined with all images and with some of them, with
certified components (``priming="auto"``), and writes how much of each component lies in each layer.
The images go through the network again in every pass; ``--cache`` keeps rows in memory.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import resnet

from primedpca._operator.operator import Centred
from primedpca.sources import Activations
from primedpca.sources.wrappers.activations import imagenet
from primedpca_paper.large_scale import draw_figure_4, run_large_scale
from primedpca_paper.large_scale.network import load_weights
from primedpca_paper.large_scale.results import RunFolder
from primedpca_paper.records import write_whole


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=Path, required=True, help="folder, which is only read")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--weights", type=Path, help="checkpoint with torchvision's key names")
    parser.add_argument("--prefix", default="", help="prefix of the keys, such as module.pre.")
    parser.add_argument("--arch", choices=sorted(resnet.DEPTHS), default="resnet50")
    parser.add_argument(
        "--torchvision",
        action="store_true",
        help="torchvision's network, by default with its weights",
    )
    parser.add_argument("--size", type=int, default=224, help="side of the central crop in pixels")
    parser.add_argument("--forward", type=int, default=1, help="images in one forward pass")
    parser.add_argument(
        "--cache", help="size of the rows kept in memory, such as 4GB; default: none"
    )
    parser.add_argument("--max-memory", help="limit for the certified components, such as 4GB")
    parser.add_argument("--device", help="such as cuda:0; default: cpu")
    parser.add_argument("--components", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300, help="steps of EigenGame")
    parser.add_argument("--batch-size", type=int, default=1024, help="rows in a step")
    parser.add_argument("--learning-rate", type=float, help="default: chosen from the data")
    parser.add_argument(
        "--share", type=float, default=0.1, help="fraction of the rows for the cheaper refining"
    )
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", help="name of the data in figures")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


def network(args: argparse.Namespace) -> Any:
    """Return the network with its weights; an untrained one is refused."""
    if args.torchvision:
        from torchvision import models

        model = getattr(models, args.arch)(weights=None if args.weights else "DEFAULT")
    else:
        model = getattr(resnet, args.arch)()
    if args.weights is not None:
        load_weights(model, args.weights, prefix=args.prefix)
    elif not args.torchvision:
        raise ValueError(
            "`--weights` is missing. Name a file, or use torchvision's with `--torchvision`."
        )
    return model


def write_layers(source: Activations, results: RunFolder) -> None:
    """Write the fraction of each certified component's squared length in each block."""
    data = Centred(source)
    # A principal component with scores s is M^T s / |s|^2.
    scores = results.arrays("certified")["scores"]
    found = data.adjoint(data.like.asarray(scores / (scores**2).sum(axis=0)))
    lines = [["block", "features", *(f"component {i + 1}" for i in range(scores.shape[1]))]]
    for name, (columns, shape) in source.block_slices.items():
        squares = [float(part @ part) for part in found[columns].T]
        lines.append([name, str(int(np.prod(shape))), *(f"{value:.5f}" for value in squares)])
    write_whole(results.path / "layers.csv", "".join(",".join(line) + "\n" for line in lines))


def draw(folder: Path) -> None:
    """Draw the curves of training, and layers.csv as a heat map of blocks and components."""
    try:
        import matplotlib
    except ImportError:
        print("Figures need matplotlib: pip install 'primedpca[plots]'.")
        return
    draw_figure_4(folder, folder / "variances")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    lines = [line.split(",") for line in (folder / "layers.csv").read_text().splitlines()[1:]]
    shares = 100 * np.array([[float(cell) for cell in line[2:]] for line in lines])
    figure, axes = plt.subplots(figsize=(4.2, 0.6 + 0.22 * len(lines)), layout="constrained")
    image = axes.imshow(shares, aspect="auto", cmap="viridis", vmin=0)
    axes.set_xticks(range(shares.shape[1]), range(1, shares.shape[1] + 1))
    axes.set_yticks(range(len(lines)), [line[0] for line in lines])
    axes.set_xlabel("component")
    axes.set_ylabel("residual block")
    figure.colorbar(image, label="fraction of its squared length, %")
    for kind in ("png", "pdf"):
        figure.savefig(folder / f"layers.{kind}", dpi=150)


def run(args: argparse.Namespace) -> Path:
    source = Activations(
        network(args),
        args.images,
        transform=partial(imagenet, size=args.size),
        batch=args.forward,
        device=args.device,
        cache=args.cache,
    )
    print(source, flush=True)
    folder = run_large_scale(
        source,
        args.out,
        name=args.name or f"{args.arch} activations, {args.images.name}",
        n_components=args.components,
        steps=args.steps,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate or "auto",
        share=args.share,
        seed=args.seed,
        n_evaluations=args.evaluations,
        device=source.device or "cpu",
        max_memory=args.max_memory,
        resume=args.resume,
        progress=partial(print, flush=True),
    )
    results = RunFolder.of(folder)
    print(results.certified["certificate"])
    if not (folder / "layers.csv").exists():
        write_layers(source, results)
    draw(folder)
    return folder


if __name__ == "__main__":
    try:
        run(arguments())
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
