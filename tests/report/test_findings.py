"""The report as an analysis: what it says about columns, components and rows is true."""

import re
from base64 import b64decode
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from catalogue import FILES, KINDS, SOURCES, TEXT_FILES
from planted import FACTS, planted_columns, write_planted
from sklearn.datasets import load_digits, load_iris

from primedpca import PrimedPCA, as_source, choose_k, load
from primedpca.monitoring import Statistics
from primedpca.report import facts as facts_module
from primedpca.report import inputs, report_html
from primedpca.report.facts import Gatherer
from primedpca.report.findings import _how_many, component_words, find, loading_words, quoted
from primedpca.report.inputs import check_inputs
from primedpca.report.rows import groups, outliers
from primedpca.report.space import space

EARLIER = Path(__file__).parents[1] / "data" / "earlier"


def words_of(html):
    body = re.sub(r"<(style|script|svg)\b.*?</\1>", " ", html, flags=re.S)
    text = re.sub(r"\s+", " ", unescape(re.sub(r"<(?!/?code)[^>]+>", " ", body)))
    return re.sub(r"</?code[^>]*>", "", text)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_planted(tmp_path_factory.mktemp("planted") / "customers.csv")


@pytest.fixture(scope="module")
def page(table):
    source = as_source(table, label_column="segment")
    pca = PrimedPCA(12, missing="mean", random_state=0).fit(source)
    return words_of(report_html(pca, data=source))


@pytest.mark.parametrize("fact", FACTS)
def test_planted_facts_are_stated(page, fact):
    assert FACTS[fact] in page


def test_a_scaled_fit_states_its_rules_and_names_rows(table):
    source = as_source(table, label_column="segment", id_column="customer_no")
    pca = PrimedPCA(12, missing="mean", scale="std", random_state=0).fit(source)
    said = words_of(report_html(pca, data=source))
    assert "each column divided by its standard deviation." in said
    assert "rows 17 (1017), 203 (1203) and 351 (1351)." in said
    least = pca.n_samples_ / (pca.n_samples_ - 1)
    kaiser = int((pca.explained_variance_ > least).sum())
    assert f"Kaiser {kaiser} variances above {least:.4g}, that of a single scaled column" in said
    assert "of the total variance, because" not in said
    assert "as identifiers do" not in said


def test_kaiser_counts_eigenvalues_of_the_correlation_matrix_as_choose_does():
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(np.c_[np.ones(12), rng.normal(size=(12, 5))])[0][:, 1:]
    X = Q * np.sqrt([1.04, 1.02, 0.99, 0.98, 0.97]) @ np.linalg.qr(rng.normal(size=(5, 5)))[0]
    wanted = int((np.linalg.eigvalsh(np.corrcoef(X.T)) > 1).sum())
    assert wanted == 2
    X = np.c_[X, np.full(12, 0.1)]  # a column without variance does not count
    pca = PrimedPCA(5, scale="std", random_state=0).fit(X)
    why = "variances above 1.091, that of a single scaled column"
    assert f"Kaiser {wanted} {why}" in words_of(report_html(pca, data=X))
    found = choose_k(X, scale="std", random_state=0)["Kaiser"]
    assert (found.n_components, found.why) == (2, "variances above the mean of a column, 1.091")
    weighted = PrimedPCA(5, scale="std", random_state=0).fit(X, sample_weight=np.full(12, 0.25))
    assert "Kaiser 2 variances above 1.5, " in words_of(report_html(weighted))
    second_moments = PrimedPCA(5, scale="std", center=False, random_state=0).fit(X)
    assert "Kaiser" not in words_of(report_html(second_moments))


def test_data_with_nothing_to_note_has_no_notes():
    X = np.random.default_rng(0).normal(size=(400, 6)) * [3.0, 2, 1.5, 1, 1, 1]
    said = words_of(report_html(PrimedPCA(3).fit(X), data=X))
    assert "Notes on the columns" not in said
    assert "groups" not in said
    assert "No row stands out" in said
    for part in ("Missing no value", "Constant no column", "Duplicate no column"):
        assert part in said


