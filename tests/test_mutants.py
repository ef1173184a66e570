"""Mutants of every kind of file: no crash, no hang, no raw error, no other number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mutant_files import KINDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux")


def found_of(kind, count, seed, folder):
    """The report of :mod:`mutants`, made by a process that has no threads to fork."""
    program = Path(__file__).with_name("mutants.py")
    command = [sys.executable, str(program), kind, str(count), str(seed), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_some_mutants(tmp_path, kind):
    found = found_of(kind, 40, 0, tmp_path)
    assert found["bad"] == []
    assert sum(found["counts"].values()) == 40
    assert found["grown_mb"] < 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_mutants(tmp_path, kind):
    found = found_of(kind, 1000, 1, tmp_path)
    assert found["bad"] == []
    assert found["grown_mb"] < 300
