"""Files of results: text, CSV and JSON, each written whole or not at all."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from primedpca._core.atomic_files import atomic_write

__all__ = ["number_cell", "read_csv", "read_json", "write_csv", "write_json", "write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write a text file, and the folders above it; an existing file is replaced in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, overwrite=True) as draft:
        draft.write_text(text, encoding="utf-8")


def write_csv(path: Path, lines: Iterable[Sequence[str]]) -> None:
    """Write cells without quotes and line ends in them; the last line is ``end``."""
    text = "".join(",".join(f'"{c}"' if "," in c else c for c in line) + "\n" for line in lines)
    write_whole(path, text + "end\n")


def read_csv(path: Path, columns: Sequence[str]) -> list[list[str]]:
    """Return the lines below the header of a file that :func:`write_csv` wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    if len(lines) < 3 or lines[0] != columns or lines[-1] != ["end"]:
        raise ValueError(f"{path} is damaged. Delete it and resume the run.")
    return lines[1:-1]


def number_cell(value: float) -> str:
    """Return a number with seven digits, and an empty cell for NaN."""
    return "" if math.isnan(value) else f"{value:.7g}"


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as JSON."""
    write_whole(path, json.dumps(value, indent=1))


def read_json(path: Path) -> dict[str, Any]:
    """Return the dictionary in a JSON file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}). Use a new folder.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: it does not hold a dictionary. Use a new folder.")
    return found
