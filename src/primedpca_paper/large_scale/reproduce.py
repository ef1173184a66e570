"""Figures 4 and 5 and the lobster figure, from data to picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primedpca.sources.files.images import ImageFolder
from primedpca.sources.files.video import VideoFrames
from primedpca_paper.large_scale.pictures import draw_figure_4, draw_figure_5, draw_lobsters
from primedpca_paper.large_scale.runs import run_large_scale

__all__ = ["FULL", "QUICK", "TARGETS", "Case", "reproduce_large_scale"]

#: What is drawn, and how.
TARGETS = {"figure-4": draw_figure_4, "figure-5": draw_figure_5, "lobsters": draw_lobsters}


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes
    ----------
    name : str
        Of its results folder.
    title : str
        What figures call it.
    data : str
        The folder or file in the data folder.
    shrink : int
    learning_rate : float or "auto"
    batch_size : int
    share : float
        Of the rows, for the cheaper refining.
    steps : int
    seeds : tuple of int
    on_device : bool
        Whether EigenGame is trained only where there is an accelerator; the components are
        certified anywhere.
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
        """The data, or an error that says what was looked for."""
        path = folder / self.data
        if not path.exists():
            what = "the folder of retinal photographs" if self.data == "retina" else "the video"
            raise FileNotFoundError(f"{path} is missing: {what} is read from there.")
        kind = ImageFolder if self.data == "retina" else VideoFrames
        return kind(path, shrink=self.shrink, cache="2GB")


#: A rate is 0.3 over the largest variance, which grows with the number of pixels.
FULL: tuple[Case, ...] = (
    Case("retina-half", "Retina photographs, half size", "retina", 2, 1.7e-10, share=0.5),
    Case("retina-full", "Retina photographs", "retina", 1, 4.2e-11, share=0.5, on_device=True),
    Case("video", "Video frames", "person.mp4", 1, batch_size=348),
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
    """Run what a figure of the large-scale experiments needs, and draw it.

    Parameters
    ----------
    target : str or sequence of str
        Of ``"figure-4"``, ``"figure-5"`` and ``"lobsters"``; several share their runs.
    data_dir : path
        Holds ``retina/*.jpg`` and ``person.mp4``.
    out : path
        Runs are kept in ``out/large_scale``, pictures in ``out/drawn``.
    quick : bool
        Shrunk images and 60 steps instead of full size and 300.
    device : str
    resume : bool
        Go on with runs that ``out`` holds already; what is finished is not repeated.
    progress : callable
        Is told in a sentence what is going on.

    Returns
    -------
    list of Path
        The pictures.
    """
    targets = [target] if isinstance(target, str) else list(target)
    for name in targets:
        if name not in TARGETS:
            raise ValueError(f"`target`={name!r} must be one of {', '.join(TARGETS)}.")
    cases = QUICK if quick else FULL
    if "figure-4" not in targets:  # the others show the photographs only
        cases = cases[:1]
    sources = [case.source(Path(data_dir)) for case in cases]
    results = Path(out) / "large_scale"
    for case, source in zip(cases, sources, strict=True):
        _run(case, source, results / case.name, device, resume, progress)
    drawn = []
    for name in targets:
        drawn += TARGETS[name](results, Path(out) / "drawn" / name)
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
