"""The project's own files agree: versions, lower bounds, workflows, the architecture page."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

import primedpca

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_version_is_written_once():
    assert "version" in PYPROJECT["project"]["dynamic"]
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)[1]
    assert cited == primedpca.__version__


def test_a_released_version_is_in_the_changelog():
    released = re.search(r"^date-released: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    heading = f"## [{primedpca.__version__}]"
    assert (heading in (ROOT / "CHANGELOG.md").read_text()) == (released is not None)


def test_every_dependency_has_one_lower_bound():
    oldest = runpy.run_path(str(ROOT / ".github" / "oldest.py"))["oldest"]()
    for line in PYPROJECT["project"]["dependencies"]:
        name, bound = line.split(">=")
        assert oldest[name] == bound


def test_workflows_test_every_supported_python():
    classifiers = PYPROJECT["project"]["classifiers"]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))
    tests = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    matrix = re.search(r"^ +python: \[(.+)\]$", tests, re.M)[1]
    assert re.findall(r"\d\.\d+", matrix) == supported
    assert PYPROJECT["project"]["requires-python"] == f">={supported[0]}"


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_and_files_that_exist(workflow):
    text = workflow.read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([\w-]+)", text):
        assert re.search(rf"^{target}:", makefile, re.M), target
    for script in re.findall(r"\.github/\w+\.py", text):
        assert (ROOT / script).is_file(), script
    for extras in re.findall(r"'\.\[([\w,]+)\]'", text):
        assert set(extras.split(",")) <= set(PYPROJECT["project"]["optional-dependencies"])


def test_paths_on_the_architecture_page_exist():
    paths = re.findall(r"`((?:\w+/)*(?:\w+\.(?:py|html\.jinja)|\w+/))`", ARCHITECTURE)
    assert len(paths) > 40
    for path in paths:
        assert (ROOT / "src" / "primedpca" / path).exists() or (ROOT / path).exists(), path


def test_the_architecture_page_shows_the_import_contract():
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["type"] == "layers")
    wanted = [line.replace("primedpca.", "").replace(" | ", ", ") for line in layers]
    shown = re.search(r"## Import rules.*?```text\n(.*?)```", ARCHITECTURE, re.S)[1]
    assert shown.splitlines() == wanted
