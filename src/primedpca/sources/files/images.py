"""A folder of images of one size: a row is an image, decoded when it is read."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from primedpca.sources.files.common import stamp_of
from primedpca.sources.files.decoded_rows import DecodedRows, check_shrink, pillow, shrunk

__all__ = ["ImageFolder", "is_images"]

#: Suffixes of images in a folder.
SUFFIXES = frozenset(
    ".bmp .gif .jfif .jp2 .jpeg .jpg .pgm .png .ppm .tif .tiff .webp".split()  # noqa: SIM905
)
#: Their formats, as Pillow names them: others may start programs, as PostScript does.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
#: Modes whose bytes are colours, unlike those of a palette, and the number of channels.
MODES = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}


class ImageFolder(DecodedRows):
    """Images of one size and mode as rows of uint8, in (height, width, channel) order.

    Parameters
    ----------
    images : path, glob pattern or sequence of paths
        In a folder, all files with the suffix of an image, except hidden ones.  Files of a folder
        or pattern are sorted by name; a sequence keeps its order.
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

    def __init__(
        self,
        images: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        shrink: int = 1,
        cache: Any = "1GB",
    ) -> None:
        self.paths, self.shrink = _found(images), check_shrink(shrink)
        self._stamps = [stamp_of(os.fspath(path)) for path in self.paths]
        heads = [_head(path) for path in self.paths]
        for path, head in zip(self.paths, heads, strict=True):
            self._compare(path, head, heads[0])
        (width, height), mode = heads[0]
        self._head = heads[0]
        sides = (-(-height // shrink), -(-width // shrink))
        self._begin((*sides, MODES[mode]), np.uint8, cache)
        self._end(len(self.paths))

    def _compare(self, path: Path, head: Any, first: Any) -> None:
        if head[1] not in MODES:
            raise ValueError(
                f"{path} is an image of mode {head[1]!r}; only {', '.join(MODES)} are read: "
                "convert it, for example with PIL.Image.convert('RGB')."
            )
        if head != first:
            raise ValueError(
                f"{path} is {_words(head)}, but {self.paths[0]} is {_words(first)}; all images "
                "must have one size and mode."
            )

    def _decode(self, numbers: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        for number in numbers:
            path = self.paths[number]
            self._stamps[number].check(stamp_of(os.fspath(path)), str(path), f"row {number}")
            with _opened(path) as image:
                self._compare(path, (image.size, image.mode), self._head)
                values = shrunk(image, self.shrink)
            yield number, values.reshape(-1)


def is_images(x: Any) -> bool:
    """Whether ``x`` names an image, or a folder or pattern with some."""
    if not isinstance(x, (str, os.PathLike)):
        return False
    path = Path(x)
    if path.is_dir():
        return any(_is_image(name) for name in path.iterdir())
    return path.suffix.lower() in SUFFIXES


def _is_image(path: Path) -> bool:
    # A pipe or a broken link is not skipped, as its row would be missing: it is refused later.
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and not path.is_dir()


def _found(images: Any) -> list[Path]:
    if not isinstance(images, (str, os.PathLike)):
        paths = [Path(path) for path in images]
    elif Path(images).is_dir():
        paths = sorted(path for path in Path(images).iterdir() if _is_image(path))
    elif Path(images).is_file():
        paths = [Path(images)]
    else:
        paths = [Path(name) for name in sorted(glob.glob(os.fspath(images)))]
        if not paths and not glob.has_magic(os.fspath(images)):
            raise FileNotFoundError(
                f"File not found: {images}. Name a folder or pattern of images."
            )
    if not paths:
        kinds = ", ".join(sorted(SUFFIXES))
        raise ValueError(f"{images} has no images ({kinds}). Name a folder with images.")
    return paths


def _head(path: Path) -> tuple[tuple[int, int], str]:
    """Size and mode, without decoding."""
    with _opened(path) as image:
        return image.size, image.mode


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open an image of a known format; errors on a damaged one name the file."""
    image_module = pillow()
    try:
        with image_module.open(path, formats=FORMATS) as image:
            yield image
    except (FileNotFoundError, PermissionError, MemoryError):
        raise
    except image_module.DecompressionBombError as error:
        raise ValueError(
            f"{path}: {error} If you trust the file, raise PIL.Image.MAX_IMAGE_PIXELS."
        ) from error
    except image_module.UnidentifiedImageError as error:
        raise ValueError(
            f"{path} cannot be read as an image: it is not one of {', '.join(FORMATS)}."
        ) from error
    except Exception as error:  # plug-ins of Pillow raise any kind
        if str(path) in str(error):
            raise
        raise ValueError(f"{path} is damaged or truncated: {error}.") from error


def _words(head: tuple[tuple[int, int], str]) -> str:
    (width, height), mode = head
    return f"{width} x {height} {mode}"
