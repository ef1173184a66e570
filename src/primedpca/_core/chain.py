"""Algebra of block Krylov on a GPU, without a look by the host between products.

Launching the twenty small operations of a step costs several times what they compute.  So they are
captured in a CUDA graph, once for every shape: the graph works on buffers of its own, not on the
data, and serves every later fit of the same shape.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from primedpca._core.arrays import Array, Like, dtype_name
from primedpca._core.graphs import recorded

__all__ = ["Chain", "given_back", "suits"]

#: Steps that a chain holds.  Later steps go the usual way, which can also restart the basis.
STEPS = 12
#: Largest basis in bytes: a chain allocates all of it at once.
LARGEST = 2**29
#: Longest vectors for which launching costs more than the algebra itself.
LONGEST = 2**17
#: Largest entry of an inverse factor up to which Cholesky QR in float64 is accurate.
WORST = 1e5
#: Largest part of a new block, squared, that the second projection may find along the basis: what
#: that takes from its length is put right by a series, whose error is of fourth order.
ALONG = 1e-3
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
        low, inverses, lost = self._buffers.factors[:steps].cpu().numpy().swapaxes(0, 1)
        sums = self._buffers.sums[:steps].cpu().numpy().astype(np.float64)
        lengths = np.linalg.norm(low, axis=2)[:, None]
        traces = np.trace(lost, axis1=1, axis2=2)
        # NaN fails each comparison.
        if not (np.abs(inverses * lengths).max() <= WORST and traces.max() <= ALONG):
            return None
        # The newest block is ``rest low^-T`` and, without its part along the basis, that times
        # ``(I - lost)^(-1/2)``: a series of which the block has the first two terms.
        firsts = low.swapaxes(1, 2)
        couplings = firsts - lost @ firsts / 2
        projected, sizes = np.zeros((m, m)), np.zeros(steps)
        for step, end in enumerate(range(w, m + w, w)):
            held, again, last = sums[step].reshape(3, -1, w)[:, :end]
            held = held + again + last @ firsts[step]
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
        #: Of every step, one after the other: a triangle and its inverse, in which the new block is
        #: orthonormal, and the squares of what it still had along the basis.
        shape = (STEPS, 3, width, width)
        self.factors = torch.zeros(shape, dtype=torch.float64, **place)
        #: The three parts of H of every step.
        self.sums = torch.zeros((STEPS, 3, STEPS * width, width), **place)
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
            make = partial(self._split, step)
            self._graphs[step] = recorded(make, self.z.device, warm=1)
        self._graphs[step].replay()

    def _split(self, step: int) -> None:
        import torch

        m, basis = (step + 1) * self.width, self.basis[:, : (step + 1) * self.width]
        newest = self.basis[:, m : m + self.width]
        (low, inverse, lost), sums = self.factors[step], self.sums[step, :, :m]
        held, again, last = sums
        torch.mm(basis.T, self.z, out=held)
        rest = torch.addmm(self.z, basis, held, alpha=-1)
        torch.mm(basis.T, rest, out=again)
        wide = torch.addmm(rest, basis, again, alpha=-1).double()
        # Cholesky QR in float64.  No look by the host: a failure leaves NaN or a large inverse,
        # which `matrices` finds.
        low.copy_(torch.linalg.cholesky_ex(wide.T @ wide)[0])
        inverse.copy_(torch.linalg.solve_triangular(low, self._one, upper=False))
        block = (wide @ inverse.T).to(self.z.dtype)
        # Only now is the rounding along the basis large enough to be measured.
        torch.mm(basis.T, block, out=last)
        square = last.T @ last
        lost.copy_(square)
        block = torch.addmm(block, block, square, alpha=0.5)
        torch.addmm(block, basis, torch.addmm(last, last, square, alpha=0.5), alpha=-1, out=newest)