def gathered(X, mean=None):
    source = as_source(X)
    gatherer = Gatherer(source, np.zeros(source.shape[1]) if mean is None else mean)
    gatherer.rest(source)
    return gatherer.facts()


def awkward():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 40)) * rng.uniform(0.5, 5, 40) + 100
    X[:, 5] = X[:, 3]
    X[:, 7] = 4.0
    X[::50, 9] = np.nan
    X[:, 30] = X[:, 9]
    X[:, 11] = rng.permutation(3000) * 7
    X[:, 13] = rng.integers(0, 3, 3000)
    X[:, 15] = -2 * X[:, 14] + 0.01 * rng.normal(size=3000)
    return X


@pytest.mark.parametrize("slab", [2**19, 5000])
@pytest.mark.parametrize("order", ["C", "F"])
def test_facts_of_dense_columns(monkeypatch, slab, order):
    monkeypatch.setattr(facts_module, "SLAB", slab)
    X = np.asarray(awkward(), order=order)
    found = gathered(X, np.nanmean(X, axis=0))
    np.testing.assert_array_equal(found.missing, np.isnan(X).sum(axis=0))
    assert list(np.flatnonzero(found.constant)) == [7]
    assert found.duplicates == [(3, 5), (9, 30)]
    assert (found.identifiers, found.counters) == ([11], [])
    assert found.codes == {13: [0.0, 1.0, 2.0]}
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    np.testing.assert_allclose(found.variances, filled.var(axis=0, ddof=1), rtol=1e-9, atol=1e-9)
    pairs = {(i, j): r for i, j, r in found.pairs}
    assert set(pairs) == {(3, 5), (9, 30), (14, 15)}
    known = np.corrcoef(filled[:, 14], filled[:, 15])[0, 1]
    assert pairs[14, 15] == pytest.approx(known, abs=1e-9)


def test_facts_of_wide_and_of_sparse_data_are_those_of_their_entries():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(40, 30_000))
    wide[:, 20_000], wide[:, 5] = wide[:, 1], 3.0
    assert as_source(wide).axis == 1
    found = gathered(wide)
    assert found.duplicates == [(1, 20_000)]
    assert list(np.flatnonzero(found.constant)) == [5]
    assert found.skipped == ("Pairs of the 30,000 columns were not compared: they are too many.",)
    dense = sp.random(5000, 200, 0.02, random_state=0).toarray()
    dense[:, 17], dense[:, 30] = dense[:, 4], 0.0
    dense[5, 9] = np.nan
    for held in (sp.csr_array(dense), sp.csc_array(dense)):
        found = gathered(held)
        assert found.duplicates == [(4, 17)]
        assert list(np.flatnonzero(found.constant)) == [30]
        assert list(np.flatnonzero(found.missing)) == [9]
        assert found.zeros == pytest.approx((dense == 0).mean())
        # Only blocks of rows give products of all columns.
        assert [pair[:2] for pair in found.pairs] == [(4, 17)] * (as_source(held).axis == 0)


def test_columns_that_differ_only_in_the_last_row_or_in_sign_are_not_equal():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 8))
    X[:, 1] = X[:, 0]
    X[-1, 1] += 1e-12
    X[:, 3] = -X[:, 2]
    X[:, 5], X[:, 4] = 0.0, -0.0
    X[:, 5:] *= 1.0
    assert gathered(X).duplicates == []


def test_data_and_mean_are_not_written_to():
    X = sp.random(200, 20, 0.2, format="csr", random_state=0)
    pca = PrimedPCA(3).fit(X)
    kept, mean = X.copy(), pca.mean_.copy()
    report_html(pca, data=X)
    np.testing.assert_array_equal(pca.mean_, mean)
    assert (kept != X).nnz == 0


