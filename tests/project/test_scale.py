"""The page about scale says what the model says that is fitted to its measurements."""

import subprocess
import sys

import pytest
from environments import ROOT


@pytest.mark.integration
def test_the_page_has_the_constants_and_errors_of_the_model():
    command = [sys.executable, "benchmarks/scale.py", "predict"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    fitted, foretold = done.stdout.split("| fit | machines |")
    page = (ROOT / "docs" / "scale.md").read_text()
    for line in filter(None, fitted.splitlines()):
        assert line in page
    hours = [float(row.split("|")[3]) for row in foretold.splitlines()[2:]]
    told = page.split("| fit | machines |")[1].split("\n\n")[0].splitlines()[2:]
    assert len(told) == len(hours) == 8
    for row, value in zip(told, hours, strict=True):
        assert abs(float(row.split("|")[3]) / value - 1) < 0.1
        low, high = (float(word) for word in row.split("|")[4].split(" and "))
        assert low < value < high
