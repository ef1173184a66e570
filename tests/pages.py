"""Blocks of code and commands in the pages of the documentation, and how they are run.

A block runs as a test unless words after its language say otherwise:

``slow``
    takes minutes, or real data: run by ``make test-slow``;
``copy``
    installs something, takes long, or writes into the repository: its commands run line by line
    in a copy of the repository, as those within sentences do (``test_page_commands.py``);
``cluster``
    runs with processes of this machine in the place of other machines (``test_cluster_page.py``);
``server``
    fetches from a server on this machine (``test_downloads.py``);
``gpu``
    runs on the CPU, with the other word in the place of ``cuda``, where PyTorch finds no CUDA;
the name of a package
    runs where that package is installed; ``make test-slow`` installs those of OTHERS for it.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted(ROOT.glob("docs/*.md"))]
#: Pages whose commands have a test of their own, which looks at what they write as well.
ELSEWHERE = {"command_line.md": "project/test_command_line_page.py"}
#: Words that leave a block to another file of tests, and that file.
RUN_BY = {
    "copy": "project/test_page_commands.py",
    "cluster": "project/test_cluster_page.py",
    "server": "paper/test_downloads.py",
}
#: Packages that no test needs but a block.
OTHERS = {"mlflow", "pca", "prince", "scanpy", "skl2onnx", "xeofs"}
SHELLS = {"bash", "console", "sh"}
#: What CI runs by itself, and says so in .ci/run.
IN_CI = {"make test", "make test-integration", "make docs", "make test-browser"}
#: What stands in a command, and what is put in its place so that it finds its data and ends within
#: minutes; all else runs as it stands. DATA is the folder that PRIMEDPCA_DATA names.
SHORTER = {
    "fit DATA -k 5 --checkpoint FOLDER": "fit data.csv -k 5 --checkpoint kept",
    "--data-dir FOLDER": "--data-dir DATA",
    "PRIMEDPCA_DATA=folder": "PRIMEDPCA_DATA=DATA",
    "--images FOLDER --weights FILE": "--images photographs --weights weights.pth --size 32 "
    "--components 2 --steps 3 --batch-size 2",
    "primedpca_paper.extra_components": "primedpca_paper.extra_components --quick",
    "[--quick] [--device cuda]": "--quick",
    "--device cuda": "--device cpu",
    "--shrink 1 ": "--shrink 16 --steps 20 ",
    "--shrink 4 ": "--shrink 16 --steps 20 ",
    "--share 0.5 --out OUT": "--share 0.5 --out OUT/retina-16",
    "photographs/ --shrink 2": "photographs/ --shrink 2 --n-components 2 --steps 3",
    "reproduce all --device cpu": "reproduce all --device cpu --quick --set linear",
    "reproduce NAME": "reproduce table-1 --quick --set linear --out table-1",
    "reproduce table-1 --out": "reproduce table-1 --quick --set linear --out",
    "reproduce headline": "reproduce headline --quick --out headline",
    "--data mnist --budget 20s": "--data exponential --budget 1s --seeds 1 --force",
    "clusters.py cost": "clusters.py cost --size 2e7",
    "latency.py": "latency.py --repeats 20",
    "disk.py --size 4GB": "disk.py --size 40MB",
    "planner.py": "planner.py --sets nips --repeats 1",
    "--sets nips,half --repeats 3": "--sets nips --repeats 1",
    "make bench": "make bench ARGS=--quick",
    "make test-slow": "make --dry-run test-slow",  # which is what runs this
    "make test-all": "make --dry-run test-all",
}


class Block(NamedTuple):
    line: int
    language: str
    words: frozenset
    code: str


def blocks(page):
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    for found in re.finditer(r"^```([^\n`]*)\n(.*?)^```$", text, re.M | re.S):
        language, *words = found[1].split() or [""]
        line = text[: found.start()].count("\n") + 1
        yield Block(line, language, frozenset(words), found[2])


def runs(block, slow):
    """Whether a block is to be run here."""
    if block.words & set(RUN_BY) or (block.language not in {"python", *SHELLS}):
        return False
    if "slow" in block.words and not slow:
        return False
    others = block.words - {"slow", "gpu"}
    return all(importlib.util.find_spec(name) is not None for name in others)


@cache
def _cuda():
    import torch

    return torch.cuda.is_available()


def run_python(block, page, names, folder, printed):
    """Run a block, and compare what it prints with what its comments say.

    One that begins with the name of a file, such as ``# fit.py``, is written there as well, for
    commands that follow.
    """
    if named := re.match(r"# (\w+\.py)\n", block.code):
        (folder / named[1]).write_text(block.code)
    code = block.code
    if "gpu" in block.words and not _cuda():
        code = code.replace("cuda", "cpu")
    # Empty lines, so that errors name the line of the page.
    exec(compile("\n" * block.line + code, str(page), "exec"), names)
    out = printed()
    for line in re.findall(r"print\(.*\)  # (.+)", code):
        # What is printed stands before a colon; dots stand for what varies.
        wanted = ".*".join(map(re.escape, line.split(":")[0].split("...")))
        assert re.search(wanted, out), f"{page.name}:{block.line}: {line!r}, got {out!r}"


def run_shell(block, page, folder):
    """Run a block in bash, with the commands of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        capture_output=True,
        text=True,
        timeout=1800,
        cwd=folder,
        env={**os.environ, "PATH": path, "REPOSITORY": str(ROOT)},
    )
    assert done.returncode == 0, f"{page.name}:{block.line}: {done.stderr[-2000:]}"


