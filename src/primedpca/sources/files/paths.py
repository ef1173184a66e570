"""Sources of paths, chosen by suffix or by the contents of a folder."""

import glob
import inspect
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from primedpca.protocols import DataSource
from primedpca.sources.files import common, csv_text, images, spreadsheets, video
from primedpca.sources.files.common import check_regular, split_part
from primedpca.sources.files.tables import TABLES

#: Suffix -> module of this package and what in it makes a source of a path, imported when needed.
SUFFIXES = {
    ".npy": "numpy_files.npy_source",
    ".npz": "numpy_files.npz_source",
    **dict.fromkeys((".h5", ".hdf5", ".he5"), "hdf5.hdf5_source"),
    **dict.fromkeys((".zarr", ".zarr.zip"), "zarr_store.zarr_source"),
    **dict.fromkeys(TABLES, "tables.TableSource"),
    **dict.fromkeys(csv_text.SUFFIXES, "csv_text.CSVSource"),
    **dict.fromkeys(spreadsheets.SUFFIXES, "spreadsheets.SheetSource"),
    ".h5ad": "hdf5.h5ad_source",
    **dict.fromkeys((".mtx", ".mtx.gz"), "matrix_market.matrix_market"),
    ".bed": "plink.Genotypes",
    **dict.fromkeys(video.SUFFIXES, "video.VideoFrames"),
    **dict.fromkeys(images.SUFFIXES, "images.ImageFolder"),
}
#: Suffixes of files with several arrays, of which ``file.h5::dataset`` names one.
WITH_PARTS = {".npz", ".h5", ".hdf5", ".he5", ".h5ad", ".zarr", ".zarr.zip"}
#: Suffixes of known files that are not read, and what to do.
OTHERS = {
    **dict.fromkeys((".xls", ".xlsb"), "Save it as .xlsx or .csv."),
    **dict.fromkeys((".txt", ".dat"), "Rename it to .csv, and pass `delimiter` if it has others."),
    **dict.fromkeys((".dta", ".sas7bdat", ".rds", ".rdata"), "Save it as .csv or .parquet."),
    **dict.fromkeys((".json", ".jsonl", ".xml", ".html"), "Save the table as .csv or .parquet."),
    **dict.fromkeys((".vcf", ".vcf.gz", ".bcf"), common.VCF),
    **dict.fromkeys((".pkl", ".pickle"), "Load it, if you trust it, and pass the object."),
}
#: Suffixes that cannot be those of raw binary files.
NOT_RAW = {".h5ad", ".mtx", ".mtx.gz", ".bed", *video.SUFFIXES, *images.SUFFIXES}

SEARCHED = 1000  # folders in which a message looks for tables


def path_source(path: str | os.PathLike[str], **options: Any) -> DataSource:
    """Source of a path, with the options of its kind."""
    name, part = split_part(path)
    suffix = suffix_of(name)
    raw = bool({"shape", "dtype"} & options.keys()) and suffix not in NOT_RAW
    # Every path that a user names is checked here; files in a folder are as they are found.
    if os.path.lexists(name):
        if raw or not os.path.isdir(name):
            check_regular(name)
    elif not (suffix in images.SUFFIXES and glob.has_magic(name)):
        raise FileNotFoundError(_absent(name))
    if raw and not options.keys() >= {"shape", "dtype"}:
        other = "dtype" if "shape" in options else "shape"
        raise TypeError(f"Raw binary {name} needs `{other}` as well.")
    kind = "" if raw else _kind(name, suffix)
    if kind in WITH_PARTS:
        options = {"part": part} | options
    elif part is not None:
        raise ValueError(f"{name} has no parts to choose from, so leave out '::{part}'.")
    module, function = SUFFIXES.get(kind, "numpy_files.raw_source").split(".")
    make = getattr(import_module(f"primedpca.sources.files.{module}"), function)
    check_options(make, name, options)
    source: DataSource = make(name, **options)
    return source


def suffix_of(path: str) -> str:
    """The longest known suffix of a path, or else its last one, in lower case."""
    name = os.path.basename(os.path.normpath(path)).lower()
    known = [suffix for suffix in (*SUFFIXES, *OTHERS) if name.endswith(suffix)]
    return max(known, key=len) if known else os.path.splitext(name)[1]


