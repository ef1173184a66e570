"""Commands of the pages that take long, install something, or write into the repository.

They run as they stand, or with what ``pages.SHORTER`` puts in, in a copy of the repository; ``pip``
in an environment of its own. What ``make`` and ``pip`` bring comes from the package index.
"""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pages
import pytest
from environments import EXTRAS, ROOT, beside, copied, here, pinned, run

pytestmark = pytest.mark.integration

ALL = [*pages.PAGES, ROOT / "CONTRIBUTING.md"]
#: Pages whose commands take seconds, and no data: they run in CI.
QUICK = {"checkpoints.md"}
NEEDS_CUDA = "python tests/test_gpu.py"


def once():
    """Page -> those of its commands that stand on no page before; and all that call ``pip``."""
    known, installs = {*pages.IN_CI, NEEDS_CUDA}, []
    found = {page: [] for page in ALL}
    for page in ALL:
        for command in pages.commands(page):
            if command not in known:
                (installs if command.startswith("pip ") else found[page]).append(command)
            known.add(command)
    return {page: commands for page, commands in found.items() if commands}, installs


COMMANDS, INSTALLS = once()


def name_of(page):
    return str(page.relative_to(ROOT))


def one_page(page):
    marks = () if page.name in QUICK else pytest.mark.slow
    return pytest.param(page, id=name_of(page), marks=marks)


# -- what the commands find ---------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A copy of the repository, gone afterwards with all that was installed beside it."""
    yield copied(tmp_path)
    shutil.rmtree(tmp_path)


def table(path):
    rows = np.random.default_rng(0).normal(size=(300, 12)) * np.linspace(5, 1, 12)
    np.savetxt(path, rows, delimiter=",", header=",".join("abcdefghijkl"), comments="")


def photographs(path):
    from PIL import Image

    path.mkdir()
    rng = np.random.default_rng(0)
    for i in range(12):
        Image.fromarray(rng.integers(0, 255, (64, 48, 3), dtype=np.uint8)).save(path / f"{i}.png")


WEIGHTS = """
import sys, torch
sys.path.insert(0, "examples")
import resnet
torch.manual_seed(0)
state = resnet.resnet50(classes=7).state_dict()
torch.save({f"module.pre.{name}": value for name, value in state.items()}, "weights.pth")
"""


def weights(path):
    subprocess.run([sys.executable, "-c", WEIGHTS], cwd=path.parent, check=True, timeout=120)


FILES = {"data.csv": table, "photographs": photographs, "weights.pth": weights}


# -- commands -----------------------------------------------------------------------------------


def test_every_shorter_form_is_needed():
    text = "\n".join(command for commands in COMMANDS.values() for command in commands)
    for found, put in pages.SHORTER.items():
        assert found in text, f"no command has {found!r}"
        text = text.replace(found, put)


@pytest.mark.parametrize("command", sorted(pages.IN_CI))
def test_ci_runs(command):
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("page", [one_page(page) for page in COMMANDS])
def test_commands_run(page, folder):
    commands = [pages.shortened(command) for command in COMMANDS[page]]
    if page.name not in QUICK and not os.environ.get("PRIMEDPCA_DATA"):
        pytest.skip("PRIMEDPCA_DATA names no folder of data")
    for name, make in FILES.items():
        if any(name in command for command in commands):
            make(folder / name)
    own = here() | {"PYTHONPATH": str(folder / "src")}
    for command in commands:
        run(command, folder, pinned(folder.parent) if command.startswith("make ") else own)


@pytest.mark.slow
def test_the_check_of_a_graphics_card():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no CUDA device here")
    assert "passed" in run(NEEDS_CUDA, ROOT, here())


# -- installing ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A folder with our wheel, as an index would have it."""
    folder = tmp_path_factory.mktemp("wheels")
    words = f"{sys.executable} -m pip wheel --quiet --no-deps --wheel-dir {folder / 'here'} ."
    run(words, copied(folder), pinned(folder))
    return folder / "here"


@pytest.mark.slow
@pytest.mark.parametrize("command", INSTALLS)
def test_installing(command, wheels, folder):
    """In a fresh environment; then all that was asked for is there, and fits together."""
    venv = folder.parent / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=120)
    environment = pinned(folder.parent)
    environment["PATH"] = os.pathsep.join([str(venv / "bin"), environment["PATH"]])
    environment["PIP_FIND_LINKS"] = f"{wheels} {environment.get('PIP_FIND_LINKS', '')}"
    run(command, folder, environment)
    run("pip check", folder, environment)
    there = run("pip list --format=freeze", folder, environment).lower().replace("_", "-")
    asked = [command.split()[-1]]
    if extras := re.search(r"\[(.+)\]", command):
        asked = [line for extra in extras[1].split(",") for line in EXTRAS[extra]]
    for line in asked:
        name = "primedpca" if line == "." else re.split(r"[\[>=<]", line)[0]
        assert f"{name}==" in there, name
    if "." in asked or extras:
        run("cd / && primedpca demo --help && python -c 'import primedpca'", folder, environment)


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted(pages.OTHERS))
def test_blocks_that_need_another_package(package, folder):
    """Beside the packages of this environment, in one of its own, so that none is changed."""
    python = beside(folder.parent, package)
    names = [
        f"tests/project/test_docs.py::test_blocks_run[{name_of(page)}]"
        for page in pages.PAGES
        if any(package in block.words for block in pages.blocks(page))
    ]
    assert names
    code = f"import {package}, sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    # Warnings of the package are its own.
    words = [python, "-c", code, "-q", "-p", "no:cacheprovider", "-W", "default"]
    words += ["-m", "integration", *names]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
