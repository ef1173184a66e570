"""What a network makes of images: the outputs of its blocks, one row for every image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import dtype_name
from primedpca._core.units import as_bytes
from primedpca.experiments.large_scale.network import (
    choose,
    import_torch,
    listening,
    load_weights,
    on_its_device,
    residual,
)
from primedpca.experiments.large_scale.photographs import (
    image_at,
    image_name,
    image_sequence,
    imagenet,
)
from primedpca.protocols import Array, Block, DataSource
from primedpca.sources.base import BlockSource, Subset, cut_evenly

__all__ = ["Activations", "BlockColumns", "imagenet", "load_weights", "residual"]

BLOCK_BYTES = 2**27  # a few images: beside them a product keeps d x p sums
DEVICE_BLOCK_BYTES = 2**30
BLOCK_ROWS = 256


class BlockColumns(NamedTuple):
    """Where the output of one block stands in a row, and its shape, (channels, height, width)."""

    columns: slice
    shape: tuple[int, ...]


class Activations(BlockSource):
    """Row ``i``: the outputs of the chosen blocks of a network for image ``i``, end to end.

    Every reading sends the images through the network again, a few at a time; nothing of size
    n x d is kept unless ``cache`` allows it.  The network evaluates (dropout and batch
    normalisation stand still) while it is read and is left as it was; it must not be trained
    between two readings of one fit.  A row has the same bits at every reading, with the number
    of PyTorch's threads that was set when this was made: another number rounds differently.

    Parameters
    ----------
    model : torch.nn.Module
    images : path, or sequence
        A folder, in which images are looked for by name; or a sequence of paths, Pillow images
        or arrays.  Files are decoded when they are needed and never written to.
    blocks : callable, regular expression or list of str
        Which modules: ``(name, module) -> bool``, a pattern for the whole name, or names.  By
        default the residual blocks: every module whose class name contains ``Bottleneck`` or
        ``BasicBlock``.  Columns are in the order of ``model.named_modules()``.
    batch : int
        Images in one forward.  Kernels may round differently for other batches, so images go
        through in fixed groups of this many, and a row always has the same bits; but single
        rows then cost a group.
    transform : callable or None
        From an image to the array that the network takes, without the leading axis of the
        batch.  ``None`` for arrays that are so already.
    device : str or torch.device, optional
        Where the network runs and blocks arrive.  By default where the model is; a model that
        is elsewhere is copied there.
    dtype : {"float32", "float64"}
        Of the rows.  The network computes in its own.
    cache : str or number, optional
        Bytes of rows (``"4GB"``) that may be kept where they were made, so that later readings
        cost nothing: the first rows of the data, as many as fit.  By default none.

    Attributes
    ----------
    block_slices : dict of str to BlockColumns
    read_rate : float
        About how many bytes of rows come in a second for each worker, for the planner.
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
        torch = import_torch()
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
        self.blocks = self._cut(n, BLOCK_BYTES if on_host else DEVICE_BLOCK_BYTES, row_bytes)
        kept = int(min(n, room // row_bytes))
        self._kept = self._room(kept if kept == n else kept // batch * batch)
        self._filled = np.zeros(-(-len(self._kept) // batch), dtype=bool)

    # -- as a source -------------------------------------------------------------------------

    def read(self, i: int) -> Block:
        """The rows of a few images; the kept ones as they are."""
        start, stop = self.blocks[i]
        if stop <= len(self._kept):
            for group in range(start // self.batch, -(-stop // self.batch)):
                self._group(group)
            block = self._kept[start:stop]
        else:
            block = self.rows(np.arange(start, stop))
        if isinstance(block, np.ndarray):
            block.flags.writeable = False
        return block

    def rows(self, index: np.ndarray) -> Block:
        """The rows of these images, in this order; those of other images of a group are lost."""
        index = np.asarray(index)
        out, group_of = self._room(index.size), index // self.batch
        for group in np.unique(group_of):
            place = np.flatnonzero(group_of == group)
            held = self._group(int(group))
            for to, i in zip(place, index[place] - group * self.batch, strict=True):
                out[int(to)] = held[int(i)]
        return out

    def batches(
        self, size: int, seed: int | None, epoch: int = 0, start: int = 0
    ) -> Iterator[tuple[np.ndarray, Block]]:
        """Mini-batches of a fresh permutation of all groups of images every epoch."""
        n = self.shape[0]
        first = np.arange(0, n, self.batch)
        if seed is not None:
            first = np.random.default_rng((seed, 1, epoch)).permutation(first)
        order = np.concatenate([np.arange(a, min(a + self.batch, n)) for a in first.tolist()])
        for a, b in cut_evenly(n, size)[start:]:
            yield order[a:b], self.rows(order[a:b])

    def sample(self, share: float, seed: int) -> DataSource:
        """A random share of the images; no others go through the network where ``batch`` is 1."""
        part: Any = super().sample(share, seed)
        return _Share(self, part.index)

    @property
    def cache_bytes(self) -> int:  # type: ignore[override]
        """The most that the cache will hold."""
        return len(self._kept) * self.shape[1] * int(self.dtype.itemsize)

    def __repr__(self) -> str:
        n, d = self.shape
        name = type(self.model).__name__
        return f"Activations({name}, {len(self._modules)} blocks, {n} images x {d})"

    def split(self, vectors: Array) -> dict[str, Array]:
        """Vectors of length d cut back into blocks.

        Parameters
        ----------
        vectors : array of shape (..., d)
            Components, the mean, rows.

        Returns
        -------
        dict of str to array of shape (..., channels, height, width)
        """
        if vectors.shape[-1] != self.shape[1]:
            raise ValueError(
                f"`vectors` of length {vectors.shape[-1]} are not of these activations, whose "
                f"rows have {self.shape[1]} entries."
            )
        lead = tuple(vectors.shape[:-1])
        return {
            name: vectors[..., columns].reshape(lead + shape)
            for name, (columns, shape) in self.block_slices.items()
        }

    # -- through the network -----------------------------------------------------------------

    def _group(self, group: int) -> Array:
        """The rows of one forward."""
        start = group * self.batch
        stop = min(start + self.batch, self.shape[0])
        kept = stop <= len(self._kept)
        out = self._kept[start:stop] if kept else self._room(stop - start)
        if not (kept and self._filled[group]):
            self._forward(start, stop, out)
            if kept:
                self._filled[group] = True
        return out

    def _forward(self, start: int, stop: int, out: Array) -> None:
        torch, count = import_torch(), stop - start
        inputs, target = self._inputs(start, stop), torch.as_tensor(out)
        heard: list[str] = []

        def hear(name: str, output: Any) -> None:
            columns, shape = self.block_slices[name]
            self._check(name, output, count, heard)
            if tuple(output.shape[1:]) != shape:
                raise ValueError(
                    f"Module {name!r} puts out {tuple(output.shape[1:])} for "
                    f"{image_name(self.images, start)} and {shape} for the first one; images must "
                    "have one size, or choose other `blocks`."
                )
            # Copied at once: a later module may work in place.
            target[:, columns] = output.reshape(count, -1)

        with listening(self.model, self._modules, hear, self._threads):
            self.model(inputs)
        self._check_all(heard)

    def _measure(self) -> dict[str, BlockColumns]:
        """Which columns belong to which block, from one forward of one image."""
        heard: list[str] = []
        shapes: dict[str, tuple[int, ...]] = {}

        def hear(name: str, output: Any) -> None:
            self._check(name, output, 1, heard)
            shapes[name] = tuple(output.shape[1:])

        inputs = self._inputs(0, 1)
        with listening(self.model, self._modules, hear, self._threads):
            self.model(inputs)
        self._check_all(heard)
        slices, edge = {}, 0
        for name in self._modules:
            width = int(np.prod(shapes[name]))
            slices[name] = BlockColumns(slice(edge, edge + width), shapes[name])
            edge += width
        return slices

    def _inputs(self, start: int, stop: int) -> Any:
        """The images of one forward as the network takes them."""
        torch = import_torch()
        tensors: list[Any] = []
        for i in range(start, stop):
            image = image_at(self.images, i)
            if self.transform is not None:
                image = self.transform(image)
            if not isinstance(image, (np.ndarray, torch.Tensor)):
                raise TypeError(
                    f"{image_name(self.images, i)} reaches the network as a "
                    f"{type(image).__name__}; `transform` must make an array or a tensor of it."
                )
            if isinstance(image, np.ndarray):
                wide = self._network_dtype == torch.float64
                image = torch.from_numpy(np.array(image, np.float64 if wide else np.float32))
            tensors.append(image)
            if tensors[-1].shape != tensors[0].shape:
                raise ValueError(
                    f"{image_name(self.images, i)} has shape {tuple(tensors[-1].shape)} and the "
                    f"one before it {tuple(tensors[0].shape)}; a forward takes images of one "
                    "size: let `transform` crop them."
                )
        return torch.stack(tensors).to(self._place, self._network_dtype)

    @staticmethod
    def _check(name: str, output: Any, count: int, heard: list[str]) -> None:
        """Refuse what is not one tensor for every image."""
        if name in heard:
            raise ValueError(f"Module {name!r} is used twice in a forward; leave it out.")
        heard.append(name)
        if not isinstance(output, import_torch().Tensor):
            raise TypeError(
                f"Module {name!r} puts out a {type(output).__name__}, not a tensor; choose a "
                "module inside it."
            )
        if output.ndim < 2 or output.shape[0] != count:
            raise ValueError(
                f"Module {name!r} puts out {tuple(output.shape)} for {count} image(s); the first "
                "axis must count the images."
            )

    def _check_all(self, heard: list[str]) -> None:
        silent = [name for name in self._modules if name not in heard]
        if silent:
            raise ValueError(f"Module {silent[0]!r} is not used in a forward; leave it out.")

    # -- small things ------------------------------------------------------------------------

    def _room(self, rows: int) -> Array:
        shape = (rows, self.shape[1])
        if self.device is None:
            return np.empty(shape, self.dtype)
        return import_torch().empty(shape, dtype=self.dtype, device=self._place)

    def _cut(self, n: int, budget: int, row_bytes: int) -> tuple[tuple[int, int], ...]:
        """Blocks of whole groups."""
        rows = min(BLOCK_ROWS, budget // row_bytes)
        edges = cut_evenly(-(-n // self.batch), max(1, rows // self.batch))
        return tuple((a * self.batch, min(b * self.batch, n)) for a, b in edges)


class _Share(Subset):
    """Some images: only they are asked for, and as many to a block as in all the data."""

    def __init__(self, source: Activations, index: np.ndarray) -> None:
        super().__init__(source, index)
        self.blocks = cut_evenly(index.size, max(b - a for a, b in source.blocks))

    def read(self, i: int) -> Block:
        """The rows of a few of the images."""
        block = self.rows(np.arange(*self.blocks[i]))
        if isinstance(block, np.ndarray):
            block.flags.writeable = False
        return block
