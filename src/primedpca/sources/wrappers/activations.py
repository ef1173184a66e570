"""Outputs of a network's blocks as data, one row for every image."""

import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import describe, dtype_name
from primedpca._core.units import as_bytes
from primedpca.protocols import Array, Block, DataSource
from primedpca.sources.base import Batches, BlockSource, Later, Subset, cut_evenly, read_only
from primedpca.sources.files.images import SUFFIXES, opened, pillow

torch: Any = Later("torch", "`Activations`", "torch")

__all__ = ["Activations", "BlockColumns", "imagenet", "residual"]

BLOCK_BYTES = 2**27  # a few images, because a product also keeps d x p sums
DEVICE_BLOCK_BYTES = 2**30
BLOCK_ROWS = 256
#: Mean and deviation of red, green and blue of ImageNet's training images, from 0 to 1.
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)
#: Lock for one forward pass at a time, because hooks and flags belong to the module.
_forward = threading.Lock()


def residual(name: str, module: Any) -> bool:
    """Return whether a module's class name contains ``Bottleneck`` or ``BasicBlock``."""
    return any(word in type(module).__name__ for word in ("Bottleneck", "BasicBlock"))


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
                f"The default `transform` takes images and uint8 arrays of height x width x 3, not "
                f"{image.dtype} of shape {image.shape}. Pass `transform`=None for ready arrays."
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


class BlockColumns(NamedTuple):
    """Columns and shape, (channels, height, width), of the output of one block."""

    columns: slice
    shape: tuple[int, ...]


