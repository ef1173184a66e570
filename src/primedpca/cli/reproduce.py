"""``primedpca reproduce``: the paper's tables and figures."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

__all__ = ["run"]


def run(target: str, out: Path, *, as_json: bool, sets: list[str], **options: object) -> None:
    """Reproduce one target, telling on the way what is being done."""
    from primedpca.experiments.reproduce import reproduce

    start = time.perf_counter()

    def tell(words: str) -> None:
        print(f"{time.perf_counter() - start:7.1f} s  {words}", file=sys.stderr, flush=True)

    drawn = reproduce(target, out, sets=sets or None, progress=tell, **options)  # type: ignore[arg-type]
    if as_json:
        print(json.dumps({"drawn": [str(path) for path in drawn]}))
        return
    for path in drawn:
        if path.suffix == ".md":
            print(f"\n{path.read_text()}")
    for path in drawn:
        print(path)
