"""Run the large-scale experiments, or one run on data of your own.

``python -m primedpca_paper.large_scale figures --data-dir DATA --out OUT [--quick]``
``python -m primedpca_paper.large_scale run DATA --out OUT --name NAME [--device cuda]``

DATA is a folder of images, a video, or a ``.npy`` file of shape (n, d) or (n, h, w, channels).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from primedpca.sources import as_source
from primedpca.sources.files.images import ImageFolder
from primedpca.sources.files.video import SUFFIXES, VideoFrames
from primedpca_paper.large_scale import TARGETS, reproduce_large_scale, run_large_scale

__all__ = ["main"]


def main(words: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    args = _parser().parse_args(words)
    clock = time.perf_counter()

    def progress(sentence: str) -> None:
        print(f"{time.perf_counter() - clock:7.1f} s  {sentence}", flush=True)

    try:
        if args.command == "figures":
            options = {name: getattr(args, name) for name in ("quick", "device", "resume")}
            targets = args.target or list(TARGETS)
            reproduce_large_scale(targets, args.data_dir, args.out, **options, progress=progress)
        else:
            _run(args, progress)
    except (OSError, ValueError, TypeError, ArithmeticError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _run(args: argparse.Namespace, progress: Any) -> None:
    rate = args.learning_rate
    run_large_scale(
        _source(args.data, args.shrink, args.cache),
        args.out,
        name=args.name or Path(args.data).name,
        n_components=args.n_components,
        steps=args.steps,
        batch_size=args.batch_size,
        learning_rate=rate if rate == "auto" else float(rate),
        share=args.share,
        seed=args.seed,
        device=args.device,
        max_memory=args.max_memory,
        resume=args.resume,
        progress=progress,
    )


def _source(path: str, shrink: int, cache: str) -> Any:
    if path.endswith(".npy"):
        held = np.load(path, mmap_mode="r")
        source: Any = as_source(held.reshape(held.shape[0], -1))
        if held.ndim == 4:
            source.image_shape = held.shape[1:]
        return source
    return (VideoFrames if path.lower().endswith(SUFFIXES) else ImageFolder)(
        path, shrink=shrink, cache=cache
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m primedpca_paper.large_scale")
    commands = parser.add_subparsers(dest="command", required=True)
    figures = commands.add_parser("figures", help="the paper's figures from the stand-in data")
    figures.add_argument("--target", action="append", choices=list(TARGETS))
    figures.add_argument("--data-dir", required=True)
    figures.add_argument("--quick", action="store_true")
    run = commands.add_parser("run", help="one run on data of your own")
    run.add_argument("data", help="a folder of images, a video, or a .npy file")
    run.add_argument("--name", help="name of the data in figures")
    run.add_argument("--shrink", type=int, default=1)
    run.add_argument("--cache", default="2GB")
    run.add_argument("--n-components", type=int, default=8)
    run.add_argument("--steps", type=int, default=300)
    run.add_argument("--batch-size", type=int, default=1024)
    run.add_argument("--learning-rate", default="auto")
    run.add_argument("--share", type=float, default=0.1)
    run.add_argument("--seed", type=int, nargs="+", default=[0])
    run.add_argument("--max-memory")
    for command in (figures, run):
        command.add_argument("--out", required=True)
        command.add_argument("--device", default="cpu")
        command.add_argument("--resume", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
