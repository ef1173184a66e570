"""Plots: they show what the model holds, reject invalid input, and have no side effects."""

import math
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from environments import ROOT
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

import primedpca.plots
from primedpca import PrimedPCA, certify, choose_k, load, plan, prime
from primedpca._model.columns import correlations
from primedpca.monitoring import limits, outliers, statistics
from primedpca.plots import canvas, plane
from primedpca.plots.canvas import write_out
from primedpca.result import Certificate, Cluster

COUNTS = (1, 2, 16, 200)


class OnAxes:
    """The plots as their axes, where a notebook gets the figure."""

    def __getattr__(self, name):
        draw = getattr(primedpca.plots, name)
        if name in ("style", "__all__"):
            return draw

        def drawn(*args, **options):
            found = draw(*args, **options)
            if not isinstance(found, Figure):
                return found
            axes = np.array(found.axes)
            if name == "component_images":
                return axes.reshape(-1, 2, min(axes.size // 2, 8)).swapaxes(0, 1).reshape(2, -1)
            return axes[:2] if name in ("monitor", "choose_k") else axes[0]

        return drawn


plots = OnAxes()


def image_rows(n=420, side=16):
    """Return rows of smooth images, 16 x 16, whose variances decay slowly."""
    rng = np.random.default_rng(0)
    waves = np.cos(np.pi * np.outer(np.arange(side) + 0.5, np.arange(side)) / side)
    fall = 0.97 ** np.add.outer(np.arange(side), np.arange(side))
    return np.einsum("nab,xa,yb->nxy", rng.normal(size=(n, side, side)) * fall, waves, waves)


X = image_rows().reshape(420, -1)


@pytest.fixture(scope="module")
def models():
    return {k: PrimedPCA(k, random_state=0).fit(X) for k in COUNTS}


@pytest.fixture(scope="module")
def iris():
    data = load_iris(as_frame=True)
    return PrimedPCA(3, random_state=0).fit(data.data), data


def rendered(ax):
    """Draw ``ax`` for real, because some errors occur only then, and return it."""
    with np.errstate(all="ignore"):
        ax.figure.draw_without_rendering()
    return ax


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def proof(bounds, clusters=(), zero=(), width=0.1):
    """Return a certificate for the variances k, k - 1, ..., 1."""
    bounds = np.asarray(bounds, dtype=float)
    values = np.arange(bounds.size, 0.0, -1)
    flags = np.isin(np.arange(bounds.size), zero)
    ends = np.stack([values - width, values + width], axis=1)
    return Certificate(bounds, ends, [Cluster(*c) for c in clusters], "deterministic", 0.0, flags)


# -- properties of all plots -----------------------------------------------------------------


def every_picture(model, scores):
    """Yield each function with its model, as ``name, call(ax)``."""
    yield "scree", lambda ax: plots.scree(model, ax)
    yield "certificate", lambda ax: plots.certificate(model, ax)
    yield "convergence", lambda ax: plots.convergence(model, ax)
    yield "streaks", lambda ax: plots.streaks([model.components_], model.components_, 0.1, ax)
    yield "scores", lambda ax: plots.scores(scores, ax=ax, model=model)
    if scores.shape[1] > 1:
        yield "biplot", lambda ax: plots.biplot(model, scores, ax=ax)
    yield "loadings", lambda ax: plots.loadings(model, ax=ax)
    yield "plans", lambda ax: plots.plans(model, ax)


@pytest.mark.parametrize("k", COUNTS)
@pytest.mark.parametrize("ground", ["white", "dark"])
def test_every_picture_draws_on_the_axes_it_is_given(models, k, ground):
    model = models[k]
    for name, draw in every_picture(model, model.transform(X)):
        with plots.style(ground):
            ax = Figure(figsize=(4, 3), layout="constrained").subplots()
            assert draw(ax) is ax, name
            assert draw(None) is not ax, name
        rendered(ax)
        assert ax.get_xlabel(), name
        assert ax.get_ylabel() or name in ("loadings", "plans"), name
        assert len(ax.get_xticks()) <= 15, name


def test_ticks_do_not_run_into_each_other(models):
    for k in COUNTS:
        scores = models[k].transform(X)
        pictures = [draw for _, draw in every_picture(models[k], scores)]
        many = np.tile(scores, (48, 1)) * 1e3  # long numbers, beside a legend
        pictures.append(lambda ax, many=many: plots.scores(many, labels=np.arange(len(many)) % 7))
        for draw in pictures:
            ax = rendered(draw(None))
            for labels, side in ((ax.get_xticklabels(), "x"), (ax.get_yticklabels(), "y")):
                boxes = [t.get_window_extent() for t in labels if t.get_text() and t.get_visible()]
                low, high = f"{side}0", f"{side}1"
                boxes.sort(key=lambda box: getattr(box, low))
                for one, other in pairwise(boxes):
                    assert getattr(one, high) <= getattr(other, low) + 1, (k, side)


def test_nothing_is_shown_and_no_setting_changed():
    code = (
        "import matplotlib, sys, numpy as np\n"
        "from primedpca import PrimedPCA, plots\n"
        "before = matplotlib.rcParams.copy()\n"
        "X = np.random.default_rng(0).normal(size=(60, 12)) * np.arange(12, 0, -1)\n"
        "pca = PrimedPCA(4, random_state=0).fit(X)\n"
        "with plots.style('dark'):\n"
        "    plots.scree(pca); plots.certificate(pca); plots.convergence(pca)\n"
        "    plots.streaks([pca.components_], pca.components_)\n"
        "plots.scores(pca.transform(X)); plots.biplot(pca, pca.transform(X)); plots.plans(pca)\n"
        "plots.loadings(pca); plots.component_images(pca, (3, 4)); plots.monitor(pca, X)\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert matplotlib.rcParams.copy() == before\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_without_matplotlib_the_extra_is_named():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import numpy as np\nfrom primedpca import PrimedPCA, plots\n"
        "pca = PrimedPCA(2).fit(np.random.default_rng(0).normal(size=(9, 4)))\n"
        "for draw in (plots.scree, plots.certificate, plots.loadings, plots.plans,\n"
        "             lambda m: plots.component_images(m, (2, 2)),\n"
        "             lambda m: plots.monitor(m, np.ones((3, 4)))):\n"
        "    try:\n        draw(pca)\n"
        "    except ImportError as error:\n        assert 'primedpca[plots]' in str(error)\n"
        "    else:\n        raise SystemExit(f'{draw} drew')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def contrast_ratio(colour, ground):
    def luminance(code):
        parts = np.array([int(code[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted((luminance(colour), luminance(ground)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ground", ["white", "dark"])
def test_colours_are_seen_on_both_grounds(ground):
    behind, text = (to_hex(colour) for colour in canvas.GROUNDS[ground])
    assert contrast_ratio(text, behind) > 7
    for colour in (canvas.BLUE, canvas.RED, canvas.GREEN, canvas.PURPLE):
        assert contrast_ratio(colour, behind) >= 3
    with plots.style(ground):
        ax = plots.scores(np.eye(3))
    assert to_hex(ax.get_facecolor()) == behind
    assert to_hex(ax.xaxis.label.get_color()) == text


def test_a_model_from_a_file_and_one_of_tensors_are_drawn_alike(models, tmp_path):
    model = models[16]
    model.save(tmp_path / "m.safetensors")
    tensors = PrimedPCA(16, random_state=0).fit(torch.asarray(X))
    for other in (load(tmp_path / "m.safetensors"), tensors):
        pictures = zip(*(every_picture(m, model.transform(X)) for m in (model, other)), strict=True)
        for (name, draw), (_, again) in pictures:
            lines = [[line.get_ydata() for line in f(None).lines] for f in (draw, again)]
            for one, two in zip(*lines, strict=True):
                np.testing.assert_allclose(one, two, rtol=0.5, atol=1e-9, err_msg=name)


def test_unfitted_models_and_other_things_are_refused():
    for draw in (plots.scree, plots.certificate, plots.convergence, plots.loadings):
        with pytest.raises(NotFittedError, match="fit"):
            draw(PrimedPCA(2))
        with pytest.raises(TypeError, match="`model` must be a fitted PrimedPCA, got list"):
            draw([1, 2])
    with pytest.raises(TypeError, match="`ax` must be Matplotlib axes or None, got int"):
        plots.scores(np.eye(3), ax=3)
    with (
        pytest.raises(ValueError, match=r"`ground`='grey' must be one of 'white', 'dark'\."),
        plots.style("grey"),
    ):
        pass


@pytest.mark.integration
def test_the_example_draws_every_picture_of_the_docs(tmp_path):
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "pictures.py")]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    drawn = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert drawn.keys() == {path.name for path in (ROOT / "docs/figures/plots").iterdir()}
    assert {f"{name}.png" for name in plots.__all__ if name != "style"} == drawn.keys()
    assert max(drawn.values()) < 40_000


# -- scree, certificate, convergence ----------------------------------------------------------


@pytest.mark.parametrize("k", COUNTS)
def test_scree_shows_variances_intervals_and_their_sum(models, k):
    model = models[k]
    ax = rendered(plots.scree(model))
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), np.arange(1, k + 1))
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), model.explained_variance_)
    ends = np.array([part[:, 1] for part in ax.collections[0].get_segments()])
    np.testing.assert_array_equal(ends, model.certificate_.eigenvalue_bounds)
    right = ax.figure.axes[-1]
    shares = 100 * np.cumsum(model.explained_variance_ratio_)
    np.testing.assert_allclose(right.lines[0].get_ydata(), shares)
    assert ax.get_ylim()[1] > model.certificate_.eigenvalue_bounds.max()
    width = np.ptp(model.certificate_.eigenvalue_bounds, axis=1).max()
    first, certified, last = legend(ax)
    assert (first, last) == ("variance", "cumulative ratio (right)")
    assert width <= float(certified.removeprefix("certified, to ")) <= 2 * width


def test_bounds_in_pictures_are_never_rounded_down(iris):
    model, _ = iris
    for angle in (0.00314, 0.0002, 0.214, 0.0203):
        model.angle_bounds_[:] = model.certificate_.angle_bounds[:] = angle
        model.certificate_.eigenvalue_bounds[:] = [1.0, 1.0 + angle]
        said = [
            plots.component_images(model, (2, 2), [0])[0, 0].get_title().split("≤ ")[1],
            legend(plots.certificate(model, tol=angle))[-1].removeprefix("tol = "),
        ]
        for words in said:
            assert math.degrees(angle) <= float(words.removesuffix("°"))
        entry = plots.loadings(model, 0).get_xlabel().split("± ")[1]
        assert 2 * math.sin(angle / 2) <= float(entry)
        width = legend(plots.scree(model))[1].removeprefix("certified, to ")
        assert (1.0 + angle) - 1.0 <= float(width)


def test_scree_without_a_certificate_or_any_variance():
    assert legend(plots.scree(PrimedPCA(2).partial_fit(X[:1])))  # no component yet
    assert "certified" in legend(plots.scree(PrimedPCA(2).fit(np.ones((9, 4)))))[1]
    assert legend(plots.scree(PCA(3).fit(X))) == ["variance", "cumulative ratio (right)"]


def test_scree_with_zeros_and_open_intervals(models):
    low = np.random.default_rng(0).normal(size=(50, 3)) @ np.ones((3, 8))
    for log in (False, True):
        rendered(plots.scree(PrimedPCA(5).fit(low), log=log))
    rendered(plots.scree(PrimedPCA(2).fit(np.ones((9, 4))), log=True))
    model = PrimedPCA(3).fit(X)
    model.certificate_.eigenvalue_bounds[2, 1] = np.inf
    ax = rendered(plots.scree(model))
    assert "lower bound" in legend(ax)
    assert len(ax.collections[0].get_segments()) == 2
    assert plots.scree(PrimedPCA(2, scale="std").fit(X)).get_ylabel() == "variance (of scaled data)"


def test_variances_are_seen_beside_intervals_that_say_little():
    rows = np.random.default_rng(0).normal(size=(400, 200))
    with pytest.warns(match="max_passes"):
        pca = PrimedPCA(4, priming="block_krylov", max_passes=2, random_state=0).fit(rows)
    assert pca.certificate_.eigenvalue_bounds[0, 1] > 20 * pca.explained_variance_[0]
    ax = rendered(plots.scree(pca))
    assert ax.get_ylim()[1] < 4 * pca.explained_variance_[0]


@pytest.mark.parametrize("top", [2.5e-5, 0.02, 350_000.0, 1.8e6])
def test_numbers_along_an_axis_have_one_power_of_ten(top):
    ax = Figure().subplots()
    ax.set_ylim(0, top)
    write_out(ax.yaxis)
    ax.figure.canvas.draw()
    words = [text.get_text() for text in ax.get_yticklabels()][1:]
    assert len({word.partition("e")[2] for word in words}) == 1, words
    np.testing.assert_allclose([float(word) for word in words], ax.get_yticks()[1:])


def test_no_component_is_numbered_zero(models):
    for draw in (plots.scree, plots.certificate):
        words = [text.get_text() for text in rendered(draw(models[200])).get_xticklabels()]
        assert "0" not in words
        assert "200" in words


@pytest.mark.parametrize("k", COUNTS)
def test_certificate_shows_every_bound_in_degrees(models, k):
    model = models[k]
    ax = rendered(plots.certificate(model))
    assert ax.get_yscale() == "log"
    at = {x: y for line in ax.lines[:-1] for x, y in zip(*line.get_data(), strict=True)}
    bounds = np.degrees(model.angle_bounds_)
    np.testing.assert_allclose([at[i + 1] for i in range(k)], bounds)
    assert ax.lines[-1].get_ydata()[0] == pytest.approx(180 / 1024)
    assert legend(ax) == ["proven within tol", "tol = 0.18°"]
    low, high = ax.get_ylim()
    assert low < bounds.min()
    assert high > max(bounds.max(), 180 / 1024)


def test_certificate_tells_groups_apart_by_their_marks():
    bounds = [1e-4, np.pi / 2, np.pi / 2, 0.3, np.pi / 2, 0.0, np.pi / 2]
    found = proof(bounds, clusters=[(1, 3, 2e-4), (6, 9, 3e-4)], zero=[4])
    ax = rendered(plots.certificate(found, tol=1e-3))
    marks = {
        line.get_label(): (line.get_marker(), line.get_xdata().tolist()) for line in ax.lines[:4]
    }
    assert marks == {
        "proven within tol": ("o", [1, 6]),
        "subspace proven within tol": ("s", [2, 3, 7]),
        "no variance": ("d", [5]),
        "not proven within tol": ("X", [4]),
    }
    span = next(line for line in ax.lines if line.get_label() == "not distinguished")
    assert tuple(span.get_xdata()) == (2, 3)
    np.testing.assert_allclose(span.get_ydata(), np.degrees(2e-4))
    beyond = next(line for line in ax.lines if tuple(line.get_xdata()) == (7, 8))
    np.testing.assert_allclose(beyond.get_ydata(), np.degrees(3e-4))  # past the components kept
    assert min(y for line in ax.lines for y in line.get_ydata()) > 0
    names = ["proven", "subspace proven", "no variance"]
    assert legend(plots.certificate(found)) == [*names, "not distinguished"]  # without tol
    assert legend(plots.certificate(proof([np.pi / 2]))) == ["not proven"]


def test_certificate_of_an_audit_of_a_file_and_of_none(tmp_path):
    audited = certify(X, PCA(3).fit(X).components_, tol=1e-3, random_state=0)
    assert legend(plots.certificate(audited, tol=1e-3))[-1] == "tol = 0.058°"
    model = PrimedPCA(3, random_state=0).fit(X)
    model.save(tmp_path / "m.safetensors")
    drawn = [
        plots.certificate(m).lines[0].get_ydata() for m in (model, load(tmp_path / "m.safetensors"))
    ]
    np.testing.assert_array_equal(*drawn)
    with pytest.raises(ValueError, match=r"no certificate.*`certificate`='auto'"):
        plots.certificate(PrimedPCA(2, certificate="none").fit(X))


def test_convergence_follows_the_history():
    wide = np.random.default_rng(0).normal(size=(900, 700)) / np.arange(1, 701)
    for k in (3, 16):
        model = PrimedPCA(k, priming="block_krylov", random_state=0).fit(wide)
        ax = rendered(plots.convergence(model))
        for i in range(k):
            line = ax.lines[i]
            rows = [row for row in model.history_ if "angle_bounds" in row]
            wanted = [np.degrees(row["angle_bounds"][i]) for row in rows]
            np.testing.assert_allclose(line.get_ydata(), wanted)
            np.testing.assert_allclose(line.get_xdata(), [row["passes"] for row in rows])
        assert legend(ax)[-2:] == ["estimated change", "tol = 0.18°"]
        assert ("component 3" in legend(ax)) == (k == 3)
        assert len(ax.figure.axes) == 1 + (k == 16)  # a colour bar for many


def test_convergence_counts_the_span_of_what_is_not_told_apart():
    spectrum = np.r_[9.0, 4.0, 4.0, 2.0, np.full(16, 0.01)]
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 20))
    rows = np.linalg.qr(rows - rows.mean(axis=0))[0] * np.sqrt(spectrum)
    pca = PrimedPCA(4, random_state=0).fit(rows)
    assert np.degrees(pca.angle_bounds_[1]) == 90  # nothing is proven about the single vector
    ax = rendered(plots.convergence(pca))
    last = [line.get_ydata()[-1] for line in ax.lines[:4]]
    np.testing.assert_allclose(last, np.degrees(pca.certificate_.counted_bounds()), rtol=1e-6)
    assert max(last) < np.degrees(pca.tol)


def test_convergence_without_bounds_or_without_anything():
    model = PrimedPCA(2, certificate="none", priming="subspace_iteration", random_state=0).fit(X)
    ax = rendered(plots.convergence(model))
    assert legend(ax) == ["estimated change", "tol = 0.18°"]
    with pytest.raises(ValueError, match=r"neither bounds nor changes.*`certificate`='auto'"):
        plots.convergence(PrimedPCA(2, certificate="none", priming="exact").fit(X))
    share = PrimedPCA(0.5, priming="block_krylov", random_state=0).fit(X)
    rendered(plots.convergence(share))


# -- streaks ----------------------------------------------------------------------------------


def test_streaks_of_components_mappings_and_snapshots(models):
    truth = models[16].components_[:4]
    swapped = truth[[0, 1, 3, 2]]
    for run, steps in (([swapped, truth], [1, 2]), ({5: swapped, 80: truth}, [5, 80])):
        ax = rendered(plots.streaks(run, truth, (np.pi / 8, 0.01)))
        assert [line.get_ydata().tolist() for line in ax.lines] == [[2, 4], [2, 4]]
        assert ax.lines[0].get_xdata().tolist() == steps
        assert legend(ax) == ["V = π/8", "V = 0.57°"]
        assert ax.get_xlabel() == "step"
    snapshots = prime(X, "subspace_iteration", 8, max_passes=6, random_state=0)
    ax = rendered(plots.streaks(snapshots, truth, np.pi / 8))
    assert len(ax.lines[0].get_xdata()) == 6
    assert np.diff(ax.lines[0].get_ydata())[-1] >= 0
    assert ax.get_xlabel() == "passes over the data"


def test_looks_of_eight_thresholds_all_differ():
    ax = plots.streaks([np.eye(3)], np.eye(3), [np.pi / 2**i for i in range(3, 11)])
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in ax.lines}
    assert len(looks) == 8


