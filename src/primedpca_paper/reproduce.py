"""Run and draw one table or figure of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from primedpca.sources.wrappers.on_device import torch_on
from primedpca_paper.datasets import TITLES, check_set, data_folder
from primedpca_paper.protocol import METHODS, PAPERS, SETS, Protocol
from primedpca_paper.raw_rows import write_raw
from primedpca_paper.records import Records, machine_of, write_whole
from primedpca_paper.runs import K5, Runner

__all__ = ["ABOUT", "LARGE", "TARGETS", "check_device", "reproduce"]

#: Figures 7 to 11 of the paper's appendix, one for each set.
BY_SET = {f"figure-{7 + i}": name for i, name in enumerate(SETS)}
SYNTHETIC = ("exponential", "linear")
#: Data of millions of dimensions; ``lobsters`` is the paper's figure 6.
LARGE = ("figure-4", "figure-5", "lobsters", "activations")
SMALL = ("table-1", "table-2", "headline", "figure-1", "figure-2", "figure-3", *BY_SET)
TARGETS = (*SMALL, *LARGE, "all")

_SMALL_SETS = "the five small sets"
#: What each target draws, and the data that it needs.
ABOUT = {
    "table-1": ("time to a streak of 16, without extra directions", _SMALL_SETS),
    "table-2": ("time to a streak of 16, with extra directions, at every V", _SMALL_SETS),
    "headline": (
        "speed-ups of the abstract, beside the paper's, and what they depend on",
        _SMALL_SETS,
    ),
    "figure-1": ("captured variance in one run", "drawn"),
    "figure-2": ("streaks at V = π/8, and the claim on them", _SMALL_SETS),
    "figure-3": ("captured variance, k = 5", "drawn"),
    **{
        figure: (f"streaks on {TITLES[name]} at every V", "drawn" if name in SYNTHETIC else name)
        for figure, name in BY_SET.items()
    },
    "figure-4": ("captured variance on wide data", "retina/*.jpg, person.mp4"),
    "figure-5": ("photographs and their mean", "retina/*.jpg"),
    "lobsters": ("components after 30 and 300 steps, the paper's figure 6", "retina/*.jpg"),
    "activations": ("captured variance of a network's activations", "cifar10"),
    "all": ("all of these", "all of these"),
}


def reproduce(
    target: str,
    out: Path,
    *,
    data_dir: Path | None = None,
    device: str = "cpu",
    repeats: int | None = None,
    quick: bool = False,
    resume: bool = False,
    sets: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda words: None,
) -> list[Path]:
    """Run what a table or figure needs, except for finished runs, and draw it.

    Parameters
    ----------
    target : str
        One of :data:`TARGETS`.
    out : Path
        Results folder: ``runs/`` and ``large_scale/`` hold the measurements, ``drawn/`` the tables
        and figures.
    data_dir : Path, optional
        Folder of the data sets, by default the one that ``PRIMEDPCA_DATA`` names.
    device : str, default="cpu"
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
    repeats : int, optional
        Number of runs of every setting, by default 10, and 2 with ``quick``.
    quick : bool, default=False
        Use only the two best settings of each grid, and fewer steps.
    resume : bool, default=False
        Continue in a folder that holds results; finished runs are not repeated.
    sets : sequence of str, optional
        Names of the small sets to run, by default all five.
    progress : callable, optional
        Function that is called with a sentence on each step of the work.

    Returns
    -------
    list of Path
        The files that were drawn.
    """
    if target not in TARGETS:
        raise ValueError(f"Unknown target {target!r}. Use one of {', '.join(TARGETS)}.")
    if repeats is not None and repeats < 1:
        raise ValueError(f"`repeats`={repeats} must be at least 1.")
    for name in sets or ():
        if name not in SETS:
            raise ValueError(f"Unknown set {name!r}. Use one of {', '.join(SETS)}.")
    own = (BY_SET[target],) if target in BY_SET else ()
    if sets and ABOUT[target][1] != _SMALL_SETS and target != "all" and {*sets} != {*own}:
        what = f"draws {ABOUT[target][0]}, not the sets {', '.join(sets)}"
        raise ValueError(f"{target} {what}. Leave out `sets`, or choose another target.")
    check_device(device)
    _check_folder(out)
    drawn: list[Path] = []
    if target not in LARGE:
        protocol = Protocol.shortened(repeats or 2) if quick else Protocol.full(repeats or 10)
        wanted = SMALL if target == "all" else (target,)
        drawn += _small(wanted, out, protocol, device, data_dir, resume, sets or SETS, progress)
    if target in (*LARGE, "all"):
        from primedpca_paper.large_scale import reproduce_large_scale

        folder = data_folder() if data_dir is None else data_dir
        if folder is None:
            raise FileNotFoundError(
                f"{target} needs {ABOUT[target][1]}. Set their folder with `--data-dir` or the "
                "variable `PRIMEDPCA_DATA`."
            )
        drawn += reproduce_large_scale(
            LARGE if target == "all" else target,
            folder,
            out,
            quick=quick,
            device=device,
            resume=resume,
            progress=progress,
        )
    return drawn


def _small(
    targets: Sequence[str],
    out: Path,
    protocol: Protocol,
    device: str,
    data_dir: Path | None,
    resume: bool,
    sets: Sequence[str],
    progress: Callable[[str], None],
) -> list[Path]:
    from primedpca_paper.agreement import agreement_files
    from primedpca_paper.draw import draw_results
    from primedpca_paper.sensitivity import sensitivity_files
    from primedpca_paper.traces import Results

    needs = _needs(targets, sets)
    if not resume:  # a missing set is reported before hours are spent on the others
        for name in SETS:
            if name in needs:
                check_set(name, data_dir)
    machine = machine_of(device)
    settings = protocol.described()
    records = Records(out / "runs", machine, settings, resume)
    selection = Records(out / "runs" / "selection", machine, settings, resume)
    runner = Runner(records, selection, protocol, device, data_dir, progress)
    for name, methods in needs.items():
        for method in methods:
            runner.run(name, method)
            if "headline" in targets and method in PAPERS and _affordable(name, device):
                runner.run_other_settings(name, method)
    results, drawn = Results(records, selection), []
    for target in targets:
        progress(f"drawing {target}")
        drawn += draw_results(target, results, out / "drawn")
    if "headline" in targets:
        texts = sensitivity_files(results, selection) | agreement_files(results, selection)
        for name, text in texts.items():
            write_whole(out / "drawn" / name, text)
            drawn.append(out / "drawn" / name)
    return drawn + write_raw(records, selection, out / "drawn")


def _affordable(name: str, device: str) -> bool:
    """Return whether the settings that the paper may have used are run too: minutes."""
    return name in SYNTHETIC or (name in SETS and device != "cpu")


def _needs(targets: Sequence[str], sets: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the methods to run on each set."""
    needs: dict[str, set[str]] = {}
    for target in targets:
        if target in ("figure-1", "figure-3"):
            needs.setdefault("exponential" if target == "figure-1" else K5, set()).add("eigengame")
        elif target in BY_SET:
            needs.setdefault(BY_SET[target], set()).update(PAPERS)
        else:
            for name in sets:
                methods = PAPERS if target == "figure-2" else METHODS
                needs.setdefault(name, set()).update(methods)
    order = [name for name in (*SETS, K5) if name in needs]
    return {name: tuple(m for m in METHODS if m in needs[name]) for name in order}


def _check_folder(out: Path) -> None:
    """Refuse a folder that holds other files."""
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"`out`={str(out)!r} is a file. Name a folder.")
    held = {path.name for path in out.iterdir()} if out.exists() else set()
    if held and not held & {"runs", "large_scale", "activations"}:
        raise FileExistsError(
            f"`out`={str(out)!r} holds other files and no results. Name a new folder."
        )


def check_device(device: str) -> None:
    """Refuse a device that is not available."""
    if device != "cpu":
        torch_on(device)