def test_files_are_read_once(tmp_path, monkeypatch):
    X = np.random.default_rng(0).normal(size=(200_000, 30))
    np.save(tmp_path / "X.npy", X)
    source = as_source(tmp_path / "X.npy")
    pca = PrimedPCA(3, certificate="none").fit(source)
    reads, read = [], type(source).read
    monkeypatch.setattr(type(source), "read", lambda own, i: reads.append(i) or read(own, i))
    assert len(source.blocks) > 2
    report_html(pca, data=source)
    assert sorted(set(reads)) == list(range(len(source.blocks)))
    assert len(reads) <= len(source.blocks) + 1  # the first is looked at for its kind


def test_too_much_to_examine_is_said(monkeypatch):
    monkeypatch.setattr(facts_module, "MOST_ENTRIES", 100)
    monkeypatch.setattr(inputs, "MOST_SCORES", 100)
    X = np.random.default_rng(0).normal(size=(100, 5))
    said = words_of(report_html(PrimedPCA(3).fit(X), data=X))
    assert "The columns were not examined: the data have 500 values." in said
    assert "The rows were not searched for outliers" in said
    assert "Scores of components 1 and 2" in said


# -- components ------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [None, "std"])
def test_components_without_variance_have_an_arbitrary_direction(scale):
    pca = PrimedPCA(1, scale=scale).fit(np.tile([1.0, 2.0], (3, 1)))
    said = words_of(report_html(pca))
    assert "Component 1 has no variance beyond rounding, so its direction is arbitrary." in said
    assert "almost only" not in said
    line = np.arange(9.0)[:, None] * [1.0, 2.0]
    pca = PrimedPCA(2, scale=scale).fit(line)
    name = "ab".__getitem__
    assert component_words(pca, 0, name).startswith("is ")
    assert component_words(pca, 1, name).startswith("has no variance")


def test_components_in_words():
    name = "abcdefghijklmnopqrstuvwxyz".__getitem__
    many = np.r_[np.full(13, 1.0), np.full(13, -0.9)]
    said = loading_words(many / np.linalg.norm(many), name)
    assert said.startswith("is spread over about 26 columns, led by a, b, c, d, e and 8 more (posi")
    assert " against n, o" in said
    assert (
        loading_words(np.array([0.8, -0.6]), name) == "is mostly a (positive) against b (negative)"
    )
    assert loading_words(np.array([-0.6, -0.6, -0.53]), name) == "is an average of all 3 columns"


def test_rules_for_the_number_of_components():
    rng = np.random.default_rng(0)
    rows = np.linalg.qr(rng.normal(size=(500, 10)))[0]
    variances = np.array([5.0, 2.5, 1, 0.5, 0.4, 0.2, 0.2, 0.1, 0.05, 0.05])
    rows = (rows - rows.mean(axis=0)) * np.sqrt(variances * 499)
    pca = PrimedPCA().fit(rows)
    rules = {rule: number for rule, number, _ in _how_many(pca)[0]}
    ratios = pca.explained_variance_ratio_
    sticks = [sum(1 / j for j in range(i, 11)) / 10 for i in range(1, 11)]
    assert rules["Broken stick"] == str(int(np.argmin(ratios > sticks))) == "2"
    assert rules["90 % of the variance"] == str(int((ratios.cumsum() < 0.9).sum()) + 1)
    few = {rule: number for rule, number, _ in _how_many(PrimedPCA(1).fit(rows))[0]}
    assert few["90 % of the variance"] == "more than 1"
    assert few["Broken stick"] == "at least 1"


def test_what_is_not_all_of_the_variance_is_not_100_per_cent():
    rows = np.random.default_rng(0).normal(size=(200, 4)) * [0.1, 0.1, 0.1, 700]
    rules, said = _how_many(PrimedPCA(3).fit(rows))
    assert rules[0][2] == "the first explains more than 99.9 %"
    assert "variance, the first alone more than 99.9 %" in said[0]
    assert _how_many(PrimedPCA().fit(rows))[1][0].startswith("The 4 components explain 100 % of")


