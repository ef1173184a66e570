"""Checkpoints: a fit that is killed anywhere ends as if it had not been."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
import xarray as xr
from sklearn.base import clone

import primedpca._session.checkpoint as module
import primedpca.sources.base as module_of_fingerprints
from primedpca import PrimedPCA, as_source
from primedpca._core.packing import as_columns, as_rows, pack, unpack
from primedpca._io.tensor_file import read_file, write_file
from primedpca._session.interrupts import Interrupts
from primedpca.priming import (
    BlockKrylov,
    EigenGame,
    FrequentDirections,
    Krasulina,
    MuEigenGame,
    Oja,
    PowerMethod,
)
from primedpca.sources.base import BlockSource, cut_evenly

RNG = np.random.default_rng(0)
N, D, ROWS = 600, 40, 100
X = RNG.normal(size=(N, D)) * np.geomspace(9, 1, D) + 5
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class LostError(Exception):
    """What reading raises when the plug is pulled."""


class Plugged(BlockSource):
    """Rows in blocks that counts how often they are read, and fails when told to."""

    def __init__(self, x, rows=ROWS, fail_at=None):
        self.x, self.shape, self.dtype = x, x.shape, x.dtype
        self.blocks = cut_evenly(x.shape[0], rows)
        self.count, self.fail_at, self.lock = 0, fail_at, threading.Lock()

    def read(self, i):
        with self.lock:
            self.count += 1
            if self.fail_at is not None and self.count > self.fail_at:
                raise LostError
        start, stop = self.blocks[i]
        return self.x[start:stop]


def same(a, b):
    """Whether two values are equal to the bit, whatever time they took."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a if key != "seconds")
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and same(vars(a), vars(b))
    return type(a) is type(b) and (a == b or a != a)


def fitted(model):
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


PRIMINGS = {
    "auto": "auto",
    "exact": "exact",
    "block_krylov": BlockKrylov(block_size=3),
    "restarted": BlockKrylov(block_size=3, max_basis=10),
    "left": BlockKrylov(side="left"),
    "subspace_iteration": "subspace_iteration",
    "power_method": PowerMethod(epsilon=1e-3),
    "oja": Oja(steps=20),
    "eigengame": EigenGame(steps=20),
    "mu_eigengame": MuEigenGame(steps=20),
    "krasulina": Krasulina(steps=20),
    "frequent_directions": FrequentDirections(sketch_size=12),
    "given": np.eye(D)[:, :8],
    "function": lambda x, p: np.eye(D)[:, :p],
}


@pytest.mark.parametrize("certificate", ["auto", "none"])
@pytest.mark.parametrize("name", PRIMINGS)
def test_a_fit_that_fails_anywhere_ends_as_one_that_does_not(
    tmp_path, name, certificate, monkeypatch
):
    monkeypatch.setattr(module, "EVERY", 0.0)
    options = {"priming": PRIMINGS[name], "certificate": certificate, "random_state": 0}
    options |= {"max_passes": 12, "batch_size": 70, "tol": 1e-4}
    plain = Plugged(X)
    want = fitted(PrimedPCA(4, **options).fit(plain))
    whole = Plugged(X)
    folder = tmp_path / "kept"
    assert same(fitted(PrimedPCA(4, checkpoint=folder, **options).fit(whole)), want)
    extra = whole.count - plain.count  # what a fit looks at to tell the data
    assert 0 < extra <= 8

    folder, total, lost = tmp_path / "killed", 0, 0
    for reads in range(extra + 3, 400, 7):  # a little further every time, mostly inside passes
        source = Plugged(X, fail_at=reads if lost < 25 else None)
        model = PrimedPCA(4, checkpoint=folder, **options)
        try:
            model.fit(source)
        except LostError:
            lost += 1
        total += source.count - extra
        if source.fail_at is None or source.count <= source.fail_at:
            break
    assert same(fitted(model), want)
    if name != "auto":
        assert lost > 0
    # Each loss costs what had been read of the pass that it fell into, and a look at the first
    # block; in mini-batches, the rows that they were being drawn from.
    batches = getattr(options["priming"], "visits", "whole") == "batches"
    assert total <= plain.count + lost * (len(plain.blocks) * (1 + batches) + 3)

    ended = Plugged(X)
    model = PrimedPCA(4, checkpoint=folder, **options).fit(ended)
    assert same(fitted(model), want)
    assert ended.count <= extra + 2
    assert sorted(os.listdir(folder)) == ["lock", "manifest.safetensors", "result.safetensors"]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.astype(np.float32),
        lambda x: np.asfortranarray(x),
        lambda x: sp.csr_array(np.where(np.abs(x - 5) > 3, x, 0)),
        lambda x: sp.csc_array(np.where(np.abs(x - 5) > 3, x, 0)),
        lambda x: torch.from_numpy(x),
        lambda x: torch.from_numpy(x.astype(np.float32)),
        lambda x: x.T.copy(),
        lambda x: x * 1e100,
    ],
    ids=["float32", "columns", "csr", "csc", "torch", "torch32", "wide", "huge"],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"priming": "block_krylov"},
        {"priming": "subspace_iteration", "certificate": "none"},
        {"priming": Oja(steps=12), "scale": "std"},
        {"priming": "frequent_directions", "certificate": "none"},
        {"n_components": 0.9},
    ],
    ids=["auto", "krylov", "subspace", "oja", "stream", "share"],
)
def test_every_kind_of_data_is_gone_on_with(tmp_path, make, options, monkeypatch):
    """Each writing is cut short in turn: the disk is full, then it is not."""
    monkeypatch.setattr(module, "EVERY", 0.0)
    x = make(X)
    options = {"n_components": 3, "random_state": 1, "max_passes": 6, "batch_size": 100} | options
    want = fitted(PrimedPCA(**options).fit(x))
    written = []

    def write(path, kind, value, types):
        if len(written) and len(written) % 2 == 0:
            written.append("full")
            raise OSError("No space left on device")
        write_file(path, kind, value, types)
        written.append(path.name)

    monkeypatch.setattr(module, "write_file", write)
    for _ in range(60):
        model = PrimedPCA(checkpoint=tmp_path, **options)
        try:
            model.fit(x)
            break
        except OSError as error:
            words = str(error)
    assert str(tmp_path) in words
    assert "free some space" in words
    assert same(fitted(model), want)
    assert same(fitted(PrimedPCA(checkpoint=tmp_path, **options).fit(x)), want)


