"""Numbers in pages are those of the result files."""

from pathlib import Path

import pytest

from primedpca_paper.prose import MARK, Facts, changed, main, stray_numbers, updated

ROOT = Path(__file__).parents[2]
FACTS = Facts(ROOT)
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if MARK.search(page.read_text())]
#: Pages all of whose numbers come from files.
STRICT = ("reproduce.md", "findings.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_numbers_are_those_of_the_files(page):
    """`python -m primedpca_paper.prose` updates the pages."""
    assert list(changed(page.read_text(), FACTS)) == []


@pytest.mark.parametrize("name", STRICT)
def test_no_number_is_written_by_hand(name):
    text = (ROOT / "docs" / name).read_text()
    assert MARK.search(text)
    assert stray_numbers(text) == []


def test_a_number_that_no_file_holds_is_found():
    assert stray_numbers("It is 7.5 times faster, 1,000 in all") == ["7.5", "1,000"]
    assert stray_numbers("At π/128, k = 16 and l = 4 on CIFAR-10 (see figure 2)") == []
    assert stray_numbers("| 3 |") == ["3"]


def test_a_wrong_number_is_reported_and_updated(tmp_path, capsys):
    text = "up to <!--= 2 * BATCH | , -->2,001<!--=--> rows, <!--= 1 / 3 | 2s -->0.33<!--=-->"
    assert list(changed(text, FACTS)) == [("2 * BATCH | ,", "2,001", "2,000")]
    assert "-->2,000<!--=-->" in updated(text, FACTS)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(text)
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert "'2,000', not '2,001'" in capsys.readouterr().out


def test_a_cell_must_be_the_only_one(tmp_path):
    (tmp_path / "a.csv").write_text("set,x\none,1\none,2\ntwo,\n")
    facts = Facts(tmp_path)
    with pytest.raises(ValueError, match="unpack"):
        facts.cell("a.csv", "x", set="one")
    assert facts.count("a.csv", set="one") == 2


def test_nine_cells_of_ten_agree_under_the_protocol_that_we_take():
    assert FACTS.protocol("h200") >= 9 * FACTS.fitted("h200", "cells") / 10
    assert FACTS.protocol("h200", "our run lengths") == FACTS.agreeing("h200")
    rows = FACTS.rows("docs/results/h200/agreement-remaining.csv")
    assert len(rows) == FACTS.fitted("h200", "cells") - FACTS.protocol("h200")
    assert all(row["explanation"] for row in rows)
