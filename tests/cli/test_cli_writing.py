"""Where command lines must not write: nothing that is read is ever lost."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from bed_reader import to_bed
from command import COMMAND, primedpca
from PIL import Image

from primedpca import PrimedPCA


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data of every kind that consists of several files."""
    folder = tmp_path_factory.mktemp("written")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4))
    np.save(folder / "x.npy", x)
    (folder / "junk.npy").write_bytes(b"hello")
    (folder / "notes.txt").write_text("not to be lost")
    (folder / "tables").mkdir()
    for name in "ab":
        pq.write_table(
            pa.table(dict(zip("wxyz", x.T, strict=True))), folder / f"tables/{name}.parquet"
        )
    (folder / "link").symlink_to("tables")
    (folder / "photos").mkdir()
    for i in range(4):
        pixels = rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"photos/{i}.png")
    to_bed(folder / "g.bed", rng.integers(0, 3, (20, 8)).astype(float))
    store = zarr.create_array(folder / "s.zarr", shape=x.shape, chunks=(10, 4), dtype=x.dtype)
    store[...] = x
    PrimedPCA(2, random_state=0).fit(x).save(folder / "m.safetensors")
    return folder


READ, INSIDE = "is an input. Name another file", "an input. Name another place"
#: Command lines, and a part of the expected error message.
LINES = [
    ("fit tables -k 2 -o tables/a.parquet --force", INSIDE),
    ("fit tables -k 2 -o tables/model.safetensors", INSIDE),
    ("fit tables -k 2 -o link/a.parquet --force", INSIDE),
    ("fit tables -k 2 --report tables/page.html", INSIDE),
    ("fit tables -k 2 --checkpoint tables/kept", INSIDE),
    ("fit photos -k 2 -o photos/0.png --force", INSIDE),
    ("fit photos/*.png -k 2 -o photos/1.png --force", READ),
    ("fit photos/*.png -k 2 --report photos/1.png --force", READ),
    ("fit g.bed -k 2 -o g.bim --force", READ),
    ("fit g.bed -k 2 -o g.fam --force", READ),
    ("fit s.zarr -k 2 -o s.zarr/zarr.json --force", INSIDE),
    ("transform tables m.safetensors -o tables/a.parquet --force", INSIDE),
    ("transform x.npy m.safetensors -o x.npy --force", READ),
    ("report m.safetensors s.zarr -o s.zarr/c/0/0 --force", INSIDE),
    ("plan g.bed -k 2 -o g.bim --force", READ),
    # Outputs are checked first, so that unreadable data raise no error here.
    ("fit junk.npy -k 2 --report notes.txt --force", "is not a report. Name another file"),
    ("fit junk.npy -k 2 -o a.html --report ./a.html", "`-o` and `--report` are both a.html"),
    ("report junk.npy x.npy -o notes.txt --force", "is not a report. Name another file"),
]


@pytest.mark.parametrize(("line", "said"), LINES, ids=[line for line, _ in LINES])
def test_what_is_read_is_never_written_to(line, said, folder):
    before = contents(folder)
    command, *words = line.split()
    done = primedpca(command, "--json", *words, cwd=folder)
    assert done.returncode == 1, done.stdout
    assert said in json.loads(done.stdout)["error"]
    assert contents(folder) == before


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_beside_what_is_read_may_be_written(folder, tmp_path):
    line = f"fit {folder}/photos/*.png -k 2 -o {folder}/photos/m.safetensors --force"
    assert primedpca(*line.split()).returncode == 0
    (folder / "photos/m.safetensors").unlink()
    line = f"fit {folder}/tables -k 2 -o {tmp_path}/m.safetensors --checkpoint {tmp_path}/kept"
    assert primedpca(*line.split()).returncode == 0
    page = tmp_path / "page.html"
    line = f"report {tmp_path}/m.safetensors {folder}/tables -o {page}"
    assert primedpca(*line.split()).returncode == 0
    assert primedpca(*line.split(), "--force").returncode == 0


@pytest.mark.parametrize("option", ["-o", "--report"])
@pytest.mark.parametrize("place", ["kept", "kept/inside"])
def test_nothing_is_written_into_a_checkpoint(tmp_path, option, place):
    # A fit would end with a model that cannot be written, or a folder that cannot be resumed.
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(30, 4)))
    suffix = {"-o": ".safetensors", "--report": ".html"}[option]
    folder = tmp_path / ("kept" + suffix * (place == "kept"))
    path = folder if place == "kept" else folder / f"inside{suffix}"
    path.parent.mkdir(exist_ok=True)
    command = ["fit", tmp_path / "x.npy", "-k", "1", "--checkpoint", folder, option, path]
    done = primedpca(*command)
    assert done.returncode == 1
    assert "is inside `--checkpoint`" in done.stderr
    assert not path.exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has a device that is full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("inspect", "m.safetensors", "--json"), ("--help",)])
def test_output_that_cannot_be_written_is_one_sentence(folder, words, unbuffered):
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, cwd=folder, env=environment
        )
    [line] = done.stderr.decode().splitlines()
    assert "could not be written (standard output: No space left on device)" in line
    assert done.returncode == 1


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_an_output_without_all_characters_gets_escapes(tmp_path, encoding):
    names = "größe", "名前", "\N{GRINNING FACE}"
    rows = np.random.default_rng(0).normal(size=(20, 3))
    header = ",".join(names)
    np.savetxt(tmp_path / "x.csv", rows, delimiter=",", header=header, comments="", encoding="utf8")
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    for words in (["fit", "x.csv", "-k", "2"], ["fit", "--help"], ["loadings", "m.safetensors"]):
        command = [*COMMAND, *words, *(["-o", "m.safetensors"] if words[-1] == "2" else [])]
        done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode(encoding)
    command = [*COMMAND, "loadings", "m.safetensors", "--json"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment)
    assert json.loads(done.stdout.decode(encoding))["features"] == list(names)


def while_scores_are_written(folder, do, *options):
    """Start a long ``transform -o out.csv``, call ``do`` with its process, and wait for the end."""
    rng = np.random.default_rng(0)
    np.save(folder / "long.npy", rng.normal(size=(200_000, 4)))
    PrimedPCA(2, random_state=0).fit(rng.normal(size=(40, 4))).save(folder / "model.safetensors")
    words = ["transform", "long.npy", "model.safetensors", "-o", "out.csv", *options]
    process = subprocess.Popen(
        [*COMMAND, *words], cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    deadline = time.monotonic() + 120
    while not list(folder.glob(".out.csv.*")) and time.monotonic() < deadline:
        time.sleep(0.001)
    do(process)
    return process.communicate(timeout=120)[1], process.returncode


@pytest.mark.integration
@pytest.mark.parametrize("options", [(), ("--force",)])
def test_scores_do_not_replace_a_file_that_appears_meanwhile(tmp_path, options):
    out = tmp_path / "out.csv"
    error, code = while_scores_are_written(tmp_path, lambda _: out.write_text("precious"), *options)
    if options:
        assert code == 0, error
        assert out.read_text().startswith("PC1,PC2")
    else:
        assert code == 1
        assert "already exists" in error
        assert "`--force`" in error
        assert out.read_text() == "precious"
    assert not list(tmp_path.glob(".out.csv.*"))


@pytest.mark.integration
def test_scores_that_are_terminated_leave_nothing(tmp_path):
    _, code = while_scores_are_written(
        tmp_path, lambda process: process.send_signal(signal.SIGTERM)
    )
    assert code == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("*out.csv*"))