@pytest.mark.parametrize("priming", ["auto", "subspace_iteration", "oja", "frequent_directions"])
@pytest.mark.parametrize(
    "options",
    [
        {"scale": "std"},
        {"missing": "mean"},
        {"center": False},
        {"refine_share": 0.5},
        {"n_components": "mle"},
        {"weighted": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_preparation_is_gone_on_with(tmp_path, priming, options, monkeypatch):
    monkeypatch.setattr(module, "EVERY", 0.0)
    options = dict(options)
    x, weight = X.copy(), None
    if options.get("missing"):
        x[::7, ::5] = np.nan
    if options.pop("weighted", False):
        weight = np.arange(N) // 50 % 3.0  # whole batches of weight zero, which are skipped
    priming = Oja(steps=15) if priming == "oja" else priming
    options = {"n_components": 3, "priming": priming, "max_passes": 5} | options
    options |= {"random_state": 2, "batch_size": 50}
    plain = Plugged(x)
    want = PrimedPCA(**options).fit(plain, sample_weight=weight)
    for reads in (plain.count // 2, 2 * plain.count // 3, plain.count):
        source = Plugged(x, fail_at=reads)
        with contextlib.suppress(LostError):  # what is left may be less than that
            PrimedPCA(checkpoint=tmp_path, **options).fit(source, sample_weight=weight)
    got = PrimedPCA(checkpoint=tmp_path, **options).fit(Plugged(x), sample_weight=weight)
    assert same(fitted(got), fitted(want))


def test_wide_rows_from_a_file(tmp_path, monkeypatch):
    """Rows that are held in memory while a Gram matrix is made of them are not kept."""
    path = tmp_path / "x.bin"
    wide = np.memmap(path, np.float32, "w+", shape=(30, 4000))
    wide[:] = RNG.normal(size=wide.shape) * np.geomspace(9, 1, 30)[:, None]
    wide.flush()
    for room in (2.0**31, 1e5):
        monkeypatch.setattr("primedpca._operator.operator.HELD_BYTES", room)
        options = {"random_state": 0, "priming": "exact"}
        want = fitted(PrimedPCA(3, **options).fit(wide))
        folder = tmp_path / f"kept {room:g}"
        sizes = []

        def write(file, kind, value, types, sizes=sizes):
            write_file(file, kind, value, types)
            sizes.append(file.stat().st_size)
            if len(sizes) == 3:
                raise OSError("full")

        monkeypatch.setattr(module, "write_file", write)
        with pytest.raises(OSError, match="full"):
            PrimedPCA(3, checkpoint=folder, **options).fit(wide)
        monkeypatch.setattr(module, "write_file", write_file)
        assert same(fitted(PrimedPCA(3, checkpoint=folder, **options).fit(wide)), want)
        assert max(sizes) < 30 * 4000 * 4


# -- what is refused -------------------------------------------------------------------------


def interrupted(folder, reads=30, x=X, **options):
    source = Plugged(x, fail_at=reads)
    with pytest.raises(LostError):
        PrimedPCA(4, checkpoint=folder, **OPTIONS | options).fit(source)
    assert any(name.startswith("pass-") for name in os.listdir(folder))


OPTIONS = {"priming": BlockKrylov(block_size=3), "random_state": 0, "tol": 1e-4}


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


CHANGED = X.copy()
CHANGED[0, 0] += 1e-9
LAST = X.copy()
LAST[-1, -1] += 1e-9


@pytest.mark.parametrize(
    ("x", "options", "words"),
    [
        (CHANGED, {}, "other data: contents"),
        (LAST, {}, "other data: contents"),
        (X[:-1], {}, "other data: "),
        (X.astype(np.float32), {}, "other data: "),
        (X, {"tol": 1e-3}, "other parameters: tol was 0.0001, and is 0.001 now"),
        (X, {"priming": BlockKrylov(block_size=4)}, "other parameters: priming"),
        (X, {"priming": "oja"}, "other parameters: priming"),
        (X, {"random_state": 1}, "other parameters: random_state"),
        (X, {"scale": np.arange(1.0, D + 1)}, "other parameters: scale"),
        (X, {"n_components": 5}, "other parameters: n_components"),
        (X, {"certificate": "none"}, "other parameters: certificate"),
    ],
)
def test_another_fit_is_refused(tmp_path, x, options, words):
    interrupted(tmp_path)
    before = contents(tmp_path)
    given = {"n_components": 4} | OPTIONS | options
    with pytest.raises(ValueError, match=words):
        PrimedPCA(checkpoint=tmp_path, **given).fit(Plugged(x))
    assert contents(tmp_path) == before
    PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(Plugged(X))
    with pytest.raises(ValueError, match=words):
        PrimedPCA(checkpoint=tmp_path, **given).fit(Plugged(x))


def test_other_weights_and_another_start_are_refused(tmp_path):
    weight = np.ones(N)
    model = PrimedPCA(4, checkpoint=tmp_path / "a", **OPTIONS).fit(X, sample_weight=weight)
    weight[3] = 2
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(X, sample_weight=weight)
    warm = PrimedPCA(4, warm_start=True, **OPTIONS).fit(X)
    warm.set_params(checkpoint=tmp_path / "b").fit(X)
    warm.components_ = warm.components_[::-1]
    with pytest.raises(ValueError, match="start"):
        warm.fit(X)


def test_a_file_that_was_changed_is_told_by_its_date(tmp_path):
    path = tmp_path / "x.npy"
    big = RNG.normal(size=(50_000, 100)).astype(np.float32)
    np.save(path, big)
    folder = tmp_path / "kept"
    model = PrimedPCA(2, priming="exact", checkpoint=folder).fit(np.load(path, mmap_mode="r"))
    os.utime(path, (1, 1))
    with pytest.raises(ValueError, match="other data: file"):
        model.fit(np.load(path, mmap_mode="r"))


def test_a_source_may_tell_its_own_data(tmp_path):
    source = Plugged(X)
    source.fingerprint = lambda: {"edition": 1}
    model = PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(source)
    model.fit(source)
    source.fingerprint = lambda: {"edition": 2}
    with pytest.raises(ValueError, match="other data: source"):
        model.fit(source)


def test_what_does_not_matter_may_change(tmp_path, capsys):
    interrupted(tmp_path)
    want = PrimedPCA(4, **OPTIONS).fit(Plugged(X))
    more = {"verbose": 1, "whiten": True, "engine": None}
    model = PrimedPCA(4, checkpoint=tmp_path, **OPTIONS, **more).fit(Plugged(X))
    assert same(fitted(model), fitted(want))


def test_a_seed_that_was_drawn_is_kept(tmp_path):
    options = {"priming": BlockKrylov(block_size=3), "random_state": None, "tol": 1e-4}
    source = Plugged(X, fail_at=30)
    with pytest.raises(LostError):
        PrimedPCA(4, checkpoint=tmp_path, **options).fit(source)
    held = read_file(tmp_path / "manifest.safetensors", "checkpoint", module.TYPES)
    model = PrimedPCA(4, checkpoint=tmp_path, **options).fit(Plugged(X))
    want = PrimedPCA(4, **options | {"random_state": held["seed"]}).fit(Plugged(X))
    assert same(fitted(model), fitted(want))


@pytest.mark.parametrize("versions", ["primedpca", "numpy"])
def test_another_version_is_refused(tmp_path, versions):
    interrupted(tmp_path)
    path = tmp_path / "manifest.safetensors"
    held = read_file(path, "checkpoint", module.TYPES)
    held["about"]["versions"][versions] = "0.0.1"
    write_file(path, "checkpoint", held, module.TYPES)
    with pytest.raises(ValueError, match=f"other version: {versions} was 0.0.1"):
        PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(Plugged(X))


def test_passes_that_were_made_with_other_numbers_are_refused(tmp_path):
    interrupted(tmp_path)
    path = tmp_path / "pass-000001.safetensors"
    held = read_file(path, "checkpoint", module.TYPES)
    held["gave"].sums[0].values[0, -1] *= 1 + 1e-15  # the first columns are those of the check
    write_file(path, "checkpoint", held, module.TYPES)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"diverged.*pass-000002.* round differently"):
        PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(Plugged(X))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "text"])
@pytest.mark.parametrize("name", ["manifest", "pass-000001", "loop", "result"])
def test_damage_is_named_and_nothing_is_overwritten(tmp_path, name, damage):
    if name == "loop":
        options = {"priming": Oja(steps=20), "batch_size": 70, "random_state": 0}
    else:
        options = OPTIONS
    if name == "result":
        PrimedPCA(4, checkpoint=tmp_path, **options).fit(Plugged(X))
    else:
        plain = Plugged(X)
        PrimedPCA(4, **options).fit(plain)
        with pytest.raises(LostError):
            PrimedPCA(4, checkpoint=tmp_path, **options).fit(Plugged(X, fail_at=plain.count + 5))
    path = tmp_path / f"{name}.safetensors"
    bytes_ = bytearray(path.read_bytes())
    place = int(RNG.integers(8, len(bytes_)))
    bytes_[place] ^= 64
    path.write_bytes(
        {"flip": bytes(bytes_), "cut": bytes_[:place], "empty": b"", "text": b"hello"}[damage]
    )
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"{name}.safetensors .*(damaged|holds|format).*another"):
        PrimedPCA(4, checkpoint=tmp_path, **options).fit(Plugged(X))
    assert contents(tmp_path) == before