def _absent(name: str) -> str:
    """Message on a path that does not exist."""
    if "://" in name:
        return f"`X`={name!r} is an address; download it first, as data are read many times."
    if glob.has_magic(name):
        return f"`X`={name!r} is a pattern, which is for images only; name a file or a folder."
    return f"File not found: `X`={name!r}. Check the path."


def _kind(name: str, suffix: str) -> str:
    """The suffix that decides how a file or folder is read."""
    if not os.path.isdir(name):
        if suffix in OTHERS:
            raise ValueError(f"`X`={name!r} is not supported. {OTHERS[suffix]}")
        if suffix not in SUFFIXES:
            raise ValueError(
                f"`X`={name!r} has an unsupported suffix; supported are {', '.join(SUFFIXES)}. For "
                "raw binary pass `shape`=(n, d) and `dtype`."
            )
        return suffix
    names = [entry for entry in os.listdir(name) if not entry.startswith(".")]
    if any(images.is_image(Path(name, entry)) for entry in names):
        _check_below(name, images.SUFFIXES)
        return images.SUFFIXES[0]
    if suffix == ".zarr" or not {"zarr.json", ".zarray", ".zgroup"}.isdisjoint(os.listdir(name)):
        return ".zarr"
    if common.is_tenx(name):
        words = f"{name} is a folder of 10x Genomics, with cells as columns"
        raise ValueError(f"{words}. {common.TENX.format('read_10x_mtx', name)}")
    kinds = {*TABLES, *csv_text.SUFFIXES}
    found = sorted({suffix_of(entry) for entry in names if entry[0] != "_"} & kinds)
    if len(found) > 1 and not kinds.difference(TABLES).issuperset(found):
        raise ValueError(f"{name} holds several kinds of tables: {', '.join(found)}. Split it.")
    if not set(found) & set(TABLES):
        words, remedy = f"is a folder without images, a Zarr store or {', '.join(TABLES)}.", ""
        if any(suffix_of(entry) in csv_text.SUFFIXES for entry in names):
            remedy = " Join its CSV files into one, or convert each to Parquet."
        elif inside := _first_below(name, kinds):
            words = f"holds tables only in subfolders, such as {inside!r}, which are not read."
            remedy = " Name one of these, or read all into a data frame and pass that."
        raise ValueError(f"{name} {words}{remedy}")
    _check_below(name, found)
    return found[0]


def _check_below(name: str, suffixes: Iterable[str]) -> None:
    """Refuse a folder with files of the kind that is read at any level below it, too."""
    inside = next(_below(name, suffixes), None)
    if inside is not None:
        raise ValueError(
            f"{name} holds more data in its subfolder {inside!r}, which would not be read. Move it "
            f"away, or name the files by a pattern (images: {name}/**/*.png)."
        )


def _below(name: str, suffixes: Iterable[str], most: float = math.inf) -> Iterator[str]:
    """Yield the folders at any level below one, for each of their files with such a suffix.

    No more than ``most`` folders are searched.
    """
    folders, seen = deque([name]), set[tuple[int, int]]()
    while folders and len(seen) < most:
        inside = folders.popleft()
        status = os.stat(inside)
        if (status.st_dev, status.st_ino) in seen:  # a link may lead to a folder above
            continue
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(inside) as entries:
            for entry in entries:
                suffix = suffix_of(entry.name)
                if entry.is_dir():
                    # Not the log of a Delta table, nor the chunks of a store.
                    if entry.name[0] not in "._" and suffix != ".zarr":
                        folders.append(entry.path)
                elif inside != name and entry.name[0] != "." and suffix in suffixes:
                    yield os.path.relpath(inside, name)


def _first_below(name: str, suffixes: Iterable[str]) -> str | None:
    """A subfolder with such files, for a message: not looked for long, nor where it is denied."""
    try:
        return next(_below(name, suffixes, SEARCHED), None)
    except OSError:
        return None


def check_options(make: Callable[..., Any], name: str, options: Iterable[str]) -> None:
    """Refuse an option that ``make`` does not take, and name those that it takes."""
    known = list(inspect.signature(make).parameters)[1:]
    for option in options:
        if option not in known:
            there = ", ".join(key for key in known if key != "part") or "none"
            raise TypeError(f"Unknown option `{option}` for {name}; its options are: {there}.")
