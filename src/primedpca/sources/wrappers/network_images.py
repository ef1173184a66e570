"""Images for :class:`Activations`: found in a folder, decoded, cropped and normalised."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.arrays import describe
from primedpca.sources.files.decoded_rows import pillow

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
#: Mean and deviation of red, green and blue of ImageNet's training images, from 0 to 1.
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def imagenet(image: Any, size: int = 224) -> np.ndarray:
    """Prepare an image for networks that were trained on ImageNet.

    The shorter side is resized (bilinear) to ``size * 256 / 224``, the centre is cropped, and the
    colours are standardised with ImageNet's mean and deviation.

    Parameters
    ----------
    image : Pillow image, or uint8 array of shape (height, width) or (height, width, 3)
        The image.
    size : int, default=224
        Height and width of the crop in pixels; ``functools.partial(imagenet, size=448)`` is a
        transform with another size.

    Returns
    -------
    ndarray of shape (3, size, size), float32
    """
    library = pillow()
    if not isinstance(image, library.Image):
        image = np.asarray(image)
        if image.dtype != np.uint8 or image.ndim not in (2, 3):
            raise ValueError(
                f"The default `transform` takes Pillow images and uint8 arrays of height x width "
                f"x 3, not {image.dtype} of shape {image.shape}. Pass `transform`=None for arrays "
                "that are ready for the network."
            )
        image = library.fromarray(image)
    image = image.convert("RGB")
    width, height = image.size
    short = round(size * 256 / 224)
    scale = short / min(width, height)
    width, height = max(short, int(width * scale)), max(short, int(height * scale))
    left, top = round((width - size) / 2), round((height - size) / 2)
    image = image.resize((width, height), library.Resampling.BILINEAR)
    pixels = np.asarray(image.crop((left, top, left + size, top + size)), dtype=np.float32)
    return np.ascontiguousarray(((pixels / 255 - MEAN) / DEVIATION).transpose(2, 0, 1))


def image_sequence(images: Any) -> Sequence[Any]:
    """Return the images of a folder and its subfolders, by name, or the given sequence."""
    if isinstance(images, (str, os.PathLike)):
        folder = Path(images)
        if not folder.is_dir():
            raise FileNotFoundError(f"`images`={str(folder)!r} is not a folder.")
        images = sorted(
            path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()
        )
        if not images:
            raise ValueError(
                f"`images`={str(folder)!r} does not hold any images, which are files that end in "
                f"{', '.join(sorted(SUFFIXES))}."
            )
    if not (hasattr(images, "__len__") and hasattr(images, "__getitem__")):
        what = f"{describe(images)}, which has no length or cannot be indexed"
        raise TypeError(f"`images` is a {what}. Pass a folder, or a list of paths or arrays.")
    if len(images) == 0:
        raise ValueError("`images` is empty. Pass at least one image.")
    found: Sequence[Any] = images
    return found


def image_name(images: Sequence[Any], i: int) -> str:
    """Return the name of the image at index ``i`` for messages, which count from 1."""
    item, name = images[i], f"image {i + 1}"
    return f"{name} ({item})" if isinstance(item, (str, os.PathLike)) else name


def image_at(images: Sequence[Any], i: int) -> Any:
    """Return the image at index ``i``, decoded by Pillow if it is a path."""
    item = images[i]
    if not isinstance(item, (str, os.PathLike)):
        return item
    library = pillow()
    try:
        with library.open(item) as image:
            return image.convert("RGB")
    except FileNotFoundError:
        raise
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{image_name(images, i)} cannot be decoded: {error}") from error
