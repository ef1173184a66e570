"""Every target of `primedpca reproduce --list`, from a fresh folder: none of them is empty."""

import dataclasses
import re

import numpy as np
import pytest
from command import primedpca as run
from PIL import Image

from primedpca_paper import large_scale, reproduce, runs
from primedpca_paper.datasets import TITLES, Dataset
from primedpca_paper.large_scale import activations
from primedpca_paper.protocol import Protocol

pytestmark = pytest.mark.integration
TARGETS = [target for target in reproduce.ABOUT if target != "all"]


def small_set(name, folder=None):
    rng = np.random.default_rng(len(name))
    x = rng.normal(size=(2500, 20)) * np.geomspace(30, 1, 20)
    return Dataset(name, TITLES[name], x.astype(np.float32), "drawn")


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Small sets, one setting, few steps; a folder of photographs."""
    full = Protocol.full(2)
    tiny = dataclasses.replace(
        full,
        settings={
            pair: (1e-3,) if pair[1] != "power_method" else (1e-2,) for pair in full.settings
        },
        steps=dict.fromkeys(full.steps, 400),
        n_evaluations=10,
    )
    monkeypatch.setattr(reproduce.Protocol, "shortened", lambda repeats: tiny)
    monkeypatch.setattr(reproduce, "check_set", lambda name, folder: None)
    for module in (runs, activations):
        monkeypatch.setattr(module, "load_set", small_set)
    photographs = tmp_path / "data" / "retina"
    photographs.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(16):
        picture = rng.integers(0, 60, (24, 32, 3), dtype=np.uint8)
        picture[4:14, i : i + 10] += 150
        Image.fromarray(picture).save(photographs / f"{i:02}.png")
    case = large_scale.reproduce.Case("r", "R", "retina", 1, steps=30, share=0.9)
    monkeypatch.setattr(large_scale.reproduce, "QUICK", (case,))
    images = rng.random((40, 8)) @ rng.random((8, 3072))
    cifar = Dataset("cifar10", "CIFAR-10", (images / images.max()).astype(np.float32), "drawn")
    monkeypatch.setattr(activations, "load_set", lambda name, folder: cifar)
    network = activations.Network(1, 2, 40, 6, 20, 0.5, (0,), 6)
    monkeypatch.setattr(activations, "QUICK", network)
    return tmp_path / "data"


def coloured(path):
    """Number of pixels that are neither paper nor text."""
    from matplotlib.image import imread

    pixels = imread(path)[..., :3]
    return int((np.ptp(pixels, axis=2) > 0.2).sum())


def numbers(path):
    """Number of cells of tables that begin with a number."""
    cells = [c.strip(" *") for line in path.read_text().split("\n") for c in line.split("|")[2:-1]]
    return sum(re.match(r"\d", cell) is not None for cell in cells)


QUICK = ("figure-2", "headline", "table-1")  # one of each kind; the others with the slow tests


@pytest.mark.parametrize(
    "target",
    [
        target if target in QUICK else pytest.param(target, marks=pytest.mark.slow)
        for target in TARGETS
    ],
)
def test_a_target_is_drawn_from_a_fresh_folder(target, small, tmp_path):
    drawn = reproduce.reproduce(target, tmp_path / "new", data_dir=small, quick=True)
    pictures = [path for path in drawn if path.suffix == ".png"]
    tables = {path.name: numbers(path) for path in drawn if path.suffix == ".md"}
    if target.startswith(("table", "headline")):
        main = f"{target}.md"
        # Every set has at least its three certified or exact lines.
        assert tables[main] >= 15
        assert all(count > 0 for count in tables.values()), tables
        assert {"rows.csv.gz", "provenance.json"} <= {path.name for path in drawn}
    else:
        assert pictures
        for path in pictures:
            assert coloured(path) > 300, path.name


def test_the_list_names_every_target():
    done = run("reproduce", "--list")
    assert done.returncode == 0
    for target, (draws, data) in reproduce.ABOUT.items():
        line = next(line for line in done.stdout.split("\n") if line.split()[:1] == [target])
        assert draws in line
        assert data in line


@pytest.mark.parametrize(
    ("target", "sets"), [("figure-7", ["mnist"]), ("figure-5", ["mnist"]), ("figure-3", ["linear"])]
)
def test_a_set_that_a_target_does_not_draw_is_refused(tmp_path, target, sets):
    with pytest.raises(ValueError, match=f"^{target} draws .*, not the sets {sets[0]}"):
        reproduce.reproduce(target, tmp_path / "r", sets=sets)