def test_bad_streaks_are_refused():
    with pytest.raises(ValueError, match="`run` is empty"):
        plots.streaks([], np.eye(2))
    with pytest.raises(ValueError, match=r"`threshold`=3"):
        plots.streaks([np.eye(2)], np.eye(2), 3)
    with pytest.raises(ValueError, match=r"`unit`='hours' must be one of 'passes'"):
        plots.streaks([np.eye(2)], np.eye(2), 0.1, unit="hours")


# -- scores and biplot ------------------------------------------------------------------------


def test_scores_of_any_pair_by_label(iris):
    model, data = iris
    scores = model.transform(data.data)
    names = data.target_names[data.target]
    ax = rendered(plots.scores(scores, (2, 1), labels=names, model=model))
    assert legend(ax) == ["setosa", "versicolor", "virginica"]
    np.testing.assert_allclose(ax.collections[0].get_offsets(), scores[:50][:, [2, 1]])
    assert ax.get_xlabel() == "component 3 (1.7 % of the variance)"
    assert ax.get_ylabel() == "component 2 (5.3 % of the variance)"
    paths = {c.get_paths()[0].vertices.tobytes() for c in ax.collections}
    assert len(paths) == 3  # a mark for each, not only a colour


def test_numbers_get_a_colour_bar_and_few_whole_ones_a_legend(iris):
    model, data = iris
    scores = model.transform(data.data)
    ax = rendered(plots.scores(scores, labels=data.data["sepal length (cm)"]))
    assert ax.figure.axes[1].get_ylabel() == "sepal length (cm)"
    assert ax.get_legend() is None
    assert ax.get_xlabel() == "component 1"
    assert legend(plots.scores(scores, labels=data.target.to_numpy())) == ["0", "1", "2"]
    assert legend(plots.scores(scores, labels=scores[:, 0] > 0)) == ["False", "True"]
    gaps = np.where(np.arange(150) < 9, np.nan, 1.5)
    ax = plots.scores(scores, labels=gaps)
    assert legend(ax) == ["unknown"]
    assert [len(c.get_offsets()) for c in ax.collections] == [9, 141]


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        (np.array(["a", None, np.nan, ""], dtype=object), {"a": 1, "unknown": 3}),
        (np.array(["a", "None", "", "nan"]), {"None": 1, "a": 1, "nan": 1, "unknown": 1}),
        (pd.Series(pd.Categorical(["b", None, "a", "b"])), {"a": 1, "b": 2, "unknown": 1}),
        (pd.array(["a", pd.NA, "b", "b"], dtype="string"), {"a": 1, "b": 2, "unknown": 1}),
        (pd.to_datetime(["2020-01-01", None, None, None]), {"unknown": 3}),
        (np.ma.array(["a", "b", "c", "c"], mask=[0, 1, 0, 0]), {"a": 1, "c": 2, "unknown": 1}),
        (np.ma.array([1, 2, 3, 3], mask=False), {"1": 1, "2": 1, "3": 2}),
        (np.array(["é".encode(), b"\xff", b"a", b"a"]), {"\\xff": 1, "a": 2, "é": 1}),
        (np.array([b"a", "a", "b", "b"], dtype=object), {"a": 2, "b": 2}),
    ],
)
def test_missing_labels_are_unknown(labels, wanted):
    ax = plots.scores(np.eye(4), labels=labels)
    found = {c.get_label(): len(c.get_offsets()) for c in ax.collections}
    assert wanted.items() <= found.items()
    assert sum(found.values()) == 4
    assert legend(ax) == list(found)


