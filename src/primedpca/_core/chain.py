"""Algebra of block Krylov on a GPU, without a look by the host between products.

Launching the twenty small operations of a step costs several times what they compute.  So they are
captured in a CUDA graph, once for every shape: the graph works on buffers of its own, not on the
data, and serves every later fit of the same shape.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from primedpca._core.arrays import Array, Like, dtype_name
from primedpca._core.graphs import side_stream

__all__ = ["Chain", "given_back", "suits"]

#: Steps that a chain holds.  Later steps go the usual way, which can also restart the basis.
STEPS = 12
#: Largest basis in bytes: a chain allocates all of it at once.
LARGEST = 2**29
#: Longest vectors for which launching costs more than the algebra itself.
LONGEST = 2**17
#: Largest entry of an inverse factor up to which Cholesky QR in float64 is accurate.
WORST = 1e5
#: Spacing of float32 numbers near 1.
EPS = 2.0**-23
#: Buffers that are kept for later fits, at most.
KEPT = 4

_kept: list[_Buffers] = []
_lock = threading.Lock()
_fit = threading.local()


@contextmanager
def given_back() -> Iterator[None]:
    """Give the buffers of all chains that were begun inside back at the end."""
    before, _fit.chains = getattr(_fit, "chains", None), []
    try:
        yield
    finally:
        for chain in _fit.chains:
            chain.give_back()
        _fit.chains = before


def suits(like: Like, width: int) -> bool:
    """Whether blocks of this width go through a chain: PyTorch on CUDA, and vectors in float32."""
    if not str(like.device).startswith("cuda") or "torch" not in like.xp.__name__:
        return False
    columns, length = STEPS * width, like.n_features
    fits = 4 * columns * length <= LARGEST and 2 * columns <= length
    return fits and dtype_name(like.dtype) == "float32"


class Chain:
    """Blocks of a basis in one buffer, and the matrices that the steps leave.

    Parameters
    ----------
    like : Like
        Device, dtype and length of the vectors; the library is PyTorch.
    first : array of shape (length, width)
        The block to start with; it is orthonormalised.

    Attributes
    ----------
    width : int
        Columns of every block.
    steps : int
        Number of products taken in.
    """

    def __init__(self, like: Like, first: Array) -> None:
        self.width, self.steps = int(first.shape[1]), 0
        self._buffers = _Buffers.of(like, self.width)
        self._buffers.z[...] = first
        self._buffers.split(-1)  # orthonormalised as the blocks that follow, against an empty basis
        if getattr(_fit, "chains", None) is not None:
            _fit.chains.append(self)

    def block(self, i: int) -> Array:
        """Return block ``i`` of the basis, a view ``(length, width)``."""
        return self._buffers.basis[:, i * self.width : (i + 1) * self.width]

    @property
    def is_full(self) -> bool:
        """Whether another step must go the usual way."""
        return self.steps == STEPS - 1

    def extend(self, z: Array) -> None:
        """Split ``z = C Q_j = V H + Q_(j+1) B`` and append ``Q_(j+1)``."""
        self._buffers.z[...] = z
        self._buffers.split(self.steps)
        self.steps += 1

    def matrices(self, steps: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return ``T = V^T C V`` after so many steps and the last ``B``, by one transfer.

        ``None`` if the columns of a step were nearly dependent or not finite: then the steps must
        be made again with care.
        """
        w, m = self.width, steps * self.width
        found = self._buffers.found[:steps].cpu().numpy()
        couplings, inverses, seconds = found[:, : 3 * w].reshape(steps, 3, w, w).swapaxes(0, 1)
        # NaN fails each comparison.
        if not (np.abs(inverses).max() <= WORST and np.diagonal(seconds, 0, 1, 2).min() > 0.5):
            return None
        projected, sizes = np.zeros((m, m)), np.zeros(steps)
        for step, end in enumerate(range(w, m + w, w)):
            held = found[step, 3 * w : 3 * w + end]
            projected[:end, end - w : end] = held
            projected[end - w : end, :end] = held.T
            sizes[step] = np.linalg.norm(held)
        try:
            least = 1 / np.linalg.norm(np.linalg.inv(couplings), axis=(1, 2))
        except np.linalg.LinAlgError:
            return None
        if not (least > 32 * EPS * sizes).all():  # it is rounding
            return None
        return projected, couplings[-1].copy()

    def give_back(self) -> None:
        """Let the next fit have the buffers: views of the basis are of no more use."""
        buffers = self.__dict__.pop("_buffers", None)
        if buffers is not None and buffers.short:
            with _lock:
                _kept.append(buffers)
                del _kept[:-KEPT]

    __del__ = give_back


class _Buffers:
    """Memory of a chain, and the graphs captured on it."""

    def __init__(self, like: Like, width: int) -> None:
        import torch

        self.key, self.width = (like.device, like.n_features, width), width
        place: Any = {"device": like.device}
        self.basis = torch.zeros((like.n_features, STEPS * width), **place)
        self.z = torch.zeros((like.n_features, width), **place)
        self._one = torch.eye(width, dtype=torch.float64, **place)
        #: Of every step, one below the other: B, two that show whether it is accurate, and H.
        shape = (STEPS, (STEPS + 3) * width, width)
        self.found = torch.zeros(shape, dtype=torch.float64, **place)
        self.short = like.n_features <= LONGEST
        self._graphs: dict[int, Any] = {}

    @classmethod
    def of(cls, like: Like, width: int) -> _Buffers:
        """Return buffers that a fit of the same shape has given back, or new ones."""
        key = (like.device, like.n_features, width)
        with _lock:
            for i, buffers in enumerate(_kept):
                if buffers.key == key:
                    return _kept.pop(i)
        return cls(like, width)

    def split(self, step: int) -> None:
        """Make the block after ``step`` from ``z``."""
        if not (self.short and self.z.is_cuda):
            self._split(step)
            return
        if step not in self._graphs:
            self._graphs[step] = self._capture(step)
        self._graphs[step].replay()

    def _capture(self, step: int) -> Any:
        import torch

        stream, here = side_stream(self.z.device), torch.cuda.current_stream(self.z.device)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            self._split(step)  # libraries allocate their workspaces in the first call
        here.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._split(step)
        return graph

    def _split(self, step: int) -> None:
        m, w = (step + 1) * self.width, self.width
        basis, found = self.basis[:, :m], self.found[step]
        held = basis.T @ self.z
        rest = self.z - basis @ held
        again = basis.T @ rest
        newest, first, inverse = self._orthonormal(rest - basis @ again)
        last = basis.T @ newest
        newest, second, _ = self._orthonormal(newest - basis @ last)
        self.basis[:, m : m + w] = newest
        found[:w] = second @ first
        found[w : 2 * w] = inverse
        found[2 * w : 3 * w] = second
        found[3 * w : 3 * w + m] = held.double() + again.double() + last.double() @ first

    def _orthonormal(self, a: Array) -> tuple[Array, Array, Array]:
        """Return ``Q`` and ``R`` of a block by Cholesky QR in float64, and the inverse used."""
        import torch

        wide = a.double()
        gram = wide.T @ wide
        size = gram.diagonal().sqrt()
        # No look by the host: a failure leaves NaN or a large inverse, which `matrices` finds.
        lower = torch.linalg.cholesky_ex(gram / size / size[:, None])[0]
        inverse = torch.linalg.solve_triangular(lower, self._one, upper=False)
        return ((wide / size) @ inverse.T).to(a.dtype), lower.T * size, inverse
