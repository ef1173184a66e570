"""Memory that is freed and asked for again in a moment, as with blocks, kept in the process.

glibc hands large pieces that are freed back to the system, and every page of the next is then
faulted in again, which can cost as much as the work on it.  It learns to keep pieces as large as
those that it has seen freed, but no more than twice the largest of them; Dask starts its workers
with even that turned off.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

__all__ = ["keep_freed", "reusing_memory"]

TRIM, MMAP = -1, -3  # as mallopt names what is asked for
KEPT = 2**27  # bytes that may stay at the end of the heap
LARGEST = 2**25  # of one piece: as much as glibc comes to by itself
USUAL = 2**17  # and what it begins with

_lock = threading.Lock()
_users = 0


def _forget_users() -> None:
    """In a forked child: whoever was reusing memory is not there."""
    global _lock, _users
    _lock, _users = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_users)


def keep_freed() -> None:
    """Show glibc at once the largest piece that it learns from; no page of it is touched."""
    np.empty(LARGEST - 2**16, dtype=np.uint8)


@cache
def _mallopt() -> Any:
    """The function that sets this, unless somebody has chosen how large a piece is."""
    chosen = "MALLOC_MMAP_THRESHOLD_" in os.environ
    if chosen or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return None
    try:
        return ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another system's library
        return None


@contextmanager
def reusing_memory(wanted: bool = True) -> Iterator[None]:
    """Inside, freed pieces are kept for the next, if that is wanted.

    Afterwards all is as it was chosen, or where nothing was, as glibc would have learnt to have it.
    """
    global _users
    change = _mallopt() if wanted else None
    if change is None:
        yield
        return
    with _lock:
        _users += 1
        if _users == 1:
            change(MMAP, LARGEST)
            change(TRIM, KEPT)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                chosen = os.environ.get("MALLOC_TRIM_THRESHOLD_")
                change(MMAP, LARGEST if chosen is None else USUAL)
                change(TRIM, 2 * LARGEST if chosen is None else int(chosen))
