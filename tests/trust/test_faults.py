"""Faults in the middle of real fits: nothing crashes, hangs or is lost, and every resumed fit ends
with the bits of one that was left alone."""

import json
import subprocess
import sys

import pytest
from environments import ROOT

pytest.importorskip("resource")
from trust.faults import FAULTS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A process without threads that forks for every fit."""
    program = [sys.executable, str(ROOT / "tests/trust/faults.py")]
    folder = str(tmp_path_factory.mktemp("faults"))
    with subprocess.Popen(
        [*program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


def some(names):
    """Every third fault with the integration tests, all with the slow ones."""
    return [
        name if i % 3 == 0 else pytest.param(name, marks=pytest.mark.slow)
        for i, name in enumerate(names)
    ]


@pytest.mark.parametrize("name", some(FAULTS))
def test_the_promises_are_kept(server, name):
    server.stdin.write(f"{name}\n")
    server.stdin.flush()
    assert json.loads(server.stdout.readline()) == ""


def test_there_are_enough():
    assert len(FAULTS) >= 200
