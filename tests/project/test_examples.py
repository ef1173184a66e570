"""The examples of the gallery run, draw something, and stay short enough to be read."""

import os
import subprocess
import sys

import pytest
from environments import ROOT

pytestmark = pytest.mark.integration

EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
RUN = """
import runpy, sys, warnings
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
warnings.simplefilter("error")
for path in sys.argv[1:]:
    sys.argv[1:] = []
    runpy.run_path(path, run_name="__main__")
    assert plt.get_fignums(), f"{path} draws nothing"
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
    plt.close("all")
    print("ran", path)
"""


def test_there_are_enough():
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(path):
    assert len(path.read_text().splitlines()) < 80


@pytest.mark.slow  # the build of the site, which is a part of CI, runs them as well
@pytest.mark.parametrize("half", [0, 1])
def test_the_examples_run(half, tmp_path):
    """In two processes, as starting one for each would take longer than they do."""
    paths = [str(path) for path in EXAMPLES[half::2]]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *paths],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=tmp_path,
        env={**os.environ, "MPLCONFIGDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.count("ran ") == len(paths)
