"""The report page: it is correct, complete, escaped, and written to the right place."""

import math
import re
import subprocess
import sys
from decimal import Decimal, localcontext
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

import primedpca
from primedpca import PrimedPCA, as_source, load
from primedpca._core.wording import angle_words, bound_words, certainty_words
from primedpca.priming import REGISTRY
from primedpca.report import certificate_sentences, check_page_path, report_html, write_report
from primedpca.report.words import verdict
from primedpca.result import Certificate, Cluster
from primedpca.sources import maps

SPECTRUM = 1 / np.arange(1.0, 41)


def data(spectrum=SPECTRUM, n=300):
    """Return rows whose variances are exactly ``spectrum``."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, len(spectrum)))
    rows = np.linalg.qr(rows - rows.mean(axis=0))[0] * np.sqrt(n - 1)
    turn = np.linalg.qr(rng.normal(size=(len(spectrum), len(spectrum))))[0]
    return rows * np.sqrt(spectrum) @ turn


X = data()


def words_of(html):
    """Return the visible text of the page."""
    body = re.sub(r"<(style|script|svg)\b.*?</\1>", " ", html, flags=re.S)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))


def proof(angles, clusters=(), zero=(), kind="probabilistic", failure=1e-6):
    angles = np.asarray(angles, dtype=np.float64)
    none = np.zeros(angles.size, dtype=bool)
    none[list(zero)] = True
    pairs = np.stack([np.ones(angles.size), np.ones(angles.size)], axis=1)
    return Certificate(angles, pairs, [Cluster(*run) for run in clusters], kind, failure, none)


# -- words -----------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [1e-12, 3e-7, 0.000349066, 0.0123, 0.1, 0.3926, 1.2])
def test_bounds_are_never_rounded_down(angle):
    said = float(angle_words(angle).removesuffix("°"))
    assert math.degrees(angle) <= said <= max(1.11 * math.degrees(angle), 1e-6)
    number = bound_words(angle)
    if "×" in number:
        digits, power = number.split(" × 10")
        number = f"{digits}e{power.translate(str.maketrans('⁻⁰¹²³⁴⁵⁶⁷⁸⁹', '-0123456789'))}"
    assert math.degrees(angle) <= float(number) <= 1.11 * math.degrees(angle)


@pytest.mark.parametrize("failure", [0.5, 0.05, 0.015, 1e-3, 9e-7, 1e-6, 3.3e-12, 7e-29, 1e-31])
def test_certainty_is_never_rounded_up(failure):
    said = Decimal(certainty_words(failure).removesuffix(" %"))
    with localcontext(prec=60):
        assert 100 - 1000 * Decimal(failure) <= said <= 100 * (1 - Decimal(repr(failure)))


def test_a_certainty_beyond_all_reason_is_still_said():
    said = certificate_sentences(proof([1e-4], failure=1e-300), 1e-3)
    assert f"with probability 99.{'9' * 30} % or more" in said[-1]
    pca = PrimedPCA(1, failure_probability=1e-30, random_state=0).fit(X)
    pca.certificate_ = proof([1e-4], failure=1e-30)
    assert f"99.{'9' * 28} % or more" in words_of(report_html(pca))


def test_the_certificate_in_words():
    bounds = [0.0003] * 14 + [math.pi / 2] * 2
    said = certificate_sentences(proof(bounds, [(14, 16, 0.0004)]), 0.003)
    assert said[0] == "Components 1 to 14 are each proven to be within 0.018° of the true ones."
    assert said[1].startswith("Components 15 and 16 are not distinguished, but proven as a plane, ")
    assert "with probability 99.9999 % or more" in said[2]


@pytest.mark.parametrize(
    ("certificate", "tol", "words"),
    [
        (proof([1e-4, 0.1]), 1e-3, ["Component 1 is proven to be within 0.0058°", "2 is"]),
        (proof([1e-4, 1.5, 1e-4]), 1e-3, ["Components 1 and 3 are", "about component 2."]),
        (proof([1e-4, 1.5], [(1, 3, 1e-4)]), 1e-3, ["Component 3 was not kept; request 3"]),
        (
            proof([1.5] * 4, [(0, 6, 1e-4)]),
            1e-3,
            ["Components 1 to 6 are not", "Components 5 and 6 were not"],
        ),
        (proof([1.5] * 9, [(0, 9, 1e-4)]), 1e-3, ["but proven as a subspace, within 0.0058°"]),
        (proof([1.5, 1.5], [(0, 2, 1.5)]), 1e-3, ["nothing useful is proven about their"]),
        (proof([1e-4, 1.5], zero=[1]), 1e-3, ["Component 2 has no variance"]),
        (proof([1e-4], kind="deterministic"), 1e-3, ["are certain: no probability"]),
        (proof([1e-4], kind="exact"), 1e-3, ["full decomposition, include rounding"]),
        (None, 1e-3, ["Nothing is proven"]),
    ],
)
def test_what_else_there_is_to_say(certificate, tol, words):
    said = " ".join(certificate_sentences(certificate, tol))
    assert all(part in said for part in words), said


def test_many_groups_share_a_sentence():
    runs = [(4 * i, 4 * i + 4, 1e-4 if i < 20 else 1.5) for i in range(25)]
    said = certificate_sentences(proof([1.5] * 101, [*runs, (100, 103, 1e-5)]), 1e-3)
    assert said[0].startswith("Components 1 to 80 form 20 groups")
    assert "each group is proven as a subspace, within 0.0058°" in said[0]
    assert said[1].startswith("Components 101 to 103 are not distinguished")
    assert said[1].endswith("request 103 components to have the whole subspace.")
    assert [line for line in said[2:] if line.startswith("Component")] == [
        f"Components {4 * i + 1} to {4 * i + 4} are not distinguished, but nothing useful is "
        "proven about their common subspace."
        for i in range(20, 25)
    ]


def test_a_group_is_not_said_to_be_tied():
    for angle in (1e-4, 1.5):
        said = certificate_sentences(proof([1.5, 1.5], [(0, 2, angle)]), 1e-3)[0]
        assert said.startswith("Components 1 and 2 are not distinguished")
        assert "variances" not in said


def judged(certificate, tol=1e-3):
    """Return a stand-in for a model with this certificate."""
    k = certificate.angle_bounds.size
    known = {"certificate_": certificate, "n_components_": k, "tol": tol, "certificate": "auto"}
    return SimpleNamespace(**known)


@pytest.mark.parametrize(
    ("certificate", "kind", "words"),
    [
        (
            proof([1e-4, 1e-5]),
            "certified",
            "Both components are proven to be within the requested 0.058° of the true ones.",
        ),
        (proof([1e-4] * 3), "certified", "All 3 components are proven"),
        (proof([1e-4, 0.1]), "partly", "1 of 2 components is proven"),
        (proof([0.1, 0.1]), "unproven", "Neither component is proven to be within the requested"),
        (
            proof([1e-4, 1.5, 1.5, 1.5], [(1, 3, 1e-4)], zero=[3]),
            "certified",
            "(components 2 and 3 only as a subspace; component 4 has no variance).",
        ),
        (
            proof([1.5] * 4, [(0, 2, 1e-4), (2, 4, 1e-4)]),
            "certified",
            "(components 1 to 4 only as subspaces).",
        ),
        (
            proof([1.5, 1.5, 0.1], [(0, 2, 1e-4)]),
            "partly",
            "2 of 3 components are proven to be within the requested 0.058° of the true ones "
            "(components 1 and 2 only as a subspace).",
        ),
        (
            proof([1e-4, 1.5], [(1, 3, 1e-4)]),
            "certified",
            "(component 2 only as part of a subspace; component 3 of it was not kept)",
        ),
        (proof([1.5], [(0, 9, 1.0)]), "unproven", "The component is not proven"),
    ],
)
def test_the_verdict_tells_spans_from_components(certificate, kind, words):
    found, sentence = verdict(judged(certificate))
    assert found == kind
    assert words in sentence
    if not (certificate.clusters or certificate.zero.any()):
        assert "(" not in sentence


def test_where_nothing_is_proven_no_certainty_is_claimed():
    said = " ".join(certificate_sentences(proof([1.5, 1.5], [(0, 2, 1.5)]), 1e-3))
    assert "certain" not in said
    assert "probability" not in said


# -- the page --------------------------------------------------------------------------------


def test_the_page_says_what_was_asked_done_and_proven():
    pca = PrimedPCA(3, priming="block_krylov", tol=math.pi / 500, random_state=7).fit(X)
    html = report_html(pca, data=X)
    said = words_of(html)
    for part in (
        *certificate_sentences(pca.certificate_, pca.tol),
        *("300 rows × 40 columns", "float64", "0.36° (pi/500 radians)", "99.9999 % or more"),
        *(str(pca.plan_), f"the data were read {pca.n_passes_:.3g} times"),
        *("'block_krylov' default: 'auto'", "Seed 7", f"primedpca {primedpca.__version__}"),
        f"numpy {np.__version__}",
    ):
        assert part in said, part
    assert html.count("<figure") >= 6
    assert 'lang="en"' in html


def test_rows_of_the_table_hold_the_numbers():
    pca = PrimedPCA(5, random_state=0).fit(X)
    rows = re.findall(r'<tr data-keys="([^"]*)">(.*?)</tr>', report_html(pca))
    assert len(rows) == 5
    for i, (keys, cells) in enumerate(rows):
        number, variance, _, share, total, bound, _ = (float(key) for key in keys.split())
        assert number == i + 1
        assert variance == pytest.approx(pca.explained_variance_[i])
        assert share == pytest.approx(pca.explained_variance_ratio_[i])
        assert total == pytest.approx(pca.explained_variance_ratio_[: i + 1].sum())
        assert bound == pca.angle_bounds_[i]
        low, high = re.search(r"<td>([\d.e+-]+) to ([\d.e+-]+)</td>", cells).groups()
        inner = pca.certificate_.eigenvalue_bounds[i]
        assert float(low) <= inner[0] <= inner[1] <= float(high)


def test_the_page_needs_no_other_file():
    html = report_html(PrimedPCA(2, random_state=0).fit(X), data=X)
    for address in re.findall(r"\w+://[^\s\"'<)]+", html):
        assert address.startswith("http://www.w3.org/"), address  # names of XML, not addresses
    links = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", html)
    assert all(link.startswith(("#", "data:")) for link in links)


NASTY = "\"><script>alert('x')</script><img src=x onerror=alert(1)>&amp; $a_$ 'q'"


def test_names_that_look_like_markup_are_only_names(tmp_path):
    names = [f"{NASTY}{i}" for i in range(40)]
    labels = np.where(np.arange(300) % 2, NASTY, "$b$")
    pca = PrimedPCA(2, random_state=0).fit(X)
    path = tmp_path / "a<b>$&.npy"
    np.save(path, X)
    page = report_html(pca, data=path, names=names, labels=labels, model_path=NASTY)
    titled = report_html(pca, title=NASTY)
    for html in (page, titled):
        assert "<script>alert" not in html
        assert "<img" not in html
        assert html.count("<script") == 1
    assert "a<b>$&.npy" in words_of(page)
    assert NASTY in words_of(titled)


def test_names_in_any_script():
    names = [f"基因 {i} 🧬" for i in range(40)]
    html = report_html(PrimedPCA(1, random_state=0).fit(X), names=names)
    assert "基因" in html


def stripped(html):
    return re.sub(r"Written by primedpca on [^.]*", "", html)


def test_a_loaded_model_gives_the_same_page(tmp_path):
    pca = PrimedPCA(4, priming="block_krylov", random_state=0).fit(X)
    pca.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert stripped(report_html(again)) == stripped(report_html(pca))


@pytest.mark.parametrize("k", [1, 40])
def test_any_number_of_components(k):
    html = report_html(PrimedPCA(k, random_state=0).fit(X), data=X)
    assert html.count("<tr data-keys") == k
    what = "The component is" if k == 1 else f"All {k} components are"
    assert f"{what} proven" in words_of(html)
    assert not re.search(r"\b1 (components|extra directions)\b|1 component:.*Together they", html)


def test_above_a_hundred_thousand_rows_it_is_said_that_cells_are_drawn():
    pca = PrimedPCA(2, random_state=0).fit(X)
    scores = np.random.default_rng(0).normal(size=(100_001, 2))
    said = words_of(report_html(pca, scores=scores, labels=np.arange(100_001) % 3))
    assert "rows, each cell coloured by the labels of its rows." in said
    assert "Scores of 100" not in said


def test_a_long_table_is_cut_and_says_so():
    wide = data(1 / np.arange(1.0, 521), 600)
    html = report_html(PrimedPCA(510, random_state=0).fit(wide))
    assert html.count("<tr data-keys") == 500
    assert "The first 500 of 510" in words_of(html)
    assert len(html) < 1e6


@pytest.mark.parametrize("priming", sorted(REGISTRY))
def test_any_priming_without_a_certificate(priming):
    pca = PrimedPCA(1, priming=priming, certificate="none", random_state=0).fit(X[:, :10])
    said = words_of(report_html(pca))
    assert "Nothing is proven" in said
    assert str(pca.plan_) in said


def test_a_function_as_priming():
    directions = np.linalg.qr(np.random.default_rng(1).normal(size=(40, 8)))[0]
    pca = PrimedPCA(2, priming=lambda X, n_directions: directions, random_state=0).fit(X)
    assert "the function" in words_of(report_html(pca))


def test_tied_variances():
    spectrum = SPECTRUM.copy()
    spectrum[3] = spectrum[4]
    pca = PrimedPCA(5, priming="block_krylov", random_state=0).fit(data(spectrum))
    html = report_html(pca)
    assert "Components 4 and 5 are not distinguished, but proven as a plane" in words_of(html)
    assert html.count("(span)</td><td>4 to 5</td>") == 2
    assert "true ones (components 4 and 5 only as a subspace)." in words_of(html)
    assert "° (components 4 and 5 only as a subspace)." in html  # of the plot


def test_not_proven_says_why_and_what_to_try():
    with pytest.warns(ConvergenceWarning):
        pca = PrimedPCA(6, priming="block_krylov", max_passes=1, random_state=0).fit(X)
    said = words_of(report_html(pca))
    assert "Not certified. None of the 6 components is proven" in said
    assert "Increase max_passes" in said


def test_a_stream_and_one_row_of_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pca = PrimedPCA(3).partial_fit(X[:1])
    for given in ({}, {"data": X}, {"data": X, "labels": np.arange(300) % 2}):
        html = report_html(pca, **given)
        assert "There are no components yet." in words_of(html)
        assert "counts from 0" not in html
        names = {"pca": pca, "X": X[1:]}
        exec(compile(code_of(html), "page", "exec"), names)
        assert names["pca"].n_components_ == 3
        Path("model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"labels.*shape.*300 rows"):
        report_html(pca, data=X, labels=[1, 2])
    pca.partial_fit(X[1:])
    said = words_of(report_html(pca, data=X[:50]))
    assert "rows come in batches and are seen once" in said
    assert "50 rows, not as in the fit" in said


def test_a_share_of_the_rows():
    pca = PrimedPCA(3, priming="subspace_iteration", refine_share=0.5, random_state=0).fit(X)
    assert verdict(pca)[0] == "none"
    assert "a part of the rows gives no certificate" in words_of(report_html(pca, data=X))


def test_images_are_drawn_as_images(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for i in range(12):
        Image.fromarray(rng.integers(0, 255, (8, 6, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    pca = PrimedPCA(3, random_state=0).fit(tmp_path)
    html = report_html(pca, data=tmp_path)
    assert "Components as images" in html
    assert "Loadings of component" not in html


def code_of(html):
    return unescape(re.search(r"<pre[^>]*><code>(.*?)</code>", html, re.S)[1])


def test_the_code_on_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pca = PrimedPCA(3, random_state=0).fit(X)
    bare = PrimedPCA(3, random_state=0, certificate="none").fit(X)
    for model, where in ((pca, "it's here.safetensors"), (bare, None)):
        if where:
            model.save(where)
        html = report_html(model, model_path=where)
        names = {"pca": model, "X": X}
        exec(compile(code_of(html), "page", "exec"), names)
        assert np.allclose(names["scores"], model.transform(X))
        Path("model.safetensors").unlink(missing_ok=True)


def test_rows_that_went_through_a_map(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    roots = as_source(X**2, map=maps.sqrt)
    pca = PrimedPCA(3).fit(roots)
    pca.save("model.safetensors")
    html = report_html(pca, model_path="model.safetensors")
    assert "Map sqrt, applied to each row" in words_of(html)
    code = unescape(re.search(r"<pre[^>]*><code>(.*?)</code>", html, re.S)[1])
    names = {"X": X**2}
    exec(compile(code, "page", "exec"), names)
    np.testing.assert_array_equal(names["scores"], pca.transform(roots))
    own = words_of(report_html(PrimedPCA(3).fit(as_source(X, map=np.tanh))))
    assert "after your own map <" in own
    assert "primedpca transform" not in own


def test_the_engine_that_was_used_is_named():
    ranks = PrimedPCA(2, engine="torch_distributed").fit(X)  # a single rank, without torchrun
    for model, where in ((ranks, "torch_distributed"), (PrimedPCA(2).fit(X), "this machine")):
        assert f"Computed on {where} Status" in words_of(report_html(model))


# -- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"data": X[:, :5]}, "`data` has 5 columns"),
        ({"scores": np.ones((4, 9))}, "`scores` must have shape"),
        ({"scores": np.ones(4)}, "`scores` must have shape"),
        ({"labels": [1, 2]}, "pass `data` or `scores`"),
        ({"data": X, "labels": [1, 2]}, "`labels` has shape (2,), but there are 300 rows"),
        ({"names": ["a"]}, "one name for each of the 40 columns"),
    ],
)
def test_what_does_not_go_with_the_model_is_refused(wrong, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        report_html(PrimedPCA(3, random_state=0).fit(X), **wrong)


def test_a_model_that_is_not_fitted_is_refused():
    with pytest.raises(ValueError, match="not fitted"):
        report_html(PrimedPCA(3))


def test_another_model_is_refused():
    with pytest.raises(TypeError, match="must be a PrimedPCA, got PCA"):
        report_html(PCA(3).fit(X))


def test_the_page_is_replaced_but_nothing_else_is(tmp_path):
    pca = PrimedPCA(2, random_state=0).fit(X)
    page = tmp_path / "page.html"
    assert write_report(pca, page) == page
    write_report(pca, str(page), title="Another")
    assert "Another" in page.read_text(encoding="utf-8")
    assert page.stat().st_mode & 0o044 == 0o044 & ~_umask()
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    link = tmp_path / "link.html"
    link.symlink_to(page)
    write_report(pca, link, title="Through the link")
    assert link.is_symlink()
    assert "Through the link" in page.read_text(encoding="utf-8")
    thesis = tmp_path / "thesis.html"
    thesis.write_text("<!doctype html><title>My thesis</title>")
    with pytest.raises(FileExistsError, match="not a report"):
        write_report(pca, thesis)
    assert "My thesis" in thesis.read_text()


def _umask():
    import os

    old = os.umask(0)
    os.umask(old)
    return old


def test_data_and_model_are_never_overwritten(tmp_path):
    pca = PrimedPCA(2, random_state=0).fit(X)
    rows, model, table = tmp_path / "X.npy", tmp_path / "m.safetensors", tmp_path / "x.html"
    np.save(rows, X)
    pca.save(model)
    kept = rows.read_bytes(), model.read_bytes()
    for path in (rows, model):
        with pytest.raises(FileExistsError, match=path.name):
            write_report(pca, path)
    # Not even if the file of the data looks like a page.
    table.write_text("<!doctype html>")
    with pytest.raises(FileExistsError, match="holds the data"):
        check_page_path(table, table)
    assert kept == (rows.read_bytes(), model.read_bytes())


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    pca = PrimedPCA(2, random_state=0).fit(X)
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        write_report(pca, tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_report(pca, tmp_path / "nowhere" / "page.html")
    if Path("/proc").is_dir():  # where not even root can make a file
        with pytest.raises(OSError, match="/proc"):
            write_report(pca, "/proc/page.html")


def test_a_write_that_fails_leaves_the_old_page(tmp_path):
    page = tmp_path / "page.html"
    old = '<!doctype html><meta name="generator" content="primedpca">old'
    page.write_text(old)
    code = (
        "import resource, sys\nimport numpy as np\nfrom primedpca import PrimedPCA\n"
        "from primedpca.report import write_report\n"
        "pca = PrimedPCA(2, random_state=0).fit(np.eye(6) * np.arange(1.0, 7))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "write_report(pca, sys.argv[1])\n"
    )
    run = [sys.executable, "-c", code, str(page)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert f"{page} could not be written" in done.stderr
    assert page.read_text() == old
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_without_the_extra_it_is_named(missing):
    code = (
        f"import sys\nsys.modules[{missing!r}] = None\n"
        "import numpy as np\nfrom primedpca import PrimedPCA\n"
        "from primedpca.report import certificate_words, report_html\n"
        "pca = PrimedPCA(2, random_state=0).fit(np.eye(6) * np.arange(1.0, 7))\n"
        "print(certificate_words(pca.certificate_))\n"
        "report_html(pca)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "are each proven" in done.stdout  # words need no plot
    assert "primedpca[plots]" in done.stderr.splitlines()[-1]


def test_a_page_needs_a_path():
    with pytest.raises(TypeError, match="`path`=3 must be the path of a file"):
        write_report(PrimedPCA(1).fit(np.eye(4)), 3)


# -- rows of another fit ---------------------------------------------------------------------


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("whiten", [True, False])
def test_rows_that_are_not_those_of_the_fit_are_named(center, whiten):
    """The certificate is about the data of the fit, also if other rows are as many."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) * np.arange(6, 0, -1) + 2
    model = PrimedPCA(3, center=center, whiten=whiten, random_state=0).fit(X)
    others = {
        "other rows": rng.normal(size=(300, 6)) * np.arange(6, 0, -1) + 2.5,
        "fewer rows": X[:200],
        "a value that means missing": np.where(np.arange(300)[:, None] == 7, -999.0, X),
    }
    words = "are not those of the fit, or were read in another way"
    assert words not in words_of(report_html(model, data=X))
    for other in others.values():
        said = words_of(report_html(model, data=other))
        assert words in said
        assert "those of the data of the fit, which had 300 rows and 6 columns" in said
    assert "true components of these data" not in words_of(report_html(model, data=X))
    model.fit(X, sample_weight=np.arange(300) % 3)
    said = words_of(report_html(model, data=X))
    assert "or had weights in the fit" in said
    assert "Shown here 300 rows, not as in the fit" in said


