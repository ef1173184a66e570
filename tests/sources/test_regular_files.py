"""Paths of every suffix that lead to no file, or to one that is not regular: one error, no wait."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from bed_reader import to_bed
from PIL import Image

from primedpca import PrimedPCA, as_source, load
from primedpca.sources.files import csv_text as csv_file
from primedpca.sources.files import images, paths, video
from primedpca.sources.files.common import check_regular, open_regular
from primedpca.sources.files.images import ImageFolder

SUFFIXES = sorted(
    {*paths.SUFFIXES, *csv_file.SUFFIXES, *images.SUFFIXES, *video.SUFFIXES}
    | {".h5ad", ".mtx", ".mtx.gz", ".bed", ".raw"}
)
CODE_POSIX = pytest.mark.skipif(os.name != "posix", reason="pipes and rights of POSIX")
pytestmark = CODE_POSIX


@pytest.fixture(autouse=True)
def _no_wait():
    """Fail, rather than wait for whoever never writes."""

    def stop(*_):
        raise TimeoutError("waited for a file that never comes")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def opened(path, suffix):
    options = {"shape": (2, 2), "dtype": "f4"} if suffix == ".raw" else {}
    return as_source(path, **options)


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # the names of sockets are short
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


def make_block_device(path):
    try:
        os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(7, 200))
    except PermissionError:
        pytest.skip("only root makes devices")


STRANGE = {
    "pipe": (make_pipe, r"not a regular file but a named pipe.*save its contents"),
    "socket": (make_socket, r"not a regular file but a socket"),
    "endless device": (lambda path: path.symlink_to("/dev/zero"), "but a character device"),
    "empty device": (lambda path: path.symlink_to("/dev/null"), "but a character device"),
    "block device": (make_block_device, "but a block device"),
    "broken link": (lambda path: path.symlink_to("nowhere"), "symbolic link to nowhere,"),
    "link to itself": (lambda path: path.symlink_to(path.name), "link to itself"),
    "link to a pipe": (
        lambda path: (os.mkfifo(f"{path}.pipe"), path.symlink_to(f"{path}.pipe")),
        "but a named pipe",
    ),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_not_a_regular_file_is_refused_whatever_its_suffix(tmp_path, kind):
    make, message = STRANGE[kind]
    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        make(path)
        with pytest.raises(OSError, match=message) as refused:
            opened(path, suffix)
        assert str(path) in str(refused.value), suffix


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_folder_in_the_place_of_a_file(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.mkdir()
    with pytest.raises((OSError, ValueError), match=r"a folder|Zarr|zarr|group|holds no"):
        opened(path, suffix)


def test_a_path_that_is_not_there(tmp_path):
    for suffix in SUFFIXES:
        with pytest.raises(FileNotFoundError, match="File not found"):
            opened(tmp_path / f"a{suffix}", suffix)


def refusals_of_another_user(folder):
    """What a user without rights is told of every suffix, asked in a process of its own."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(folder)  # relative from here on: the folders above are not for others
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            found = {}
            for suffix in SUFFIXES:
                try:
                    found[suffix] = repr(opened(f"a{suffix}", suffix))
                except BaseException as error:
                    found[suffix] = f"{type(error).__name__}: {error}"
            os.write(send, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(send)
    with open(receive, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def test_files_that_may_not_be_read(tmp_path):
    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        path.write_bytes(b"nothing to see")
        path.chmod(0)
    tmp_path.chmod(0o755)
    for suffix, told in refusals_of_another_user(tmp_path).items():
        assert told.startswith(f"PermissionError: a{suffix} cannot be read"), told


def test_a_link_to_a_regular_file_is_as_good_as_the_file(tmp_path):
    X = np.random.default_rng(0).normal(size=(5, 3))
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "b.npy").symlink_to("a.npy")
    np.testing.assert_array_equal(as_source(tmp_path / "b.npy").read(0), X)


# -- files beside the one that is named -------------------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "endless device", "broken link"])
@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
def test_inside_a_folder_of_tables(tmp_path, suffix, kind):
    table = pa.table({"a": [1.0, 2.0]})
    if suffix == ".parquet":
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    else:
        pyarrow.feather.write_feather(table, tmp_path / f"a{suffix}")
    STRANGE[kind][0](tmp_path / f"b{suffix}")
    with pytest.raises(OSError, match=f"b{suffix}.*{STRANGE[kind][1]}|File not found: .*b{suffix}"):
        as_source(tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "endless device", "broken link"])
