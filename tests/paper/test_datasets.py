"""The data sets: both forms of each are read alike, and what is damaged is named."""

import dataclasses
import gzip
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile

import command
import numpy as np
import published
import pytest
import scipy.sparse as sp

from primedpca_paper import datasets
from primedpca_paper.datasets import SETS, find_format, load_set, mnist, synthetic

GZ, TAR = "train-images-idx3-ubyte.gz", "cifar-10-python.tar.gz"
CSV, ZIP = "NIPS_1987-2015.csv", "nips+conference+papers+1987+2015.zip"
STAND_IN = "nips_1987-2003_bow.npz"
PIXELS = {"mnist": published.DIGITS, "cifar10": published.PICTURES}


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A folder for small sets: the same formats, fewer points and dimensions."""
    shapes = {"mnist": published.MNIST, "cifar10": published.CIFAR, "nips": published.NIPS}
    formats = {
        name: tuple(
            dataclasses.replace(
                form, shape=published.STAND_IN if form.origin == STAND_IN else shapes[name]
            )
            for form in forms
        )
        for name, forms in datasets.FORMATS.items()
    }
    monkeypatch.setattr(datasets, "FORMATS", formats)
    return tmp_path


def put(folder, name, content):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def put_npz(folder, name, **arrays):
    np.savez_compressed(folder / name, **arrays)


def put_parts(folder):
    for part, rows in zip("abc", np.split(published.PICTURES, [3, 7]), strict=True):
        put_npz(folder, f"cifar10_train_{part}.npz", X=rows, y=np.zeros(len(rows)))


def put_batches(folder):
    for name, raw in published.batches().items():
        put(folder, f"cifar-10-batches-py/{name}", raw)


def put_zip(folder, name=ZIP, member=CSV, content=None):
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, published.csv() if content is None else content)


WAYS = {
    ("mnist", GZ): lambda folder: put(folder, GZ, published.zipped(published.idx())),
    ("mnist", GZ[:-3]): lambda folder: put(folder, GZ[:-3], published.idx()),
    ("mnist", "mnist_train.npz"): lambda folder: put_npz(
        folder, "mnist_train.npz", X=published.DIGITS
    ),
    ("cifar10", TAR): lambda folder: put(folder, TAR, published.tar_gz(published.batches())),
    ("cifar10", "cifar-10-batches-py/data_batch_{1,2,3,4,5}"): put_batches,
    ("cifar10", "cifar10_train_{a,b,c}.npz"): put_parts,
    ("nips", CSV): lambda folder: put(folder, CSV, published.csv()),
    ("nips", ZIP): put_zip,
    ("nips", STAND_IN): lambda folder: sp.save_npz(
        folder / STAND_IN, sp.csr_matrix(published.FEWER.astype(np.int16))
    ),
}


@pytest.mark.parametrize(("name", "origin"), WAYS)
def test_each_format_gives_the_same_numbers(small, name, origin):
    WAYS[name, origin](small)
    found = load_set(name, small)
    assert (found.name, found.title, found.origin) == (name, datasets.TITLES[name], origin)
    assert found.X.dtype == np.float32
    if name == "nips":
        assert found.X.format == "csr"
        wanted = published.FEWER if origin == STAND_IN else published.COUNTS
        np.testing.assert_array_equal(found.X.toarray(), wanted)
    else:
        np.testing.assert_allclose(found.X, PIXELS[name] / 255.0, rtol=1e-6)


def test_every_format_is_tested():
    assert set(WAYS) == {
        (name, form.origin) for name, forms in datasets.FORMATS.items() for form in forms
    }


def test_the_batches_of_the_tests_are_those_that_pickle_knows():
    content = pickle.loads(published.batch(published.PICTURES), encoding="bytes")
    np.testing.assert_array_equal(content[b"data"], published.PICTURES)
    assert content[b"labels"] == [3] * 10


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_batches_pickled_anew_are_read_too(small, protocol):
    parts = np.split(published.PICTURES, 5)
    raw = [pickle.dumps({"data": part, "labels": [0, 1]}, protocol) for part in parts]
    files = {f"data_batch_{i}": content for i, content in enumerate(raw, 1)}
    put(small, TAR, published.tar_gz(files))
    np.testing.assert_allclose(load_set("cifar10", small).X, published.PICTURES / 255, rtol=1e-6)


def test_the_publishers_files_win(small):
    for way in WAYS.values():
        way(small)
    assert [load_set(name, small).origin for name in ("mnist", "cifar10", "nips")] == [GZ, TAR, CSV]


def test_mnist_is_given_as_it_is(small):
    WAYS["mnist", GZ](small)
    found = mnist(small)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, published.DIGITS)


def test_the_folder_may_come_from_the_environment(small, monkeypatch):
    WAYS["mnist", GZ](small)
    monkeypatch.setenv("PRIMEDPCA_DATA", str(small))
    assert load_set("mnist").origin == GZ


@pytest.mark.parametrize("kind", ["exponential", "linear"])
def test_synthetic_sets_have_the_papers_spectrum(kind):
    X, components = synthetic(kind)
    fall = np.geomspace if kind == "exponential" else np.linspace
    values = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    np.testing.assert_allclose(values, fall(1000, 1, 50), rtol=1e-10)
    np.testing.assert_allclose(components @ components.T, np.eye(50), atol=1e-12)
    loaded = load_set(kind, "no/such/folder")
    assert loaded.origin == "drawn"
    np.testing.assert_array_equal(loaded.X, X.astype(np.float32))


@pytest.mark.parametrize("name", ["mnist", "cifar10", "nips"])
def test_a_set_that_is_not_there_says_what_would_do(small, name, monkeypatch):
    monkeypatch.delenv("PRIMEDPCA_DATA", raising=False)
    for folder in (small, None):
        with pytest.raises(FileNotFoundError) as caught:
            load_set(name, folder)
        assert all(form.origin in str(caught.value) for form in datasets.FORMATS[name])
        assert f"primedpca datasets --download {name}" in str(caught.value)
    assert find_format(name, small) is None


def test_names_and_folders_that_are_wrong(tmp_path):
    with pytest.raises(ValueError, match=r"'imagenet'.*exponential, linear, mnist"):
        load_set("imagenet", tmp_path)
    with pytest.raises(FileNotFoundError, match="no/such"):
        load_set("mnist", "no/such")


# Damage: what lies in the folder, and what the error must say.
FULL = published.zipped(published.idx())
NPZ = "mnist_train.npz"


def lying_npz(shape):
    """An array whose header promises more than there is."""
    raw = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        raw, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("X.npy", raw.getvalue() + b"abc")
    return packed.getvalue()


def npz(**arrays):
    raw = io.BytesIO()
    np.savez(raw, **arrays)
    return raw.getvalue()


def flipped(raw, where):
    return raw[:where] + bytes([raw[where] ^ 255]) + raw[where + 1 :]


def replaced(number, content):
    return published.tar_gz({**published.batches(), f"data_batch_{number}": content})


def without(number):
    files = published.batches()
    del files[f"data_batch_{number}"]
    return published.tar_gz(files)


def counts(**changes):
    matrix = sp.csr_array(published.FEWER)
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    parts |= {"format": np.array(b"csr"), "shape": np.array(matrix.shape)}
    return npz(**{**parts, **changes})


BATCH, LONGER = published.batch(published.PICTURES[:2]), published.batch(published.PICTURES)
FLOATS = pickle.dumps({"data": np.ones((2, 12))}, 2)
LONG_STRING = b"\x80\x04\x8e" + struct.pack("<Q", 2**33) + b"a."
HIGH_MEMO = b"\x80\x02}r" + struct.pack("<I", 2**30) + b"."
GOOD_CSV = published.csv()
INDICES = sp.csr_array(published.FEWER).indices
WRONG = {
    "gz cut off": ("mnist", GZ, FULL[:-20], "ended before the end-of-stream"),
    "gz empty": ("mnist", GZ, b"", "ends after 0 bytes"),
    "not a gz": ("mnist", GZ, published.idx(), "[Nn]ot a gzipped file"),
    "gz with a flipped byte": ("mnist", GZ, flipped(FULL, len(FULL) - 6), "CRC"),
    "gz of a flipped stream": ("mnist", GZ, flipped(FULL, 11), "decompress|CRC|gzip"),
    "idx header cut": ("mnist", GZ[:-3], published.idx()[:9], "after 9 bytes"),
    "idx of labels": ("mnist", GZ[:-3], published.idx(magic=0x801), "0x00000801"),
    "idx of the test set": ("mnist", GZ, published.zipped(published.idx(count=5)), "5 images"),
    "idx header lying": ("mnist", GZ[:-3], published.idx(count=2**32 - 1), "4294967295 images"),
    "idx too short": ("mnist", GZ[:-3], published.idx()[:-1], "shorter"),
    "idx too long": ("mnist", GZ[:-3], published.idx() + b"!", "longer"),
    "not an npz": ("mnist", NPZ, b"hello", "not a zip file"),
    "npz empty": ("mnist", NPZ, b"", "not a zip file"),
    "npz cut off": ("mnist", NPZ, npz(X=published.DIGITS)[:-30], "zip"),
    "npz with a flipped byte": ("mnist", NPZ, flipped(npz(X=published.DIGITS), 190), "CRC"),
    "npz without X": ("mnist", NPZ, npz(Y=published.DIGITS), "no array 'X'"),
    "npz of floats": ("mnist", NPZ, npz(X=published.DIGITS / 255), "float64"),
    "npz of another width": ("mnist", NPZ, npz(X=published.DIGITS[:, 1:]), r"\(6, 11\)"),
    "npz of fewer rows": ("mnist", NPZ, npz(X=published.DIGITS[1:]), "5 images, not 6"),
    "npz of objects": ("mnist", NPZ, npz(X=np.array([{}], object)), "Python objects"),
    "npz lying": ("mnist", NPZ, lying_npz((10**12, 12)), r"\(1000000000000, 12\)"),
    "npz lying a little": ("mnist", NPZ, lying_npz((6, 12)), r"\(6, 12\) .*3 bytes"),
    "npz of negative size": ("mnist", NPZ, lying_npz((-6, -12)), "-6"),
    "tar cut off": ("cifar10", TAR, published.tar_gz(published.batches())[:-200], "end-of-stream"),
    "not a tar": ("cifar10", TAR, b"hello", "gzip"),
    "gz of no tar": ("cifar10", TAR, gzip.compress(b"hello"), "header"),
    "batches missing": ("cifar10", TAR, without(3), "data_batch_3 not in it"),
    "batch cut off": ("cifar10", TAR, replaced(2, BATCH[:-9]), "data_batch_2"),
    "batch of another shape": ("cifar10", TAR, replaced(2, LONGER), r"data_batch_2.*10, 12"),
    "batch of floats": ("cifar10", TAR, replaced(2, FLOATS), "f8"),
    "batch of something else": ("cifar10", TAR, replaced(4, pickle.dumps([1])), "data_batch_4"),
    "batch of text": ("cifar10", TAR, replaced(4, b"hello"), "data_batch_4"),
    "batch of a lying string": ("cifar10", TAR, replaced(4, LONG_STRING), "8589934592 bytes"),
    "batch of a lying memo": ("cifar10", TAR, replaced(4, HIGH_MEMO), "memo 1073741824"),
    "csv ragged": ("nips", CSV, GOOD_CSV.replace(b",7\n", b",7,7\n"), "line 4 has 6 fields, not 5"),
    "csv short line": ("nips", CSV, GOOD_CSV.replace(b",7\n", b"\n"), "line 4 has 4 fields"),
    "csv of words": ("nips", CSV, GOOD_CSV.replace(b"12", b"many"), "line 2, field 5 is 'many'"),
    "csv with a hole": ("nips", CSV, GOOD_CSV.replace(b",12", b","), "line 2, field 5 is ''"),
    "csv below zero": ("nips", CSV, GOOD_CSV.replace(b",12", b",-1"), "'-1', not a count"),
    "csv of a huge number": ("nips", CSV, GOOD_CSV.replace(b"12", b"9" * 12), "not a count"),
    "csv cut off": ("nips", CSV, GOOD_CSV[:-15], "line 4|2 words"),
    "csv of fewer words": ("nips", CSV, GOOD_CSV[: GOOD_CSV.rindex(b'"word2')], "2 words, not 3"),
    "csv of more words": ("nips", CSV, GOOD_CSV + b"more,0,0,0,0\n", "more than 3 words"),
    "csv of fewer papers": ("nips", CSV, published.csv(published.COUNTS[1:]), "3 papers, not 4"),
    "csv empty": ("nips", CSV, b"", "0 papers"),
    "csv without line ends": ("nips", CSV, b"0," * 10_000, "line 1 is longer"),
    "csv of bytes": ("nips", CSV, GOOD_CSV.replace(b"word1", b"\xff\xfe"), "utf-8"),
    "zip without the csv": ("nips", ZIP, npz(X=published.DIGITS), f"{CSV} is not in it"),
    "not a zip": ("nips", ZIP, GOOD_CSV, "not a zip file"),
    "counts of another shape": (
        "nips",
        STAND_IN,
        counts(shape=np.array([5, 3])),
        r"indptr.*\(4,\).* 6 integers",
    ),
    "counts in another format": ("nips", STAND_IN, counts(format=np.array(b"csc")), "indptr"),
    "counts out of range": ("nips", STAND_IN, counts(indices=INDICES + 3), "ind"),
    "counts below zero": ("nips", STAND_IN, counts(data=-np.ones(len(INDICES))), "from 0 up"),
    "counts that are nan": ("nips", STAND_IN, counts(data=INDICES * np.nan), "from 0 up"),
    "counts not as many": ("nips", STAND_IN, counts(data=np.ones(3)), "3 entries"),
    "indices that are fractions": (
        "nips",
        STAND_IN,
        counts(indices=INDICES + 0.5),
        "`indices` are not integers",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_damaged_is_named(small, case):
    name, file, content, pattern = WRONG[case]
    put(small, file, content)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=pattern) as caught:
            load_set(name, small)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert str(small / file) in str(caught.value)
    assert f"`primedpca datasets --download {name}`" in str(caught.value)
    assert (small / file).read_bytes() == content


def test_parts_that_are_missing_are_named(small):
    put_batches(small)
    (small / "cifar-10-batches-py/data_batch_5").unlink()
    with pytest.raises(ValueError, match="data_batch_5 missing"):
        load_set("cifar10", small)
    (small / "cifar-10-batches-py").rename(small / "elsewhere")
    put_parts(small)
    (small / "cifar10_train_b.npz").unlink()
    with pytest.raises(ValueError, match=r"cifar10_train_b\.npz missing.*--download cifar10"):
        load_set("cifar10", small)


class Evil:
    """Pickled, this asks whoever reads it to make a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_batch_runs_no_foreign_code(small):
    trace = small / "trace"
    put(small, TAR, replaced(1, pickle.dumps({"data": Evil(str(trace))}, 2)))
    with pytest.raises(ValueError, match=r"mkdir is not allowed"):
        load_set("cifar10", small)
    assert not trace.exists()


