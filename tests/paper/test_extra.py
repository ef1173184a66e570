"""How many extra directions pay: the rule on spectra whose answer is known, and the study."""

import csv
import math

import numpy as np
import pytest

from primedpca.priming import REGISTRY
from primedpca.priming.extra_directions import (
    best_extra,
    by_count,
    by_rate,
    extended,
    predicted_passes,
)
from primedpca_paper import extra_components
from primedpca_paper.extra_components import SPECTRA as SPECTRA_RUN
from primedpca_paper.extra_components import Choice, Row, Suite
from primedpca_paper.extra_report import Curves

SUBSPACE = "subspace_iteration"
INDEX = np.arange(1, 301)
SPECTRA = {
    "power": 1 / INDEX,
    "slow": INDEX**-0.5,
    "geometric": 0.97**INDEX,
    "step": np.where(INDEX <= 16, 2 - INDEX / 16, 0.05),
    "flat": np.maximum(1 / INDEX, 0.8 / 16),
    "rank": np.where(INDEX <= 16, 1.0 / INDEX, 0.0),
}


@pytest.mark.parametrize("name", ["step", "flat", "rank"])
def test_few_pay_where_more_do_not_speed_it_up(name):
    assert best_extra(SPECTRA[name], 16, SUBSPACE, overhead=0) <= 4


@pytest.mark.parametrize("name", ["power", "slow", "geometric"])
def test_many_pay_where_the_spectrum_decays_slowly(name):
    assert best_extra(SPECTRA[name], 16, SUBSPACE) >= 16


def test_a_step_further_down_is_reached_for():
    spectrum = np.where(INDEX <= 24, 1 - INDEX / 100, 0.01)
    assert 8 <= best_extra(spectrum, 16, SUBSPACE) <= 12


def test_passes_are_those_that_the_rate_asks_for():
    # With lambda_{p+1} / lambda_k = 0.1 everywhere a decade is won in a pass, and one refines.
    spectrum = np.concatenate([np.ones(4), np.full(40, 0.1)])
    passes = predicted_passes(spectrum, 4, 30)
    extra = np.arange(31)
    np.testing.assert_allclose(passes, 6 + np.log10(np.sqrt(4 + extra) / (extra + 1)))
    fast = predicted_passes(spectrum, 4, 30, accelerated=True)
    assert (fast < passes).all()


@pytest.mark.parametrize("spectrum", SPECTRA.values(), ids=SPECTRA)
@pytest.mark.parametrize("k", [1, 4, 16])
def test_a_dearer_visit_never_asks_for_fewer(spectrum, k):
    for seen in (spectrum, spectrum[: k + 5]):
        for name in REGISTRY:
            found = [best_extra(seen, k, name, overhead=c) for c in (0, 1, 4, 16, 64, 200, 1e4)]
            assert found == sorted(found)
            assert all(0 <= extra <= 64 for extra in found)


def test_units_do_not_matter():
    for scale in (1e-200, 1e200):
        for seen in (SPECTRA["power"], SPECTRA["power"][:20]):
            assert best_extra(seen * scale, 16, SUBSPACE) == best_extra(seen, 16, SUBSPACE)


@pytest.mark.parametrize(
    ("spectrum", "k"),
    [
        ([0.0] * 5, 3),
        ([1.0] * 30, 4),
        ([1.0, 1.0, 0.0], 2),
        ([1.0], 1),
        ([2.0, 1.0], 1),
        ([1.0, 0.0], 1),
        ([], 1),
        (None, 7),
        ([3.0, 2.0, 0.0, 0.0], 3),
        ([1.0, 1e-300, 1e-308], 2),
    ],
)
@pytest.mark.parametrize("name", REGISTRY)
def test_degenerate_spectra_get_an_answer(spectrum, k, name):
    extra = best_extra(spectrum, k, name)
    assert isinstance(extra, int)
    assert 0 <= extra <= 64


