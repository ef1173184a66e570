"""Files that are written whole or not at all."""

import os

import pytest

from primedpca._core import atomic_files
from primedpca._core.atomic_files import atomic_write


def test_a_new_file_gets_its_name_at_the_end(tmp_path):
    path = tmp_path / "new.txt"
    with atomic_write(path) as draft:
        assert draft.parent == tmp_path
        assert draft.name.startswith(".new.txt.")
        draft.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert os.listdir(tmp_path) == ["new.txt"]


def test_an_existing_file_is_replaced_only_when_told(tmp_path):
    path = tmp_path / "old.txt"
    path.write_text("old")
    with pytest.raises(FileExistsError, match=r"old\.txt"), atomic_write(path):
        pytest.fail("the block ran")
    assert path.read_text() == "old"
    with atomic_write(path, overwrite=True) as draft:
        draft.write_text("new")
    assert path.read_text() == "new"


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_meanwhile_is_kept(tmp_path, monkeypatch, links):
    path = tmp_path / "race.txt"
    if not links:
        monkeypatch.setattr(atomic_files.os, "link", _no_links)
    with pytest.raises(FileExistsError, match=r"race\.txt"), atomic_write(path) as draft:
        _write_both(draft, path)
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["race.txt"]


def test_file_systems_without_hard_links(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_files.os, "link", _no_links)
    with atomic_write(tmp_path / "new.txt") as draft:
        draft.write_text("whole")
    assert (tmp_path / "new.txt").read_text() == "whole"
    assert os.listdir(tmp_path) == ["new.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_everything_as_before(tmp_path, error):
    path = tmp_path / "kept.txt"
    path.write_text("old")
    with pytest.raises(error), atomic_write(path, overwrite=True) as draft:
        _write_half(draft, error)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["kept.txt"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), PermissionError("no")])
def test_errors_of_the_system_name_the_file(tmp_path, error):
    with (
        pytest.raises(type(error), match=r"full.bin could not be written: [Nn]o"),
        atomic_write(tmp_path / "full.bin"),
    ):
        raise error
    assert not os.listdir(tmp_path)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"), atomic_write(tmp_path / "missing/a"):
        pytest.fail("the block ran")


def test_rights_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_text("")
    with atomic_write(tmp_path / "ours") as draft:
        draft.chmod(0o600)
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_the_contents_are_on_the_disk_before_the_name(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(atomic_files.os, "fsync", lambda handle: done.append("fsync"))
    monkeypatch.setattr(atomic_files.os, "replace", lambda draft, path: done.append("replace"))
    with atomic_write(tmp_path / "a", overwrite=True) as draft:
        draft.write_text("b")
    assert done[:2] == ["fsync", "replace"]


def _write_both(draft, path):
    draft.write_text("ours")
    path.write_text("theirs")


def _write_half(draft, error):
    draft.write_text("half of")
    raise error


def _no_links(draft, path):
    raise PermissionError(1, "Operation not permitted")