def primedpca(*words, **environment):
    plain = {"PRIMEDPCA_DATA": "", "COLUMNS": "80", "NO_COLOR": "1"}
    return command.primedpca(*words, **plain | environment)


def test_the_command_lists_the_five_sets(tmp_path):
    (tmp_path / "cifar10_train_a.npz").touch()
    (tmp_path / STAND_IN).touch()
    done = primedpca("datasets", "--data-dir", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["sets"]}
    assert tuple(rows) == SETS
    assert rows["mnist"]["shape"] == [60000, 784]
    assert rows["mnist"]["paper_shape"] == [60000, 768]
    assert rows["mnist"]["found"] is None
    assert rows["mnist"]["get"] == "primedpca datasets --download mnist"
    assert rows["cifar10"]["paper_shape"] == [50000, 3092]
    assert rows["cifar10"]["missing"] == ["cifar10_train_b.npz", "cifar10_train_c.npz"]
    assert (rows["nips"]["found"], rows["nips"]["stand_in"]) == (STAND_IN, True)
    assert rows["nips"]["shape"] == [2483, 14036]
    assert rows["linear"]["drawn"]


def test_the_table_fits_a_terminal(tmp_path):
    for where in ({}, {"PRIMEDPCA_DATA": str(tmp_path)}):
        done = primedpca("datasets", **where)
        assert done.returncode == 0, done.stderr
        assert all(word in done.stdout for word in (*SETS, "60000 × 784", "--download mnist"))
        lines = done.stdout.splitlines()
        assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80