@pytest.mark.parametrize("count", [3, 7])
def test_labels_that_begin_with_an_underscore_are_in_the_legend(count):
    words = np.array([f"_{i}" for i in range(count)])[np.arange(40) % count]
    scores = np.random.default_rng(0).normal(size=(40, 2))
    assert legend(plots.scores(scores, labels=words)) == [f"_{i}" for i in range(count)]


def test_masked_numbers_are_unknown_labels():
    labels = np.ma.array(np.arange(30.0), mask=np.arange(30) < 4)
    for values in (labels, labels.astype(int)):
        ax = plots.scores(np.random.default_rng(0).normal(size=(30, 2)), labels=values)
        assert [len(c.get_offsets()) for c in ax.collections] == [4, 26]
        assert ax.collections[1].get_array().min() == 4


def test_many_labels_put_the_rarest_together():
    words = np.array([f"w{min(i, 40)}" for i in range(60)])
    ax = rendered(plots.scores(np.random.default_rng(0).normal(size=(60, 2)), labels=words))
    assert len(legend(ax)) == 24
    assert "w40" in legend(ax)
    assert legend(ax)[-1] == "18 others"
    looks = {
        (to_hex(c.get_facecolor()[0]), c.get_paths()[0].vertices.tobytes()) for c in ax.collections
    }
    assert len(looks) == 24