def test_passes_without_a_manifest_are_refused(tmp_path):
    interrupted(tmp_path)
    (tmp_path / "manifest.safetensors").unlink()
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="damaged: no manifest"):
        PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(Plugged(X))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["pass-000001.safetensors", "result.safetensors"])
def test_files_of_another_fit_are_refused(name, tmp_path):
    for folder, data in (("one", X), ("other", 2 * X)):
        if name.startswith("pass"):
            interrupted(tmp_path / folder, x=data)
        else:
            PrimedPCA(4, checkpoint=tmp_path / folder, **OPTIONS).fit(Plugged(data))
    (tmp_path / "one" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    before = contents(tmp_path / "one")
    with pytest.raises(ValueError, match=f"damaged: {name} belongs to another fit"):
        PrimedPCA(4, checkpoint=tmp_path / "one", **OPTIONS).fit(Plugged(X))
    assert contents(tmp_path / "one") == before


def test_a_result_as_earlier_versions_kept_it_is_read(tmp_path):
    model = PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(Plugged(X))
    for name in ("manifest", "result"):
        path = tmp_path / f"{name}.safetensors"
        held = read_file(path, "checkpoint", module.TYPES)
        del held["fit"]
        path.unlink()
        write_file(path, "checkpoint", held.get("solution", held), module.TYPES)
    unread = Plugged(X, fail_at=2 * N // ROWS)
    assert same(fitted(PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(unread)), fitted(model))


def test_a_half_written_file_is_cleared_away(tmp_path):
    interrupted(tmp_path)
    draft = tmp_path / ".pass-000004.safetensors.k3j_x9"
    draft.write_bytes(b"half")
    model = PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(Plugged(X))
    assert same(fitted(model), fitted(PrimedPCA(4, **OPTIONS).fit(Plugged(X))))
    assert not draft.exists()


def test_a_file_that_safetensors_was_writing_is_cleared_away(tmp_path):
    """It writes to a file of its own beside our draft, which a kill leaves behind with it."""
    interrupted(tmp_path)
    left = [tmp_path / ".pass-000004.safetensors.0123456789ab", tmp_path / ".tmpWEevyq"]
    for path in left:
        path.write_bytes(b"half")
    model = PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(Plugged(X))
    assert same(fitted(model), fitted(PrimedPCA(4, **OPTIONS).fit(Plugged(X))))
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize(
    "name", ["thesis.tex", "pass-1.safetensors", ".hidden", "model.safetensors", ".tmpWEevyq"]
)
def test_a_folder_with_other_things_is_left_alone(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match="not part of a checkpoint"):
        PrimedPCA(2, checkpoint=tmp_path).fit(X)
    assert contents(tmp_path) == {name: b"mine"}


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match=r"`checkpoint`='.*file' is a file"):
        PrimedPCA(2, checkpoint=tmp_path / "file").fit(X)
    with pytest.raises(OSError, match="cannot be created"):
        PrimedPCA(2, checkpoint=tmp_path / "file" / "below").fit(X)
    with pytest.raises(ValueError, match="`checkpoint`='' must be the path"):
        PrimedPCA(2, checkpoint="").fit(X)
    assert contents(tmp_path) == {"file": b"mine"}


def test_bad_data_leave_no_manifest(tmp_path):
    with pytest.raises(ValueError, match="must lie between"):
        PrimedPCA(D + 1, checkpoint=tmp_path / "a").fit(X)
    model = PrimedPCA(2, checkpoint=tmp_path / "a").fit(X)
    assert same(fitted(model), fitted(PrimedPCA(2).fit(X)))


def test_one_fit_at_a_time(tmp_path):
    first, errors = Plugged(X), []

    def second():
        try:
            PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(Plugged(X))
        except ValueError as error:
            errors.append(str(error))

    def read(i, first=first, own=first.read):
        if first.count == 30:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
        return own(i)

    first.read = read
    model = PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(first)
    assert errors
    assert all("is in use by another fit" in words for words in errors)
    assert same(fitted(model), fitted(PrimedPCA(4, **OPTIONS).fit(Plugged(X))))


class Thing:
    """A priming whose state is no named tuple."""

    visits = "batches"

    def init(self, like, n_directions, seed, start=None):
        return [like.asarray(np.eye(like.n_features)[:, :n_directions])]

    def step(self, state, data):
        return state

    def directions(self, state, data):
        return state[0]


def test_a_state_that_cannot_be_kept_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"Thing.* is a list"):
        PrimedPCA(2, priming=Thing(), checkpoint=tmp_path, certificate="none").fit(X)


