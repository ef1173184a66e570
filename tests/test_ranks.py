"""Ranks of torch.distributed: the same bits on any number of them, and errors that reach all."""

from __future__ import annotations

import pytest
import rank_jobs
from rank_jobs import ERRORS, FITS, JOBS, Started

GOOD = [job for job in JOBS if not job.startswith("error ")]
BAD = [job for job in JOBS if job.startswith("error ")]
