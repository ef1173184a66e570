"""The results folder of one large-scale run; every file is written whole or not at all.

``run.json`` holds the settings, ``rows--sSEED.csv`` a row for each method and evaluation,
``certified.json`` and ``certified.npz`` the certified components' numbers and scores, and
``pictures.npz`` small images of the components if rows are images.  Figures are drawn from these
files alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.atomic_files import atomic_write
from primedpca_paper.records import versions
from primedpca_paper.result_files import number_cell, read_csv, read_json, write_csv, write_json

__all__ = ["METHODS", "Evaluation", "RunFolder", "runs_in"]

#: The priming's own vectors, refined with all rows, and refined with some of the rows.
METHODS = ("eigengame", "ppca", "ppca_share")
HEAD = "run.json"


@dataclass(frozen=True)
class Evaluation:
    """One method after one step.

    Attributes
    ----------
    method : {"eigengame", "ppca", "ppca_share"}
        One of :data:`METHODS`.
    seed : int
        Seed of the run.
    step : int
        Number of mini-batches so far.
    seconds : float
        Time of the training so far and, if refined, of one refining: the median of those that
        were timed in the run.
    variances : ndarray of shape (k,)
        Variance of all data along each component, divided by ``n - 1``.
    angles : ndarray of shape (k,)
        Angles to the certified components, in radians.
    """

    method: str
    seed: int
    step: int
    seconds: float
    variances: np.ndarray
    angles: np.ndarray


class RunFolder:
    """A folder of results.

    Parameters
    ----------
    path : Path
        The folder; made if it does not exist.
    settings : dict
        Everything that determines the numbers, with ``name``, ``n_components`` and ``machine``.
        A folder holds one set of settings.
    resume : bool, default=False
        Whether a folder that already holds results is continued.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], resume: bool = False) -> None:
        self.path, self.settings = Path(path), json.loads(json.dumps(dict(settings)))
        head = self.path / HEAD
        if self.path.exists() and not self.path.is_dir():
            raise FileExistsError(f"`folder`={str(self.path)!r} is a file. Name a folder.")
        if head.is_file():
            self._check(read_json(head), resume)
        elif self.path.is_dir() and any(self.path.iterdir()):
            raise FileExistsError(
                f"`folder`={str(self.path)!r} holds other files and no results. Name a new folder."
            )
        else:
            write_json(head, self.settings)

    @classmethod
    def of(cls, path: Path) -> RunFolder:
        """Open an existing folder for reading."""
        head = Path(path) / HEAD
        if not head.is_file():
            raise FileNotFoundError(f"{path} does not hold results: {HEAD} is missing.")
        return cls(Path(path), read_json(head), resume=True)

    def _check(self, found: dict[str, Any], resume: bool) -> None:
        if not resume:
            raise FileExistsError(
                f"`folder`={str(self.path)!r} already holds results. Continue them with `resume`, "
                "or name a new folder."
            )
        for name, value in self.settings.items():
            if found.get(name) != value:
                raise ValueError(
                    f"{self.path / HEAD} has {name} = {found.get(name)!r}, not {value!r}. Name a "
                    "new folder."
                )

    # -- training ----------------------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        """Names of the columns of the rows."""
        k = int(self.settings["n_components"])
        return [
            *("dataset", "method", "extra", "seed", "step", "seconds"),
            *(f"variance {i + 1}" for i in range(k)),
            *(f"angle {i + 1}" for i in range(k)),
            *("versions", "machine"),
        ]

    def rows_of(self, seed: int) -> Path:
        """Return the file of a seed's rows, which exists once its run is finished."""
        return self.path / f"rows--s{seed}.csv"

    def write_rows(self, seed: int, rows: Iterable[Evaluation]) -> None:
        """Write a finished run."""
        lines = [self.columns]
        named = [self.settings["name"], str(self.settings["extra"])]
        for row in rows:
            numbers = [row.seconds, *row.variances, *row.angles]
            cells = [named[0], row.method, named[1], str(row.seed), str(row.step)]
            tail = [versions(), self.settings["machine"]]
            lines.append([*cells, *map(number_cell, numbers), *tail])
        write_csv(self.rows_of(seed), lines)

    def rows(self) -> list[Evaluation]:
        """Return every row of every finished run."""
        return [row for path in sorted(self.path.glob("rows--s*.csv")) for row in self._read(path)]

    def _read(self, path: Path) -> Iterable[Evaluation]:
        k = int(self.settings["n_components"])
        for line in read_csv(path, self.columns):
            numbers = np.array([float(cell) if cell else math.nan for cell in line[5:-2]])
            yield Evaluation(
                line[1],
                int(line[3]),
                int(line[4]),
                float(numbers[0]),
                numbers[1 : k + 1],
                numbers[k + 1 :],
            )

    # -- certified components, and images ----------------------------------------------------

    @property
    def certified(self) -> dict[str, Any] | None:
        """Facts about the certified components, or ``None`` before they are known."""
        path = self.path / "certified.json"
        return read_json(path) if path.is_file() else None

    def write_certified(self, facts: Mapping[str, Any], scores: np.ndarray) -> None:
        """Write the certified components' facts and scores; the JSON file marks the end."""
        self.write_arrays("certified", scores=scores)
        write_json(self.path / "certified.json", dict(facts))

    def write_arrays(self, name: str, **arrays: np.ndarray) -> None:
        """Write arrays to ``NAME.npz``."""
        path = self.path / f"{name}.npz"
        with atomic_write(path, overwrite=True) as draft, draft.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of ``NAME.npz``."""
        path = self.path / f"{name}.npz"
        if not path.is_file():
            raise FileNotFoundError(
                f"File not found: {path}. The run is not finished, or its rows are not images."
            )
        with np.load(path) as archive:
            return dict(archive)


def runs_in(folder: Path) -> list[RunFolder]:
    """Return the run in a folder, or the runs in its subfolders, by name."""
    folder = Path(folder)
    found = [path.parent for path in (folder / HEAD, *sorted(folder.glob(f"*/{HEAD}")))]
    runs = [RunFolder.of(path) for path in found if (path / HEAD).is_file()]
    if not runs:
        raise FileNotFoundError(f"{folder} does not hold large-scale results: {HEAD} is missing.")
    return runs