class CountState(NamedTuple):
    vectors: object
    seen: int


class Own(Thing):
    """A priming of a user's, with a state that can be kept."""

    def init(self, like, n_directions, seed, start=None):
        return CountState(super().init(like, n_directions, seed)[0], 0)

    def step(self, state, data):
        return CountState(state.vectors + 1e-3 * data.covariance_product(state.vectors), 1)

    def directions(self, state, data):
        return state.vectors


def test_a_priming_of_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "EVERY", 0.0)
    options = {"priming": Own(), "max_passes": 3, "batch_size": 50, "random_state": 0}
    want = PrimedPCA(2, **options).fit(Plugged(X))
    with pytest.raises(LostError):
        PrimedPCA(2, checkpoint=tmp_path, **options).fit(Plugged(X, fail_at=25))
    model = PrimedPCA(2, checkpoint=tmp_path, **options).fit(Plugged(X))
    assert same(model.components_, want.components_)
    assert same(model.history_, want.history_)


def test_scikit_learn_still_copies_it(tmp_path):
    model = PrimedPCA(3, checkpoint=tmp_path / "kept")
    other = clone(model)
    assert other.get_params() == model.get_params()
    assert same(other.fit_transform(X), PrimedPCA(3).fit_transform(X))
    model.fit(X).save(tmp_path / "model")


# -- arrays in files -------------------------------------------------------------------------


