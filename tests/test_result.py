"""Certificates: the counted bounds, and the sentences."""

import math

import numpy as np
import pytest

from primedpca.report import certificate_words
from primedpca.result import Certificate, Cluster, Decomposition, Plan, Solution, Status

RIGHT = math.pi / 2


def proof(angles, clusters=(), zero=(), kind="probabilistic", failure=1e-6):
    angles = np.asarray(angles, dtype=np.float64)
    none = np.isin(np.arange(angles.size), zero)
    pairs = np.ones((angles.size, 2))
    return Certificate(angles, pairs, [Cluster(*run) for run in clusters], kind, failure, none)


def solution(certificate, status):
    k = certificate.angle_bounds.size
    found = Decomposition(np.eye(k), np.ones(k), np.zeros(k), None, float(k), 9.0)
    return Solution(found, status, 1.0, [], certificate)


# -- counted bounds --------------------------------------------------------------------------


def test_the_bounds_that_count():
    angles = [0.1, RIGHT, 1e-4, RIGHT, RIGHT, RIGHT]
    found = proof(angles, [(1, 3, 0.01), (4, 7, 0.02)], zero=[3])
    np.testing.assert_array_equal(found.counted_bounds(), [0.1, 0.01, 1e-4, 0, 0.02, 0.02])
    np.testing.assert_array_equal(found.angle_bounds, angles)  # not written to
    assert found.met(0.01).tolist() == [False, True, True, True, False, False]
    assert found.grouped.tolist() == [False, True, True, False, True, True]
    assert found.single.tolist() == [True, False, False, False, False, False]


def test_a_cut_group_is_reported_whole():
    found = proof([RIGHT] * 4, [(1, 4, 1e-3)])
    assert found.first(3).met(0.01).tolist() == [False, True, True]
    assert found.first(3).clusters == [Cluster(1, 4, 1e-3)]


@pytest.mark.parametrize(
    ("status", "converged", "warns"),
    [
        (Status.EXACT, True, False),
        (Status.CERTIFIED, True, False),
        (Status.CONVERGED, True, False),
        (Status.FINISHED, False, False),
        (Status.STOPPED, False, False),
        (Status.FLOOR, False, True),
    ],
)
def test_who_has_converged_and_who_warns(status, converged, warns):
    found = solution(proof([1e-4, RIGHT, RIGHT], [(1, 3, 1e-4)]), status).first(2)
    assert (found.converged, found.warns) == (converged, warns)
    assert found.certificate.angle_bounds.size == 2


# -- in words --------------------------------------------------------------------------------


def test_bounds_are_rounded_up():
    said = str(proof([0.00314, RIGHT, RIGHT], [(1, 3, 0.0213)], failure=1.2e-6))
    assert "Component 1 is proven to be within 0.18°" in said
    assert "Components 2 and 3 are not distinguished, but proven as a plane, within 1.3°" in said
    assert "with probability 99.999 % or more" in said
    short = solution(proof([1e-4, 0.0214]), Status.NOT_CERTIFIED).shortfall(1e-3)
    assert short.endswith("Not proven: component 2, only to be within 0.022 rad.")


def test_the_warning_names_components_from_1_and_not_too_many():
    angles = [1e-4, RIGHT] * 10
    short = solution(proof(angles), Status.NOT_CERTIFIED).shortfall(1e-3)
    assert short.endswith("Not proven: components 2, 4, 6, 8, 10, 12, 14, 16 and 2 more.")


def test_text_and_report_are_the_same():
    found = proof([1e-4, RIGHT, RIGHT], [(1, 3, 1e-4)])
    assert str(found) == certificate_words(found)


def test_a_group_is_said_to_be_no_more_than_that():
    whole = str(proof([RIGHT] * 2, [(0, 2, 1e-4)]))
    assert (
        "Components 1 and 2 are not distinguished, but proven as a plane, within 0.0058°" in whole
    )
    assert "tied" not in whole
    part = str(proof([RIGHT] * 2, [(0, 5, 1e-4)]))
    assert "Components 1 to 5 are not distinguished" in part
    assert "Components 3 to 5 were not kept; request 5 components" in part


def test_a_span_that_is_not_proven_is_not_called_proven():
    said = str(proof([RIGHT] * 2, [(0, 2, 1.55)]))
    assert "are not distinguished, but nothing useful is proven about their common plane" in said
    assert "°" not in said
    assert "probability" not in said  # nothing is claimed


def test_the_status_tells_of_spans_and_of_no_variance():
    assert "as a subspace" in str(Status.CERTIFIED)
    assert "no variance" in str(Status.CERTIFIED)


# -- notebooks -------------------------------------------------------------------------------


def parsed(html):
    """Parse HTML strictly, as XML: every tag is closed and every text escaped."""
    from xml.etree import ElementTree

    return ElementTree.fromstring(f"<div>{html}</div>")


def test_a_certificate_in_a_notebook():
    angles = np.array([1e-4, 1.5, 1.5, math.pi / 2])
    pairs = np.array([[2.0, 2.5], [1.0, 1.1], [1.0, 1.1], [0.0, np.inf]])
    zero = np.array([False] * 4)
    proof = Certificate(angles, pairs, [Cluster(1, 3, 1e-4)], "deterministic", 0.0, zero)
    tree = parsed(proof._repr_html_())
    assert str(proof) in "".join(tree.itertext())
    assert len(tree.findall(".//circle")) == 4
    cells = [[cell.text for cell in row] for row in tree.findall(".//tbody/tr")]
    assert cells[0] == ["1", "0.0058°", "2 to 2.5"]
    assert cells[3][1] == "not proven"
    empty = Certificate(angles[:0], pairs[:0], [], "exact", 0.0, zero[:0])
    assert "no components" in "".join(parsed(empty._repr_html_()).itertext())


def test_a_plan_in_a_notebook():
    from primedpca import plan

    found = plan(np.ones((3000, 400)), 5)
    tree = parsed(found._repr_html_())
    assert str(found) in "".join(tree.itertext())
    assert len(tree.findall(".//tbody/tr")) == len(found.ways) > 1
    hostile = type("<script>alert(1)</script>", (), {})()
    own = Plan(hostile, 3, 3, "<img src=x> & more")
    tree = parsed(own._repr_html_())
    assert "<script>alert(1)</script>: <img src=x> & more." in "".join(tree.itertext())
    assert not tree.findall(".//script")


def test_a_model_in_a_notebook():
    from sklearn import config_context

    from primedpca import PrimedPCA

    X = np.random.default_rng(0).normal(size=(60, 12))
    pca = PrimedPCA(11, random_state=0)
    assert "Fitted to" not in pca._repr_mimebundle_()["text/html"]
    html = pca.fit(X)._repr_mimebundle_()["text/html"]
    assert html.index("sk-estimator") < html.index("Fitted to 60 rows × 12 columns: 11 components")
    assert str(pca.certificate_) in html
    assert html[-4000:] == pca._repr_html_()[-4000:]
    with config_context(display="text"):
        assert list(pca._repr_mimebundle_()) == ["text/plain"]
        assert not hasattr(pca, "_repr_html_")
    bare = PrimedPCA(2, certificate="none").fit(X)
    assert "Nothing is proven" in bare._repr_html_()
    assert "0 components" in PrimedPCA(2).partial_fit(X[:1])._repr_html_()
