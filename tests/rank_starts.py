"""Ranks for tests: real processes, connected over loopback.

``python rank_starts.py`` reads orders from its input and forks the ranks, so that PyTorch is
imported once for all of them: see :class:`Ranks`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

import rank_jobs


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def forked(order, rank, port):
    """Fork a child that becomes this rank, with its output in its own file."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        out = os.open(order["files"][rank], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        size = str(order["size"])
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": size}
        place |= {"LOCAL_WORLD_SIZE": size, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        os.environ.update(place | order["environment"])
        rank_jobs.run(order["jobs"])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        atexit._run_exitfuncs()
        os._exit(code)


def ended(children, limit, struck):
    """Wait until all but the struck rank have ended; return which ones hang."""
    codes, end = {}, time.monotonic() + limit
    while time.monotonic() < end and any(r not in codes for r in children if r != struck):
        for r, child in children.items():
            if r not in codes and os.waitpid(child, os.WNOHANG)[0]:
                codes[r] = 0
        time.sleep(0.02)
    for r, child in children.items():
        if r not in codes:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return ["hangs" if r not in codes and r != struck else "ended" for r in children]


def serve():
    """Fork ranks for every order on the input, and print how they ended."""
    for line in sys.stdin:
        order, port = json.loads(line), free_port()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forks with foreign threads
            children = {r: forked(order, r, port) for r in range(order["size"])}
        print(json.dumps(ended(children, order["limit"], order["struck"])), flush=True)


class Ranks:
    """Starter of ranks that collects their results."""

    def __init__(self, folder):
        self.folder = Path(folder)
        command = [sys.executable, "-W", "error", __file__]
        rank_jobs.make_files(self.folder)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "RANKS_FILES": str(self.folder)}
        self.server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, size, *jobs, limit=240, struck=None, **environment):
        """Return for every rank a dict of job -> result, and its output as "text"."""
        files = [self.folder / f"rank{r}.txt" for r in range(size)]
        if struck is not None:
            environment["RANKS_STRUCK"] = str(struck)
        order = {"size": size, "jobs": jobs, "limit": limit, "struck": struck}
        order |= {"files": [str(file) for file in files], "environment": environment}
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        how = json.loads(self.server.stdout.readline())
        texts = [file.read_text() for file in files]
        assert "hangs" not in how, (how, texts)
        told = []
        for text in texts:
            gave = {"text": text}
            for line in text.splitlines():
                if line.startswith("{"):
                    gave |= json.loads(line)
            told.append(gave)
        return told

    def close(self):
        self.server.stdin.close()
        self.server.wait(60)
        self.server.stdout.close()


if __name__ == "__main__":
    serve()