@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
def test_arrays_keep_their_layout(library):
    like = as_source(library(X)).read(0)
    from primedpca._core.arrays import like_block

    like = like_block(like, D)
    for array in (X, X.T, X[:, :1], X[0], np.asarray(3.5), np.arange(4, dtype=np.int32)):
        given = library(array.copy(order="K"))
        back = unpack(pack({"a": (given,)}), like)["a"][0]
        assert type(back) is type(given)
        assert back.dtype == given.dtype
        assert np.asarray(back).strides == np.asarray(given).strides
        assert np.array_equal(np.asarray(back), np.asarray(given))
    back += 1  # it is nobody else's


def test_rows_become_columns_and_come_back():
    rows = [{"step": i, "passes": i / 7, "seconds": 0.5} for i in range(50)]
    rows += [{"step": 50, "angle_bounds": np.arange(3.0)}, {"step": 51, "passes": float("inf")}]
    kept = as_columns(rows)
    assert len(kept) == 3
    assert same(as_rows(kept), rows)
    assert as_rows(as_columns([])) == []


# -- real processes --------------------------------------------------------------------------

WORKER = """
import os, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
import primedpca._session.checkpoint
from primedpca import PrimedPCA
from primedpca.priming import BlockKrylov, Oja
from primedpca.sources.files.numpy_files import RawFileSource, memmap_source

data, folder, out, kind, pause = sys.argv[1:6]
primedpca._session.checkpoint.EVERY = 0.05


class Slow(RawFileSource):
    def read(self, i):
        os.write(1, b"read\\n")  # at once: other threads write as well
        time.sleep(float(pause))
        return super().read(i)

    def rows(self, index):
        os.write(1, b"read\\n")  # at once: other threads write as well
        time.sleep(float(pause))
        return super().rows(index)


source = memmap_source(np.load(data, mmap_mode="r"))
source.__class__ = Slow
priming = {"krylov": BlockKrylov(), "oja": Oja(steps=60)}[kind]
options = {"priming": priming, "tol": 1e-5, "random_state": 0, "max_passes": 12}
model = PrimedPCA(4, checkpoint=folder or None, batch_size=2000, **options)
try:
    model.fit(source)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
bounds = model.angle_bounds_
np.savez(out, components=model.components_, variances=model.explained_variance_, bounds=bounds,
         passes=[row["passes"] for row in model.history_], total=model.n_passes_)
"""


class Job:
    """A fit in a process of its own, and how many reads it has made."""

    def __init__(self, data, folder, out, kind="krylov", pause=0.0):
        command = [sys.executable, "-c", WORKER, data, folder, out, kind, str(pause)]
        self.process = subprocess.Popen(
            [str(part) for part in command], stdout=subprocess.PIPE, text=True
        )
        self.reads, self.words = 0, []

    def run(self, until=None, number=None, delay=0.0):
        """Follow it to its end, or send one signal after so many reads."""
        for line in self.process.stdout:
            self.reads += line == "read\n"
            self.words.append(line.strip())
            if line == "read\n" and self.reads == until:  # not again at its last words
                time.sleep(delay)
                self.process.send_signal(number)
        self.process.stdout.close()
        return self.process.wait(timeout=60)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "x.npy"
    x = np.random.default_rng(1).normal(size=(40_000, 200)) * np.linspace(3, 1, 200)
    np.save(path, x.astype(np.float32))  # 32 MB: 4 blocks
    return path


def equal(a, b):
    with np.load(a) as one, np.load(b) as other:
        return all(same(one[name], other[name]) for name in one.files)


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["krylov", "oja"])
def test_a_process_that_is_killed(tmp_path, file, kind):
    plain = Job(file, "", tmp_path / "want.npz", kind)
    assert plain.run() == 0
    killed = Job(file, tmp_path / "kept", tmp_path / "no.npz", kind, 0.02)
    assert killed.run(plain.reads, signal.SIGKILL, 0.01) == -signal.SIGKILL
    again = Job(file, tmp_path / "kept", tmp_path / "got.npz", kind)
    assert again.run() == 0
    assert equal(tmp_path / "want.npz", tmp_path / "got.npz")
    assert again.reads < plain.reads
    assert not (tmp_path / "no.npz").exists()


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["krylov", "oja"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_for_what_is_worked_out(tmp_path, file, kind, number):
    plain = Job(file, "", tmp_path / "want.npz", kind)
    assert plain.run() == 0
    left = Job(file, tmp_path / "kept", tmp_path / "no.npz", kind, 0.05)
    code = left.run(plain.reads // 2, number)
    if number == signal.SIGINT:
        assert code == 130
        assert left.words[-1] == "interrupted"
    else:
        assert code == -signal.SIGTERM
    again = Job(file, tmp_path / "kept", tmp_path / "got.npz", kind)
    assert again.run() == 0
    assert equal(tmp_path / "want.npz", tmp_path / "got.npz")
    # The pass (or group of rows) in which it came was ended, and nothing of it is read again.
    assert left.reads + again.reads <= plain.reads + 2 * 9 + (kind == "oja")


@pytest.mark.integration
def test_a_second_signal_does_not_wait(tmp_path, file):
    left = Job(file, tmp_path / "kept", tmp_path / "no.npz", "krylov", 1.0)
    for line in left.process.stdout:
        left.reads += line == "read\n"
        if left.reads == 9:
            break
    for _ in range(2):
        left.process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    begun = time.monotonic()
    rest = left.process.stdout.read()
    left.process.stdout.close()
    assert left.process.wait(timeout=60) == 130
    assert "interrupted" in rest
    assert time.monotonic() - begun < 3  # it does not begin another block


def test_handlers_are_as_before(tmp_path):
    def mine(number, frame):
        raise AssertionError

    before = signal.signal(signal.SIGTERM, mine)
    try:
        interrupted(tmp_path)
        assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(Plugged(X))
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_handler_that_comes_back_lets_the_fit_go_on(tmp_path):
    seen, source = [], Plugged(X)
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))

    def read(i, own=source.read):
        if source.count == 20:
            os.kill(os.getpid(), signal.SIGTERM)
        return own(i)

    source.read = read
    try:
        model = PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(source)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]
    assert same(fitted(model), fitted(PrimedPCA(4, **OPTIONS).fit(Plugged(X))))


