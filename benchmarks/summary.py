"""The race in a few lines, as the README prints it: ``python benchmarks/summary.py``."""

import csv
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "table.csv"
TITLES = {
    "mnist": "MNIST",
    "cifar": "CIFAR-10",
    "half": "σᵢ = i^-0.5",
    "newsgroups": "20 Newsgroups, sparse",
    "nips": "NIPS, sparse",
    "pbmc": "PBMC3k, sparse",
    "wide": "wide",
}
HEAD = """\
| data | primedpca, with proof | without | the fastest peer | scikit-learn | torch.pca_lowrank |
|---|---|---|---|---|---|"""


def summary(path=RESULTS):
    """A Markdown table: seconds of ours, of the best tuned peer, and of two defaults."""
    with open(path, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["seconds_best"]]
    lines = [HEAD]
    for name, title in TITLES.items():
        here = [row for row in rows if row["set"] == name]
        ours, proven = (_one(here, role) for role in ("ours", "ours, certified"))
        tuned = [row for row in here if row["role"].startswith("tuned") and row["right"] == "True"]
        best = min(tuned, key=lambda row: float(row["seconds_best"]))
        size = f"{int(ours['n']):,} × {int(ours['d']):,}, k = {ours['k']}"
        cells = [
            *(f"{title}: {size}", f"**{_seconds(proven)}**", _seconds(ours)),
            f"{_seconds(best)} ({best['method']})",
            _default(here, "sklearn randomized") or _default(here, "sklearn arpack"),
            _default(here, "torch.pca_lowrank"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _one(rows, role):
    return next(row for row in rows if row["role"] == role)


def _default(rows, method):
    """Seconds with nothing set, and how far off the worst component is if it is not right."""
    for row in rows:
        if row["method"] == method and "default" in row["role"]:
            angle = float(row["worst_angle_deg"])
            return _seconds(row) + ("" if row["right"] == "True" else f", {angle:.0f}° off")
    return ""


def _seconds(row):
    return f"{float(row['seconds_best']):.2g} s"


if __name__ == "__main__":
    print(summary())
