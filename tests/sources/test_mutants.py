"""Mutants of every kind of file and store: no crash, no hang, no raw error, no other number."""

from __future__ import annotations

import json
import subprocess
import sys

import mutant_files
import mutant_stores
import pyarrow as arrow
import pytest
from environments import ROOT
from pyarrow import feather, parquet

from primedpca import as_source

KINDS = mutant_files.KINDS | mutant_stores.KINDS
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux")


def found_of(kind, count, seed, folder):
    """The report of :mod:`mutants`, made by a process that has no threads to fork."""
    program = ROOT / "tests" / "mutants.py"
    command = [sys.executable, str(program), kind, str(count), str(seed), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_some_mutants(tmp_path, kind):
    found = found_of(kind, 40, 0, tmp_path)
    assert found["bad"] == []
    assert sum(found["counts"].values()) == 40
    assert found["grown_mb"] < 100


@pytest.mark.integration
def test_those_that_failed_once(tmp_path):
    """The corpus: kind, seed and number of every mutant that a night of fuzzing has found."""
    for kind, seed, number, _ in json.loads((ROOT / "tests/data/corpus.json").read_text()):
        assert found_of(kind, f"{number},", seed, tmp_path)["bad"] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_mutants(tmp_path, kind):
    found = found_of(kind, 1000, 1, tmp_path)
    assert found["bad"] == []
    assert found["grown_mb"] < 300


@pytest.mark.parametrize("suffix", ["feather", "parquet"])
def test_a_column_whose_name_is_not_utf_8(tmp_path, suffix):
    table = arrow.table({"one": [1.0, 2.0], "abcd": [3.0, 4.0]})
    path = tmp_path / f"table.{suffix}"
    if suffix == "feather":
        feather.write_feather(table, path)
    else:
        parquet.write_table(table, path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"abcd", b"ab\xff\xfe"))
    with pytest.raises(ValueError, match=rf"table\.{suffix} is damaged or cannot be read"):
        as_source(path)
