"""Run tests of other projects in a process of their own, on their classes or on the drop-ins."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


def run(tests, folder, plugins=("swap",), **variables):
    """Return the names of tests that passed, and of those that failed with their messages."""
    report = folder / "report.xml"
    path = os.pathsep.join([str(HERE), str(SOURCE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={folder / 'cache'}"]
    command += [word for plugin in plugins for word in ("-p", plugin)]
    command += [f"--rootdir={folder}", "-c", os.devnull, f"--junit-xml={report}"]
    command += ["--pyargs", *tests]
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | variables
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-3000:]
    passed, failed = [], {}
    for case in ET.parse(report).iter("testcase"):
        problem = case.find("failure") if case.find("error") is None else case.find("error")
        if problem is not None:
            failed[case.get("name")] = problem.get("message")
        elif case.find("skipped") is None:
            passed.append(case.get("name"))
    return passed, failed
