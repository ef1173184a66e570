"""Runs at chosen learning rates, or with independent mini-batches.

All lines of a set and priming are run in lockstep and are not timed: steps and streaks do not
depend on the machine.  :mod:`primedpca_paper.agreement` reads the folders that this writes::

    python -m primedpca_paper.other_settings OUT --run mnist:eigengame:0.1 --device cuda
    python -m primedpca_paper.other_settings OUT --independent --run linear:oja:0.0001,1e-05
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from primedpca_paper.lockstep import Batches, IndependentBatches
from primedpca_paper.protocol import QUICK_SETTINGS, SETS, Protocol
from primedpca_paper.raw_rows import write_raw
from primedpca_paper.records import Records, machine_of
from primedpca_paper.recount import STOCHASTIC
from primedpca_paper.runs import Runner

__all__ = ["Job", "main", "run_jobs"]


class Job(NamedTuple):
    """A set, a stochastic priming and its learning rates."""

    dataset: str
    method: str
    rates: tuple[float, ...]

    @classmethod
    def of(cls, text: str) -> Job:
        """Read ``SET:PRIMING`` or ``SET:PRIMING:RATE,...``; default: the two best rates."""
        dataset, method, rates = [*text.split(":"), "", ""][:3]
        if dataset not in SETS or method not in STOCHASTIC:
            raise ValueError(
                f"{text!r} is not a run. Write SET:PRIMING:RATE with one of {', '.join(SETS)} and "
                f"one of {', '.join(STOCHASTIC)}."
            )
        found = tuple(float(rate) for rate in rates.split(",")) if rates else ()
        return cls(dataset, method, found or QUICK_SETTINGS[dataset, method])


def run_jobs(
    jobs: list[Job],
    out: Path,
    protocol: Protocol,
    *,
    independent: bool = False,
    device: str = "cpu",
    folder: Path | None = None,
) -> list[Path]:
    """Run jobs and write their raw rows into ``out``; runs that ``out/runs`` holds are kept.

    Parameters
    ----------
    jobs : list of Job
        Sets, primings and rates.
    out : Path
        Folder of the raw rows.
    protocol : Protocol
        Steps, repeats and evaluations.
    independent : bool, default=False
        Draw mini-batches independently of each other, not in epochs.
    device : str, default="cpu"
        ``"cpu"`` or a CUDA device.
    folder : Path, optional
        Folder of the data sets.
    """
    about = protocol.described()
    if independent:
        about["mini-batches"] = "independent"
    machine = machine_of(device)
    records = Records(out / "runs", machine, about, resume=True)
    selection = Records(out / "runs" / "selection", machine, about, resume=True)
    runner = Runner(records, selection, protocol, device, folder, progress=print)
    for job in jobs:
        runner.run_at(*job, kind=IndependentBatches if independent else Batches)
    return write_raw(records, selection, out)


def _job(text: str) -> Job:
    try:
        return Job.of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def main(words: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m primedpca_paper.other_settings")
    parser.add_argument("out", type=Path, help="folder of the raw rows")
    parser.add_argument(
        "--run", action="append", required=True, type=_job, help="SET:PRIMING[:RATE,...]"
    )
    parser.add_argument("--independent", action="store_true", help="independent mini-batches")
    parser.add_argument("--repeats", type=int, default=10, help="number of runs, default 10")
    parser.add_argument("--device", default="cpu", help="cpu or a CUDA device, default cpu")
    asked = parser.parse_args(words)
    protocol = Protocol.full(asked.repeats)
    run_jobs(asked.run, asked.out, protocol, independent=asked.independent, device=asked.device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