def test_names_are_short_and_on_one_line():
    assert quoted("a\nb`c") == "`a b'c`"
    assert len(quoted("x" * 500)) <= 43


# -- rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["normal", "uniform", "standard_t", "exponential"])
@pytest.mark.parametrize("n", [60, 300, 3000])
def test_one_cloud_has_no_groups(shape, n):
    rng = np.random.default_rng(n)
    options = {"df": 3} if shape == "standard_t" else {}
    draws = [getattr(rng, shape)(size=(n, 3), **options) for _ in range(40)]
    assert sum(groups(rows) is not None for rows in draws) <= 1


def test_groups_are_found_whatever_their_sizes():
    rng = np.random.default_rng(0)
    for sizes in ([300, 300], [900, 100], [400, 300, 200]):
        true = np.repeat(np.arange(len(sizes)), sizes)
        rows = rng.normal(size=(true.size, 3)) + 9 * np.eye(3)[true]
        found = groups(rows)
        assert list(np.bincount(found)) == sizes
        np.testing.assert_array_equal(found, true)


def test_normal_rows_are_rarely_outliers_and_far_ones_always():
    rng = np.random.default_rng(0)
    flagged = 0
    for _ in range(100):
        t2, spe = rng.chisquare(4, 500), rng.chisquare(9, 500)
        flagged += outliers(Statistics(t2, spe)).rows.size > 0
    assert flagged <= 5
    t2[7], spe[[7, 8]] = 90.0, 120.0
    found = outliers(Statistics(t2, spe))
    assert sorted(found.rows) == [7, 8]
    assert dict(zip(found.rows, found.inside, strict=True)) == {7: True, 8: False}


def test_known_tables():
    iris = load_iris(as_frame=True)
    pca = PrimedPCA(3).fit(iris.data)
    said = words_of(report_html(pca, data=iris.data, labels=iris.target))
    assert "groups that are clearly apart" in said
    assert "petal length (cm)" in said
    digits = load_digits().data
    said = words_of(report_html(PrimedPCA(6).fit(digits), data=digits))
    assert "3 columns are constant (x0, x32 and x39)" in said


def test_a_frame_keeps_its_row_names():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(planted_columns()).drop(columns=["segment", "customer_no"])
    frame = frame.drop(columns=["country_code"]).fillna(41.0)
    said = words_of(report_html(PrimedPCA(3, scale="std").fit(frame), data=frame))
    assert "3 rows stand out from all others: rows 17, 203 and 351." in said


# -- data of every kind ----------------------------------------------------------------------


