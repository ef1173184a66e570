"""Downloads, from a real server on this machine that behaves and misbehaves."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pages
import published
import pytest

from primedpca_paper.datasets import FORMATS
from primedpca_paper.downloads import REMOTES, Remote, download

FILE = "train-images-idx3-ubyte.gz"
CONTENT = published.zipped(published.idx()) * 2000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """``/whole``, ``/cut`` (as much as half), ``/silent`` (the same, no length told), or 404."""

    def do_GET(self):
        self.server.asked.append(self.path)
        _, how, name = self.path.split("/", 2)
        content = self.server.content.get(name)
        if content is None or how not in ("whole", "cut", "silent"):
            self.send_error(404)
            return
        self.send_response(200)
        if how != "silent":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content if how == "whole" else content[: len(content) // 2])

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked, server.content = [], {FILE: CONTENT}
        server.base = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def remotes(*urls, md5=MD5, **others):
    return {"mnist": tuple(Remote(FILE, url, md5, **others) for url in urls)}


def test_a_sound_file_arrives(server, tmp_path):
    folder = tmp_path / "new" / "folder"
    path = download("mnist", folder, remotes=remotes(f"{server.base}/whole/{FILE}"))
    assert path == folder / FILE
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in folder.iterdir()] == [FILE]


def test_a_file_that_is_there_is_verified_and_not_fetched(server, tmp_path):
    known = remotes(f"{server.base}/whole/{FILE}")
    (tmp_path / FILE).write_bytes(CONTENT)
    assert download("mnist", tmp_path, remotes=known) == tmp_path / FILE
    (tmp_path / FILE).write_bytes(b"my own")
    with pytest.raises(ValueError, match=rf"{re.escape(FILE)}.*{MD5}"):
        download("mnist", tmp_path, remotes=known)
    assert (tmp_path / FILE).read_bytes() == b"my own"
    assert server.asked == []


BAD = {
    "wrong checksum": ("whole", "0" * 32, ValueError, f"MD5 sum is {MD5}, not 0000"),
    "cut off": ("cut", MD5, (ConnectionError, ValueError), "IncompleteRead|MD5"),
    "cut off, no length told": ("silent", MD5, ValueError, "MD5 sum"),
    "not found": ("nowhere", MD5, ConnectionError, "404"),
}


@pytest.mark.parametrize("case", BAD)
def test_nothing_is_kept_of_a_bad_download(server, tmp_path, case):
    how, md5, kind, pattern = BAD[case]
    (tmp_path / "other").write_text("mine")
    with pytest.raises(kind, match=pattern) as caught:
        download("mnist", tmp_path, remotes=remotes(f"{server.base}/{how}/{FILE}", md5=md5))
    assert server.base in str(caught.value)
    assert "by hand" in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["other"]


def test_the_next_address_is_asked_where_one_fails(server, tmp_path):
    urls = [f"{server.base}/{how}/{FILE}" for how in ("nowhere", "cut", "whole", "whole")]
    assert download("mnist", tmp_path, remotes=remotes(*urls)).read_bytes() == CONTENT
    assert [path.split("/")[1] for path in server.asked] == ["nowhere", "cut", "whole"]


def test_a_server_that_is_not_there(tmp_path):
    # Port 9 of this machine: nobody listens.
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1"):
        download("mnist", tmp_path, remotes=remotes(f"http://127.0.0.1:9/{FILE}"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["whole", "silent"])
def test_without_a_checksum_the_content_is_read_through(server, tmp_path, how):
    csv, form = "NIPS_1987-2015.csv", FORMATS["nips"][0]
    server.content[csv] = published.csv()
    check = replace(form, shape=published.NIPS).load
    known = {"nips": (Remote(csv, f"{server.base}/{how}/{csv}", check=check),)}
    if how == "whole":
        path = download("nips", tmp_path, remotes=known)
        assert path.read_bytes() == published.csv()
        assert download("nips", tmp_path, remotes=known) == path
        assert len(server.asked) == 1
    else:
        with pytest.raises(ValueError, match=r"line|words"):
            download("nips", tmp_path, remotes=known)
        assert list(tmp_path.iterdir()) == []


class Stop:
    """A progress bar whose watcher loses patience."""

    total = None

    def update(self, n):
        raise KeyboardInterrupt


def test_an_interrupted_download_leaves_nothing(server, tmp_path):
    known = remotes(f"{server.base}/whole/{FILE}")
    with pytest.raises(KeyboardInterrupt):
        download("mnist", tmp_path, remotes=known, progress=Stop())
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def locked():
    """A folder that this process may not write to, even if root runs the tests."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    shutil.rmtree(folder)


def test_a_folder_that_cannot_be_written_to(server, locked):
    known = remotes(f"{server.base}/whole/{FILE}")
    for folder in (locked, locked / "inside"):
        with pytest.raises(PermissionError, match=f"{re.escape(str(folder))}.*cannot be written"):
            download("mnist", folder, remotes=known)
    assert server.asked == []


def test_a_folder_that_is_a_file(server, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="cannot be written"):
        download("mnist", tmp_path / "file", remotes=remotes(f"{server.base}/whole/{FILE}"))
    assert (tmp_path / "file").read_text() == "mine"


def test_names_that_cannot_be_had(tmp_path):
    with pytest.raises(ValueError, match=r"'linear' is drawn.*mnist, cifar10, nips"):
        download("linear", tmp_path)
    with pytest.raises(ValueError, match=r"'imagenet'.*mnist, cifar10, nips"):
        download("imagenet", tmp_path)


def test_what_is_fetched_is_what_is_read():
    for name, places in REMOTES.items():
        files = {file for form in FORMATS[name] for file in form.files}
        for place in places:
            assert place.file in files
            assert place.url.endswith(f"/{place.file}")
            assert place.md5 is None or re.fullmatch("[0-9a-f]{32}", place.md5)
            assert place.md5 or place.check


def run(code, *words):
    start = f"import sys\nsys.argv = ['primedpca', *{words!r}]\n"
    return subprocess.run(
        [sys.executable, "-c", start + code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PRIMEDPCA_DATA": ""},
    )


def test_the_command_of_the_page_downloads_and_lists(server, tmp_path):
    page = pages.ROOT / "docs" / "datasets.md"
    (block,) = (block for block in pages.blocks(page) if "server" in block.words)
    code = (
        "from primedpca_paper import downloads\n"
        f"downloads.REMOTES['mnist'] = (downloads.Remote({FILE!r}, "
        f"'{server.base}/{{}}/{FILE}', {MD5!r}),)\n"
        "from primedpca.cli import main\nmain()\n"
    )
    program, *words = shlex.split(block.code, comments=True)
    assert program == "primedpca"
    words[words.index("data")] = str(tmp_path / "data")
    done = run(code.format("nowhere"), *words)
    assert done.returncode == 1
    assert "404" in done.stderr
    assert "Traceback" not in done.stderr
    done = run(code.format("whole"), *words)
    assert done.returncode == 0, done.stderr
    assert FILE in done.stdout
    assert (tmp_path / "data" / FILE).read_bytes() == CONTENT


def test_without_pooch_the_extra_is_named(tmp_path):
    code = "sys.modules['pooch'] = None\nfrom primedpca.cli import main\nmain()\n"
    done = run(code, "datasets", "--download", "mnist", "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 1
    assert "primedpca[data]" in done.stderr
    assert not (tmp_path / "data").exists()
    listed = run(code, "datasets", "--data-dir", str(tmp_path))
    assert listed.returncode == 0, listed.stderr