class Activations(BlockSource):
    """Source whose row i holds the outputs of chosen blocks of a network for image i.

    Every reading sends the images through the network again, a few at a time; nothing of size
    n x d is kept unless ``cache`` allows it.  The network is in evaluation mode (dropout and batch
    normalisation are fixed) while it is read and is restored afterwards; it must not be trained
    during a fit.  A row has the same bits at every reading, with the number of PyTorch's threads
    at the time the source was made, because another number rounds differently.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    images : path, or sequence
        A folder, whose images are found by their suffix, or a sequence of paths, Pillow images or
        arrays.  Files are decoded when they are needed and never written to.
    blocks : callable, regular expression or list of str, default=residual
        Modules whose outputs are taken: a function ``(name, module) -> bool``, a pattern for the
        whole name, or names.  The default takes every module whose class name contains
        ``Bottleneck`` or ``BasicBlock``.  Columns are in the order of ``model.named_modules()``.
    batch : int, default=1
        Number of images in one forward pass.  Kernels may round differently for other batches,
        so that images always go through in the same groups; a single row costs a whole group.
    transform : callable or None, default=imagenet
        Function from an image to the array that the network takes, without the axis of the batch.
        ``None`` for arrays that are ready.
    device : str or torch.device, optional
        Device of the network and of the blocks, by default that of the model.  A model on another
        device is copied.
    dtype : {"float32", "float64"}, default="float32"
        Type of the rows.  The network computes in its own type.
    cache : str or number, optional
        Size in bytes (``"4GB"``) of the first rows that are kept on the device, so that later
        readings of them cost nothing.  By default none are kept.

    Attributes
    ----------
    block_slices : dict of str to BlockColumns
        Columns and shape of each block's output.
    read_rate : float
        Approximate bytes of rows per second for each worker, for the planner.

    Examples
    --------
    >>> from primedpca.sources import Activations
    >>> Activations(model, "photographs/", blocks=["layer4"])  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        images: Any,
        *,
        blocks: Any = residual,
        batch: int = 1,
        transform: Any = imagenet,
        device: Any = None,
        dtype: Any = "float32",
        cache: Any = None,
    ) -> None:
        name = dtype_name(np.dtype(dtype) if isinstance(dtype, (str, type)) else dtype)
        if name not in ("float32", "float64"):
            raise ValueError(f"`dtype`={dtype!r} must be 'float32' or 'float64'.")
        if batch < 1:
            raise ValueError(f"`batch`={batch} must be at least 1.")
        room = as_bytes(cache, "cache") if cache else 0.0
        self.images, self.transform, self.batch = image_sequence(images), transform, batch
        self.model, self._place = on_its_device(model, device)
        self._modules, self._threads = choose(self.model, blocks), torch.get_num_threads()
        self._network_dtype = next(
            (p.dtype for p in self.model.parameters() if p.is_floating_point()), torch.float32
        )
        on_host = self._place.type == "cpu"
        self.device = None if on_host else str(self._place)
        self.dtype = np.dtype(name) if on_host else getattr(torch, name)
        self.read_rate = 5e7 if on_host else 1e9
        self.block_slices = self._measure()
        n, d = len(self.images), max(part.columns.stop for part in self.block_slices.values())
        self.shape = (n, d)
        row_bytes = d * np.dtype(name).itemsize
        rows = min(BLOCK_ROWS, (BLOCK_BYTES if on_host else DEVICE_BLOCK_BYTES) // row_bytes)
        groups = cut_evenly(-(-n // batch), max(1, rows // batch))
        self.blocks = tuple((a * batch, min(b * batch, n)) for a, b in groups)
        kept = int(min(n, room // row_bytes))
        self._kept = self._room(kept if kept == n else kept // batch * batch)
        self.cache_bytes = len(self._kept) * row_bytes
        self._filled = np.zeros(-(-len(self._kept) // batch), dtype=bool)

    # -- as a source -------------------------------------------------------------------------

    def read(self, i: int) -> Block:
        """Return the rows of a few images."""
        start, stop = self.blocks[i]
        if stop > len(self._kept):
            return read_only(self.rows(np.arange(start, stop)))
        for group in range(start // self.batch, -(-stop // self.batch)):
            self._group(group)
        return read_only(self._kept[start:stop])

    def rows(self, index: np.ndarray) -> Block:
        """Return the rows of these images, in this order, computing whole groups."""
        index = np.asarray(index)
        out, group_of = self._room(index.size), index // self.batch
        for group in np.unique(group_of):
            place = np.flatnonzero(group_of == group)
            out[place] = self._group(int(group))[index[place] - group * self.batch]
        return out

    def batches(self, size: int, seed: int | None, epoch: int = 0, start: int = 0) -> Batches:
        """Yield mini-batches of a new permutation of the groups of images in every epoch."""
        n = self.shape[0]
        first = np.arange(0, n, self.batch)
        if seed is not None:
            first = np.random.default_rng((seed, 1, epoch)).permutation(first)
        order = np.concatenate([np.arange(a, min(a + self.batch, n)) for a in first.tolist()])
        for a, b in cut_evenly(n, size)[start:]:
            yield order[a:b], self.rows(order[a:b])

    def sample(self, share: float, seed: int) -> DataSource:
        """Return a random share of the images; with ``batch=1`` no others are computed."""
        part: Any = super().sample(share, seed)
        return _Share(self, part.index)

    def __repr__(self) -> str:
        n, d = self.shape
        name = type(self.model).__name__
        return f"Activations({name}, {len(self._modules)} blocks, {n} images x {d})"

    def split(self, vectors: Array) -> dict[str, Array]:
        """Split vectors of length d into the outputs of the blocks.

        Parameters
        ----------
        vectors : array of shape (..., d)
            Components, a mean or rows.

        Returns
        -------
        dict of str to array of shape (..., channels, height, width)
        """
        if vectors.shape[-1] != self.shape[1]:
            found, wanted = vectors.shape[-1], self.shape[1]
            raise ValueError(f"`vectors` have length {found}, but rows have {wanted} columns.")
        lead = tuple(vectors.shape[:-1])
        return {
            name: vectors[..., columns].reshape(lead + shape)
            for name, (columns, shape) in self.block_slices.items()
        }

    # -- through the network -----------------------------------------------------------------

    def _group(self, group: int) -> Array:
        """Return the rows of one forward pass."""
        start = group * self.batch
        stop = min(start + self.batch, self.shape[0])
        kept = stop <= len(self._kept)
        out = self._kept[start:stop] if kept else self._room(stop - start)
        if not (kept and self._filled[group]):
            target = torch.as_tensor(out)

            def copy(name: str, output: Any) -> None:
                columns, shape = self.block_slices[name]
                if tuple(output.shape[1:]) != shape:
                    raise ValueError(
                        f"The output of module {name!r} has shape {tuple(output.shape[1:])} for "
                        f"{image_name(self.images, start)} and {shape} for image 1. Use images of "
                        "one size, or choose other `blocks`."
                    )
                # Copied at once, because a later module may change it in place.
                target[:, columns] = output.reshape(stop - start, -1)

            self._forward(start, stop, copy)
            if kept:
                self._filled[group] = True
        return out

    def _measure(self) -> dict[str, BlockColumns]:
        """Return the columns of each block, from one forward pass of one image."""
        shapes: dict[str, tuple[int, ...]] = {}
        self._forward(0, 1, lambda name, output: shapes.update({name: tuple(output.shape[1:])}))
        edges = np.cumsum([0, *(math.prod(shapes[name]) for name in self._modules)]).tolist()
        return {
            name: BlockColumns(slice(a, b), shapes[name])
            for name, (a, b) in zip(self._modules, pairwise(edges), strict=True)
        }

    def _forward(self, start: int, stop: int, take: Callable[[str, Any], None]) -> None:
        """Send images through the network; ``take`` the output of each module as it comes."""
        silent, count = set(self._modules), stop - start

        def hear(name: str, output: Any) -> None:
            begin = f"The output of module {name!r}"
            if name not in silent:
                raise ValueError(f"Module {name!r} runs twice in a forward pass. Leave it out.")
            silent.remove(name)
            if not isinstance(output, torch.Tensor):
                what = type(output).__name__
                raise TypeError(f"{begin} is a {what}, not a tensor. Choose a module inside it.")
            if output.ndim < 2 or output.shape[0] != count:
                words = f"shape {tuple(output.shape)}, whose first axis is not {count} image(s)"
                raise ValueError(f"{begin} has {words}.")
            take(name, output)

        inputs = self._inputs(start, stop)
        with listening(self.model, self._modules, hear, self._threads):
            self.model(inputs)
        for name in self._modules:
            if name in silent:
                raise ValueError(f"Module {name!r} does not run in a forward pass. Leave it out.")

    def _inputs(self, start: int, stop: int) -> Any:
        """Return the input of one forward pass."""
        tensors: list[Any] = []
        for i in range(start, stop):
            image = image_at(self.images, i)
            if self.transform is not None:
                image = self.transform(image)
            if not isinstance(image, (np.ndarray, torch.Tensor)):
                what = f"{type(image).__name__} for {image_name(self.images, i)}"
                raise TypeError(f"`transform` gives a {what}. It must give an array or a tensor.")
            if isinstance(image, np.ndarray):
                wide = self._network_dtype == torch.float64
                image = torch.from_numpy(np.array(image, np.float64 if wide else np.float32))
            tensors.append(image)
            if image.shape != tensors[0].shape:
                shape = f"{tuple(image.shape)}, but others of its batch {tuple(tensors[0].shape)}"
                words = f"{image_name(self.images, i)} has shape {shape}"
                raise ValueError(f"{words}. Let `transform` crop all images to one size.")
        return torch.stack(tensors).to(self._place, self._network_dtype)

    # -- memory and blocks -------------------------------------------------------------------

    def _room(self, rows: int) -> Array:
        shape = (rows, self.shape[1])
        if self.device is None:
            return np.empty(shape, self.dtype)
        return torch.empty(shape, dtype=self.dtype, device=self._place)


class _Share(Subset):
    """Some of the images, in blocks as large as those of all the data."""

    def __init__(self, source: Activations, index: np.ndarray) -> None:
        super().__init__(source, index)
        self.blocks = cut_evenly(index.size, max(b - a for a, b in source.blocks))

    def read(self, i: int) -> Block:
        """Return the rows of a few of the images."""
        return read_only(self.rows(np.arange(*self.blocks[i])))


def choose(model: Any, blocks: Any) -> dict[str, Any]:
    """Return the chosen modules of ``model`` by name, in the order of their definition.

    Parameters
    ----------
    model : nn.Module
        The network.
    blocks : callable, regular expression or list of str
        A function ``(name, module) -> bool``, a pattern for the whole name, or names.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    there = f"There are {some(f'{name} ({type(m).__name__})' for name, m in modules.items())}."
    if callable(blocks):
        names = [name for name, module in modules.items() if blocks(name, module)]
        what = getattr(blocks, "__name__", repr(blocks))
    elif isinstance(blocks, (str, re.Pattern)):
        pattern = re.compile(blocks)
        names, what = list(filter(pattern.fullmatch, modules)), repr(pattern.pattern)
    elif isinstance(blocks, Iterable):
        names = list(blocks)
        what, unknown = repr(names), [name for name in names if name not in modules]
        if unknown:
            raise ValueError(f"`blocks` has names that are not modules: {some(unknown)}. {there}")
    else:
        raise TypeError(f"`blocks`={blocks!r} must be a function, a pattern or a list of names.")
    if not names:
        hint = " (classes called Bottleneck... or BasicBlock...)" if blocks is residual else ""
        raise ValueError(f"`blocks`={what}{hint} does not match any module. {there}")
    return {name: modules[name] for name in modules if name in names}


