"""The results folder of one large-scale run; every file is there whole or not at all.

``run.json`` says what was asked for, ``rows--sSEED.csv`` holds a row for each method and
evaluation, ``certified.json`` and ``certified.npz`` the certified components' numbers and scores,
``pictures.npz`` what is shown of them where rows are images.  Figures are drawn from these alone.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from primedpca.experiments.records import versions, write_whole

__all__ = ["METHODS", "Evaluation", "RunFolder", "runs_in"]

#: The priming's own vectors, refined with all rows, and refined with a share of them.
METHODS = ("eigengame", "ppca", "ppca_share")
HEAD = "run.json"


@dataclass(frozen=True)
class Evaluation:
    """One method after one step.

    Attributes
    ----------
    method : {"eigengame", "ppca", "ppca_share"}
    seed, step : int
    seconds : float
        Of training so far and, where refined, of one refining.
    variances : ndarray of shape (k,)
        Of all data along each component, divided by ``n - 1``.
    angles : ndarray of shape (k,)
        To the certified components, in radians.
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
    settings : dict
        What decides the numbers, ``name``, ``n_components`` and ``machine`` among it; a folder
        holds one set of these.
    resume : bool
        Whether a folder that holds results already may be gone on with.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], resume: bool = False) -> None:
        self.path, self.settings = Path(path), json.loads(json.dumps(dict(settings)))
        head = self.path / HEAD
        if self.path.exists() and not self.path.is_dir():
            raise FileExistsError(f"`folder`={str(self.path)!r} is a file; name a folder.")
        if head.is_file():
            self._check(_read_json(head), resume)
        elif self.path.is_dir() and any(self.path.iterdir()):
            raise FileExistsError(
                f"`folder`={str(self.path)!r} holds other files and no results; name a new folder."
            )
        else:
            write_whole(head, json.dumps(self.settings, indent=1))

    @classmethod
    def of(cls, path: Path) -> RunFolder:
        """A folder as it stands, to be read."""
        head = Path(path) / HEAD
        if not head.is_file():
            raise FileNotFoundError(f"{path} holds no results: {HEAD} is missing.")
        return cls(Path(path), _read_json(head), resume=True)

    def _check(self, found: dict[str, Any], resume: bool) -> None:
        if not resume:
            raise FileExistsError(
                f"`folder`={str(self.path)!r} holds results already; go on with them by `resume`, "
                "or name a new folder."
            )
        for name, value in self.settings.items():
            if found.get(name) != value:
                raise ValueError(
                    f"{self.path / HEAD} was begun with {name} = {found.get(name)!r}, not "
                    f"{value!r}; name a new folder."
                )

    # -- training ----------------------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        """The columns of the rows."""
        k = int(self.settings["n_components"])
        return [
            *("dataset", "method", "extra", "seed", "step", "seconds"),
            *(f"variance {i + 1}" for i in range(k)),
            *(f"angle {i + 1}" for i in range(k)),
            *("versions", "machine"),
        ]

    def rows_of(self, seed: int) -> Path:
        """The file of a seed's rows; there once its run is finished."""
        return self.path / f"rows--s{seed}.csv"

    def write_rows(self, seed: int, rows: Iterable[Evaluation]) -> None:
        """Keep a finished run."""
        draft = [self.columns]
        named = [self.settings["name"], str(self.settings["extra"])]
        for row in rows:
            numbers = [row.seconds, *row.variances, *row.angles]
            cells = [named[0], row.method, named[1], str(row.seed), str(row.step)]
            draft.append([*cells, *map(_number, numbers), versions(), self.settings["machine"]])
        text = "".join(",".join(f'"{c}"' if "," in c else c for c in line) + "\n" for line in draft)
        write_whole(self.rows_of(seed), text + "end\n")

    def rows(self) -> list[Evaluation]:
        """Every row of every finished run."""
        return [row for path in sorted(self.path.glob("rows--s*.csv")) for row in self._read(path)]

    def _read(self, path: Path) -> Iterable[Evaluation]:
        with path.open(newline="") as file:
            lines = list(csv.reader(file))
        if len(lines) < 3 or lines[0] != self.columns or lines[-1] != ["end"]:
            raise ValueError(f"{path} is damaged; delete it and go on with `resume`.")
        k = int(self.settings["n_components"])
        for line in lines[1:-1]:
            numbers = np.array([float(cell) if cell else math.nan for cell in line[5:-2]])
            yield Evaluation(
                line[1],
                int(line[3]),
                int(line[4]),
                float(numbers[0]),
                numbers[1 : k + 1],
                numbers[k + 1 :],
            )

    # -- what is certified, and pictures -----------------------------------------------------

    @property
    def certified(self) -> dict[str, Any] | None:
        """What is certified, or ``None`` before that."""
        path = self.path / "certified.json"
        return _read_json(path) if path.is_file() else None

    def write_certified(self, facts: Mapping[str, Any], scores: np.ndarray) -> None:
        """Keep what is certified; the JSON comes last and marks it as finished."""
        self.write_arrays("certified", scores=scores)
        write_whole(self.path / "certified.json", json.dumps(dict(facts), indent=1))

    def write_arrays(self, name: str, **arrays: np.ndarray) -> None:
        """Keep arrays in ``NAME.npz``."""
        draft = self.path / f".{name}.{os.getpid()}.npz"
        np.savez_compressed(draft, **arrays)  # type: ignore[arg-type]
        os.replace(draft, self.path / f"{name}.npz")

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of ``NAME.npz``."""
        path = self.path / f"{name}.npz"
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing: the run is not finished, or has no images."
            )
        with np.load(path) as archive:
            return dict(archive)


def runs_in(folder: Path) -> list[RunFolder]:
    """The run in a folder, or those in the folders in it, by name."""
    folder = Path(folder)
    found = [path.parent for path in (folder / HEAD, *sorted(folder.glob(f"*/{HEAD}")))]
    runs = [RunFolder.of(path) for path in found if (path / HEAD).is_file()]
    if not runs:
        raise FileNotFoundError(f"{folder} holds no large-scale results: no {HEAD} in it.")
    return runs


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.7g}"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); name a new folder.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: it holds no table; name a new folder.")
    return found
