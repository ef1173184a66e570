"""Tables, images and films with changed bytes: read, or refused by name; never a raw error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("av")
pytest.importorskip("PIL")
arrow = pytest.importorskip("pyarrow")

from primedpca import as_source  # noqa: E402

SCRIPT = Path(__file__).with_name("mutated_files.py")


@pytest.mark.parametrize("count", [25, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_mutant_is_read_or_refused_by_name(tmp_path, count):
    words = [sys.executable, SCRIPT, tmp_path, "0", str(count)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr[-500:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == []
    assert found["refused"] > 5 * count
    assert found["read"] > count / 2


@pytest.mark.parametrize("suffix", ["feather", "parquet"])
def test_a_column_whose_name_is_not_utf_8(tmp_path, suffix):
    table = arrow.table({"one": [1.0, 2.0], "abcd": [3.0, 4.0]})
    path = tmp_path / f"table.{suffix}"
    if suffix == "feather":
        from pyarrow import feather

        feather.write_feather(table, path)
    else:
        from pyarrow import parquet

        parquet.write_table(table, path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"abcd", b"ab\xff\xfe"))
    with pytest.raises(ValueError, match=rf"table\.{suffix} is damaged or cannot be read"):
        as_source(path)
