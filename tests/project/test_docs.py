"""Every block of README and docs runs, every command is there, every link leads somewhere."""

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest

PAGES, ROOT = pages.PAGES, pages.ROOT
SLOW = [page for page in PAGES if any("slow" in block.words for block in pages.blocks(page))]


def name_of(page):
    return str(page.relative_to(ROOT))


def run_page(page, folder, capsys, slow):
    names = {"__name__": page.stem}
    for block in pages.blocks(page):
        if not pages.runs(block, slow):
            continue
        if block.language != "python":
            pages.run_shell(block, page, folder)
        elif ">>>" not in block.code:  # doctests are run by the tests of their module
            pages.run_python(block, page, names, folder, lambda: capsys.readouterr().out)


HERE = [page for page in PAGES if page.name not in pages.ELSEWHERE]


def test_pages_and_blocks_that_run_elsewhere_do():
    for name in (*pages.ELSEWHERE.values(), *pages.RUN_BY.values()):
        assert (ROOT / "tests" / name).is_file()


@pytest.mark.integration
@pytest.mark.parametrize("page", HERE, ids=name_of)
def test_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path, capsys, slow=False)


@pytest.mark.parametrize("name", ["add_a_priming.md", "add_an_engine.md"])
def test_blocks_have_the_types_that_the_library_declares(name, tmp_path):
    code = "\n".join(block.code for block in pages.blocks(ROOT / "docs" / name))
    (tmp_path / "page.py").write_text(code)
    # The package itself is checked by `make lint`; its cache makes this a matter of seconds.
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", str(tmp_path / "page.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW, ids=name_of)
def test_slow_blocks_run(page, tmp_path, monkeypatch, capsys):
    """Minutes, or real data."""
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path, capsys, slow=True)


@pytest.mark.parametrize("name", ["add_a_source.md"])
def test_code_to_copy_has_right_types(name, tmp_path):
    """What a page shows as a whole implementation passes mypy as strictly as the library."""
    blocks = [block for block in pages.blocks(ROOT / "docs" / name) if block.language == "python"]
    code = tmp_path / "page.py"
    code.write_text("\n".join(block.code for block in blocks))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", code],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_commands_are_there(page):
    for command in pages.commands(page):
        pages.look_up(command)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page):
    for block in pages.blocks(page):
        known = {"python", *pages.SHELLS, "text", "json", "toml", "{include}"}
        assert block.language in known, f"{page.name}:{block.line} is none of {sorted(known)}"
        words = {"slow", "gpu", "sklearn", *pages.RUN_BY, *pages.OTHERS}
        assert block.words <= words or block.language.startswith("{"), (
            f"{page.name}:{block.line}: nobody knows how to run {sorted(block.words - words)}"
        )
        shell = block.language in pages.SHELLS
        assert shell or "copy" not in block.words, f"{page.name}:{block.line} is no command"


def test_a_wrong_command_would_be_seen():
    for command in (
        "primedpca unfit data.csv",
        "primedpca demo --loud",
        "python benchmarks/absent.py",
        "make coffee",
        "pip install '.[nothing]'",
        "curl somewhere",
    ):
        with pytest.raises(AssertionError):
            pages.look_up(command)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_numbers_of_the_readme_are_those_measured():
    spec = importlib.util.spec_from_file_location("summary", ROOT / "benchmarks" / "summary.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.summary() in (ROOT / "README.md").read_text()
    with open(ROOT / "benchmarks" / "results" / "targets.csv", newline="") as file:
        audits = [float(row["ratio"]) for row in csv.DictReader(file) if row["target"] == "b"]
    words = re.search(r"still (\S+) to (\S+) times faster", (ROOT / "README.md").read_text())
    assert [f"{min(audits):.1f}", f"{max(audits):.1f}"] == list(words.groups())


@pytest.mark.integration
def test_the_table_of_the_demo_is_what_it_shows():
    done = subprocess.run(
        [sys.executable, "-c", "from primedpca.cli import main; main()", "demo", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, "PRIMEDPCA_DATA": ""},  # only on data that ship along
    )
    shown = {}
    for row in json.loads(done.stdout)["rows"]:
        name = row["data"].split()[0], row["priming"]
        shown[name] = [row["streak_before"], *row["streaks"]]
    data = ""
    for line in re.findall(r"^\| (.*) \|$", (ROOT / "docs" / "method.md").read_text(), re.M):
        first, priming, *numbers = [cell.strip() for cell in line.split("|")]
        data = first.split()[0] if first else data
        if (data, priming) in shown:
            assert shown.pop((data, priming)) == [int(number) for number in numbers]
    assert {priming for _, priming in shown} == {"PowerMethod"}  # which is not in the table


def test_the_site_has_every_public_name():
    """A name that is exported and not in the contents of the API would never be found."""
    import primedpca
    from primedpca import interop, metrics, monitoring, plots, priming, result, scanpy, sklearn

    listed = (ROOT / "docs" / "api.rst").read_text().split()
    internal = {"OWN", "REGISTRY", "as_priming"}
    internal |= {"check_change", "check_directions", "check_refined"}
    known = (primedpca, interop, metrics, monitoring, plots, priming, result, scanpy, sklearn)
    for module in known:
        assert set(module.__all__) - internal <= set(listed)


def test_every_page_is_in_the_contents():
    contents = "\n".join(path.read_text() for path in ROOT.glob("docs/*.rst"))
    listed = [line.strip() for line in contents.splitlines()]
    for page in ROOT.glob("docs/*.md"):
        assert any(Path(page.stem).match(line) for line in listed if line), page.name