def on_its_device(model: Any, device: Any) -> tuple[Any, Any]:
    """Return the model, copied if it is on another device, and its device."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"`model` is a {type(model).__name__}, not a torch.nn.Module.")
    home = next((x.device for x in [*model.parameters(), *model.buffers()]), torch.device("cpu"))
    if device is None:
        return model, home
    try:
        wanted = torch.empty(0, device=device).device
        return (model if wanted == home else deepcopy(model).to(wanted)), wanted
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"`device`={device!r} cannot be used here: {error}") from error


@contextmanager
def listening(
    model: Any, modules: Mapping[str, Any], hear: Callable[[str, Any], None], threads: int
) -> Iterator[None]:
    """Put the model into evaluation mode and call ``hear(name, output)`` for chosen modules.

    Afterwards the hooks are removed and the training flags restored.  ``threads`` is set because
    PyTorch has a number of threads for each of ours, and other numbers give other bits.
    """

    def hook(name: str) -> Callable[..., None]:
        return lambda module, inputs, output: hear(name, output)

    cudnn = torch.backends.cudnn
    flags = [(cudnn, "deterministic"), (cudnn, "benchmark")]
    with _forward, ExitStack() as undo:
        for owner, name in flags + [(module, "training") for module in model.modules()]:
            undo.callback(setattr, owner, name, getattr(owner, name))
        undo.callback(torch.set_num_threads, torch.get_num_threads())
        for name, module in modules.items():
            undo.callback(module.register_forward_hook(hook(name)).remove)
        # A kernel that is chosen by a benchmark may differ at the next reading.
        cudnn.deterministic, cudnn.benchmark = True, False
        torch.set_num_threads(threads)
        model.eval()
        with torch.inference_mode():
            yield


def some(names: Iterable[str]) -> str:
    """Return the first five names, for a message."""
    names = list(names)
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def image_sequence(images: Any) -> Any:
    """Return the images of a folder and its subfolders, by name, or the given sequence."""
    if isinstance(images, (str, os.PathLike)):
        folder = Path(images)
        if not folder.is_dir():
            raise FileNotFoundError(f"`images`={str(folder)!r} is not a folder.")
        images = sorted(
            path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()
        )
        if not images:
            kinds = ", ".join(sorted(SUFFIXES))
            raise ValueError(f"`images`={str(folder)!r} does not hold any images ({kinds}).")
    if not (hasattr(images, "__len__") and hasattr(images, "__getitem__")):
        what = f"{describe(images)}, which has no length or cannot be indexed"
        raise TypeError(f"`images` is a {what}. Pass a folder, or a list of paths or arrays.")
    if len(images) == 0:
        raise ValueError("`images` is empty. Pass at least one image.")
    return images


def image_name(images: Sequence[Any], i: int) -> str:
    """Return the name of the image at index ``i`` for messages, which count from 1."""
    item, name = images[i], f"image {i + 1}"
    return f"{name} ({item})" if isinstance(item, (str, os.PathLike)) else name


def image_at(images: Sequence[Any], i: int) -> Any:
    """Return the image at index ``i``, decoded by Pillow if it is a path."""
    item = images[i]
    if not isinstance(item, (str, os.PathLike)):
        return item
    try:
        with opened(Path(item)) as image:
            return image.convert("RGB")
    except ValueError as error:
        raise ValueError(f"{image_name(images, i)} cannot be decoded: {error}") from error
