"""The results folder: one tidy CSV for every run, written whole or not at all.

``OUT/rows/SET--METHOD--SETTING--lL--sSEED.csv`` holds a row for each evaluation of a run, twice
where the run was refined: once as the priming left it and once as pPCA has it.  Tables and
figures are drawn from these files alone.
"""

from __future__ import annotations

import csv
import json
import math
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.threads import processors
from primedpca.experiments.protocol import N_COMPONENTS, THRESHOLDS

__all__ = ["Records", "Row", "Run", "machine_of", "streak_of", "versions", "write_whole"]


class Run(NamedTuple):
    """Which run: the priming's ``setting`` is its learning rate or epsilon."""

    dataset: str
    method: str
    setting: float
    extra: int
    seed: int

    @property
    def stem(self) -> str:
        """The name of its file."""
        setting = f"{self.setting:g}"
        return f"{self.dataset}--{self.method}--{setting}--l{self.extra}--s{self.seed}"


@dataclass(frozen=True)
class Row:
    """One evaluation.

    Attributes
    ----------
    refined : bool
        Whether the components are pPCA's, or the priming's own.
    step : int
        Mini-batches, or passes over all data.
    seconds : float
        On the clock: the steps so far and, where refined, one refining.  NaN where many runs
        shared the machine to find the best setting.
    angles : ndarray of shape (k,)
        To the true components, in radians; pi/2 for those that are not there yet.
    variances : ndarray of shape (k,)
        Of the data along each component, divided by ``n - 1``; NaN where not measured.
    promised : ndarray of shape (n_thresholds,)
        Where refining shortened the streak at a threshold: how long a streak condition (b) of
        the theory promises there.  NaN elsewhere.
    """

    run: Run
    refined: bool
    step: int
    seconds: float
    angles: np.ndarray
    variances: np.ndarray
    promised: np.ndarray = field(default_factory=lambda: np.full(len(THRESHOLDS), np.nan))

    def streak(self, threshold: float) -> int:
        """Leading components within ``threshold`` radians of the truth."""
        return streak_of(self.angles, threshold)


def streak_of(angles: np.ndarray, threshold: float) -> int:
    """How many leading angles are below the threshold."""
    return int(np.cumprod(angles < threshold).sum())


NAMES = [f"pi/{round(math.pi / threshold)}" for threshold in THRESHOLDS]
COLUMNS = [
    *("dataset", "method", "setting", "extra", "seed", "refined", "step", "seconds"),
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
    machine : str
        What the times were taken on.
    settings : dict
        What else decides the numbers; a folder holds runs of one machine and one set of these.
    resume : bool
        Whether a folder that holds results already may be gone on with.
    """

    def __init__(
        self, folder: Path, machine: str, settings: Mapping[str, Any], resume: bool = False
    ) -> None:
        self.folder, self.machine, self.settings = folder, machine, dict(settings)
        self.versions = versions()
        head = folder / "experiment.json"
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"`out`={str(folder)!r} is a file; name a folder.")
        wanted = {"machine": machine, **self.settings}
        if head.is_file():
            self._check_head(head, wanted, resume)
        elif folder.is_dir() and any(folder.iterdir()):
            raise FileExistsError(
                f"`out`={str(folder)!r} holds other files and no results; name a new folder."
            )
        else:
            (folder / "rows").mkdir(parents=True, exist_ok=True)
            write_whole(head, json.dumps(wanted, indent=1))

    @classmethod
    def of(cls, folder: Path) -> Records:
        """A folder as it stands, to be read."""
        head = folder / "experiment.json"
        if not head.is_file():
            raise FileNotFoundError(f"{folder} holds no results: experiment.json is missing.")
        known = _read_head(head)
        return cls(folder, known.pop("machine"), known, resume=True)

    @staticmethod
    def _check_head(head: Path, wanted: dict[str, Any], resume: bool) -> None:
        found = _read_head(head)
        if not resume:
            raise FileExistsError(
                f"`out`={str(head.parent)!r} holds results already; go on with them by --resume, "
                "or name a new folder."
            )
        for name, value in wanted.items():
            if found.get(name) != json.loads(json.dumps(value)):
                raise ValueError(
                    f"{head} was begun with {name} = {found.get(name)!r}, not {value!r}: times and "
                    "settings of one folder must agree; name a new folder."
                )

    def path(self, run: Run) -> Path:
        """The file of a run."""
        return self.folder / "rows" / f"{run.stem}.csv"

    def has(self, run: Run) -> bool:
        """Whether the run is finished."""
        return self.path(run).is_file()

    def write(self, run: Run, rows: Iterable[Row]) -> None:
        """Keep a finished run; one that is there already is left alone."""
        if self.has(run):
            return
        lines = [COLUMNS, *(self._cells(row) for row in rows)]
        text = "".join(",".join(f'"{c}"' if "," in c else c for c in line) + "\n" for line in lines)
        write_whole(self.path(run), text + "end\n")

    def _cells(self, row: Row) -> list[str]:
        run = row.run
        streaks = [str(row.streak(threshold)) for threshold in THRESHOLDS]
        numbers = [*row.promised, *row.angles, *row.variances]
        return [
            *(run.dataset, run.method, f"{run.setting:g}", str(run.extra), str(run.seed)),
            *(str(int(row.refined)), str(row.step), _number(row.seconds)),
            *streaks,
            *(_number(value) for value in numbers),
            *(json.dumps(self.settings).replace('"', "'"), self.versions, self.machine),
        ]

    def read(self, run: Run) -> list[Row]:
        """The rows of a finished run."""
        return list(self._rows(self.path(run)))

    def rows(self) -> Iterator[Row]:
        """Every row of every finished run, in the order of their names."""
        for path in sorted((self.folder / "rows").glob("*.csv")):
            yield from self._rows(path)

    def _rows(self, path: Path) -> Iterator[Row]:
        with path.open(newline="") as file:
            lines = list(csv.reader(file))
        if len(lines) < 3 or lines[0] != COLUMNS or lines[-1] != ["end"]:
            raise ValueError(f"{path} is damaged; delete it and go on with --resume.")
        for line in lines[1:-1]:
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
            )


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.7g}"


def _value(cell: str) -> float:
    return float(cell) if cell else math.nan


def _values(cells: Mapping[str, str], name: str) -> np.ndarray:
    return np.array([_value(cells[f"{name} {i + 1}"]) for i in range(N_COMPONENTS)])


def _read_head(head: Path) -> dict[str, Any]:
    try:
        found = json.loads(head.read_text())
    except ValueError as error:
        raise ValueError(f"{head} is damaged ({error}); name a new folder.") from error
    if not isinstance(found, dict) or "machine" not in found:
        raise ValueError(f"{head} is damaged: it names no machine; name a new folder.")
    return found


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all, whatever is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    os.replace(draft, path)


def versions() -> str:
    """Python and the libraries that the numbers depend on."""
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
    """The processor that the work is done on, in words."""
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
