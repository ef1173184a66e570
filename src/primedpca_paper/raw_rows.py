"""Raw rows of a results folder in one compressed file, with what is needed to judge them.

``rows.csv.gz`` holds every evaluation of every timed run, and ``provenance.json`` the machine,
versions, commit, protocol, and the shape and origin of each set.  The tables can be drawn from
the two.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from primedpca_paper.protocol import N_COMPONENTS, THRESHOLDS
from primedpca_paper.records import Records, Row, Run
from primedpca_paper.result_files import read_json, write_json

__all__ = ["ROWS", "SELECTION", "open_raw", "write_raw"]

ROWS, SELECTION, ABOUT = "rows.csv.gz", "selection.csv.gz", "provenance.json"
KEYS = ("dataset", "method", "setting", "extra", "seed", "refined", "step", "seconds", "refining")
HEAD = [
    *KEYS,
    *(f"angle {i + 1}" for i in range(N_COMPONENTS)),
    *(f"promised pi/{round(math.pi / threshold)}" for threshold in THRESHOLDS),
]


def write_raw(records: Records, selection: Records, out: Path) -> list[Path]:
    """Write the rows of a results folder, angles to four digits, and their provenance."""
    about = {
        "machine": records.machine,
        "versions": " / ".join(records.versions_of_runs()),
        "commit": read_json(records.folder / "experiment.json").get("commit", ""),
        "protocol": records.settings,
        "data": records.data,
    }
    write_json(out / ABOUT, about)
    for name, part in ((ROWS, records), (SELECTION, selection)):
        (out / name).write_bytes(_packed(part.rows()))
    return [out / name for name in (ABOUT, ROWS, SELECTION)]


def _packed(rows: Iterator[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    for row in rows:
        times = [f"{value:.6g}" for value in (row.seconds, row.refining)]
        numbers = [f"{value:.4g}" for value in (*row.angles, *row.promised)]
        keys = [*row.run[:2], f"{row.run.setting:g}", *row.run[3:], int(row.refined), row.step]
        writer.writerow([*keys, *("" if value == "nan" else value for value in (*times, *numbers))])
    # Without the time of day the same rows give the same bytes.
    return gzip.compress(text.getvalue().encode(), mtime=0)


def open_raw(folder: Path, work: Path) -> tuple[Records, Records]:
    """Unpack raw rows into results folders below ``work``: timed runs and the selection."""
    about = read_json(folder / ABOUT)
    found = []
    for name, part in ((ROWS, "runs"), (SELECTION, "selection")):
        records = Records(work / part, about["machine"], about["protocol"])
        records.versions = about["versions"]
        for run, rows in groupby(_unpacked(folder / name), key=lambda row: row.run):
            records.write(run, rows)
        found.append(records)
    for name, data in about["data"].items():
        found[0].note_data(name, (data["n"], data["d"]), data["origin"])
    return found[0], found[1]


def _unpacked(path: Path) -> Iterator[Row]:
    lines = csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    for line in lines:
        cells: dict[str, Any] = {name: float(line[name] or "nan") for name in HEAD[2:]}
        run = Run(
            *(line["dataset"], line["method"], cells["setting"]),
            *(int(cells["extra"]), int(cells["seed"])),
        )
        yield Row(
            run,
            line["refined"] == "1",
            int(cells["step"]),
            cells["seconds"],
            np.array([cells[f"angle {i + 1}"] for i in range(N_COMPONENTS)]),
            np.full(N_COMPONENTS, np.nan),
            np.array([cells[name] for name in HEAD[-len(THRESHOLDS) :]]),
            cells["refining"],
        )
