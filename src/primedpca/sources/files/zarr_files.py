"""The files of a Zarr store, in a folder or a ZIP archive: regular files of the store itself."""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from primedpca.sources.files.common import Stamp, stamp_of
from primedpca.sources.files.regular_files import check_regular, open_regular

__all__ = ["FolderFiles", "ZipFiles", "find_arrays", "metadata_of"]

METADATA = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
METADATA_BYTES = 2**26


class FolderFiles:
    """A store in a folder.

    Parameters
    ----------
    path : str
        The folder, which may be a symbolic link itself.
    follow_links : bool
        Allow symbolic links inside it.
    """

    def __init__(self, path: str, follow_links: bool = False) -> None:
        self.path, self.follow_links = path, follow_links

    def read(self, name: str) -> bytes | None:
        """A file of metadata, or None where there is none."""
        whole = self.path
        for step in name.split("/"):
            whole = os.path.join(whole, step)
            if not os.path.lexists(whole):
                return None
            self._check(whole, os.lstat(whole).st_mode)
        with open_regular(whole) as file:
            return _limited(file, os.fstat(file.fileno()).st_size, whole)

    def folders(self, name: str) -> Iterator[str]:
        """The folders in a folder."""
        with os.scandir(os.path.join(self.path, name)) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            self._check(entry.path, entry.stat(follow_symlinks=False).st_mode)
            if entry.is_dir():
                yield f"{name}/{entry.name}" if name else entry.name

    def chunks(self, name: str) -> dict[str, Stamp]:
        """Every file in a folder but metadata, by its path from there."""
        found: dict[str, Stamp] = {}
        top = os.path.join(self.path, name)
        for folder, within, names in os.walk(top, followlinks=self.follow_links):
            for one in within:
                path = os.path.join(folder, one)
                self._check(path, os.lstat(path).st_mode)
            for one in names:
                path = os.path.join(folder, one)
                self._check(path, os.lstat(path).st_mode)
                if one not in METADATA:
                    found[os.path.relpath(path, top)] = stamp_of(path)
        return found

    def open(self, name: str) -> BinaryIO:
        """A chunk, by its path in the store."""
        return open_regular(os.path.join(self.path, name))

    def _check(self, path: str, mode: int) -> None:
        if stat.S_ISLNK(mode):
            if not self.follow_links:
                raise ValueError(
                    f"{path} is a symbolic link to {os.readlink(path)!r}. Pass `follow_links`=True "
                    "if you trust the store."
                )
            mode = os.stat(path).st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            check_regular(path)


class ZipFiles:
    """A store in a ZIP archive, whose members are not compressed by ZIP once more."""

    def __init__(self, path: str) -> None:
        self.path = path
        check_regular(path)
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        for one in members:
            if one.compress_type != zipfile.ZIP_STORED or one.file_size != one.compress_size:
                raise ValueError(
                    f"{path} compresses its member {one.filename!r}, which a Zarr archive does "
                    "not need; pack it again without compression (zip -0)."
                )
        members = [one for one in members if not one.is_dir()]
        self._sizes = {one.filename: one.file_size for one in members}
        self._places = {one.filename: one.header_offset for one in members}

    def read(self, name: str) -> bytes | None:
        """A file of metadata, or None where there is none."""
        if name not in self._sizes:
            return None
        with self.open(name) as file:
            return _limited(file, self._sizes[name], f"{self.path}::{name}")

    def folders(self, name: str) -> Iterator[str]:
        """The folders in a folder."""
        before = f"{name}/" if name else ""
        inside = (key.removeprefix(before) for key in self._sizes if key.startswith(before))
        yield from sorted({before + key.split("/")[0] for key in inside if "/" in key})

    def chunks(self, name: str) -> dict[str, Stamp]:
        """Every member in a folder but metadata, by its path from there."""
        before = f"{name}/" if name else ""
        return {
            os.path.normpath(key.removeprefix(before)): Stamp(size, 0, 0, 0, 0)
            for key, size in self._sizes.items()
            if key.startswith(before) and key.rsplit("/", 1)[-1] not in METADATA
        }

    def open(self, name: str) -> BinaryIO:
        """A member, by its path in the store."""
        with open_regular(self.path) as file:
            file.seek(self._places[name])
            head = file.read(30)  # of which the last four bytes are the lengths of two fields
            more = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
            file.seek(more, os.SEEK_CUR)
            return io.BytesIO(file.read(self._sizes[name]))


def _limited(file: BinaryIO, size: int, path: str) -> bytes:
    if size > METADATA_BYTES:
        raise ValueError(f"{path} has {size} bytes, too many for the metadata of a Zarr store.")
    return file.read(size)


def metadata_of(files: FolderFiles | ZipFiles, name: str) -> tuple[int, bool, Any] | None:
    """Format, whether it is an array, and metadata of a node; None if it is not a node."""
    for version, entry in ((3, "zarr.json"), (2, ".zarray"), (2, ".zgroup")):
        text = files.read(f"{name}/{entry}" if name else entry)
        if text is None:
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{files.path} has damaged metadata in {entry}: {error}.") from error
        if not isinstance(found, dict):
            raise ValueError(f"{files.path} has damaged metadata in {entry}: not a JSON object.")
        if entry == ".zarray":
            # Zarr will read the attributes, too: a pipe must be refused before.
            files.read(f"{name}/.zattrs" if name else ".zattrs")
        array = entry == ".zarray" or found.get("node_type") == "array"
        return version, array, found
    return None


def find_arrays(files: FolderFiles | ZipFiles, name: str = "") -> Iterator[tuple[str, int, Any]]:
    """Yield path, format and metadata of every array in a group and the groups in it."""
    waiting = [name]
    while waiting:
        here = waiting.pop()
        known = metadata_of(files, here)
        if known is not None and known[1]:
            yield here, known[0], known[2]
        elif known is not None or here == name:
            waiting += list(files.folders(here))[::-1]