@pytest.mark.parametrize("labels", [None, "words", "numbers"])
def test_above_a_hundred_thousand_rows_density_is_drawn(labels):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(plane.MANY + 1, 2))
    given = {"words": np.where(scores[:, 0] > 0, "r", "l"), "numbers": scores[:, 1]}.get(labels)
    ax = rendered(plots.scores(scores, labels=given))
    cells = ax.collections[0]
    assert len(cells.get_offsets()) < 6000
    if labels is None:
        assert cells.get_array().sum() == plane.MANY + 1
        assert ax.figure.axes[1].get_ylabel() == "rows in a cell"
    elif labels == "words":
        right = cells.get_offsets()[:, 0] > 0.2
        assert (cells.get_array()[right] == 1).all()
        assert legend(ax) == ["l", "r"]
    else:
        assert ax.figure.axes[1].get_ylabel() == "mean of the label in a cell"
        np.testing.assert_allclose(cells.get_array(), cells.get_offsets()[:, 1], atol=0.3)
        gaps = np.where(scores[:, 0] > 0, np.nan, scores[:, 1])
        unknown, cells = rendered(plots.scores(scores, labels=gaps)).collections[:2]
        assert (unknown.get_offsets()[:, 0] > -0.1).all()
        assert (cells.get_offsets()[:, 0] < 0.1).all()
    plain = plots.scores(scores[: plane.MANY])
    assert len(plain.collections[0].get_offsets()) == plane.MANY
    assert plain.collections[0].get_rasterized()


def test_scores_and_labels_of_any_library(iris):
    model, data = iris
    scores = model.transform(data.data)
    words = data.target_names[data.target]
    for kind in (torch.asarray, pd.DataFrame, pl.DataFrame):
        ax = rendered(plots.scores(kind(scores), labels=pd.Series(words, name="kind")))
        np.testing.assert_allclose(ax.collections[2].get_offsets(), scores[100:, :2])
        assert ax.get_legend().get_title().get_text() == "kind"
    for labels in (pd.Categorical(words), pl.Series(words), list(words)):
        assert len(legend(plots.scores(scores, labels=labels))) == 3
    for labels in (torch.asarray(data.target.to_numpy()), pl.Series(data.target.to_numpy())):
        assert legend(plots.scores(scores, labels=labels)) == ["0", "1", "2"]


