"""The results folder: one CSV file for every run, written whole or not at all.

``OUT/rows/SET--METHOD--SETTING--lL--sSEED.csv`` holds a row for each evaluation of a run, and two
if the run was refined: one before and one after refining (pPCA).  Tables and figures are drawn
from these files alone.
"""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.process import processors
from primedpca_paper.protocol import N_COMPONENTS, THRESHOLDS
from primedpca_paper.result_files import (
    number_cell,
    read_csv,
    read_json,
    write_csv,
    write_json,
    write_whole,
)

__all__ = ["Records", "Row", "Run", "machine_of", "streak_of", "versions", "write_whole"]


class Run(NamedTuple):
    """Key of a run; ``setting`` is the priming's learning rate or epsilon."""

    dataset: str
    method: str
    setting: float
    extra: int
    seed: int

    @property
    def stem(self) -> str:
        """Name of the run's file, without its suffix."""
        setting = f"{self.setting:g}"
        return f"{self.dataset}--{self.method}--{setting}--l{self.extra}--s{self.seed}"


@dataclass(frozen=True)
class Row:
    """One evaluation.

    Attributes
    ----------
    run : Run
        Key of the run.
    refined : bool
        Whether the components are refined (pPCA), or the priming's own.
    step : int
        Number of mini-batches, or of passes over all data.
    seconds : float
        Wall-clock time of the steps so far and, if refined, of one refining.  NaN for runs that
        shared the machine with others in the search for the best setting.
    angles : ndarray of shape (k,)
        Angles to the true components, in radians; pi/2 for components not found yet.
    variances : ndarray of shape (k,)
        Variance of the data along each component, divided by ``n - 1``; NaN if not measured.
    promised : ndarray of shape (n_thresholds,)
        Where refining shortened the streak at a threshold, the streak that condition (b) of the
        theory guarantees.  NaN elsewhere.
    refining : float
        Seconds of the refining in ``seconds``; NaN if not refined.
    """

    run: Run
    refined: bool
    step: int
    seconds: float
    angles: np.ndarray
    variances: np.ndarray
    promised: np.ndarray = field(default_factory=lambda: np.full(len(THRESHOLDS), np.nan))
    refining: float = math.nan

    def streak(self, threshold: float) -> int:
        """Return the number of leading components within ``threshold`` radians of the truth."""
        return streak_of(self.angles, threshold)


def streak_of(angles: np.ndarray, threshold: float) -> int:
    """Return the number of leading angles below the threshold."""
    return int(np.cumprod(angles < threshold).sum())


NAMES = [f"pi/{round(math.pi / threshold)}" for threshold in THRESHOLDS]
COLUMNS = [
    *("dataset", "method", "setting", "extra", "seed", "refined", "step", "seconds"),
    "refining",
    *(f"streak {name}" for name in NAMES),
    *(f"promised {name}" for name in NAMES),
    *(f"angle {i + 1}" for i in range(N_COMPONENTS)),
    *(f"variance {i + 1}" for i in range(N_COMPONENTS)),
    *("settings", "versions", "machine"),
]