def test_a_signal_is_never_lost():
    interrupts, seen = Interrupts(), []

    def work(let_through):
        with interrupts.held():
            signal.raise_signal(signal.SIGINT)
            seen.append("held")
            if let_through:
                interrupts.let_through()
            seen.append("end")

    for let_through in (True, False):
        with pytest.raises(KeyboardInterrupt):
            work(let_through)
        assert interrupts.pending is None
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert seen == ["held", "held", "end"]


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    interrupts = Interrupts()
    try:
        with interrupts.held():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
            signal.raise_signal(signal.SIGTERM)
            assert interrupts.pending is None
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_signals_are_let_be(tmp_path):
    done = []

    def fit():
        with warnings.catch_warnings():
            done.append(PrimedPCA(4, checkpoint=tmp_path, **OPTIONS).fit(Plugged(X)))

    thread = threading.Thread(target=fit)
    thread.start()
    thread.join()
    assert same(fitted(done[0]), fitted(PrimedPCA(4, **OPTIONS).fit(Plugged(X))))


@pytest.mark.integration
def test_a_full_disk_leaves_what_was_written(tmp_path):
    """A limit on the size of files stands in for it, from the third pass on."""
    code = (
        "import resource, signal, sys, numpy as np\n"
        "from primedpca import PrimedPCA\n"
        "from primedpca.sources.base import BlockSource, cut_evenly\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "x = np.random.default_rng(0).normal(size=(600, 500)) * np.linspace(3, 1, 500)\n"
        "class Source(BlockSource):\n"
        "    shape, dtype, blocks, count = x.shape, x.dtype, cut_evenly(600, 100), 0\n"
        "    def read(self, i):\n"
        "        self.count += 1\n"
        "        if self.count == int(sys.argv[2]):\n"
        "            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "        return x[slice(*self.blocks[i])]\n"
        "model = PrimedPCA(3, priming='block_krylov', max_passes=12, random_state=0)\n"
        "try:\n"
        "    model.set_params(checkpoint=sys.argv[1]).fit(Source())\n"
        "except OSError as error:\n"
        "    print(error); sys.exit(7)\n"
        "print(float(np.abs(model.components_).sum()).hex())\n"
    )

    def run(folder, full):
        command = [sys.executable, "-W", "ignore", "-c", code, str(folder), str(full)]
        return subprocess.run(command, capture_output=True, text=True)

    whole = run(tmp_path / "whole", 0)
    assert whole.returncode == 0, whole.stderr
    kept = tmp_path / "kept"
    full = run(kept, 25)
    assert full.returncode == 7, full.stderr
    assert f"the checkpoint in {kept} could not be written" in full.stdout
    names = [name for name in os.listdir(kept) if name != "lock"]
    assert sorted(names) == [
        "manifest.safetensors",
        *(f"pass-00000{i}.safetensors" for i in (1, 2)),
    ]
    done = run(kept, 0)
    assert done.returncode == 0, done.stderr
    assert done.stdout == whole.stdout


@pytest.mark.slow
def test_twenty_kills_of_a_fit_from_disk(tmp_path):
    """Spread over the passes from the second to the last, each gone on with from the start."""
    path = tmp_path / "x.npy"
    rng = np.random.default_rng(2)
    out = np.lib.format.open_memmap(path, "w+", np.float32, (100_000, 500))  # 200 MB
    for i in range(0, 100_000, 10_000):
        out[i : i + 10_000] = rng.normal(size=(10_000, 500)) * np.linspace(3, 1, 500)
    out.flush()
    blocks = len(as_source(np.load(path, mmap_mode="r")).blocks)
    plain = Job(path, "", tmp_path / "want.npz")
    assert plain.run() == 0
    kept = Job(path, tmp_path / "all", tmp_path / "all.npz")
    assert kept.run() == 0
    extra = kept.reads - plain.reads
    places = np.linspace(extra + blocks + 1, kept.reads - 1, 20).astype(int)
    for i, place in enumerate(places):
        folder = tmp_path / f"kept {i}"
        killed = Job(path, folder, tmp_path / "no.npz", "krylov", 0.005)
        delay = float(rng.uniform(0, 0.02))
        assert killed.run(int(place), signal.SIGKILL, delay) == -signal.SIGKILL
        again = Job(path, folder, tmp_path / f"got {i}.npz")
        assert again.run() == 0
        assert equal(tmp_path / "want.npz", tmp_path / f"got {i}.npz")
        # Finished passes are not read again: at most the one that the kill fell into.
        done = (int(place) - extra) // blocks - 1
        assert again.reads <= plain.reads + extra - done * blocks


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("kind", ["dense", "wide", "sparse", "blocks", "tensor"])
def test_any_entry_of_data_in_memory_is_looked_at(tmp_path, kind, ended):
    def made(x):
        if kind == "sparse":
            return sp.csr_array(x)
        if kind == "blocks":
            return Plugged(x, rows=20)
        return torch.from_numpy(x) if kind == "tensor" else x

    shape = (30, 80_000) if kind == "wide" else (40_000, 50)
    big = RNG.normal(size=(N, D) if kind == "blocks" else shape)
    model = PrimedPCA(2, checkpoint=tmp_path, random_state=0, max_passes=3)
    if ended:
        model.fit(made(big))
    else:
        source = as_source(made(big))
        reads, read = [], source.read

        def failing(i):
            reads.append(i)
            if len(reads) > 3 * len(source.blocks):
                raise LostError
            return read(i)

        source.read = failing
        with contextlib.suppress(LostError):
            model.set_params(priming="block_krylov").fit(source)
    other = big.copy()
    at = tuple(RNG.integers(0, other.shape))
    other[at] += 1e-9
    with pytest.raises(ValueError, match="other data: contents"):
        model.fit(made(other))
    model.fit(made(big))


