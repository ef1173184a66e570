"""Progress in Python: verbose, a function, and scikit-learn's callbacks."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from primedpca import PrimedPCA
from primedpca._solve.history import line
from primedpca.engines import LocalEngine
from primedpca.engines.base import CountedEngine
from primedpca.result import Status

X = np.random.default_rng(0).normal(size=(500, 200)) * np.linspace(5, 1, 200)
OPTIONS = {"priming": "block_krylov", "random_state": 0}

callbacks = pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.9"), reason="scikit-learn has none yet"
)


def test_verbose_prints_a_line_for_every_pass_and_one_at_the_end(capsys):
    pca = PrimedPCA(4, verbose=1, **OPTIONS).fit(X)
    *passes, end = capsys.readouterr().out.splitlines()
    assert passes == [line(row, pca.tol) for row in pca.history_]
    assert re.search(r"variances \d+\.?\d* to \d+\.?\d*, 4 of 4 proven within 0.0031", passes[-1])
    assert "proven" not in passes[0]  # the proof begins when the components have nearly converged
    assert end == f"primedpca: {pca.certificate_}"


def test_what_a_group_and_no_variance_count_for_is_counted(capsys):
    noise = np.random.default_rng(0).normal(size=(300, 12))
    scores = np.linalg.qr(noise - noise.mean(axis=0))[0]
    tied = scores * np.sqrt(np.r_[5, 3, 3, 2, 1.5, np.full(7, 0.5)])
    low = scores[:, :2] * [3, 2] @ np.eye(2, 30)
    for data, k in ((tied, 4), (low, 5)):
        pca = PrimedPCA(k, verbose=1, **OPTIONS).fit(data)
        assert pca.status_ is Status.CERTIFIED
        last = capsys.readouterr().out.splitlines()[-2]
        assert f"{k} of {k} proven within 0.0031 rad, all within " in last
        assert pca.angle_bounds_.max() == np.pi / 2  # but not for each component alone
        counted = pca.history_[-1]["counted_bounds"]
        assert (counted <= pca.tol).all()


def test_bounds_on_the_way_are_never_rounded_down():
    row = {"step": 2, "passes": 3.0, "seconds": 0.5, "angle_bounds": np.array([0.0021449, 1e-5])}
    said = line(row, 0.00314)
    assert "2 of 2 proven within 0.0032 rad, all within 2.15e-03 rad" in said
    row["counted_bounds"] = np.array([0.0, 1e-5])
    assert "all within 1.00e-05 rad" in line(row, 0.00314)


def test_verbose_can_be_a_function(capsys, tmp_path):
    rows = []
    pca = PrimedPCA(4, verbose=rows.append, **OPTIONS).fit(X)
    np.testing.assert_equal(rows, pca.history_)
    assert capsys.readouterr().out == ""
    with pytest.warns(UserWarning, match="`verbose` cannot be saved"):
        pca.save(tmp_path / "m.safetensors")


def test_a_function_that_changes_its_row_changes_nothing_else():
    def in_degrees(row):
        for value in row.values():
            if isinstance(value, np.ndarray):
                value *= 0  # in place
        row.clear()

    quiet = PrimedPCA(4, **OPTIONS).fit(X)
    pca = PrimedPCA(4, verbose=in_degrees, **OPTIONS).fit(X)
    np.testing.assert_array_equal(pca.angle_bounds_, quiet.angle_bounds_)
    assert str(pca.certificate_) == str(quiet.certificate_)
    assert [row.keys() for row in pca.history_] == [row.keys() for row in quiet.history_]
    pca.angle_bounds_[:] = 0
    pca.history_[-1]["angle_bounds"][:] = 0
    np.testing.assert_array_equal(pca.certificate_.angle_bounds, quiet.certificate_.angle_bounds)


def test_mini_batches_are_told_more_and_more_rarely():
    rows = []
    options = {"priming": "oja", "certificate": "none", "batch_size": 50, "random_state": 0}
    pca = PrimedPCA(2, verbose=rows.append, **options).fit(X)
    assert 2 <= len(rows) < len(pca.history_) / 4
    assert [row["passes"] for row in rows] == sorted({row["passes"] for row in rows})


def test_counting_blocks_changes_nothing():
    taken = []
    engine = CountedEngine(LocalEngine(2), lambda size, blocks: taken.append((size, blocks)))
    wide = np.random.default_rng(1).normal(size=(4000, 300))
    counted = PrimedPCA(2, tol=0.3, max_passes=3, engine=engine, certificate="none", **OPTIONS)
    plain = PrimedPCA(2, tol=0.3, max_passes=3, certificate="none", **OPTIONS)
    with pytest.warns(UserWarning, match="max_passes"):
        counted.fit(wide)
    with pytest.warns(UserWarning, match="max_passes"):
        plain.fit(wide)
    np.testing.assert_array_equal(counted.components_, plain.components_)
    assert sum(size for size, _ in taken) == counted.n_passes_ * wide.nbytes
    assert len(taken) == counted.n_passes_ * taken[0][1]


class Log:
    """A callback that records its calls."""

    def __init__(self, stop_after=None):
        self.events, self.rows, self.models, self.stop_after = [], [], [], stop_after

    def setup(self, estimator, context):
        self.events.append("setup")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X=None, fitted_estimator=None):
        self.events.append(f"end {context.task_name}")
        self.models.append(fitted_estimator)
        if context.task_name == "pass":
            self.rows.append(estimator.history_[-1])
            return len(self.rows) == self.stop_after
        return False

    def teardown(self, estimator, context):
        self.events.append("teardown")


@callbacks
def test_a_callback_is_told_of_every_pass():
    log = Log()
    pca = PrimedPCA(4, **OPTIONS).set_callbacks(log).fit(X)
    np.testing.assert_equal(log.rows, pca.history_)
    passes = ["begin pass", "end pass"] * len(pca.history_)
    assert log.events == ["setup", "begin fit", *passes, "end fit", "teardown"]
    assert "_callback_fit_ctx" not in vars(pca)


@callbacks
def test_a_callback_gets_the_model_as_it_is_then():
    log = Log()
    pca = PrimedPCA(4, **OPTIONS).set_callbacks(log).fit(X)
    early, late = log.models[0], log.models[-2]
    np.testing.assert_allclose(late.components_, pca.components_, atol=1e-12)
    np.testing.assert_array_equal(log.models[-1].components_, pca.components_)
    assert early.transform(X).shape == (500, 4)
    scores = [model.score(X) for model in log.models]
    assert (np.diff(scores) >= -1e-12 * abs(scores[-1])).all()  # the last ones differ by rounding
    assert scores[0] < scores[-1]


@callbacks
@pytest.mark.parametrize("certificate", ["auto", "none"])
def test_a_callback_may_end_the_fit(certificate):
    log = Log(stop_after=2)
    pca = PrimedPCA(4, certificate=certificate, **OPTIONS).set_callbacks(log).fit(X)
    assert len(pca.history_) == 2
    assert pca.status_ is Status.STOPPED
    assert not pca.converged_
    assert pca.components_.shape == (4, 200)


@callbacks
def test_a_failing_fit_is_torn_down():
    log = Log()
    with pytest.raises(ValueError, match="NaN"):
        PrimedPCA(2, **OPTIONS).set_callbacks(log).fit(np.full((20, 5), np.nan))
    assert log.events[-1] == "teardown"


@callbacks
@pytest.mark.parametrize("fitted", [False, True])
def test_a_callback_that_fails_to_be_torn_down_leaves_the_model_as_it_was(fitted):
    class Failing(Log):
        def teardown(self, estimator, context):
            raise OSError("disk full")

    pca = PrimedPCA(2, **OPTIONS)
    before = pca.fit(X[:100]).components_ if fitted else None
    with pytest.raises(OSError, match="disk full"):
        pca.set_callbacks(Failing()).fit(X)
    assert getattr(pca, "components_", None) is before
    assert getattr(pca, "n_samples_", 100) == 100
    assert {"_callback_fit_ctx", "_skl_callbacks_to_teardown"}.isdisjoint(vars(pca))


@callbacks
def test_a_callback_that_fails_at_the_end_leaves_the_model_as_it_was():
    class Failing(Log):
        def on_fit_task_end(self, estimator, context, **about):
            if context.task_name == "fit":
                raise OSError("no space left")

    pca = PrimedPCA(4, **OPTIONS).fit(X)
    before = vars(pca).copy()
    with pytest.raises(OSError, match="no space"):
        pca.set_callbacks(Failing()).fit(X[:, :50])
    pca.set_callbacks()
    assert vars(pca) == before
    assert pca.transform(X).shape == (500, 4)
    with pytest.raises(ValueError, match="200 features"):
        pca.transform(X[:, :50])


@callbacks
def test_callbacks_of_scikit_learn_work(capsys):
    from sklearn.callback import ProgressBar, ScoringMonitor

    monitor = ScoringMonitor(scoring={"score": lambda model, X, y: model.score(X)})
    pca = PrimedPCA(4, **OPTIONS).set_callbacks(ProgressBar(), monitor)
    pca.fit(X, y=np.zeros(500))
    assert "PrimedPCA - fit" in capsys.readouterr().out
    logged = [row["score"] for row in monitor.get_logs().data]
    assert logged[-1] == pytest.approx(pca.score(X))
    assert len(logged) == len(pca.history_) + 1  # the last one is for the whole fit


@callbacks
def test_callbacks_come_through_a_pipeline_and_a_clone(capsys):
    from sklearn.callback import ProgressBar

    log = Log()
    pca = clone(PrimedPCA(4, **OPTIONS).set_callbacks(log))
    pipeline = make_pipeline(StandardScaler(), pca).set_callbacks(ProgressBar())
    pipeline.fit(X)
    assert "PrimedPCA - fit" in capsys.readouterr().out
    np.testing.assert_equal(log.rows, pipeline[-1].history_)


@callbacks
def test_a_logger_of_json_lines(tmp_path):
    class JsonLines(Log):
        def on_fit_task_end(self, estimator, context):
            if context.task_name == "pass":
                row = {k: np.asarray(v).tolist() for k, v in estimator.history_[-1].items()}
                with open(tmp_path / "log.jsonl", "a") as file:
                    file.write(json.dumps(row) + "\n")

    pca = PrimedPCA(4, **OPTIONS).set_callbacks(JsonLines()).fit(X)
    rows = [json.loads(row) for row in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["passes"] for row in rows] == [row["passes"] for row in pca.history_]
    assert rows[-1]["angle_bounds"] == pca.history_[-1]["angle_bounds"].tolist()


def test_without_callbacks_in_scikit_learn_all_else_works():
    code = (
        "import sys\nsys.modules['sklearn.callback'] = None\n"
        "import numpy as np\nfrom primedpca import PrimedPCA\nrows = []\n"
        "X = np.random.default_rng(0).normal(size=(50, 6))\n"
        "pca = PrimedPCA(2, verbose=rows.append).fit(X)\nassert len(rows) == 1\n"
        "try:\n    pca.set_callbacks()\n"
        "except ImportError as error:\n    assert 'scikit-learn 1.9' in str(error)\n"
        "else:\n    raise SystemExit('callbacks without scikit-learn')\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_what_is_no_callback_is_refused():
    with pytest.raises((TypeError, ImportError), match="callbacks"):
        PrimedPCA(2).set_callbacks(print)


def test_a_bound_that_equals_the_tolerance_counts_as_proven():
    row = {"step": 2, "passes": 3.0, "seconds": 0.5, "counted_bounds": [1e-3, 2e-3]}
    assert "1 of 2 proven within 0.001 rad" in line(row, 1e-3)


def test_verbose_may_be_changed_during_the_fit_for_the_next_one(capsys):
    pca = PrimedPCA(4, **OPTIONS)
    rows = []

    def once(row):
        rows.append(row)
        pca.set_params(verbose=0)

    pca.set_params(verbose=once).fit(X)
    assert len(rows) == len(pca.history_) > 1
    pca.fit(X)
    assert len(rows) == len(pca.history_)
    assert not capsys.readouterr().out
