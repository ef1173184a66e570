"""Copies of the repository, environments of their own, and commands in them."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
LEFT = (".git", ".venv", ".*cache", "__pycache__", "_build", "auto_examples", "generated")


def copied(folder):
    """A copy of the repository."""
    return shutil.copytree(ROOT, folder / "copy", ignore=shutil.ignore_patterns(*LEFT))


def here(*folders):
    """The variables of this process, with the commands of its environment, and of these folders."""
    first = [*map(str, folders), str(Path(sys.executable).parent)]
    return {**os.environ, "PATH": os.pathsep.join([*first, os.environ["PATH"]])}


def pinned(folder):
    """The variables of a command that installs: the torch of the tests, and not these sources."""
    (torch,) = (line for line in EXTRAS["test"] if line.startswith("torch=="))
    (folder / "constraints.txt").write_text(torch + "\n")  # a range would bring gigabytes of CUDA
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"PIP_CONSTRAINT": str(folder / "constraints.txt"), "PIP_NO_COMPILE": "1"}


def run(command, folder, environment, limit=3600):
    """Run a command in bash; what it wrote."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        timeout=limit,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def beside(folder, *packages):
    """The Python of an environment with these packages, and with all of this one."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=120)
    (site,) = venv.glob("lib/python*/site-packages")
    parts = [part for part in sys.path if part.endswith("site-packages")]
    lines = [f"import site; site.addsitedir({part!r})" for part in parts]
    (site / "here.pth").write_text("\n".join(lines) + "\n")
    python = venv / "bin" / "python"
    run(f"{python} -m pip install --quiet {' '.join(packages)}", folder, pinned(folder))
    return python