@pytest.mark.parametrize("kind", ["npy", "zarr"])
def test_a_file_with_its_date_put_back_is_told(tmp_path, kind):
    big = RNG.normal(size=(50_000, 100)).astype(np.float32)
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, big)
        changed = path
    else:
        zarr = pytest.importorskip("zarr")
        store = zarr.create_array(str(path), shape=big.shape, chunks=(2000, 100), dtype="f4")
        store[:] = big
        changed = sorted(p for p in path.rglob("*") if p.is_file() and p.name != "zarr.json")[12]
    model = PrimedPCA(2, priming="exact", checkpoint=tmp_path / "kept").fit(path)
    model.fit(path)
    before, held = changed.stat(), bytearray(changed.read_bytes())
    held[len(held) // 2] ^= 1
    changed.write_bytes(held)
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ValueError, match="other data"):
        model.fit(path)


# -- how the data are read ----------------------------------------------------------------------

CELLS = np.random.default_rng(4).integers(0, 9, (6, 4))


def _csv(folder):
    np.savetxt(folder / "x.csv", CELLS, "%d", delimiter=",", header="a,b,c,d", comments="")
    return folder / "x.csv"


def _parquet(folder):
    pd = pytest.importorskip("pandas")
    pd.DataFrame(CELLS, columns=list("abcd")).to_parquet(folder / "x.parquet")
    return folder / "x.parquet"


def _excel(folder):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl")
    pd.DataFrame(CELLS, columns=list("abcd")).to_excel(folder / "x.xlsx", index=False)
    return folder / "x.xlsx"


def _raw(folder):
    np.arange(96.0).tofile(folder / "x.bin")
    return folder / "x.bin"


def _npz(folder):
    np.savez(folder / "x.npz", a=CELLS, b=CELLS)
    return folder / "x.npz"


def _hdf5(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "x.h5", "w") as file:
        file["a"], file["b"] = CELLS, CELLS
    return folder / "x.h5"


def _zarr(folder):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(folder / "x.zarr"), mode="w")
    for name in "ab":
        group.create_array(name, data=CELLS)
    return folder / "x.zarr"


def _h5ad(folder):
    anndata = pytest.importorskip("anndata")
    pd = pytest.importorskip("pandas")
    var = pd.DataFrame({"v": [True] * 3 + [False], "w": [False] + [True] * 3}, index=list("abcd"))
    numbers = CELLS.astype(float)
    anndata.AnnData(numbers, var=var, layers={"l": numbers}).write_h5ad(folder / "x.h5ad")
    return folder / "x.h5ad"


def _images(folder):
    images = pytest.importorskip("PIL.Image")
    for name in "ab":
        images.fromarray(CELLS.astype(np.uint8)).save(folder / f"{name}.png")
    return folder


RAW = {"shape": (6, 4), "dtype": "f8", "exact": False}


@pytest.mark.parametrize(
    ("make", "part", "one", "other"),
    [
        (_csv, "", {}, {"na_values": ["-999"]}),
        (_csv, "", {"na_values": ["-999"]}, {}),
        (_csv, "", {"na_values": ["-999"]}, {"na_values": ["-99"]}),
        (_csv, "", {}, {"decimal": ","}),
        (_csv, "", {}, {"thousands": "'"}),
        (_csv, "", {}, {"strip": ["$"]}),
        (_csv, "", {}, {"skip_bad_lines": True}),
        (_csv, "", {"id_column": "a"}, {"id_column": "b"}),
        (_csv, "", {"columns": iter(["a", "b"])}, {"columns": iter(["b", "a"])}),
        (_csv, "", {}, {"map": np.sqrt}),
        (_csv, "", {"map": np.cbrt}, {"map": np.sqrt}),
        (_parquet, "", {"columns": ["a", "b"]}, {"columns": ["a", "c"]}),
        (_parquet, "", {"exclude": "a"}, {"exclude": "b"}),
        (_excel, "", {}, {"na_values": ["-999"]}),
        (_excel, "", {}, {"decimal": ","}),
        (_raw, "", RAW | {"offset": 0}, RAW | {"offset": 8}),
        (_raw, "", RAW | {"order": "C"}, RAW | {"order": "F"}),
        (_npz, "::{}", "a", "b"),
        (_hdf5, "::{}", "a", "b"),
        (_zarr, "::{}", "a", "b"),
        (_h5ad, "", {"mask_var": "v"}, {"mask_var": "w"}),
        (_h5ad, "", {"columns": ["a", "b"]}, {"columns": ["b", "c"]}),
        (_h5ad, "::{}", "X", "layers/l"),
        (_images, "", {}, {"shrink": 2}),
    ],
)
def test_other_options_of_reading_are_told(tmp_path, make, part, one, other):
    """Whatever the hashed blocks hold, a checkpoint of other options is another one."""
    path = make(tmp_path)
    found = []
    for options in (one, other):
        named = part and f"{path}{part.format(options)}"
        source = as_source(named or path, **({} if part else options))
        found.append(module_of_fingerprints.fingerprint(source))
    first, second = ({**one, "shape": 0, "blocks": 0, "contents": 0} for one in found)
    assert first != second
    told = first["reading_options"], second["reading_options"]
    assert told[0] != told[1]


