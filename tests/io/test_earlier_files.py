"""Models and checkpoints that earlier versions wrote still load."""

import json
from pathlib import Path

import numpy as np
import pytest

from primedpca import load
from primedpca._io.tensor_file import read_file
from primedpca._session.checkpoint import TYPES
from primedpca.priming import BlockKrylov, Exact, Oja
from primedpca.result import Status

FOLDER = Path(__file__).parents[1] / "data" / "earlier"
COMPONENTS = json.loads((FOLDER / "components.json").read_text())
X = (np.random.default_rng(7).normal(size=(400, 30)) * 0.8 ** np.arange(30) + 1).astype(np.float32)


@pytest.mark.parametrize("name", ["fitted", "stream"])
def test_a_model_is_as_it_was(name):
    model = load(FOLDER / f"{name}.safetensors")
    assert np.array_equal(model.components_, np.float32(COMPONENTS[name]))
    assert model.certificate_ is not None
    assert model.transform(X).shape == (400, 3)
    assert str(model.plan_)


def test_a_stream_goes_on():
    model = load(FOLDER / "stream.safetensors").partial_fit(X[:50])
    assert model.n_samples_ == 450
    assert model.components_.shape == (3, 30)


@pytest.mark.parametrize(
    ("name", "kind"), [("krylov", BlockKrylov), ("oja", Oja), ("ended", Exact)]
)
def test_a_checkpoint_is_read(name, kind):
    """Whether a fit may be resumed depends on the versions of libraries, which it compares."""
    manifest = read_file(FOLDER / name / "manifest.safetensors", "checkpoint", TYPES)
    assert type(manifest["plan"].priming) is kind
    assert manifest["seed"] == 0
    for file in sorted((FOLDER / name).glob("pass-*.safetensors")):
        held = read_file(file, "checkpoint", TYPES)
        assert held.keys() == {"asked", "gave", "machine"}
    if name == "ended":
        result = read_file(FOLDER / name / "result.safetensors", "checkpoint", TYPES)
        assert result.status is Status.CERTIFIED
