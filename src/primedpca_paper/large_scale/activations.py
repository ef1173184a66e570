"""Activations of a network on CIFAR-10's images: many more rows than components.

The paper runs a trained ResNet-152 on ImageNet, of which neither is at hand.  Here a residual
network with random weights, drawn from a seed, gives rows of the same kind: outputs of all residual
blocks, computed whenever they are read and never stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from primedpca_paper.datasets import load_set
from primedpca_paper.large_scale.runs import run_large_scale

__all__ = ["FULL", "QUICK", "Network", "run_activations"]


@dataclass(frozen=True)
class Network:
    """Size of the network and of the run.

    Attributes
    ----------
    blocks, width : int
        Number of residual blocks, and channels of each; a row has
        ``blocks * width * 32 * 32`` numbers.
    images : int
        Number of images.
    steps, batch_size : int
        Of EigenGame.
    share : float
        Fraction of the rows for the cheaper refining.
    seeds : tuple of int
        Seeds of the training runs.
    evaluations : int
        Number of evaluations of each; every one takes a pass over all images.
    """

    blocks: int
    width: int
    images: int
    steps: int
    batch_size: int
    share: float
    seeds: tuple[int, ...]
    evaluations: int


#: All training images, d = 1,048,576; steps, batch and share of the paper.
FULL = Network(16, 64, 50_000, 600, 1024, 0.1, (0, 1, 2), 16)
QUICK = Network(2, 4, 128, 20, 32, 0.5, (0,), 20)


def run_activations(
    data_dir: Path,
    folder: Path,
    quick: bool,
    device: str = "cpu",
    resume: bool = False,
    progress: Callable[[str], None] = lambda words: None,
) -> Path:
    """Certify the components of the activations, and train EigenGame on them.

    Parameters
    ----------
    data_dir : Path
        Folder with CIFAR-10.
    folder : Path
        Results folder.
    quick : bool
        Use few images and a small network.
    device : str, default="cpu"
        Device of the network, on which the rows are computed.
    resume : bool, default=False
        Continue in a folder that holds results.
    progress : callable, optional
        Function that is called with a sentence on each step of the work.
    """
    from primedpca.sources import Activations

    size = QUICK if quick else FULL
    images = load_set("cifar10", data_dir).X[: size.images].reshape(-1, 3, 32, 32)
    rows = Activations(
        residual_network(size.blocks, size.width),
        np.ascontiguousarray(images) - np.float32(0.5),
        transform=None,
        batch=64,
        device=None if device == "cpu" else device,
    )
    return run_large_scale(
        rows,
        folder,
        name=f"Activations, random network of {size.blocks} blocks on CIFAR-10",
        steps=size.steps,
        batch_size=size.batch_size,
        share=size.share,
        seed=size.seeds,
        n_evaluations=size.evaluations,
        device=device,
        resume=resume,
        progress=progress,
    )


def residual_network(blocks: int, width: int, seed: int = 0) -> Any:
    """Return a residual network with random weights, the same for the same seed."""
    import torch
    from torch import nn

    class BasicBlock(nn.Module):  # type: ignore[misc]
        """Two convolutions beside the identity."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

        def forward(self, x: Any) -> Any:
            """Return ``relu(x + second(relu(first(x))))``."""
            return torch.relu(x + self.second(torch.relu(self.first(x))))

    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        stem = nn.Conv2d(3, width, 3, padding=1)
        return nn.Sequential(stem, *(BasicBlock() for _ in range(blocks))).eval()