def test_rows_of_a_stream_and_of_filled_values_are_those_of_the_fit():
    """The variances of a sketch are too small, within its bounds."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 30)) * np.linspace(3, 1, 30)
    stream = PrimedPCA(4)
    for part in np.array_split(X, 8):
        stream.partial_fit(part)
    holes = X.copy()
    holes[rng.random(X.shape) < 0.1] = np.nan
    filled = PrimedPCA(4, missing="mean", scale="std", random_state=0).fit(holes)
    for model, rows in ((stream, X), (filled, holes)):
        assert "not those of the fit" not in words_of(report_html(model, data=rows))


def test_scores_are_in_the_order_of_transform(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 4)) * [4, 3, 2, 1]
    model = PrimedPCA(3).fit(X)
    scores = model.set_output(transform="pandas").transform(X)
    primedpca.report.write_report(model, tmp_path / "page.html", scores=scores[["PC1", "PC2"]])
    for names in (["PC2", "PC1"], ["PC2", "PC3"]):
        with pytest.raises(ValueError, match="`scores` has the column PC2, where"):
            primedpca.report.write_report(model, tmp_path / "page.html", scores=scores[names])
    with pytest.raises(ValueError, match="`scores` holds dates or durations"):
        primedpca.report.write_report(
            model, tmp_path / "page.html", scores=np.ones((30, 2)).astype("m8[s]")
        )
