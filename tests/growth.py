"""How much memory a fit adds to its process, seen from another one."""

import json
import os
import select
import subprocess
import sys


def resident(process):
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown(program, *job):
    """Bytes that a fit adds to its process at the peak, and what it said.

    The program finds the job as JSON in its first argument, says "ready", waits for a line, fits,
    says a JSON object, and waits for the end of its input.
    """
    words = [sys.executable, "-c", program, json.dumps(job)]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        before = peak = resident(process)
        process.stdin.write("\n")
        process.stdin.flush()
        while not select.select([process.stdout], [], [], 0.002)[0]:
            peak = max(peak, resident(process))
        said = json.loads(process.stdout.readline())
        peak = max(peak, resident(process))
        process.stdin.close()
    return peak - before, said
