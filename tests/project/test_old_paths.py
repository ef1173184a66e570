"""Import paths of earlier versions give the same modules, with a warning."""

import subprocess
import sys
import warnings
from importlib import import_module

import pytest

from primedpca import _old_paths

#: Paths of the documentation before the modules moved, and a name in each.
DOCUMENTED = [
    ("primedpca.bounds", "angle_bounds"),
    ("primedpca.budget", "as_bytes"),
    ("primedpca.centred", "Centred"),
    ("primedpca.engines.torch_distributed", "TorchDistributed"),
    ("primedpca.experiments.bench", "race"),
    ("primedpca.experiments.datasets", "load_set"),
    ("primedpca.experiments.demo", "run_demo"),
    ("primedpca.experiments.extra_components", "Suite"),
    ("primedpca.experiments.large_scale", "run_large_scale"),
    ("primedpca.experiments.large_scale.activations", "Activations"),
    ("primedpca.experiments.large_scale.results", "RunFolder"),
    ("primedpca.experiments.records", "Records"),
    ("primedpca.extra", "best_extra"),
    ("primedpca.orthonormal", "orthonormalise"),
    ("primedpca.outward", "round_up"),
    ("primedpca.probes", "Probes"),
    ("primedpca.sources.fields", "Fields"),
    ("primedpca.sources.images", "ImageFolder"),
    ("primedpca.sources.mapped", "Mapped"),
    ("primedpca.sources.rank_rows", "RankRows"),
    ("primedpca.sources.video", "VideoFrames"),
]
#: Documented paths that are still the place of these names.
KEPT = [
    ("primedpca.engines.dask", "DaskEngine"),
    ("primedpca.engines.local", "LocalEngine"),
    ("primedpca.sources.base", "BlockSource"),
    ("primedpca.sources.base", "cut_evenly"),
]


@pytest.fixture(autouse=True)
def _forget_old_paths():
    """Let every test import anew, and leave nothing behind for others."""
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        if _old_paths._new_path(name):
            del sys.modules[name]


@pytest.mark.parametrize(("path", "name"), DOCUMENTED)
def test_an_old_path_warns_and_gives_the_same_module(path, name):
    new = _old_paths._new_path(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        old = import_module(path)
    assert str(caught[-1].message) == f"{path} has moved to {new}."
    assert {warning.category for warning in caught} == {DeprecationWarning}
    module = import_module(new)
    assert old is module
    assert module.__name__ == module.__spec__.name == new
    assert hasattr(module, name)


@pytest.mark.parametrize(("path", "name"), KEPT)
def test_paths_that_stay(path, name):
    assert getattr(import_module(path), name).__name__ == name


@pytest.mark.parametrize("new", _old_paths.MOVED.values())
def test_every_new_place_is_there(new):
    import_module(new)


def test_the_warning_points_at_the_import():
    with pytest.warns(DeprecationWarning, match="primedpca_paper") as caught:
        from primedpca.experiments.datasets import load_set
    assert {warning.filename for warning in caught} == {__file__}
    assert load_set.__module__ == "primedpca_paper.datasets"


@pytest.mark.parametrize("path", ["primedpca.experiments.no_such", "primedpca.no_such"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_modules_that_never_were(path):
    with pytest.raises(ModuleNotFoundError, match=path):
        import_module(path)


@pytest.mark.parametrize(
    "words",
    [["large_scale", "run", "--help"], ["extra_components", "--help"]],
    ids=lambda words: words[0],
)
def test_modules_that_are_run(words):
    module, *rest = words
    done = subprocess.run(
        [sys.executable, "-m", f"primedpca.experiments.{module}", *rest],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:")
    assert not done.stderr


def test_importing_the_library_imports_no_old_or_new_place():
    code = (
        "import sys, primedpca\n"
        "found = [name for name in sys.modules if name.startswith('primedpca')]\n"
        "assert sorted(found) == ['primedpca', 'primedpca._old_paths'], found\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
