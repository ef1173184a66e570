"""Images of one size as rows, decoded when they are read, and kept while they fit."""

import glob
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.process import lock_of
from primedpca._core.units import as_bytes
from primedpca.protocols import Block
from primedpca.sources.base import MemorySource, WithOptions, cut_evenly, read_only
from primedpca.sources.files.common import need, reading, stamp_of

BLOCK_BYTES = 2**25  # decoded; as float64 eight times as much
#: Suffixes of images in a folder.
SUFFIXES = tuple(
    ".bmp .gif .jfif .jp2 .jpeg .jpg .pgm .png .ppm .tif .tiff .webp".split()  # noqa: SIM905
)
#: Their formats, as Pillow names them: others may start programs, as PostScript does.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
#: Modes whose bytes are colours, unlike those of a palette, and the number of channels.
MODES = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}
ORIENTATION = 0x0112  # the tag of EXIF
TURNED = 5  # orientations from this one on exchange width and height


def pillow() -> Any:
    """Pillow's ``Image`` module."""
    return need("PIL.Image", "images", "images")


class DecodedRows(WithOptions, MemorySource):
    """Rows that take decoding; those decoded first are kept while they fit into the cache.

    Nothing is ever evicted from the cache: a pass in order over more rows than fit would evict
    every row just before it is needed again.

    Attributes
    ----------
    image_shape : (height, width, channels)
        A row is an image, flattened in this order.
    """

    image_shape: tuple[int, int, int]
    read_rate = 2.5e8
    library = "numpy"

    def _begin(self, width: int, height: int, channels: int, shrink: int, cache: Any) -> None:
        """Set the shape of a row; rows can be kept from now on."""
        self.image_shape = (-(-height // shrink), -(-width // shrink), channels)
        self.layout = "images of {} x {} x {} numbers".format(*self.image_shape)
        self.dtype, self._row_bytes = np.dtype(np.uint8), int(np.prod(self.image_shape))
        self._places = (as_bytes(cache, "cache") if cache else 0.0) // self._row_bytes
        self._kept: dict[int, np.ndarray] = {}

    def _end(self, n: int) -> None:
        """Set the number of rows."""
        self.shape = (n, self._row_bytes)
        self.cache_bytes = int(min(self._places, n)) * self._row_bytes
        self.blocks = cut_evenly(n, max(1, BLOCK_BYTES // self._row_bytes))

    @abstractmethod
    def _decode(self, numbers: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield these rows (ascending), each ``(d,)`` with its number, as they are decoded."""

    def _keep(self, number: int, row: np.ndarray) -> None:
        """Keep a row if there is room."""
        row.flags.writeable = False
        with lock_of(self):
            if len(self._kept) < self._places:
                self._kept[number] = row

    def _rows(self, numbers: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield these rows (ascending), from the cache or decoded, in any order."""
        kept = {number: self._kept[number] for number in numbers if number in self._kept}
        yield from kept.items()
        for number, row in self._decode([number for number in numbers if number not in kept]):
            self._keep(number, row)
            yield number, row

    def read(self, i: int) -> Block:
        """The block; a single row without a copy."""
        start, stop = self.blocks[i]
        if stop == start + 1:
            ((_, row),) = self._rows([start])
            return row[None]
        return self.rows(np.arange(start, stop))

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number, each decoded once; no others are decoded."""
        out = np.empty((index.size, self.shape[1]), self.dtype)
        for number, row in self._rows(np.unique(index).tolist()):
            out[index == number] = row
        return read_only(out)

    def __getstate__(self) -> dict[str, Any]:
        """State without the cached rows: another process decodes its own."""
        return self.__dict__ | {"_kept": {}}

    def __repr__(self) -> str:
        n, (h, w, c) = self.shape[0], self.image_shape
        return f"{type(self).__name__}({n} x {h} x {w} x {c}, {self.dtype.name})"


def check_shrink(shrink: Any) -> int:
    """Return the factor that both sides are divided by, if it is valid."""
    if not isinstance(shrink, int) or isinstance(shrink, bool) or shrink < 1:
        raise ValueError(f"`shrink`={shrink!r} must be a whole number, at least 1.")
    return shrink


def pixels(image: Any, shrink: int) -> np.ndarray:
    """The colours of a Pillow image as a row; ``shrink`` averages squares."""
    return np.asarray(image if shrink == 1 else image.reduce(shrink)).reshape(-1)


class ImageFolder(DecodedRows):
    """Images of one size and mode as rows of uint8, in (height, width, channel) order.

    Parameters
    ----------
    images : path, glob pattern or sequence of paths
        In a folder, all files with the suffix of an image, except hidden ones; the pattern
        ``"folder/**/*.png"`` also takes those of its subfolders.  Files of a folder or pattern are
        sorted by name; a sequence keeps its order.  Images are turned upright, as their EXIF
        orientation says.  Files of several pages or frames are refused.
    shrink : int, default=1
        Divide both sides by this, by means over squares of pixels.
    cache : str or number, default="1GB"
        Keep decoded images up to so many bytes; 0 keeps none.

    Attributes
    ----------
    paths : list of Path
        The file of every row.
    image_shape : (height, width, channels)

    Examples
    --------
    >>> from primedpca.sources.files.images import ImageFolder
    >>> ImageFolder("photographs/", shrink=2)  # doctest: +SKIP
    ImageFolder(103 x 1424 x 2144 x 3, uint8)
    """

    _head: Any = None  # size and mode of the first image

    def __init__(
        self, images: str | os.PathLike[str] | Sequence[Any], *, shrink: int = 1, cache: Any = "1GB"
    ) -> None:
        self.paths, self.shrink = _found(images), check_shrink(shrink)
        self._stamps = [stamp_of(os.fspath(path)) for path in self.paths]
        for path in self.paths:
            with opened(path) as image:  # not decoded
                self._compare(path, image)
        (width, height), mode = self._head
        self._begin(width, height, MODES[mode], shrink, cache)
        self._end(len(self.paths))

    def _compare(self, path: Path, image: Any) -> None:
        """Refuse an image of another size or mode than the first."""
        head = _upright_size(image), image.mode
        if image.mode not in MODES:
            raise ValueError(f"{path} has mode {image.mode!r}, not {', '.join(MODES)}; convert it.")
        self._head = self._head or head
        if head != self._head:
            here, first = (f"{size[0]} x {size[1]} {mode}" for size, mode in (head, self._head))
            raise ValueError(f"{path} is {here}, but {self.paths[0]} is {first}; make them alike.")

    def _decode(self, numbers: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        for number in numbers:
            path = self.paths[number]
            self._stamps[number].check(os.fspath(path), f"row {number}")
            with opened(path) as image:
                self._compare(path, image)
                row = pixels(upright(image), self.shrink)
            yield number, row


def is_image(path: Path) -> bool:
    """Whether a path in a folder names an image."""
    # A pipe or a broken link is not skipped, as its row would be missing: it is refused later.
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and not path.is_dir()


def _found(images: Any) -> list[Path]:
    if not isinstance(images, (str, os.PathLike)):
        paths = [Path(path) for path in images]
    elif Path(images).is_dir():
        paths = sorted(path for path in Path(images).iterdir() if is_image(path))
    elif glob.has_magic(os.fspath(images)) and not Path(images).is_file():
        paths = [Path(name) for name in matching(os.fspath(images))]
    else:
        paths = [Path(images)]
    if not paths:
        kinds = ", ".join(SUFFIXES)
        raise ValueError(f"{images} has no images ({kinds}). Name a folder with images.")
    return paths


def matching(pattern: str) -> list[str]:
    """The files of a pattern, by name; ``**`` stands for any folders."""
    return sorted(glob.glob(pattern, recursive=True))


def _orientation(image: Any) -> int:
    """The orientation by EXIF, 1 for upright; the image is not decoded."""
    # Pillow would decode a PNG to find EXIF behind its pixels.
    if image.format == "PNG" and "exif" not in image.info:
        return 1
    found = image.getexif().get(ORIENTATION, 1)
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def _upright_size(image: Any) -> tuple[int, int]:
    """Width and height after :func:`upright`."""
    turned = _orientation(image)
    if turned == 1:
        size: tuple[int, int] = image.size
    elif image.format == "TIFF":  # versions of Pillow differ in what they turn themselves
        size = upright(image).size
    else:
        size = image.size[:: -1 if turned >= TURNED else 1]
    return size


def upright(image: Any) -> Any:
    """The image, turned as its EXIF orientation says, as viewers show it."""
    if _orientation(image) == 1:
        return image
    return need("PIL.ImageOps", "images", "images").exif_transpose(image)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open an image of a known format; errors on a damaged one name the file.

    An image of several pages or frames is refused: only the first would be read.
    """
    library = pillow()
    with reading(str(path), "an image", ValueError):
        try:
            with library.open(path, formats=FORMATS) as image:
                if getattr(image, "is_animated", False):
                    raise ValueError(
                        f"{path} has {image.n_frames} pages or frames, of which a row can hold "
                        "one. Save each as a file of its own."
                    )
                yield image
        except library.DecompressionBombError as error:
            told = f"{error} If you trust it, raise PIL.Image.MAX_IMAGE_PIXELS"
            raise ValueError(told) from error
        except library.UnidentifiedImageError as error:
            raise ValueError(f"{path} is not an image ({', '.join(FORMATS)}).") from error
