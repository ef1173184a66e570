"""Every fault in every phase, three times over; and restarts by torchrun.  Slow: minutes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import rank_jobs
from rank_jobs import PHASES
from rank_starts import Ranks

pytestmark = pytest.mark.slow

WORDS = {
    "kill": "RankError: rank 2 of 3 is lost",
    "stop": "RankError: rank 2 of 3 did not answer for 4 s (`timeout`): it gives no sign",
    "hang": "RankError: rank 2 of 3 did not answer for 4 s (`timeout`): it is alive",
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
    limit = "4" if "4 s" in WORDS[stroke] else "600"
    for told in ranks.run(3, f"{stroke} {phase}", struck=2, limit=90, RANKS_LIMIT=limit)[:2]:
        assert WORDS[stroke] in told["text"]


@pytest.mark.parametrize("time", range(3))
@pytest.mark.parametrize("struck", range(1, 4))
@pytest.mark.parametrize("job", ["kill pass", "kill reduce", "memory reduce"])
def test_of_four_ranks_all_learn_which_one_is_lost(ranks, job, struck, time):
    told = ranks.run(4, job, struck=struck, limit=90, RANKS_LIMIT="600")
    words = f"rank {struck} of 4 {'is lost' if 'kill' in job else 'failed: MemoryError'}"
    assert all(f"RankError: {words}" in one["text"] for r, one in enumerate(told) if r != struck)


@pytest.mark.parametrize("time", range(3))
@pytest.mark.parametrize(("stroke", "word"), [("kill", "is lost"), ("stop", "does not answer")])
def test_without_the_keeper_of_the_store_nobody_waits(ranks, stroke, word, time):
    limit = "4" if stroke == "stop" else "600"
    for told in ranks.run(3, f"{stroke} pass", struck=0, limit=90, RANKS_LIMIT=limit)[1:]:
        assert f"RankError: the rendezvous store (often hosted by rank 0) {word}" in (told["text"])


@pytest.mark.parametrize("time", range(3))
@pytest.mark.parametrize("phase", PHASES)
def test_a_fit_goes_on_wherever_a_rank_was_killed(ranks, tmp_path, phase, time):
    job, folder = f"nothing {phase}", str(tmp_path / "kept")
    whole = ranks.run(1, job)[0][job]["bits"]
    ranks.run(3, f"kill {phase}", struck=2, RANKS_FOLDER=folder)
    told = ranks.run(3, job, RANKS_FOLDER=folder)
    assert [one[job]["bits"] for one in told] == [whole] * 3


def launched(command, environment, folder, limit):
    """The exit code of torchrun, and what it and its ranks wrote; none of them is left behind."""
    with (folder / "torchrun.txt").open("w") as out:
        started = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        try:
            code = started.wait(limit)
        except subprocess.TimeoutExpired:
            started.send_signal(signal.SIGTERM)  # it ends its ranks, which it started apart
            code = f"{started.wait(60)} after {limit} s"
    return code, {path: path.read_text() for path in sorted(folder.rglob("*.*")) if path.is_file()}


@pytest.mark.parametrize("time", range(3))
def test_torchrun_starts_the_ranks_again_and_the_fit_goes_on(ranks, tmp_path, time):
    wanted = ranks.run(1, "nothing certify")[0]["nothing certify"]
    logs = tmp_path / "log"
    logs.mkdir()
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    launch += ["--max-restarts=3", f"--log-dir={logs}", "--redirects=3"]
    kept = {"RANKS_FOLDER": str(tmp_path / "kept"), "RANKS_MARK": str(tmp_path / "struck")}
    environment = os.environ | kept | {"RANKS_LIMIT": "600", "OMP_NUM_THREADS": "1"}
    command = [*launch, rank_jobs.__file__, "kill once certify"]
    code, told = launched(command, environment, logs, 900)
    assert code == 0, told
    last = {
        path.parent.name: text for path, text in told.items() if path.name == "stdout.log" and text
    }
    found = [json.loads(text)["kill once certify"] for text in last.values()]
    assert [one["bits"] for one in found] == [wanted["bits"]] * 3, told
    assert all(one["swept"] < wanted["swept"] for one in found)  # not those that were kept
