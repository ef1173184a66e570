"""Figures 4 and 5, the lobster figure and the activations of a network: run and draw them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primedpca.sources.files.images import ImageFolder
from primedpca.sources.files.video import VideoFrames
from primedpca_paper.large_scale.activations import run_activations
from primedpca_paper.large_scale.pictures import draw_figure_4, draw_figure_5, draw_lobsters
from primedpca_paper.large_scale.runs import run_large_scale

__all__ = ["FULL", "QUICK", "TARGETS", "Case", "reproduce_large_scale"]

#: Targets and the functions that draw them.
TARGETS = {
    "figure-4": draw_figure_4,
    "figure-5": draw_figure_5,
    "lobsters": draw_lobsters,
    "activations": draw_figure_4,
}


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes
    ----------
    name : str
        Name of its results folder.
    title : str
        Name of the data in figures.
    data : str
        Folder or file in the data folder.
    shrink : int
        Factor by which both sides of the images are divided.
    learning_rate : float or "auto", default="auto"
        Learning rate of EigenGame.
    batch_size : int, default=1024
        Rows in a mini-batch.
    share : float, default=0.1
        Fraction of the rows for the cheaper refining.
    steps : int, default=300
        Number of steps of EigenGame.
    seeds : tuple of int, default=(0,)
        Seeds of the training runs.
    on_device : bool, default=False
        Whether EigenGame is trained on an accelerator only; the components are always certified.
    """

    name: str
    title: str
    data: str
    shrink: int
    learning_rate: float | str = "auto"
    batch_size: int = 1024
    share: float = 0.1
    steps: int = 300
    seeds: tuple[int, ...] = (0,)
    on_device: bool = False

    def source(self, folder: Path) -> Any:
        """Open the data, or raise an error that names the missing file."""
        path = folder / self.data
        if not path.exists():
            what = "the folder of retinal photographs" if self.data == "retina" else "the video"
            raise FileNotFoundError(f"File not found: {path}. It must be {what}.")
        kind = ImageFolder if self.data == "retina" else VideoFrames
        return kind(path, shrink=self.shrink, cache="2GB")


#: A learning rate is 0.3 over the largest variance, which grows with the number of pixels.
FULL: tuple[Case, ...] = (
    Case("retina-quarter", "Retina photographs, quarter size", "retina", 4, 6.8e-10, share=0.5),
    Case("video", "Video frames", "person.mp4", 1, batch_size=348),
    Case(
        "retina-half",
        "Retina photographs, half size",
        "retina",
        2,
        1.7e-10,
        1024,
        0.5,
        on_device=True,
    ),
    Case("retina-full", "Retina photographs", "retina", 1, 4.2e-11, 1024, 0.5, on_device=True),
)
QUICK: tuple[Case, ...] = (
    Case("retina", "Retina photographs", "retina", 8, 2.7e-9, share=0.5, steps=60),
    Case("video", "Video frames", "person.mp4", 4, batch_size=348, steps=60),
)


def reproduce_large_scale(
    target: str | Sequence[str],
    data_dir: str | Path,
    out: str | Path,
    *,
    quick: bool = False,
    device: str = "cpu",
    resume: bool = False,
    progress: Callable[[str], None] = lambda words: None,
) -> list[Path]:
    """Run and draw figures of the large-scale experiments.

    Parameters
    ----------
    target : str or sequence of str
        ``"figure-4"``, ``"figure-5"``, ``"lobsters"`` or ``"activations"``, or several, which
        share their runs.
    data_dir : path
        Folder with ``retina/*.jpg`` and ``person.mp4``, and CIFAR-10 for the activations.
    out : path
        Folder to write to: runs in ``out/large_scale`` and ``out/activations``, figures in
        ``out/drawn``.
    quick : bool, default=False
        Use smaller images and 60 steps in place of full size and 300.
    device : str, default="cpu"
        ``"cpu"`` or a CUDA device.
    resume : bool, default=False
        Continue with runs that ``out`` already holds; finished parts are not repeated.
    progress : callable, optional
        Function that is called with a sentence on each step of the work.

    Returns
    -------
    list of Path
        The files of the figures.
    """
    targets = [target] if isinstance(target, str) else list(target)
    for name in targets:
        if name not in TARGETS:
            raise ValueError(f"`target`={name!r} must be one of {', '.join(TARGETS)}.")
    cases = QUICK if quick else FULL
    if "figure-4" not in targets:  # the other figures show the photographs only
        cases = cases[:1] if {"figure-5", "lobsters"} & set(targets) else ()
    sources = [case.source(Path(data_dir)) for case in cases]
    results = Path(out) / "large_scale"
    for case, source in zip(cases, sources, strict=True):
        _run(case, source, results / case.name, device, resume, progress)
    activations = Path(out) / "activations"
    if "activations" in targets:
        run_activations(Path(data_dir), activations, quick, device, resume, progress)
    drawn = []
    for name in targets:
        folder = activations if name == "activations" else results
        drawn += TARGETS[name](folder, Path(out) / "drawn" / name)
        progress(f"drew {drawn[-2]} and {drawn[-1].name}")
    return drawn


def _run(
    case: Case,
    source: Any,
    folder: Path,
    device: str,
    resume: bool,
    progress: Callable[[str], None],
) -> None:
    run_large_scale(
        source,
        folder,
        name=case.title,
        steps=0 if case.on_device and device == "cpu" else case.steps,
        batch_size=case.batch_size,
        learning_rate=case.learning_rate,
        share=case.share,
        seed=case.seeds,
        device=device,
        max_memory="8GB" if device == "cpu" else None,
        resume=resume,
        progress=progress,
    )
