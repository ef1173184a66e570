"""The command line: in this process, in one of its own with pipes, or on a terminal."""

import contextlib
import io
import os
import select
import signal
import struct
import subprocess
import sys
import time
from unittest import mock

import pytest

from primedpca.cli import app
from primedpca.cli.errors import run

# Windows has none of these; there, tests that import this file are skipped.
fcntl, pty, termios = map(pytest.importorskip, ("fcntl", "pty", "termios"))

COMMAND = [sys.executable, "-c", "from primedpca.cli import main; main()"]


def primedpca(*words, cwd=None, **environment):
    """Run a command line in this process, which saves the second that starting another one takes.

    Nothing is a terminal, as with pipes, and warnings are errors, as in all tests.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        mock.patch.dict(os.environ, environment),
        contextlib.chdir(cwd or "."),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = run(app, [str(word) for word in words])
    written = (stream.buffer.getvalue().decode() for stream in (out, err))
    return subprocess.CompletedProcess(words, code, *written)


def primedpca_process(*words, cwd=None, **environment):
    """Run a command line in a process of its own, with pipes."""
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        env={**os.environ, **environment},
    )


def heed_ctrl_c():
    """In a child: a shell that runs the tests in the background has SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def on_a_terminal(*words, columns=80, lines=30, cwd=None, until=None, **environment):
    """Run a command line on a terminal of its own: the exit code, and all that was written.

    As soon as ``until`` was written, Ctrl-C is pressed.
    """
    child, terminal = pty.fork()
    if child == 0:
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            os.environ.pop(name, None)
        os.environ.update({"TERM": "xterm-256color", **environment})
        os.chdir(cwd or ".")
        heed_ctrl_c()
        # The size must be there before the command looks at it.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        # With this environment: readline sets COLUMNS behind the back of os.environ.
        os.execve(COMMAND[0], [*COMMAND, *map(str, words)], os.environ)
    written, deadline = b"", time.monotonic() + 120
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            part = b""
        if not part:
            break
        written += part
        if until is not None and until.encode() in written:
            os.write(terminal, b"\x03")
            until = None
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(terminal)
    return code, written.decode()