def test_of_many_rows_no_label_covers_the_others():
    rng = np.random.default_rng(0)
    scores, words = rng.normal(size=(3000, 2)), np.repeat(["a", "b", "c"], 1000)
    ax = rendered(plots.scores(scores, labels=words))
    drawn = ax.collections[0]
    shades = [to_hex(colour) for colour in drawn.get_facecolor()]
    assert drawn.get_rasterized()
    assert len(set(shades[:50])) == 3  # mixed, not one after the other
    where = {tuple(at): shade for at, shade in zip(drawn.get_offsets(), shades, strict=True)}
    handles = [to_hex(handle.get_facecolor()[0]) for handle in ax.get_legend().legend_handles]
    assert [where[tuple(scores[i])] for i in (0, 1000, 2000)] == handles
    assert legend(ax) == ["a", "b", "c"]


def test_lone_surrogates_are_drawn_escaped(tmp_path):
    points = np.random.default_rng(0).normal(size=(6, 2))
    figure = plots.scores(points, labels=np.array(["\ud800", "y"] * 3)).figure
    figure.savefig(tmp_path / "a.png")
    assert "\\ud800" in [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_words_with_dollars_are_not_set_as_mathematics():
    prices = np.array(["$1 to $2", "$2 to $3"])
    ax = rendered(plots.scores(np.eye(2), labels=prices))
    shown = [text._preprocess_math(text.get_text()) for text in ax.get_legend().get_texts()]
    assert shown == [(word, False) for word in prices]
    pca = PrimedPCA(2).fit(np.random.default_rng(0).normal(size=(9, 2)))
    ax = rendered(plots.loadings(pca, names=prices))
    assert {t._preprocess_math(t.get_text())[0] for t in ax.get_yticklabels()} == set(prices)


def test_long_names_are_told_apart():
    names = [f"what was measured in spring number {i} of the year 2020" for i in range(4)]
    rows = np.random.default_rng(0).normal(size=(30, 4)) * [4, 3, 2, 1]
    pca = PrimedPCA(2).fit(rows)
    words = [text.get_text() for text in plots.loadings(pca, names=names).get_yticklabels()]
    assert len(set(words)) == 4
    assert max(map(len, words)) <= 28
    ends = [f"the sample of the last year, {i}" for i in range(4)]  # distinct without a mark
    words = [text.get_text() for text in plots.loadings(pca, names=ends).get_yticklabels()]
    assert sorted(word[-1] for word in words) == ["0", "1", "2", "3"]
    assert all(word.startswith("the sample of") for word in words)
    labels = np.array(names)[np.arange(30) % 4]
    assert len(set(legend(plots.scores(pca.transform(rows), labels=labels)))) == 4


@pytest.mark.parametrize("count", [3, 9])
def test_the_legend_of_labels_covers_no_point(iris, count):
    pca, data = iris
    scores = pca.transform(data.data)
    labels = np.array([f"a label of some length {i}" for i in range(count)])[np.arange(150) % count]
    ax = rendered(plots.scores(scores, labels=labels))
    box, held = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert not box.overlaps(held) or box.y0 >= held.y1 - 1 or box.x0 >= held.x1 - 1


def test_one_component_is_drawn_along_the_rows():
    ax = rendered(plots.scores(np.array([[3.0], [1.0]])))
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), [[1, 3], [2, 1]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("row", "component 1")


def test_bad_scores_are_refused(iris):
    model, data = iris
    scores = model.transform(data.data)
    with pytest.raises(ValueError, match=r"`components`=\(0, 3\).*from 0 to 2.*3 components"):
        plots.scores(scores, (0, 3))
    with pytest.raises(ValueError, match=r"`components`=1 must be two"):
        plots.scores(scores, 1)
    with pytest.raises(ValueError, match=r"`labels` has shape \(7,\).*150 rows"):
        plots.scores(scores, labels=np.arange(7))
    with pytest.raises(ValueError, match=r"`scores` must be of this model, with 3 columns, got 2"):
        plots.scores(scores[:, :2], model=model)
    with pytest.raises(ValueError, match=r"`scores`\[4\]"):
        plots.scores(np.where(np.arange(150)[:, None] == 4, np.nan, scores))
    with pytest.raises(ValueError, match=r"shape \(n > 0, k\).*got \(150,\)"):
        plots.scores(scores[:, 0])
    for kind in (pd.DataFrame, pl.DataFrame):
        named = kind({f"PC{i + 1}": scores[:, i] for i in range(3)})
        rendered(plots.scores(named))
        for columns, words in ((["PC2", "PC3"], "PC2.*have PC1"), (["PC1", "PC3"], "PC3.*PC2")):
            with pytest.raises(ValueError, match=f"`scores` has the column {words}"):
                plots.scores(named[columns])
        with pytest.raises(ValueError, match=r"`scores` has the column PC3, .* PC2"):
            plots.biplot(model, named[["PC1", "PC3", "PC2"]])
    # Names of another library, which counts from 0, say nothing about these components.
    rendered(plots.scores(pd.DataFrame(scores[:, :2], columns=["PC0", "PC1"])))


def test_an_index_of_pandas_in_an_arrow_table_of_scores_is_not_drawn():
    named = pd.DataFrame(np.eye(5)[:, :2], index=[7, 3, 5, 9, 8], columns=["PC1", "PC2"])
    drawn = plots.scores(pa.Table.from_pandas(named))
    np.testing.assert_array_equal(drawn.collections[0].get_offsets(), named)
    with pytest.raises(ValueError, match="`scores` has the column PC2"):
        plots.scores(pa.Table.from_pandas(named[["PC2", "PC1"]]))


def drawn_biplot(ax):
    """Return the points and the heads of all named arrows, in the units of R."""
    ratio = 1 / ax.child_axes[0]._functions[1](1.0)
    points = np.asarray(ax.collections[0].get_offsets())
    heads = np.array([text.xy for text in ax.texts if getattr(text, "arrow_patch", None)])
    return points, heads * ratio / plane.ARROW


@pytest.mark.parametrize("scale", [0, 0.3, 1])
@pytest.mark.parametrize("whiten", [False, True])
def test_the_biplot_has_the_scale_of_r(scale, whiten):
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(40, 2)) @ np.array([[2.0, 1.0, 0.3], [0.0, 1.0, -3.0]])
    pca = PrimedPCA(2, whiten=whiten).fit(flat)
    ax = rendered(plots.biplot(pca, pca.transform(flat), scale=scale, names=["a", "b", "c"]))
    points, ends = drawn_biplot(ax)
    named = [text.get_text() for text in ax.texts if text.get_text()]
    order = ["abc".index(name) for name in named]
    assert sorted(named) == ["a", "b", "c"]
    deviations = np.linalg.svd(flat - flat.mean(0))[1][:2] / np.sqrt(39)
    stretch = (deviations * np.sqrt(40)) ** scale  # lam^scale of biplot.prcomp
    scores = (flat - flat.mean(0)) @ pca.components_.T
    np.testing.assert_allclose(points, scores / stretch, atol=1e-9)
    np.testing.assert_allclose(ends, pca.components_.T[order] * stretch, atol=1e-9)
    # Whatever the scale, points times arrows are the data.
    np.testing.assert_allclose(points @ ends.T, (flat - flat.mean(0))[:, order], atol=1e-9)