def planted_rows():
    """Rows of small whole numbers, so that every kind of data can hold them."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 200, size=(60, 12)).astype(np.float64)
    X[:, 7], X[:, 4] = X[:, 2], 5.0
    return X


EVERY = {**SOURCES, **FILES, **TEXT_FILES, **KINDS}


@pytest.mark.parametrize("kind", EVERY)
def test_facts_are_the_same_for_every_kind_of_data(kind, tmp_path):
    data = EVERY[kind](planted_rows(), tmp_path)
    pca = PrimedPCA(2, random_state=0).fit(data)
    found = find(pca, check_inputs(pca, data, None, None, None))
    assert any(re.search("2`.* and `.*7` are equal in every row", note) for note in found.notes)
    assert any("1 column is constant (" in note for note in found.notes)
    assert ("Missing", "no value") in found.data


@pytest.mark.integration
@pytest.mark.parametrize("name", ["fitted", "stream"])
def test_models_of_earlier_versions_have_a_page(name):
    model = load(EARLIER / f"{name}.safetensors")
    X = np.random.default_rng(0).normal(size=(100, model.n_features_in_))
    for given in ({}, {"data": X}, {"scores": model.transform(X)}):
        assert "What is proven" in words_of(report_html(model, **given))


@pytest.mark.parametrize(
    "payload",
    [
        "\"><script>alert('x')</script>",
        "<img src=x onerror=alert(1)>",
        "</canvas></svg><script>alert(2)</script>",
        "`</code><b onclick=alert(3)>`",
        "'); alert(4); ('",
        "{{ 7 * 7 }}{% raw %}",
    ],
)
def test_names_of_columns_rows_and_labels_stay_text(payload):
    pd = pytest.importorskip("pandas")
    X = planted_rows()
    X[3] += 5000
    frame = pd.DataFrame(X, columns=[f"{payload}{j}" for j in range(12)])
    labels = pd.Series(np.where(np.arange(60) % 2, payload, "other"), name=payload)
    pca = PrimedPCA(3, random_state=0).fit(frame)
    known = check_inputs(pca, frame, None, labels, None)
    assert known.label_name == payload
    html = report_html(pca, data=frame, labels=labels)
    assert html.count("<script") == 1
    for tag in ("<img", "<b ", "<script>alert", "</canvas></svg>"):
        assert tag not in html
    assert html.count("</canvas>") == 1
    assert "49{% raw %}" not in html


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        (["None", None, "b"], "2 classes: None (20 rows) and b (20 rows); unknown in 20 rows"),
        ([None, None, None], "0 different values; unknown in 60 rows"),
        ([np.nan, np.nan, np.nan], "0 different values; unknown in 60 rows"),
        ([1.5, np.nan, 2.5], "2 different values; unknown in 20 rows"),
        ([1, 2, 3], "3 classes: 1 (20 rows), 2 (20 rows) and 3 (20 rows)"),
    ],
)
def test_missing_labels_are_no_class(labels, wanted):
    X = planted_rows()
    said = words_of(report_html(PrimedPCA(3).fit(X), data=X, labels=labels * 20))
    assert f"Labels {wanted} " in said


def test_rows_of_unknown_number_have_a_colour_of_their_own():
    X = planted_rows()
    pca = PrimedPCA(3).fit(X)
    labels = np.where(np.arange(60) < 6, np.nan, np.arange(60.0))
    drawn = space(pca, check_inputs(pca, X, None, labels, None))
    assert drawn.legend[-1] == ("#999999", "unknown")
    colours, classes = drawn.colours.split(), np.frombuffer(b64decode(drawn.classes), np.uint8)
    assert [colours[i] == "#999999" for i in classes] == [True] * 6 + [False] * 54


def test_numbers_that_often_stand_for_missing_values_are_named():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)) * 20 + 150
    X[rng.random(300) < 0.1, 1] = -999
    X[rng.random(300) < 0.02, 2] = -999
    X[7, 3] = 99999
    X[:, 4] = np.linspace(-99, 99, 300)  # a scale that ends there
    model = PrimedPCA(2, random_state=0).fit(X)
    said = words_of(report_html(model, data=X))
    assert "The smallest value of x1 and x2 is -999, which often stands for a missing" in said
    assert "read the file with na_values=-999 (--na-values -999)" in said
    assert "The largest value of x3 is 99999" in said
    assert facts_of(X).marks == {1: -999, 2: -999, 3: 99999}
    few = facts_of(X[:20])
    assert not few.marks


def facts_of(X):
    source = as_source(X)
    found = Gatherer(source, X.mean(axis=0))
    found.rest(source)
    return found.facts()


def test_a_single_column_and_wide_labels(recwarn):
    pytest.importorskip("matplotlib")
    x = np.random.default_rng(0).normal(size=(64, 1))
    said = words_of(report_html(PrimedPCA(1).fit(x), data=x))
    assert "64 rows and 1 column," in said
    assert "64 rows × 1 column " in said
    x, wide = np.random.default_rng(0).normal(size=(64, 3)), [f"{i}" + "W" * 60 for i in range(8)]
    report_html(PrimedPCA(2).fit(x), data=x, labels=np.array(wide * 8))
    assert not [one for one in recwarn if "layout" in str(one.message)]
