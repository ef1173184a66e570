"""The command line on a terminal: colour, a live table, narrow windows, and Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest
from command import COMMAND, heed_ctrl_c, on_a_terminal, primedpca, primedpca_process

from primedpca import PrimedPCA, load

COLOUR = re.compile(r"\x1b\[(?:\d+;)*3[0-7]")
MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data that take some passes, and data that take many."""
    folder = tmp_path_factory.mktemp("terminal")
    rng = np.random.default_rng(0)
    np.save(folder / "quick.npy", rng.normal(size=(400, 60)) * np.linspace(5, 1, 60))
    slow = rng.normal(size=(4000, 2000)).astype(np.float32)
    np.save(folder / "slow.npy", slow)
    return folder


QUICK = ("fit", "quick.npy", "-k", "3", "--priming", "block_krylov", "--seed", "0")
#: Noise has no gaps: the fit runs until `--max-passes` without a proof.
SLOW = ("fit", "slow.npy", "-k", "10", "--priming", "block_krylov", "--tol", "1e-9", "--seed", "0")


def test_a_terminal_has_colour_and_a_live_table(folder):
    code, written = on_a_terminal(*QUICK, cwd=folder)
    assert code == 0
    assert COLOUR.search(written)
    live, _, last = written.rpartition("\x1b[?25h")  # the cursor is shown again after the table
    assert "current bound" in live
    assert "of 3 proven" in live
    assert "B/s" in live
    assert "current bound" not in last
    assert "proven within" in last


@pytest.mark.integration
def test_a_live_table_counts_groups_and_components_without_variance(folder):
    noise = np.random.default_rng(0).normal(size=(300, 6))
    scores = np.linalg.qr(noise - noise.mean(axis=0))[0] * np.sqrt([5, 3, 3, 2, 1, 1])
    np.save(folder / "tied.npy", scores @ np.eye(6, 20))
    words = ("fit", "tied.npy", "-k", "8", "--priming", "block_krylov", "--seed", "0")
    code, written = on_a_terminal(*words, cwd=folder)
    assert code == 0
    live, _, last = written.rpartition("\x1b[?25h")
    for part in (live, last):
        assert "(span)" in part
        assert "no variance" in part
    assert "8 of 8 proven" in live


@pytest.mark.integration
def test_no_color_is_respected(folder):
    code, written = on_a_terminal(*QUICK, cwd=folder, NO_COLOR="1")
    assert code == 0
    assert not COLOUR.search(written)
    assert "proven within" in written


@pytest.mark.integration
def test_a_dumb_terminal_gets_plain_lines(folder):
    code, written = on_a_terminal(*QUICK, cwd=folder, TERM="dumb")
    assert code == 0
    assert "\x1b" not in written
    assert "primedpca: step 1" in written
    assert "proven within" in written


def test_forty_columns_are_enough(folder):
    code, written = on_a_terminal(*QUICK, cwd=folder, columns=40)
    assert code == 0
    lines = MOVES.sub("", written).replace("\r", "\n").split("\n")
    assert [line for line in lines if len(line) > 40] == []
    assert "proven within" in written


@pytest.mark.integration
def test_json_on_a_terminal_is_json(folder):
    code, written = on_a_terminal(*QUICK, "--json", cwd=folder)
    assert code == 0
    last = MOVES.sub("", written).splitlines()[-1]  # the table was on the error stream
    assert json.loads(last)["n_components"] == 3


def test_a_pipe_is_plain(folder):
    done = primedpca_process(*QUICK, cwd=folder)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


def test_ctrl_c_on_a_terminal(folder):
    code, written = on_a_terminal(*SLOW, cwd=folder, until="pass 1")
    assert code == 130
    assert "interrupted; nothing was saved (use --checkpoint FOLDER" in written
    assert "Traceback" not in written


def interrupted(words, cwd, ready):
    """Start a command, send SIGINT as soon as ``ready()``, and wait for its end."""
    process = subprocess.Popen(
        [*COMMAND, *words],
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_ctrl_c,
    )
    deadline = time.monotonic() + 120
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.mark.integration
def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on(folder, tmp_path):
    kept, model = tmp_path / "kept", tmp_path / "m.safetensors"
    # Few passes, so that the resumed fit ends soon.
    words = [*SLOW, "--max-passes", "8", "--checkpoint", str(kept), "-o", str(model)]
    code, out, err = interrupted(words, folder, lambda: list(kept.glob("pass-000002*")))
    assert code == 130, err
    assert out == ""
    assert not model.exists()
    said, _, command = err.partition("Resume with: ")
    assert f"saved in {kept}" in said
    assert command.split() == ["primedpca", *words]
    assert list(kept.glob("pass-*"))
    done = primedpca(*command.split()[1:], cwd=folder)
    assert done.returncode == 3, done.stderr
    options = {"tol": 1e-9, "priming": "block_krylov", "max_passes": 8, "random_state": 0}
    with pytest.warns(UserWarning, match="max_passes"):
        whole = PrimedPCA(10, **options).fit(folder / "slow.npy")
    np.testing.assert_array_equal(load(model).components_, whole.components_)


@pytest.mark.integration
def test_json_after_ctrl_c(folder, tmp_path):
    kept = tmp_path / "kept"
    words = [*SLOW, "--json", "--checkpoint", str(kept)]
    code, out, err = interrupted(words, folder, lambda: list(kept.glob("pass-*")))
    assert code == 130, err
    found = json.loads(out)
    assert found["exit_code"] == 130
    assert "Resume with: primedpca fit slow.npy" in found["error"]