class Records:
    """A results folder.

    Parameters
    ----------
    folder : Path
        The folder; made if it does not exist.
    machine : str
        Processor on which the times are measured.
    settings : dict
        Everything else that determines the numbers.  All runs of a folder have one machine and
        one set of settings.
    resume : bool, default=False
        Whether a folder that already holds results is continued.
    """

    def __init__(
        self, folder: Path, machine: str, settings: Mapping[str, Any], resume: bool = False
    ) -> None:
        self.folder, self.machine, self.settings = folder, machine, dict(settings)
        self.versions = versions()
        head = folder / "experiment.json"
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"`out`={str(folder)!r} is a file. Name a folder.")
        wanted = {"machine": machine, **self.settings}
        if head.is_file():
            self._check_head(head, wanted, resume)
        elif folder.is_dir() and any(folder.iterdir()):
            raise FileExistsError(
                f"`out`={str(folder)!r} holds other files and no results. Name a new folder."
            )
        else:
            (folder / "rows").mkdir(parents=True, exist_ok=True)
            write_json(head, {**wanted, "commit": commit()})

    @classmethod
    def of(cls, folder: Path) -> Records:
        """Open an existing folder for reading."""
        head = folder / "experiment.json"
        if not head.is_file():
            raise FileNotFoundError(f"{folder} does not hold results: experiment.json is missing.")
        known = _read_head(head)
        known.pop("commit", None)  # of the first run; later ones may be of another
        return cls(folder, known.pop("machine"), known, resume=True)

    @staticmethod
    def _check_head(head: Path, wanted: dict[str, Any], resume: bool) -> None:
        found = _read_head(head)
        if not resume:
            raise FileExistsError(
                f"`out`={str(head.parent)!r} already holds results. Continue them with --resume, "
                "or name a new folder."
            )
        for name, value in wanted.items():
            if found.get(name) != json.loads(json.dumps(value)):
                raise ValueError(
                    f"{head} has {name} = {found.get(name)!r}, not {value!r}: all runs of a folder "
                    "must have the same machine and settings. Name a new folder."
                )

    def path(self, run: Run) -> Path:
        """Return the file of a run."""
        return self.folder / "rows" / f"{run.stem}.csv"

    def has(self, run: Run) -> bool:
        """Return whether the run is finished."""
        return self.path(run).is_file()

    def write(self, run: Run, rows: Iterable[Row]) -> None:
        """Write a finished run; an existing file is kept."""
        if not self.has(run):
            write_csv(self.path(run), [COLUMNS, *(self._cells(row) for row in rows)])

    def _cells(self, row: Row) -> list[str]:
        run = row.run
        streaks = [str(row.streak(threshold)) for threshold in THRESHOLDS]
        numbers = [*row.promised, *row.angles, *row.variances]
        return [
            *(run.dataset, run.method, f"{run.setting:g}", str(run.extra), str(run.seed)),
            *(str(int(row.refined)), str(row.step), number_cell(row.seconds)),
            number_cell(row.refining),
            *streaks,
            *(number_cell(value) for value in numbers),
            *(json.dumps(self.settings).replace('"', "'"), self.versions, self.machine),
        ]

    @property
    def data(self) -> dict[str, dict[str, Any]]:
        """Shape and origin of every set that was run: set to ``n``, ``d`` and ``origin``."""
        path = self.folder / "data.json"
        return read_json(path) if path.is_file() else {}

    def note_data(self, name: str, shape: tuple[int, int], origin: str) -> None:
        """Record the shape and the origin of a set; other data of that name are refused."""
        known, found = self.data, {"n": shape[0], "d": shape[1], "origin": origin}
        if known.setdefault(name, found) != found:
            raise ValueError(
                f"{self.folder} has runs on {name} of {known[name]}, and the data folder holds "
                f"{found}. Name a new folder for the results."
            )
        write_json(self.folder / "data.json", known)

    def versions_of_runs(self) -> list[str]:
        """Return the versions that made the rows: results may be drawn on another machine."""
        found = []
        for path in sorted((self.folder / "rows").glob("*.csv")):
            line = read_csv(path, COLUMNS)[0]
            found.append(line[COLUMNS.index("versions")])
        return sorted(set(found))

    def read(self, run: Run) -> list[Row]:
        """Return the rows of a finished run."""
        return list(self._rows(self.path(run)))

    def rows(self) -> Iterator[Row]:
        """Yield every row of every finished run, in the order of the files' names."""
        for path in sorted((self.folder / "rows").glob("*.csv")):
            yield from self._rows(path)

    def _rows(self, path: Path) -> Iterator[Row]:
        for line in read_csv(path, COLUMNS):
            cells = dict(zip(COLUMNS, line, strict=True))
            run = Run(
                cells["dataset"],
                cells["method"],
                float(cells["setting"]),
                int(cells["extra"]),
                int(cells["seed"]),
            )
            yield Row(
                run,
                cells["refined"] == "1",
                int(cells["step"]),
                _value(cells["seconds"]),
                _values(cells, "angle"),
                _values(cells, "variance"),
                np.array([_value(cells[f"promised {name}"]) for name in NAMES]),
                _value(cells["refining"]),
            )


def _read_head(head: Path) -> dict[str, Any]:
    found = read_json(head)
    if "machine" not in found:
        raise ValueError(f"{head} is damaged: it does not name a machine. Use a new folder.")
    return found


def _value(cell: str) -> float:
    return float(cell) if cell else math.nan


def _values(cells: Mapping[str, str], name: str) -> np.ndarray:
    return np.array([_value(cells[f"{name} {i + 1}"]) for i in range(N_COMPONENTS)])


def versions() -> str:
    """Return the versions of Python and of the libraries that the numbers depend on."""
    found = [f"python {platform.python_version()}"]
    for name in ("primedpca", "numpy", "scipy", "torch"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            module = sys.modules.get(name)
            if module is not None and hasattr(module, "__version__"):
                found.append(f"{name} {module.__version__}")
    return "; ".join(found)


def machine_of(device: str) -> str:
    """Return the name of the processor that does the work."""
    if device != "cpu":
        import torch

        return str(torch.cuda.get_device_name(device))
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model}, {processors()} cores"


def commit() -> str:
    """Return the commit of the code, "modified" if files differ from it, or "" without git."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        state = subprocess.run(
            [*git, "describe", "--always", "--dirty=, modified", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return state.stdout.strip() if state.returncode == 0 else ""
