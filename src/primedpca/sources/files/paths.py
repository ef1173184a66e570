"""Sources of paths, chosen by suffix or by the contents of a folder."""

from __future__ import annotations

import glob
import inspect
import os
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any

from primedpca.protocols import DataSource
from primedpca.sources.files.common import split_part
from primedpca.sources.files.h5ad import h5ad_source, is_h5ad
from primedpca.sources.files.images import ImageFolder, is_images
from primedpca.sources.files.matrix_market import is_matrix_market, matrix_market
from primedpca.sources.files.plink import Genotypes, is_plink
from primedpca.sources.files.raw_binary import raw_source
from primedpca.sources.files.regular_files import check_regular
from primedpca.sources.files.tables import TABLES
from primedpca.sources.files.video import VideoFrames, is_video

__all__ = ["SUFFIXES", "TABLES", "check_options", "path_source"]

#: Suffix -> (module of this package, function that takes the path), imported when needed.
SUFFIXES: dict[str, tuple[str, str]] = {
    ".npy": ("npy", "npy_source"),
    ".npz": ("npz", "npz_source"),
    ".h5": ("hdf5", "hdf5_source"),
    ".hdf5": ("hdf5", "hdf5_source"),
    ".he5": ("hdf5", "hdf5_source"),
    ".zarr": ("zarr_store", "zarr_source"),
    ".zarr.zip": ("zarr_store", "zarr_source"),
    ".parquet": ("tables", "table_source"),
    ".pq": ("tables", "table_source"),
    ".arrow": ("tables", "table_source"),
    ".feather": ("tables", "table_source"),
    ".ipc": ("tables", "table_source"),
    ".csv": ("csv_text", "csv_source"),
    ".csv.gz": ("csv_text", "csv_source"),
    ".tsv": ("csv_text", "csv_source"),
    ".tsv.gz": ("csv_text", "csv_source"),
}
#: Test of a path, and what makes a source of it, for kinds that a suffix does not decide.
WHOLE: list[tuple[Callable[[Any], bool], Callable[..., DataSource]]] = [
    (is_images, ImageFolder),
    (is_video, VideoFrames),
    (is_h5ad, h5ad_source),
    (is_matrix_market, matrix_market),
    (is_plink, Genotypes),
]
#: Suffixes of files with several arrays, of which ``file.h5::dataset`` names one.
WITH_PARTS = {".npz", ".h5", ".hdf5", ".he5", ".zarr", ".zarr.zip"}


def suffix_of(path: str) -> str:
    """The longest known suffix of a path, or else its last one, in lower case."""
    name = os.path.basename(os.path.normpath(path)).lower()
    known = [suffix for suffix in SUFFIXES if name.endswith(suffix)]
    return max(known, key=len) if known else os.path.splitext(name)[1]


def path_source(path: str | os.PathLike[str]) -> Callable[..., DataSource]:
    """The function that makes a source of this path; it takes the path and the options."""
    for recognises, whole in WHOLE:
        if recognises(path):
            return partial(_whole, whole)
    name, part = split_part(path)
    suffix = suffix_of(name)

    def make(path: Any, **options: Any) -> DataSource:
        raw = "shape" in options or "dtype" in options
        _check_there(name, folders=not raw)
        if raw:
            missing = {"shape", "dtype"} - options.keys()
            if missing:
                raise TypeError(f"Raw binary {name} needs `{missing.pop()}` as well.")
            return _call(raw_source, name, options)
        kind = _kind(name, suffix)
        if kind in WITH_PARTS:
            return _call(_reader(kind), name, {"part": part} | options)
        if part is not None:
            raise ValueError(
                f"{name} has no parts to choose from, so leave out '::{part}'; files with parts "
                f"are {', '.join(sorted(WITH_PARTS))}."
            )
        return _call(_reader(kind), name, options)

    return make


def _whole(make: Callable[..., DataSource], path: Any, **options: Any) -> DataSource:
    _check_there(path, folders=make is ImageFolder)
    return _call(make, path, options)


def _check_there(path: Any, folders: bool) -> None:
    """Refuse a path that does not exist, or is neither a regular file nor a folder.

    Every path that a user names is checked here; files in a folder are checked as they are found.
    """
    name = split_part(path)[0]
    if os.path.lexists(name):
        if not (folders and os.path.isdir(name)):
            check_regular(name)
    elif not (folders and is_images(name) and glob.has_magic(name)):
        raise FileNotFoundError(_absent(name))


def _absent(name: str) -> str:
    """Message on a path that does not exist."""
    if "://" in name:
        return f"`X`={name!r} is an address; download it first, as data are read many times."
    if glob.has_magic(name):
        return f"`X`={name!r} is a pattern, which is for images only; name a file or a folder."
    return f"File not found: `X`={name!r}. Check the path."


def _reader(kind: str) -> Callable[..., DataSource]:
    module, function = SUFFIXES[kind]
    reader: Callable[..., DataSource] = getattr(
        import_module(f"primedpca.sources.files.{module}"), function
    )
    return reader


def _call(make: Callable[..., DataSource], name: Any, options: dict[str, Any]) -> DataSource:
    check_options(make, os.fspath(name), options)
    return make(name, **options)


def check_options(make: Callable[..., Any], name: str, options: Iterable[str]) -> None:
    """Refuse an option that ``make`` does not take, and name those that it takes."""
    known = list(inspect.signature(make).parameters)[1:]
    for option in options:
        if option not in known:
            there = ", ".join(key for key in known if key != "part") or "none"
            raise TypeError(f"Unknown option `{option}` for {name}; its options are: {there}.")


def _kind(name: str, suffix: str) -> str:
    """The suffix that decides how a file or folder is read."""
    if os.path.isdir(name):
        if suffix == ".zarr" or _is_zarr(name):
            return ".zarr"
        names = [entry for entry in sorted(os.listdir(name)) if not entry.startswith(".")]
        found = sorted({suffix_of(entry) for entry in names}.intersection(TABLES))
        if len(found) == 1:
            return found[0]
        if found:
            raise ValueError(
                f"{name} holds tables of several kinds ({', '.join(found)}); put each kind into a "
                "folder of its own."
            )
        raise ValueError(
            f"{name} is a folder without supported data: images, tables "
            f"({', '.join(sorted(TABLES))}) or a Zarr store. To read one file, name it."
        )
    if suffix not in SUFFIXES:
        raise ValueError(
            f"`X`={name!r} has an unsupported suffix; supported are {', '.join(SUFFIXES)}, .h5ad, "
            ".mtx, .bed, images and videos. For raw binary pass `shape`=(n, d) and `dtype`."
        )
    return suffix


def _is_zarr(name: str) -> bool:
    return any(
        os.path.exists(os.path.join(name, entry)) for entry in ("zarr.json", ".zarray", ".zgroup")
    )