def test_arrows_of_the_biplot_reach_as_far_as_points(iris):
    model, data = iris
    ax = rendered(plots.biplot(model, model.transform(data.data), n_names=4))
    points, ends = drawn_biplot(ax)
    ratio = 1 / ax.child_axes[0]._functions[1](1.0)
    low, high = -abs(points.min(0)).max(), abs(points.max(0)).max()
    all_arrows = model.components_[:2].T * np.sqrt(150 * model.explained_variance_[:2])
    reached = np.stack([abs(all_arrows.min(0)) / -low, abs(all_arrows.max(0)) / high])
    assert ratio == pytest.approx(reached.max())
    assert ax.get_aspect() == 1.0
    assert len(ends) >= 2


def test_names_of_the_biplot_are_few_apart_and_not_too_long(models):
    model = models[16]
    names = [f"a very long name of a column, number {j}" for j in range(256)]
    ax = rendered(plots.biplot(model, model.transform(X), names=names, n_names=5))
    shown = [text for text in ax.texts if text.get_text() and text.get_visible()]
    assert 1 <= len(shown) <= 5
    assert all(len(text.get_text()) <= 28 for text in shown)
    boxes = [text.get_window_extent() for text in shown]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_bad_biplots_are_refused(iris, models):
    model, data = iris
    scores = model.transform(data.data)
    with pytest.raises(ValueError, match=r"`scale`=2 must lie in \[0, 1\]"):
        plots.biplot(model, scores, scale=2)
    with pytest.raises(ValueError, match=r"`names` has 2 entries.*4 features"):
        plots.biplot(model, scores, names=["a", "b"])
    with pytest.raises(ValueError, match="needs two components, but the model has 1"):
        plots.biplot(models[1], models[1].transform(X))
    line = PrimedPCA(2).fit(np.outer(np.arange(9.0), np.ones(4)))
    line.explained_variance_[1] = 0.0
    with pytest.raises(ValueError, match=r"have no variance.*`scale`=0"):
        plots.biplot(line, np.zeros((9, 2)))


# -- loadings and images ----------------------------------------------------------------------


def test_loadings_are_the_largest_entries_with_their_error(iris):
    model, _ = iris
    model.angle_bounds_[:] = model.certificate_.angle_bounds[:] = [1e-2, 2e-2, np.pi / 2]
    ax = rendered(plots.loadings(model, 1, n_largest=3))
    order = np.argsort(-abs(model.components_[1]))[:3]
    widths = {round(bar.get_y() + 0.4): bar.get_width() for bar in ax.patches}
    np.testing.assert_allclose([widths[i] for i in range(3)], model.components_[1][order])
    wanted = [str(model.feature_names_in_[j]) for j in order]
    assert [text.get_text() for text in ax.get_yticklabels()] == wanted
    whiskers = np.array([part[:, 0] for part in ax.collections[0].get_segments()])
    np.testing.assert_allclose(np.ptp(whiskers, axis=1), 4 * np.sin(1e-2))
    assert ax.get_title() == "component 2: 5.3 % of the variance\n3 largest of 4 loadings"
    signs = {bar.get_hatch() for bar in ax.patches if bar.get_width() < 0}
    assert signs == {"///"}  # the sign does not depend on colour alone
    assert not plots.loadings(model, 2).collections  # not proven: no error bar


def test_of_many_loadings_some_are_named(models):
    ax = rendered(plots.loadings(models[2], n_largest=200))
    assert len(ax.patches) == 200
    assert len(ax.get_yticklabels()) <= 60


def test_bad_loadings_are_refused(iris):
    model, _ = iris
    with pytest.raises(ValueError, match=r"`component`=3 must be .* from 0 to 2: the model has 3"):
        plots.loadings(model, 3)
    with pytest.raises(ValueError, match="`component`=-1"):
        plots.loadings(model, -1)
    with pytest.raises(ValueError, match="`n_largest`=0"):
        plots.loadings(model, n_largest=0)


@pytest.mark.parametrize("k", COUNTS)
def test_components_as_images(models, k):
    model = models[k]
    axes = plots.component_images(model, (16, 16))
    count = min(k, 16)
    assert axes.shape == (2, count)
    rendered(axes[0, 0])
    for i in range(count):
        up, down = (ax.images[0].get_array()[..., 0].astype(int) for ax in axes[:, i])
        vector = model.components_[i].reshape(16, 16)
        assert (up[vector <= 0] == 0).all()
        assert (down[vector >= 0] == 0).all()
        assert max(up.max(), down.max()) == 255
        assert axes[0, i].get_title().startswith(f"{i + 1}: ")
    assert len(axes[0, 0].figure.axes) == 2 * count


def test_images_in_colour_on_axes_of_ones_own(models):
    axes = Figure().subplots(2, 2)
    assert plots.component_images(models[16], (8, 8, 4), [3, 0], axes) is not None
    assert axes[1, 0].images[0].get_array().shape == (8, 8, 3)
    assert axes[0, 0].get_title().startswith("4: ")


def test_bad_images_are_refused(models):
    model = models[2]
    for shape in ((16, 15), (256,), 256, (16.0, 16.0), (-16, -16)):
        with pytest.raises(ValueError, match=r"`shape`=.*256 features"):
            plots.component_images(model, shape)
    with pytest.raises(ValueError, match=r"`components`=2 must be .* from 0 to 1"):
        plots.component_images(model, (16, 16), [2])
    with pytest.raises(ValueError, match="`components` is empty"):
        plots.component_images(model, (16, 16), [])
    with pytest.raises(ValueError, match=r"`axes` has shape \(2, 3\).*needs \(2, 2\)"):
        plots.component_images(model, (16, 16), axes=Figure().subplots(2, 3))


# -- monitor and plans ------------------------------------------------------------------------


