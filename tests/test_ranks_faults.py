"""Every fault in every phase, three times over; and restarts by torchrun.  Slow: minutes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import rank_jobs
from rank_jobs import PHASES, Ranks

pytestmark = pytest.mark.slow

WORDS = {
    "kill": "RankError: rank 2 of 3 is gone",
    "stop": "RankError: rank 2 of 3 did not answer for 4 s",
    "memory": "RankError: rank 2 of 3 failed: MemoryError",
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    started = Ranks(tmp_path_factory.mktemp("ranks"))
    yield started
    started.close()


@pytest.mark.parametrize("time", range(3))
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("stroke", WORDS)
def test_every_fault_in_every_phase_is_named_on_the_others(ranks, stroke, phase, time):
    for told in ranks.run(3, f"{stroke} {phase}", struck=2, limit=90, RANKS_LIMIT="4")[:2]:
        assert WORDS[stroke] in told["text"]


@pytest.mark.parametrize("phase", PHASES)
def test_a_fit_goes_on_wherever_a_rank_was_killed(ranks, tmp_path, phase):
    job, folder = f"nothing {phase}", str(tmp_path / "kept")
    whole = ranks.run(1, job)[0][job]["bits"]
    ranks.run(3, f"kill {phase}", struck=2, RANKS_FOLDER=folder)
    told = ranks.run(3, job, RANKS_FOLDER=folder)
    assert [one[job]["bits"] for one in told] == [whole] * 3


@pytest.mark.parametrize("time", range(3))
def test_torchrun_starts_the_ranks_again_and_the_fit_goes_on(ranks, tmp_path, time):
    wanted = ranks.run(1, "nothing certify")[0]["nothing certify"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    launch += ["--max-restarts=2", f"--log-dir={tmp_path / 'log'}", "--redirects=3"]
    kept = {"RANKS_FOLDER": str(tmp_path / "kept"), "RANKS_LIMIT": "120"}
    kept |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = subprocess.run(
        [*launch, rank_jobs.__file__, "kill once certify"],
        env=os.environ | kept,
        timeout=240,
        capture_output=True,
        text=True,
    )
    logs = sorted((tmp_path / "log").rglob("std*.log"))
    assert done.returncode == 0, [done.stderr, *((path, path.read_text()) for path in logs)]
    told = [path.read_text() for path in (tmp_path / "log").rglob("attempt_1/*/stdout.log")]
    found = [json.loads(text)["kill once certify"] for text in told]
    assert [one["bits"] for one in found] == [wanted["bits"]] * 3
    assert all(one["swept"] < wanted["swept"] for one in found)  # not those that were kept
