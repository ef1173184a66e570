"""Every command of docs/command_line.md runs, in the order of the page."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from command import COMMAND
from environments import ROOT

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "command_line.md"


def test_the_commands_of_the_page_run(tmp_path):
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, words in (("primedpca", COMMAND), ("python", [sys.executable])):
        (shims / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (shims / name).chmod(0o755)
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(blocks) >= 6
    path = f"{shims}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.endswith("True\n")
    written = {entry.name for entry in tmp_path.iterdir()}
    assert {"scores.csv", "scores.npy", "page.html", "page2.html", "kept"} <= written