@pytest.mark.parametrize("how", ["folder", "pattern", "sequence"])
def test_among_images(tmp_path, how, kind):
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "a.png")
    STRANGE[kind][0](tmp_path / "b.png")
    given = {
        "folder": tmp_path,
        "pattern": str(tmp_path / "*.png"),
        "sequence": [tmp_path / "a.png", tmp_path / "b.png"],
    }[how]
    with pytest.raises(OSError, match=f"{STRANGE[kind][1]}|File not found"):
        ImageFolder(given)


@pytest.mark.parametrize("suffix", [".bim", ".fam"])
@pytest.mark.parametrize("kind", ["pipe", "endless device", "broken link"])
def test_beside_genotypes(tmp_path, kind, suffix):
    to_bed(tmp_path / "a.bed", np.zeros((4, 3)))
    (tmp_path / f"a{suffix}").unlink()
    STRANGE[kind][0](tmp_path / f"a{suffix}")
    with pytest.raises(OSError, match=STRANGE[kind][1]):
        as_source(tmp_path / "a.bed")


@pytest.mark.parametrize("kind", STRANGE)
def test_as_a_model(tmp_path, kind):
    make, message = STRANGE[kind]
    make(tmp_path / "m.safetensors")
    with pytest.raises(OSError, match=message):
        load(tmp_path / "m.safetensors")


def test_in_a_checkpoint(tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 6))
    folder = tmp_path / "kept"
    PrimedPCA(2, checkpoint=folder).fit(X)
    held = sorted(folder.glob("*.safetensors"))
    assert held
    for path in held:
        shutil.move(path, tmp_path / "aside")
        os.mkfifo(path)
        with pytest.raises(OSError, match="named pipe"):
            PrimedPCA(2, checkpoint=folder).fit(X)
        path.unlink()
        shutil.move(tmp_path / "aside", path)


@pytest.mark.parametrize("which", [0, 1])
def test_on_the_command_line(tmp_path, which, capfd):
    from primedpca.cli import app
    from primedpca.cli.errors import run

    np.save(tmp_path / "a.npy", np.eye(3))
    os.mkfifo(tmp_path / "b.npy")
    names = [str(tmp_path / "b.npy"), str(tmp_path / "a.npy")]
    words = ["certify", *(names if which else names[::-1])]
    assert run(app, words) == 1
    assert "is not a regular file but a named pipe" in " ".join(capfd.readouterr().err.split())


# -- the two functions ------------------------------------------------------------------------


def test_a_file_that_turns_into_a_pipe_after_it_was_opened(tmp_path):
    X = np.random.default_rng(0).normal(size=(5, 3))
    for suffix in (".npy", ".csv", ".bin"):
        path = tmp_path / f"a{suffix}"
        np.save(path, X) if suffix == ".npy" else path.write_bytes(X.tobytes())
        if suffix == ".csv":
            np.savetxt(path, X, delimiter=",", header="a,b,c", comments="")
        options = {"shape": (5, 3), "dtype": "f8"} if suffix == ".bin" else {}
        source = as_source(path, **options)
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(OSError, match="named pipe"):
            source.read(0)


def test_open_regular_gives_a_file_that_blocks(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    with open_regular(tmp_path / "a") as file:
        assert os.get_blocking(file.fileno())
        assert not os.get_inheritable(file.fileno())
        assert file.read() == b"abc"
    before = len(os.listdir("/proc/self/fd")) if Path("/proc").exists() else 0
    for _ in range(20):
        check_regular(tmp_path / "a")
        with pytest.raises(IsADirectoryError):
            check_regular(tmp_path)
    if before:
        assert len(os.listdir("/proc/self/fd")) == before