def test_monitor_marks_what_passes_its_limits(models):
    model = models[2]
    faulty = X.copy()
    faulty[7] += 1000 * model.components_[0]
    axes = plots.monitor(model, faulty, level=0.999)
    rendered(axes[0])
    bound, found = limits(model, 0.999), statistics(model, faulty)
    for ax, values, limit in zip(axes, found, bound[:2], strict=True):
        beyond = np.asarray(ax.collections[1].get_offsets())
        np.testing.assert_array_equal(beyond[:, 0], np.flatnonzero(values > limit))
        assert ax.lines[0].get_ydata()[0] == limit
        shown = float(f"{limit:.3g}")
        assert legend(ax)[1] == f"limit for 99.9 %, if normal: {shown:g}"
    assert 7 in axes[0].collections[1].get_offsets()[:, 0]
    assert axes[0].get_yscale() == "log"  # one row is a far outlier
    own = Figure().subplots(1, 2)
    calibrated = limits(model, 0.95, X)
    assert plots.monitor(model, found, axes=own, known=calibrated)[1] is own[1]
    assert own[1].lines[0].get_ydata()[0] == calibrated.spe
    assert legend(own[1])[1].startswith("limit for 95 % of new rows: ")
    with pytest.raises(ValueError, match="`axes` has 3"):
        plots.monitor(model, X, axes=Figure().subplots(3))


def test_plans_show_every_way_and_which_was_chosen():
    found = plan(np.ones((4000, 2000), dtype="float32"), 8)
    ax = rendered(plots.plans(found))
    assert [bar.get_width() for bar in ax.patches] == [way.seconds for way in found.ways]
    names = [text.get_text().replace("\n", " ") for text in ax.get_yticklabels()]
    assert names == [f"chosen: {found.ways[0].name}", *(way.name for way in found.ways[1:])]
    prices = [text.get_text() for text in ax.texts]
    assert f"{found.ways[0].passes:.0f} passes" in prices[0]
    assert all("MB" in price for price in prices)
    asked = plan(X, 2, priming="oja")
    with pytest.raises(ValueError, match=r"compared no methods.*`priming`='auto'"):
        plots.plans(asked)


# -- nothing overlaps, nothing is cut off -------------------------------------------------------


def named_columns(d, n=120):
    """Return rows of d named columns with two strong common factors, in pairs of near copies."""
    rng = np.random.default_rng(d)
    half = rng.normal(size=(n, 2)) @ rng.normal(size=(2, -(-d // 2))) * 2
    both = np.repeat(half, 2, axis=1)[:, :d] + 0.3 * rng.normal(size=(n, d))
    return pd.DataFrame(both, columns=[f"column number {j}" for j in range(d)])


def visible_names(ax):
    return [text for text in ax.texts if text.get_text() and text.get_visible()]


def check_names(figure, at_least):
    """Check that names cover neither each other nor the heads of arrows, and stay inside."""
    figure.draw_without_rendering()
    ax = figure.axes[0]
    names = visible_names(ax)
    assert len(names) >= at_least
    boxes = [text.get_window_extent() for text in names]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i]), names[i].get_text()
        low, high = ax.bbox.min, ax.bbox.max
        assert (box.min >= low).all(), names[i].get_text()
        assert (box.max <= high).all(), names[i].get_text()
    heads = [text.xy for text in ax.texts if getattr(text, "arrow_patch", None)]
    for head in ax.transData.transform(heads) if heads else ():
        assert not any(box.contains(*head) for box in boxes)


def check_whole(figure):
    """Check that no text, tick or legend leaves the figure."""
    figure.draw_without_rendering()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert box.x0 > -0.01
    assert box.y0 > -0.01
    assert box.x1 < width + 0.01
    assert box.y1 < height + 0.01


@pytest.mark.parametrize(
    ("d", "at_least", "dpi"),
    [
        *((5, 5, 150), (16, 16, 60), (50, 30, 150)),
        pytest.param(500, 25, 100, marks=pytest.mark.integration),
    ],
)
def test_names_of_arrows_cover_nothing(d, at_least, dpi):
    rows = named_columns(d)
    model = PrimedPCA(2, scale="std", random_state=0).fit(rows)
    for figure in (
        primedpca.plots.biplot(model, model.transform(rows), n_names=d),
        primedpca.plots.correlation_circle(model, n_names=d),
    ):
        figure.set_dpi(dpi)
        check_names(figure, at_least)
        check_whole(figure)


def test_equal_arrows_are_all_named():
    rows = named_columns(6)[["column number 0", "column number 2", "column number 4"]]
    rows = pd.concat([rows, rows.add_suffix(" again"), rows.add_suffix(" once more")], axis=1)
    model = PrimedPCA(2, scale="std", random_state=0).fit(rows)
    for figure in (
        primedpca.plots.biplot(model, model.transform(rows)),
        primedpca.plots.correlation_circle(model),
    ):
        check_names(figure, 9)
        shown = {text.get_text() for text in visible_names(figure.axes[0])}
        assert shown == set(rows.columns)


@pytest.mark.parametrize("count", [2, 5, 6, 16, 30, 500])
@pytest.mark.parametrize("word", ["c", "a class with a long name"])
def test_classes_beside_the_biplot_and_the_scores_are_whole(iris, count, word):
    model, data = iris
    scores = model.transform(data.data)
    labels = np.array([f"{word} {i % count}" for i in range(150)])
    for figure in (
        primedpca.plots.biplot(model, scores, labels=labels),
        primedpca.plots.scores(scores, labels=labels, model=model),
    ):
        check_whole(figure)
        colours = [c for c in figure.axes[0].collections if c.get_label().startswith(word)]
        assert len(colours) == min(count, 150 if count < 25 else 23)


def test_numbers_colour_the_biplot(iris):
    model, data = iris
    scores = model.transform(data.data)
    figure = primedpca.plots.biplot(model, scores, labels=data.data["petal width (cm)"])
    check_whole(figure)
    assert "petal width (cm)" in [ax.get_ylabel() for ax in figure.axes]
    check_names(figure, 4)


@pytest.mark.integration
@pytest.mark.parametrize("k", COUNTS)
def test_every_figure_is_whole(models, k):
    model, scores = models[k], models[k].transform(X)
    for _, draw in every_picture(model, scores):
        check_whole(draw(None).figure)
    for figure in (
        primedpca.plots.contributions(model, n_largest=7),
        primedpca.plots.contributions(model, n_largest=256),
        primedpca.plots.choose_k(choose_k(X, k, random_state=0)),
        primedpca.plots.monitor(model, X),
        primedpca.plots.outliers(model, X, 0.5, n_names=500),
    ):
        check_whole(figure)


# -- figures in notebooks -----------------------------------------------------------------------


def test_a_new_figure_is_what_a_notebook_shows(models):
    figure = primedpca.plots.scree(models[2])
    assert isinstance(figure, Figure)
    data, size = figure._repr_png_()
    assert data.startswith(b"\x89PNG")
    width = int.from_bytes(data[16:20], "big")
    assert width == 2 * size["width"]
    own = Figure().subplots()
    assert primedpca.plots.scree(models[2], own) is own
    assert primedpca.plots.loadings(models[2], 0, 5, own) is own
    assert isinstance(primedpca.plots.component_images(models[2], (16, 16)), Figure)
    pair = Figure().subplots(2, 1)
    assert primedpca.plots.monitor(models[2], X, axes=pair)[0] is pair[0]


# -- circle, contributions, outliers, choice ----------------------------------------------------


def test_the_circle_shows_correlations():
    rows = named_columns(7)
    scores = PrimedPCA(3).fit_transform(rows)
    wanted = np.corrcoef(rows.to_numpy().T, scores.T)[:7, 7:]
    plain = PrimedPCA(3).fit(rows)
    ax = rendered(plots.correlation_circle(plain, rows, components=(0, 2)))
    ends = np.array([text.xy for text in ax.texts if getattr(text, "arrow_patch", None)])
    order = np.argsort(-np.linalg.norm(wanted[:, [0, 2]], axis=1))
    np.testing.assert_allclose(ends, wanted[order][: len(ends)][:, [0, 2]], atol=1e-10)
    with pytest.raises(ValueError, match=r"Pass `X`, or fit with `scale`='std'"):
        plots.correlation_circle(plain)
    scaled = PrimedPCA(2, scale="std").fit(rows)
    scores = scaled.transform(rows)
    found = correlations(scaled)
    np.testing.assert_allclose(found, np.corrcoef(rows.to_numpy().T, scores.T)[:7, 7:], atol=1e-10)
    np.testing.assert_allclose(correlations(scaled, rows), found, atol=1e-10)
    with pytest.raises(ValueError, match="needs two components"):
        plots.correlation_circle(PrimedPCA(1).fit(rows), rows)


@pytest.mark.parametrize("weights", [None, [3.0, 1, 1, 2, 5, 1], [0.3] * 6, [10.0] * 6])
@pytest.mark.parametrize("scale", [None, "std", [1.0, 5.0, 0.1, 1.0]])
@pytest.mark.parametrize("center", [True, False])
def test_correlations_are_those_of_weighted_rows(weights, scale, center):
    X = np.random.default_rng(0).normal(size=(6, 4))
    X[:, 1], X[:, 3] = X[:, 0] * 2 + 0.01 * X[:, 1], 0.1
    X[:, 2] += 5
    pca = PrimedPCA(2, scale=scale, center=center, random_state=0).fit(X, sample_weight=weights)
    both = np.cov(X[:, :3].T, pca.transform(X).T, aweights=weights, ddof=0)
    roots = np.sqrt(np.diag(both))
    wanted = np.vstack([(both / np.outer(roots, roots))[:3, 3:], np.zeros((1, 2))])
    np.testing.assert_allclose(correlations(pca, X, weights), wanted, atol=1e-8)
    if scale == "std" and center:
        np.testing.assert_allclose(correlations(pca), wanted, atol=1e-8)
        np.testing.assert_allclose(pca.loadings(scaled=True), wanted, atol=1e-8)
    else:
        remedy = "Pass `X`, or fit with `scale`='std'" if center else "`center`=False does not"
        with pytest.raises(ValueError, match=remedy):
            plots.correlation_circle(pca)


def test_correlations_of_inaccurate_components_are_refused_or_computed_from_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3)) + 2 * rng.normal(size=(50, 1))
    pca = PrimedPCA(2, scale="std", random_state=0).fit(X)
    pca.components_ = np.eye(3)[:2]  # far from the true ones
    pca.explained_variance_ = pca.explained_variance_ * 2
    pca.singular_values_ = pca.singular_values_ * np.sqrt(2)
    with pytest.raises(ValueError, match=r"A correlation of .* exceeds 1, .*Pass `X`"):
        plots.correlation_circle(pca)
    wanted = np.corrcoef(X.T, pca.transform(X).T)[:3, 3:]
    np.testing.assert_allclose(correlations(pca, X), wanted, atol=1e-10)
    with pytest.raises(ValueError, match="`sample_weight` needs `X`"):
        plots.correlation_circle(pca, sample_weight=np.ones(50))


