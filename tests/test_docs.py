"""Every Python block of README and docs runs; every link between pages leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page, capsys):
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
        if ">>>" in block:
            continue  # doctests are run by the tests of their module
        exec(compile(block, str(page), "exec"), names)
        printed = capsys.readouterr().out
        for line in re.findall(r"print\(.*\)  # (.+)", block):
            # What is printed stands before a colon; dots stand for what varies.
            wanted = ".*".join(map(re.escape, line.split(":")[0].split("...")))
            assert re.search(wanted, printed), line


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