def test_options_that_are_the_defaults_or_change_no_number_are_as_none(tmp_path):
    path = _csv(tmp_path)
    plain = module_of_fingerprints.fingerprint(as_source(path))
    options = {"na_values": None, "header": None, "columns": None, "skip_bad_lines": None}
    assert module_of_fingerprints.fingerprint(as_source(path, **options)) == plain
    path = _hdf5(tmp_path)
    plain = module_of_fingerprints.fingerprint(as_source(f"{path}::a"))
    with_links = as_source(f"{path}::a", follow_links=True, strict=True)
    assert module_of_fingerprints.fingerprint(with_links) == plain


def test_weights_of_a_source_belong_to_its_fingerprint():
    xr = pytest.importorskip("xarray")
    field = xr.DataArray(X, dims=("time", "point"))
    one, other = (as_source(field, weights=np.full(D, w)) for w in (1.0, 2.0))
    one, other = map(module_of_fingerprints.fingerprint, (one, other))
    assert one["contents"] == other["contents"]
    assert one["own_scale"] != other["own_scale"]


def test_a_fit_with_other_options_of_reading_is_refused(tmp_path, monkeypatch):
    """The marker -999 is in a block that is not hashed."""
    monkeypatch.setattr(module_of_fingerprints, "READ_BYTES", 2**14)
    rows = np.random.default_rng(5).integers(0, 100, (40_000, 4))
    rows[9_000:9_200, 2] = -999
    path = tmp_path / "x.csv"
    np.savetxt(path, rows, "%d", delimiter=",", header="a,b,c,d", comments="")

    def fit(folder, **options):
        model = PrimedPCA(1, missing="mean", checkpoint=folder, random_state=0)
        source = as_source(path, **options)
        return model.fit(source).explained_variance_[0]

    raw = fit(tmp_path / "one")
    with pytest.raises(ValueError, match=r"reading_options was none, and is na_values=\['-999'\]"):
        fit(tmp_path / "one", na_values=["-999"])
    clean = fit(tmp_path / "two", na_values=["-999"])
    assert clean < raw / 2
    assert fit(tmp_path / "two", na_values=("-999",)) == clean
    plain, marked = (
        module_of_fingerprints.fingerprint(as_source(path, na_values=given))
        for given in (None, ["-999"])
    )
    assert plain["contents"] == marked["contents"]


def test_an_array_of_a_store_that_was_changed_is_told(tmp_path):
    zarr = pytest.importorskip("zarr")
    path = _zarr(tmp_path)
    one = module_of_fingerprints.fingerprint(as_source(f"{path}::a"))
    zarr.open_group(str(path), mode="a")["a"][:] = CELLS
    other = module_of_fingerprints.fingerprint(as_source(f"{path}::a"))
    assert one["file"] != other["file"]


def test_scales_are_compared_by_their_numbers_whatever_holds_them(tmp_path):
    """Of objects but arrays and lists only the type was hashed: any Series passed for another."""
    data, first, other = X[:60, :4], np.array([1.0, 2, 3, 4]), np.array([9.0, 1, 5, 2])
    frame = pd.DataFrame(data, columns=list("abcd"))
    kinds = {
        "Series": lambda values: pd.Series(values, index=list("abcd")),
        "polars": pl.Series,
        "xarray": xr.DataArray,
        "index": pd.Index,
        "decimals": lambda values: [Decimal(value) for value in values],
        "objects": lambda values: np.array(values, dtype=object),
        "list": list,
    }
    for name, kind in kinds.items():
        options = {"checkpoint": tmp_path / name, "random_state": 0}
        known = PrimedPCA(2, scale=kind(first), **options).fit(frame)
        again = PrimedPCA(2, scale=first, **options).fit(frame)  # the same numbers
        np.testing.assert_array_equal(again.components_, known.components_)
        with pytest.raises(ValueError, match="belongs to other parameters: scale"):
            PrimedPCA(2, scale=kind(other), **options).fit(frame)


def test_scales_with_labels_are_compared_in_the_order_of_the_columns(tmp_path):
    frame = pd.DataFrame(X[:60, :4], columns=list("abcd"))
    options = {"checkpoint": tmp_path, "random_state": 0}
    scale = pd.Series([1.0, 2, 3, 4], index=list("abcd"))
    known = PrimedPCA(2, scale=scale, **options).fit(frame)
    again = PrimedPCA(2, scale=scale[::-1], **options).fit(frame)
    np.testing.assert_array_equal(again.components_, known.components_)
    with pytest.raises(ValueError, match="belongs to other parameters: scale"):
        PrimedPCA(2, scale=scale.set_axis(list("dcba")), **options).fit(frame)


def test_weights_that_are_objects_are_compared(tmp_path):
    weights = [Decimal(1 + i % 3) for i in range(60)]
    options = {"checkpoint": tmp_path, "random_state": 0}
    PrimedPCA(2, **options).fit(X[:60], sample_weight=weights)
    PrimedPCA(2, **options).fit(X[:60], sample_weight=weights)
    with pytest.raises(ValueError, match="belongs to other data: sample_weight"):
        PrimedPCA(2, **options).fit(X[:60], sample_weight=weights[::-1])