def test_the_command_refuses_well(tmp_path):
    for words, text in (
        (["--data-dir", "no/such"], "no/such"),
        (["--download", "mnist"], "--data-dir"),
        (["--download", "linear", "--data-dir", str(tmp_path)], "is drawn"),
        (["--download", "imagenet", "--data-dir", str(tmp_path)], "mnist, cifar10, nips"),
    ):
        done = primedpca("datasets", *words)
        assert done.returncode == 1
        assert text in done.stderr
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_help_stays_light():
    code = (
        "import sys\nsys.argv = ['primedpca', 'datasets', '--help']\n"
        "from primedpca.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 0\n"
        "heavy = {'sklearn', 'torch', 'scipy', 'numpy', 'pooch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif("not os.environ.get('PRIMEDPCA_DATA')", reason="PRIMEDPCA_DATA is not set")
def test_the_real_sets(tmp_path):
    """Against statistics that are known, and written anew as MNIST's publisher does."""
    digits = load_set("mnist").X
    assert digits.shape == datasets.SHAPES["mnist"]
    assert abs(digits.mean(dtype=np.float64) * 255 - 33.318) < 1e-3
    put(tmp_path, GZ, gzip.compress(published.idx(mnist(datasets.data_folder()), height=28), 1))
    np.testing.assert_array_equal(load_set("mnist", tmp_path).X, digits)
    pictures = load_set("cifar10").X
    assert pictures.shape == datasets.SHAPES["cifar10"]
    means = pictures.reshape(-1, 3, 1024).mean(axis=(0, 2), dtype=np.float64)
    np.testing.assert_allclose(means, [0.4914, 0.4822, 0.4465], atol=1e-4)
    words = load_set("nips")
    if words.origin == STAND_IN:
        assert words.X.nnz == 1_304_438
    assert np.all(words.X.data == np.round(words.X.data))
