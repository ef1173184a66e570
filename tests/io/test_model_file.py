"""Models in files: whole, checked, and as they were."""

import math
import os
import struct

import numpy as np
import pytest
from sklearn.base import clone

from primedpca import PrimedPCA, load
from primedpca._io.tensor_file import read_file, write_file
from primedpca.priming import EigenGame

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 12)) * np.geomspace(9, 1, 12) + 5


def same(a, b):
    """Whether two fitted values are equal, arrays to the bit."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and same(vars(a), vars(b))
    return type(a) is type(b) and (a == b or a != a)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_components": 0.9},
        {"priming": "block_krylov", "tol": 1e-2, "random_state": 3},
        {"priming": EigenGame(learning_rate=1e-3, steps=50), "random_state": 0},
        {"scale": "std", "whiten": True, "certificate": "none"},
        {"scale": np.arange(1.0, 13.0)},
        {"priming": np.eye(12)[:, :5]},
    ],
)
def test_a_model_comes_back_as_it_was(tmp_path, options):
    options = {"n_components": 3} | options
    model = PrimedPCA(**options).fit(X.astype(np.float32))
    path = tmp_path / "a model-ü.safetensors"
    model.save(path)
    back = load(path)
    assert same(vars(model), vars(back))
    assert same(model.transform(X), back.transform(X))
    assert str(back.status_) == str(model.status_)
    assert str(back.plan_) == str(model.plan_)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_data_below_full_rank_save_and_load(tmp_path):
    # Rounding left the constant column negative variances, of -1e-15, in `history_`.
    for seed in range(8):
        x = np.random.default_rng(seed).normal(size=(300, 8)) * 5 + 100
        x[:, -1] = 2.5
        model = PrimedPCA(8, priming="block_krylov", random_state=0).fit(x.astype(np.float32))
        assert all((row.get("variances", np.zeros(1)) >= 0).all() for row in model.history_)
        model.save(tmp_path / f"{seed}")
        assert same(load(tmp_path / f"{seed}").history_, model.history_)


def test_names_of_columns_come_along(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"gene {i}" for i in range(12)])
    model = PrimedPCA(2).fit(frame)
    model.save(tmp_path / "m")
    back = load(tmp_path / "m")
    assert back.feature_names_in_.tolist() == frame.columns.tolist()
    assert same(back.transform(frame), model.transform(frame))


def test_a_loaded_model_starts_the_next_fit(tmp_path):
    x = RNG.normal(size=(3000, 200)) * np.geomspace(9, 1, 200)
    options = {"priming": "subspace_iteration", "certificate": "none", "random_state": 0}
    cold = PrimedPCA(5, **options).fit(x)
    cold.save(tmp_path / "m")
    warm = load(tmp_path / "m").set_params(warm_start=True).fit(x)
    assert warm.n_passes_ < cold.n_passes_


def test_what_cannot_be_kept_is_named(tmp_path):
    model = PrimedPCA(2, priming=lambda x, p: np.eye(12)[:, :p]).fit(X)
    with pytest.warns(UserWarning, match="`priming`"):
        model.save(tmp_path / "m")
    back = load(tmp_path / "m")
    assert back.priming == "auto"
    assert same(back.components_, model.components_)


def test_nothing_is_overwritten_unless_asked(tmp_path):
    path = tmp_path / "m"
    path.write_text("years of work")
    model = PrimedPCA(2).fit(X)
    with pytest.raises(FileExistsError, match="overwrite"):
        model.save(path)
    assert path.read_text() == "years of work"
    model.save(path, overwrite=True)
    assert same(load(path).components_, model.components_)


def test_bad_places(tmp_path):
    model = PrimedPCA(2).fit(X)
    with pytest.raises(FileNotFoundError, match="Folder not found"):
        model.save(tmp_path / "nowhere" / "m")
    with pytest.raises(ValueError, match="not fitted"):
        clone(model).save(tmp_path / "m")
    with pytest.raises(FileNotFoundError, match="File not found"):
        load(tmp_path / "m")
    with pytest.raises(IsADirectoryError, match="not a regular file but a folder"):
        load(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")
def test_a_file_has_the_rights_that_any_other_gets(tmp_path):
    (tmp_path / "plain").touch()
    PrimedPCA(2).fit(np.eye(5)).save(tmp_path / "model.safetensors")
    wanted = (tmp_path / "plain").stat().st_mode
    assert (tmp_path / "model.safetensors").stat().st_mode == wanted


def test_every_flipped_or_missing_byte_is_found(tmp_path):
    path = tmp_path / "m"
    PrimedPCA(2).fit(X[:, :4]).save(path)
    good = path.read_bytes()
    damaged = tmp_path / "d"
    places = RNG.choice(len(good), 200, replace=False)
    for place in places:
        bad = bytearray(good)
        bad[place] ^= 1 << RNG.integers(8)
        damaged.write_bytes(bad)
        with pytest.raises(ValueError, match=r"damaged|not a model|format"):
            load(damaged)
    for length in RNG.choice(len(good), 50, replace=False):
        damaged.write_bytes(good[:length])
        with pytest.raises(ValueError, match="damaged"):
            load(damaged)
    damaged.write_bytes(good + b"more")
    with pytest.raises(ValueError, match="damaged"):
        load(damaged)


def test_a_header_that_lies_allocates_nothing(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(ValueError, match="damaged"):
        load(path)
    header = b'{"a":{"dtype":"F64","shape":[1099511627776],"data_offsets":[0,8796093022208]}}'
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ValueError, match="damaged"):
        load(path)


def test_other_files_are_told_apart(tmp_path):
    path = tmp_path / "m"
    write_file(path, "checkpoint", {"a": np.ones(3)}, {})
    with pytest.raises(ValueError, match="holds checkpoint"):
        load(path)
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(ValueError, match="damaged or not a model"):
        load(tmp_path / "x.npy")


def test_values_of_every_kind_come_back(tmp_path):
    value = {
        "empty": np.zeros((0, 3), np.float32),
        "order": np.asfortranarray(RNG.normal(size=(3, 4))),
        "big": np.arange(3, dtype=">i4"),
        "numbers": [1, 2.5, True, None, "text", math.inf, -math.inf, (1, (2,)), {"a": []}],
        "nan": math.nan,
    }
    write_file(tmp_path / "f", "thing", value, {})
    back = read_file(tmp_path / "f", "thing", {})
    assert math.isnan(back.pop("nan"))
    del value["nan"]
    assert back["numbers"] == value["numbers"]
    for name in ("empty", "order", "big"):
        np.testing.assert_array_equal(back[name], value[name])
    with pytest.raises(TypeError, match="set"):
        write_file(tmp_path / "g", "thing", {1, 2}, {})
    assert not (tmp_path / "g").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_leaves_the_old_file(tmp_path):
    import subprocess
    import sys

    model = PrimedPCA(2).fit(X)
    path = tmp_path / "m"
    model.save(path)
    before = path.read_bytes()
    # A limit on the size of files is what a full disk looks like to a program.
    code = (
        "import resource, signal, sys, numpy as np\n"
        "from primedpca import PrimedPCA\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "m = PrimedPCA(2).fit(np.random.default_rng(0).normal(size=(50, 4000)))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    m.save(sys.argv[1], overwrite=True)\n"
        "except OSError as error:\n"
        "    print(error); sys.exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert "could not be written" in done.stdout
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(
    "options", [{}, {"whiten": True}, {"scale": "std"}, {"scale": "std", "whiten": True}]
)
def test_scikit_learns_pca_does_the_same(options):
    model = PrimedPCA(3, **options).fit(X)
    other = model.to_sklearn()
    np.testing.assert_allclose(other.transform(X), model.transform(X), atol=1e-9)
    if not options:  # whitened or scaled, the two mean different things by it
        np.testing.assert_allclose(other.get_covariance(), model.get_covariance(), rtol=1e-8)
        other.components_[:] = 0
        assert model.components_.any()
    with pytest.raises(Exception, match="not fitted"):
        PrimedPCA().to_sklearn()


@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.parametrize(("kind", "unit"), [("float64", 1.0), ("float32", 1.0), ("float32", 1e-9)])
def test_a_whitened_model_without_full_rank_transforms_alike_in_scikit_learn(kind, unit, scale):
    rows = np.random.default_rng(0).normal(size=(40, 3)) * unit
    rows = np.c_[rows, rows[:, :2]].astype(kind)
    pca = PrimedPCA(5, whiten=True, scale=scale).fit(rows)
    other = pca.to_sklearn()
    new = rows[::-1] * 3
    scores = pca.transform(new)
    # Rounding errors of columns that cancel are divided by small deviations.
    np.testing.assert_allclose(other.transform(new), scores, rtol=1e-3, atol=1e-3)
    back = pca.inverse_transform(scores)
    np.testing.assert_allclose(other.inverse_transform(scores), back, rtol=1e-3, atol=1e-3 * unit)


def test_a_zero_byte_in_a_path_is_named():
    with pytest.raises(ValueError, match=r"'a\\x00b' is not a path"):
        load("a\0b")


def test_a_link_to_nothing_is_not_replaced(tmp_path):
    path, model = tmp_path / "model.safetensors", PrimedPCA(1).fit(np.eye(4))
    path.symlink_to(tmp_path / "not mounted.safetensors")
    with pytest.raises(FileExistsError, match="overwrite"):
        model.save(path)
    assert path.is_symlink()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_is_not_a_path_to_save_to(overwrite, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pca = PrimedPCA(1).fit(np.eye(4))
    for path in ("", ".", "/", tmp_path):
        with pytest.raises(IsADirectoryError, match="is a folder"):
            pca.save(path, overwrite=overwrite)
    for path in (3, None, b"model.safetensors"):
        with pytest.raises(TypeError, match="must be the path of a file"):
            pca.save(path, overwrite=overwrite)
        with pytest.raises(TypeError, match=r"`path`=.* must be the path of a file"):
            load(path)
    assert not list(tmp_path.iterdir())
