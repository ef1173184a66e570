"""Make glibc keep freed blocks for the next ones.

glibc returns large freed blocks to the system.  Every page of the next block then faults in again,
which can cost as much as the work on the block.  By itself glibc learns to keep blocks of the sizes
that it has seen freed, up to twice the largest in all; Dask starts its workers with even this
learning turned off.
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

TRIM, MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt
KEPT = 2**27  # bytes that may stay at the end of the heap
LARGEST = 2**25  # bytes of one block: the most that glibc learns by itself
USUAL = 2**17  # bytes of one block that glibc starts with

_lock = threading.Lock()
_users = 0


def _forget_users() -> None:
    """Reset the count in a forked child, in which the parent's other threads do not exist."""
    global _lock, _users
    _lock, _users = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_users)


def keep_freed() -> None:
    """Allocate and free the largest block that glibc learns from, without touching a page."""
    np.empty(LARGEST - 2**16, dtype=np.uint8)


@cache
def _mallopt() -> Any:
    """Return glibc's ``mallopt``, unless the environment has set the size of blocks."""
    chosen = "MALLOC_MMAP_THRESHOLD_" in os.environ
    if chosen or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return None
    try:
        return ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return None


@contextmanager
def reusing_memory(wanted: bool = True) -> Iterator[None]:
    """Keep freed blocks inside the ``with`` block, if ``wanted``.

    Afterwards the settings of the environment apply again, or else the largest values that glibc
    learns by itself.

    Parameters
    ----------
    wanted : bool, default=True
        False changes nothing.
    """
    global _users
    change = _mallopt() if wanted else None
    if change is None:
        yield
        return
    # The settings belong to the process: the first fit makes them, the last one undoes them.
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