def test_contributions_are_squared_loadings_in_percent(iris):
    model, _ = iris
    ax = rendered(plots.contributions(model, 1))
    widths = sorted((bar.get_width() for bar in ax.patches), reverse=True)
    np.testing.assert_allclose(widths, np.sort(100 * model.components_[1] ** 2)[::-1])
    assert ax.lines[0].get_xdata()[0] == 25


def test_infinite_distances_leave_the_others_drawn():
    """As of rows far from a component whose variance is zero."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 4)) * [9, 5, 1, 1]
    model = PrimedPCA(2).fit(rows)
    found = outliers(model, rows)
    found = found._replace(t2=np.where(np.arange(60) < 3, np.inf, found.t2))
    low, high = rendered(plots.outliers(model, found)).get_xlim()
    assert low < found.t2[3:].min()
    assert found.t2[3:].max() < high < 1e3


def test_outliers_are_marked_and_named():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(200, 6)) * [9, 5, 1, 1, 1, 1])
    rows.index = [f"row {i}" for i in range(200)]
    rows.iloc[7, 4] = 12
    model = PrimedPCA(2).fit(rows)
    ax = rendered(plots.outliers(model, rows, 1e-4))
    assert [text.get_text() for text in ax.texts] == ["row 7"]
    assert len(ax.collections[1].get_offsets()) == 1
    assert legend(ax)[1] == "p < 0.0001: 1 of 200 rows"
    named = rendered(plots.outliers(model, rows, 1e-4, names=[f"n{i}" for i in range(200)]))
    assert named.texts[0].get_text() == "n7"
    with pytest.raises(ValueError, match="`names` has 2 entries"):
        plots.outliers(model, rows, names=["a", "b"])
    with pytest.raises(ValueError, match="`level`=1 must"):
        plots.outliers(model, rows, 1)


def test_the_choice_shows_each_rule():
    found = choose_k(X, 30, random_state=0)
    above, below = plots.choose_k(found)
    rendered(above)
    np.testing.assert_array_equal(above.lines[0].get_ydata(), found.variances)
    names = [text.get_text() for text in below.get_yticklabels()]
    assert names == [one.rule for one in found.suggestions]
    drawn = {round(line.get_ydata()[0]): line.get_xdata()[0] for line in below.lines}
    for at, one in enumerate(found.suggestions):
        assert drawn.get(at) == one.n_components
    with pytest.raises(TypeError, match="result of choose_k, got int"):
        plots.choose_k(3)


def test_streaks_of_frames_go_by_name():
    reference = pd.DataFrame(np.eye(3), columns=list("abc"))
    ax = plots.streaks([reference[list("cab")]], reference, 0.1)
    assert ax.lines[0].get_ydata().tolist() == [3]


def test_scores_of_durations_are_refused():
    with pytest.raises(ValueError, match="`scores` holds dates or durations"):
        plots.scores(np.ones((5, 2)).astype("m8[s]"))
