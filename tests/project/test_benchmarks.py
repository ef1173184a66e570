"""The race: it runs on tiny data, calls a wrong setting wrong, and says who is absent and why."""

import csv
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from environments import ROOT

import primedpca
from primedpca_paper import peers

pytestmark = pytest.mark.integration

FOLDER = ROOT / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    """The modules of the folder, which is no package."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("cases", "tune", "memory", "tables", "race", "panel_sets", "panel_tables")
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def tiny(bench):
    case = bench.cases.TINY["tiny"]
    X = case.load()
    return case, X, case.reference(X)


def test_the_quick_race_writes_the_tables(tmp_path):
    source = str(Path(primedpca.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": source}
    environment.pop("PRIMEDPCA_DATA", None)
    command = [sys.executable, str(FOLDER / "race.py"), "--quick", "--repeats", "1"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    needed = {"set", "n", "d", "nnz", "k", "method", "setting", "seconds_best", "seconds_median"}
    needed |= {"passes", "extra_mb", "worst_angle_deg", "right", "ratio_to_ours", "machine"}
    assert needed | {"cores", "versions", "date"} <= set(rows[0])
    assert {row["set"] for row in rows} == {"tiny", "tiny-sparse"}
    for row in rows:
        if row["role"].startswith("ours") or row["role"] == "tuned":
            assert row["right"] == "True", row
        if row["method"] == "torch.pca_lowrank" and row["role"] == "default":
            assert row["right"] == "False"  # q=k and two iterations on i^-0.5
        if row["role"] == "absent":
            assert row["note"].endswith((".", ")"))
    with (tmp_path / "targets.csv").open() as file:
        targets = {(row["set"], row["target"]) for row in csv.DictReader(file)}
    assert {("tiny", "a"), ("tiny", "b"), ("tiny-sparse", "c")} <= targets
    text = (tmp_path / "table.md").read_text()
    assert "## Targets" in text
    assert "dense n x d" in text


def test_a_wrong_setting_is_called_wrong(bench, tiny):
    case, X, reference = tiny
    peer, Setting = peers.SklearnRandomized(), peers.Setting
    wrong = bench.tune.try_setting(peer, X, case.k, Setting(4, 1), reference, np.inf)
    right = bench.tune.try_setting(peer, X, case.k, Setting(16, 16), reference, np.inf)
    assert (wrong["right"], right["right"]) == (False, True)
    assert wrong["angle"] > 180 / 128 > right["angle"]
    hopeless = bench.tune.try_setting(peer, X, case.k, Setting(4, 1), reference, 0.0)
    assert hopeless["note"].startswith("abandoned")


def test_a_missing_package_is_said_and_not_a_failure(bench, tiny, monkeypatch):
    case, X, reference = tiny
    peer = peers.Fbpca(package="no_such_package")
    records = bench.tune.tune(case, X, reference, [peer], {})
    starters, absent = bench.race.line_up(case, X, [peer], records, {})
    assert [entry.peer.name for entry in starters] == ["primedpca", "primedpca, certified"]
    assert absent == [(peer, "The package no_such_package is not installed.")]


def test_what_a_peer_raises_is_a_row(bench, tiny, monkeypatch):
    case, X, reference = tiny
    peer = peers.CovarianceEigh()

    def fail(*_):
        raise ArithmeticError("no")

    monkeypatch.setattr(peers.CovarianceEigh, "run", fail)
    records = bench.tune.tune(case, X, reference, [peer], {})
    assert bench.tune.right_settings(records[peer.name]) == []
    assert bench.tune.why_none(records[peer.name]) == "ArithmeticError: no"


def walk(width, *rows):
    """What tuning visited: (effort, right), a walk that ends wrong having been abandoned."""
    return [
        {"width": width, "effort": effort, "right": right, "seconds": 1.0, "angle": 2.0}
        for effort, right in rows
    ]


def test_the_setting_for_all_sets(bench):
    peer, Setting = peers.TorchLowrank(), peers.Setting
    first = walk(4, (1, False), (2, True)) + walk(10, (1, True)) + walk(16, (1, True))
    second = walk(4, (1, False)) + walk(10, (1, False), (2, True)) + walk(16, (1, False))
    records = {"x": {"visited": first}, "y": {"visited": second}}
    records["z"] = {"visited": [{"width": 4, "effort": 1, "right": False, "note": "No."}]}
    setting, right, unknown = bench.tune.all_sets_setting(peer, records, dict.fromkeys("xyz", 16))
    assert (setting, right, unknown) == (Setting(10, 2), ["x", "y"], [])


@pytest.mark.parametrize("sparse", [False, True])
def test_products_are_counted(bench, sparse):
    X = bench.cases.tiny_sparse(80, 50).astype(np.float32)
    X = X if sparse else X.toarray()
    dense = X.toarray() if sparse else X
    operator = peers.centred(X)
    work = peers.Work()
    counted = peers.Counted(operator, work)
    u, V = np.ones(80, np.float32), np.eye(50, 3, dtype=np.float32)
    np.testing.assert_allclose(counted.matmat(V), (dense - dense.mean(axis=0)) @ V, atol=1e-5)
    np.testing.assert_allclose(counted.rmatvec(u), 0, atol=1e-4)
    assert (work.products, work.columns, work.passes) == (2, 4, 1)
    assert work.gflop(X) == 2 * 4 * (X.nnz if sp.issparse(X) else X.size) / 1e9


@pytest.mark.parametrize("name", ["primedpca", "primedpca, certified"])
def test_our_own_passes_are_counted(bench, name):
    case = bench.cases.TINY["tiny-sparse"]
    X = case.load()
    ours = {peer.name: peer for peer in (peers.OURS, peers.CERTIFIED)}[name]
    work = ours.work(X, case.k, ours.default)
    # A full decomposition makes no products with columns; block Krylov makes nothing else.
    assert work.products / 2 <= work.passes <= work.readings
    assert work.passes >= 1
    assert work.columns >= min(8, case.k) * work.products


def test_a_false_reference_is_refused(bench, tiny):
    _, X, reference = tiny
    bench.cases.check(X, reference)
    turned = reference.copy()
    turned[:2] = [[np.cos(1e-3), np.sin(1e-3)], [-np.sin(1e-3), np.cos(1e-3)]] @ reference[:2]
    with pytest.raises(ArithmeticError, match="reference"):
        bench.cases.check(X, turned)


def test_the_quick_panel_judges_every_limit(tmp_path):
    source = str(Path(primedpca.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": source}
    command = [sys.executable, str(FOLDER / "panel.py"), "--quick", "--peers", "--before", source]
    done = subprocess.run(
        [*command, "--sets", "iris,10000x100", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "panel.json").read_text())
    assert [row["set"] for row in kept["rows"]] == ["iris", "10000x100"]
    for row in kept["rows"]:
        assert row["proven_status"] in ("CERTIFIED", "EXACT")
        assert row["certify_proven"] == row["k"]
        assert row["errors"] == []
        for name in ("unproven", "proven_128", "before_proven", "sklearn", "peer"):
            assert row[f"{name}_ms"] > 0
    verdicts = {line["limit"]: line["verdict"] for line in kept["limits"]}
    assert verdicts["CERTIFIED or EXACT (1: yes)"] == "met"
    assert verdicts["white noise, unless proven: proven / unproven"] == "not measured"
    assert "## Against the checkout before" in (tmp_path / "panel.md").read_text()


@pytest.mark.parametrize(("least", "verdict"), [(False, "met"), (True, "missed")])
def test_a_limit_names_the_sets_that_miss_it(bench, least, verdict):
    limit = bench.panel_tables.Limit("x", lambda row: row["x"], 2.0, least=least)
    judged = limit.judge([{"set": "a", "x": 1.0}, {"set": "b", "x": 2.0}, {"set": "c", "x": None}])
    assert (judged["verdict"], judged["missed"]) == (verdict, "a 1" if least else "")


def test_genes_are_ranked_among_those_of_similar_mean(bench):
    rng = np.random.default_rng(0)
    counts = rng.poisson(np.repeat([1.0, 50.0], 30), size=(500, 60)).astype(np.float64)
    # Half the cells twice as much: the mean stays, the variance does not.
    counts[:, [0, 30]] *= rng.permutation(np.repeat([[0.0], [2.0]], 250, axis=0))
    X = sp.csr_array(np.log1p(counts))
    order = np.argsort(-bench.panel_sets.normalised_dispersion(X, bins=2))
    assert set(order[:2]) == {0, 30}