def commands(page):
    """Commands that run in a copy of the repository: of such blocks, and those within sentences."""
    for block in blocks(page):
        if "copy" in block.words:
            code = re.sub(r"(^|\s)#.*", r"\1", block.code.replace("\\\n", " "))
            yield from filter(None, (" ".join(line.split()) for line in code.splitlines()))
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    for found in re.findall(r"`((?:primedpca|python|make|pip) [^`]+)`", text):
        yield " ".join(found.split())


def shortened(command):
    """A command as a test runs it."""
    for found, put in SHORTER.items():
        command = command.replace(found, put)
    return re.sub(r"\bDATA\b", os.environ.get("PRIMEDPCA_DATA", "DATA"), command)


def look_up(command):
    """Refuse a command that is not there, or an option that it does not have."""
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):  # variables before it
        words.pop(0)
    if not words:
        return
    program, *rest = words
    known = {"primedpca": _ours, "python": _script, "make": _make, "pip": _pip, ".": _sourced}
    assert program in known, f"{command!r} begins with none of {sorted(known)}"
    text = known[program](rest)
    for option in (word.strip("[]").split("=")[0] for word in rest):
        if program in ("primedpca", "python") and option.startswith("--"):
            assert option in text, f"{command!r}: there is no {option}"


@cache
def _help(name):
    from primedpca.cli import app

    done = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "300", "NO_COLOR": "1"})
    assert done.exit_code == 0, f"there is no `primedpca {name}`"
    return done.output


def _ours(words):
    return _help(words[0])


def _script(words):
    if words[0] == "-m":
        module = words[1].split(".")
        path = ROOT.joinpath("src", *module)
        path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    else:
        path = ROOT / words[0]
    assert path.is_file(), f"{path} is not there"
    return path.read_text()


def _make(words):
    text = (ROOT / "Makefile").read_text()
    for target in words:
        assert re.search(rf"^{target}:", text, re.M), f"there is no `make {target}`"
    return text


def _sourced(words):
    """What a shell is told by a file: the environment that ``make`` makes."""
    made = re.search(r"^VENV \?= (\S+)$", (ROOT / "Makefile").read_text(), re.M)[1]
    assert words == [f"{made}/bin/activate"], f"nothing makes {words}"
    return ""


def _pip(words):
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for named in re.findall(r"\[([^\]]+)\]", " ".join(words)):
        for extra in named.split(","):
            assert extra in extras, f"there is no extra {extra!r}"
    return ""