def test_nothing_seen_beyond_k_falls_back_on_the_count():
    assert best_extra(SPECTRA["power"][:16], 16, SUBSPACE) == by_count(16, SUBSPACE) == 32
    assert best_extra([0.0] * 9, 4, SUBSPACE) == by_count(4, SUBSPACE)


def test_the_formulas():
    assert by_count(16, "exact") == 0
    assert [by_count(k, "block_krylov") for k in (1, 16, 1000)] == [4, 4, 4]
    assert by_count(16, "oja") == 16
    assert by_count(16, "oja", overhead=1000.0) == 64
    assert by_count(16, "power_method", overhead=200.0) == by_count(16, "given") == 4
    assert best_extra(None, 300, SUBSPACE) == 300
    assert best_extra(None, 300, SUBSPACE, limit=10) == 10


@pytest.mark.parametrize("overhead", [-1.0, math.nan, math.inf])
def test_an_overhead_that_is_none_is_refused(overhead):
    with pytest.raises(ValueError, match="`overhead`"):
        best_extra(None, 4, SUBSPACE, overhead=overhead)


def test_the_tail_goes_on_as_it_fell():
    seen = 1 / np.arange(1.0, 31)
    np.testing.assert_allclose(extended(seen, 16, 100), 1 / np.arange(1.0, 101))
    geometric = 0.9 ** np.arange(30)
    assert (extended(geometric, 16, 100) >= 0.9 ** np.arange(100) * (1 - 1e-12)).all()
    assert (np.diff(extended(geometric, 16, 100)) <= 0).all()


def test_the_rule_needs_little_more_than_it_predicts():
    """Against the rate itself: no other l is predicted cheaper."""
    for spectrum in SPECTRA.values():
        passes = predicted_passes(spectrum, 16, 64)
        cost = passes * (16 + 16 + np.arange(65))
        assert cost[by_rate(spectrum, 16, overhead=16, limit=64)] == cost.min()


def test_regret_counts_only_what_was_reached():
    rows = [
        Row("x", "oja", 4, "fixed", extra, 0.0, 0, visits, 0.0)
        for extra, visits in ((0, math.inf), (4, 20.0), (16, 10.0))
    ]
    curves = Curves(rows)
    assert curves.best(("oja", "x", 4), 0.0) == 160
    assert curves.regret(Choice("x", "oja", 4, "r", 0.0, 4)) == 0
    assert curves.regret(Choice("x", "oja", 4, "r", 0.0, 16)) == pytest.approx(0.25)


@pytest.mark.integration
def test_the_study_runs(tmp_path, monkeypatch):
    monkeypatch.delenv("PRIMEDPCA_DATA", raising=False)
    kept = {name: extra_components.PRIMINGS[name] for name in (SUBSPACE, "oja")}
    monkeypatch.setattr(extra_components, "PRIMINGS", kept)
    few = Suite({name: SPECTRA_RUN[name] for name in ("1/i", "step")}, (4,), (0, 16), seeds=1)
    monkeypatch.setitem(extra_components.SUITES, "quick", few)
    extra_components.main(["--out", str(tmp_path), "--quick"])
    with (tmp_path / "extra_components.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["priming"] for row in rows} == {SUBSPACE, "oja"}
    wide = [float(row["visits"]) for row in rows if (row["rule"], row["l"]) == ("fixed", "16")]
    assert max(wide) < math.inf
    assert "| subspace_iteration | 16 |" in (tmp_path / "extra_components.md").read_text()


def test_the_study_of_sizes_varies_features_and_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(extra_components, "SIZES_SPECTRA", ("1/i",))
    monkeypatch.setattr(extra_components, "SIZES_EXTRAS", (16,))
    sizes = ((60, 4000), (100, 1000))
    rows = list(extra_components.study_sizes(1, sizes))
    whole = [(row.priming, row.d, row.n) for row in rows if row.n == 0]
    assert whole == [("subspace_iteration", 60, 0), ("block_krylov", 60, 0)]
    assert {(row.d, row.n) for row in rows if row.n} == set(sizes)
    assert all(row.visits < math.inf for row in rows)
