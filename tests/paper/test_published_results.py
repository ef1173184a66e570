"""Published tables are those of the raw rows beside them."""

from pathlib import Path

import pytest

from primedpca_paper.agreement import agreement_files, independent_results
from primedpca_paper.claims import claims_files
from primedpca_paper.comparison import comparison_files
from primedpca_paper.draws import read_draws
from primedpca_paper.headline import headline_files
from primedpca_paper.raw_rows import open_raw
from primedpca_paper.sensitivity import sensitivity_files
from primedpca_paper.tables import settings_files, table_files
from primedpca_paper.traces import Results

pytestmark = pytest.mark.integration
PUBLISHED = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("folder", ["h200", "two_cores"])
def test_published_tables_are_those_of_the_published_rows(folder, tmp_path):
    """`python -m primedpca_paper.agreement` writes the files of the agreement."""
    records, selection = open_raw(PUBLISHED / folder, tmp_path / "rows")
    results = Results(records, selection)
    texts = table_files("table-1", results) | table_files("table-2", results)
    for made in (settings_files, headline_files, comparison_files, claims_files):
        texts |= made(results)
    texts |= sensitivity_files(results, selection)
    if folder == "h200":
        more = {
            name: open_raw(PUBLISHED / name, tmp_path / name)[0]
            for name in (
                *("other_settings", "other_settings_h200", "other_settings_nips"),
                "independent_batches",
            )
        }
        independent = independent_results(more.pop("independent_batches"))
        texts |= agreement_files(
            results,
            selection,
            [Results(other) for other in more.values()],
            independent,
            read_draws(PUBLISHED / "draws.csv"),
        )
    found = {path.name for path in (PUBLISHED / folder).iterdir()} & set(texts)
    assert {"table-2.csv", "headline.md", "sensitivity.md", "claims.csv"} <= found
    assert ("agreement.md" in found) == (folder == "h200")
    different = [
        n for n in sorted(found) if texts[n] != (PUBLISHED / folder / n).read_text("utf-8")
    ]
    assert different == []
