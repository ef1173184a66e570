"""Mutate files and stores of every kind and read each mutant in a process of its own.

``python mutants.py KIND COUNT SEED FOLDER`` prints a JSON object; in the place of COUNT, ``17,23,``
names single mutants.  :func:`run_mutants` is the same in Python.  A mutant must be refused by a
clear error, or read as what an independent strict reader makes of it.  Crashes, hangs, too much
memory, raw errors and other numbers are listed.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import signal
import sys
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mutant_files
import mutant_stores
import numpy as np
import pytest
import scipy.sparse as sp

resource = pytest.importorskip("resource")  # limits on memory, which Windows does not have

KINDS = mutant_files.KINDS | mutant_stores.KINDS
SECONDS = 10
ROOM = 2 * 2**30
CLEAR = (ValueError, TypeError, OSError)
#: In the place of a number in a text.
NUMBERS = [
    *(b"-1", b"0", b"1e400", b"1e-400", b"nan", b"NaN", b"inf", b"-inf", b"0x10", b"1,5", b"1_0"),
    *(b"9" * 19, b"9" * 40, b"-9223372036854775808", b"9223372036854775808", b"1e", b".", b"--1"),
    *(b"4294967297", b"18446744073709551617", b"1.5", b"1.2.3", b"1d5", b"+1", b"", b"1 2", b"nul"),
    *(b"\xd9\xa4", b"\0", b'"1"', b"'1'", b"1;2", b"1\n2", b"true", b"NA", b"null", b"%", b"#1"),
]
#: In the place of four or eight bytes.
WORDS = [
    *(b"\xff" * 8, b"\xff" * 4, b"\0" * 8, b"\0" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80"),
    *((2**k).to_bytes(8, "little") for k in (20, 31, 32, 40, 62)),
    *((2**k).to_bytes(4, "big") for k in (16, 24, 30)),
]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The same with one to three changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(CHANGES)(data, rng)
    return data


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if data else 0):
        changed[_place(data, rng)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _place(data: bytes, rng: random.Random) -> int:
    """Anywhere; half of them near an end, where headers and footers are."""
    near = min(len(data), 120)
    return rng.choice(
        (rng.randrange(len(data)),) * 2 + (rng.randrange(near), len(data) - 1 - rng.randrange(near))
    )


def _slice(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = _place(data, rng) if data else 0
    return start, min(len(data), start + rng.choice((1, 1, 2, 4, 8, 30, 200)))


def _delete(data: bytes, rng: random.Random) -> bytes:
    a, b = _slice(data, rng)
    return data[:a] + data[b:]


def _insert(data: bytes, rng: random.Random) -> bytes:
    a, _ = _slice(data, rng)
    new = rng.randbytes(rng.choice((1, 1, 2, 4, 8, 30)))
    return data[:a] + rng.choice((new, new, b"\0", b"\n", b",", b" ", b"\xff" * 4)) + data[a:]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: _place(data, rng) if data else 0]


def _double(data: bytes, rng: random.Random) -> bytes:
    a, b = _slice(data, rng)
    return data[:b] + data[a:b] * rng.choice((1, 1, 5)) + data[b:]


def _number(data: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"[-+.\deE]*\d[-+.\deE]*", data))
    if not found:
        return _flip(data, rng)
    chosen = rng.choice(found)
    return data[: chosen.start()] + rng.choice(NUMBERS) + data[chosen.end() :]


def _word(data: bytes, rng: random.Random) -> bytes:
    place, word = (_place(data, rng) if data else 0), rng.choice(WORDS)
    return data[:place] + word + data[place + len(word) :]


CHANGES = [_flip, _flip, _delete, _insert, _cut, _double, _number, _number, _word]


def mutant(data: bytes, name: str, rng: random.Random) -> bytes:
    """A mutant of a file; of packed ones half are mutated inside, with the right checksum."""
    if name.endswith(".gz") and rng.random() < 0.5:
        return gzip.compress(mutated(gzip.decompress(data), rng))
    if name.endswith((".npz", ".xlsx", ".ods")) and rng.random() < 0.5:
        with zipfile.ZipFile(io.BytesIO(data)) as old:
            held = {info: old.read(info) for info in old.infolist()}
        chosen = rng.choice(list(held))
        held[chosen] = mutated(held[chosen], rng)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as new:
            for info, content in held.items():
                new.writestr(info.filename, content, info.compress_type)
        return packed.getvalue()
    return mutated(data, rng)


def plain(found: Any) -> tuple[Any, ...]:
    """Shape and numbers, in one form for dense and sparse ones."""
    if sp.issparse(found):
        held = sp.coo_array(found)
        held.sum_duplicates()
        order = np.lexsort(held.coords)
        return (held.shape, *(part[order] for part in held.coords), held.data[order])
    return found.shape, np.ascontiguousarray(found)


def same(one: Any, other: Any) -> bool:
    """Whether shape and numbers are alike; NaN is NaN."""
    if one[0] != other[0] or len(one) != len(other):
        return False
    for left, right in zip(one[1:], other[1:], strict=True):
        alike = left.dtype == right.dtype  # else compared as numbers, which takes memory
        pair = (left, right) if alike else map(np.float64, (left, right))
        if not np.array_equal(*pair, equal_nan=left.dtype.kind == "f"):
            return False
    return True


def _in_child(kind: Any, path: Path, send: int) -> None:
    """Read, and tell what came of it; then read by other means, and tell whether it is the same."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, now + ROOM))
    signal.alarm(SECONDS)  # kills, wherever it hangs
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)
    try:
        found = plain(kind.read(path))
    except CLEAR as error:
        named = any(name in str(error) for name in kind.names(path))
        whose = type(error).__module__.split(".")[0]
        clear = whose in ("builtins", "primedpca") and not isinstance(error, UnicodeError)
        told = "refused" if named and clear else f"raw {type(error).__name__}: {error}"
        os.write(send, told.encode("utf-8", "replace"))
        return
    except BaseException as error:
        os.write(send, f"raw {type(error).__name__}: {error}".encode("utf-8", "replace"))
        return
    if same(found, kind.whole):
        os.write(send, b"as before")
        return
    os.write(send, b"other numbers ")
    try:
        other = plain(kind.strict(path))
    except BaseException as error:
        os.write(send, f"where others refuse: {error!r}"[:300].encode("utf-8", "replace"))
        return
    os.write(send, b"which others read too" if same(found, other) else b"than others read")


def _mutate(kind: Any, rng: random.Random) -> tuple[Path, bytes]:
    """Return the file to change and its mutant."""
    if isinstance(kind, mutant_stores.Store):
        return kind.mutated(rng)
    return kind.target, mutant(kind.target.read_bytes(), kind.target.name, rng)


GOOD = ("refused", "as before", "other numbers which others read too")


def run_mutants(name: str, numbers: Iterable[int], seed: int, folder: Path) -> dict[str, Any]:
    """Read the mutants with these numbers of the kind of file or store ``name``.

    Returns
    -------
    dict
        ``counts`` of what came of them, the ``bad`` ones with their numbers, and the largest
        memory of a process beyond that of a reading of the whole file, ``grown_mb``.
    """
    kind = KINDS[name](folder)
    # Of a store it is known: reading it here would start threads in a process that forks.
    kind.whole = plain(kind.read(kind.path) if kind.whole is None else kind.whole)
    counts, bad, grown = Counter(), [], 0
    least = None
    for number in (-1, *numbers):
        rng = random.Random(f"{seed} {name} {number}")
        if number >= 0:
            target, data = _mutate(kind, rng)
            whole = target.read_bytes()
            target.write_bytes(data)
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(receive)
                _in_child(kind, kind.path, send)
            finally:
                os._exit(0)
        os.close(send)
        with open(receive, "rb") as answer:
            told = answer.read().decode("utf-8", "replace")
        _, status, used = os.wait4(child, 0)
        if number >= 0:
            target.write_bytes(whole)
        if os.WIFSIGNALED(status):
            sign = signal.Signals(os.WTERMSIG(status))
            told = ("hang" if sign == signal.SIGALRM else f"crash by {sign.name}") + f" {told}"
        if number < 0:
            assert told == "as before", told
            least = used.ru_maxrss
            continue
        grown = max(grown, used.ru_maxrss - least)
        counts[told if told in GOOD else "bad"] += 1
        if told not in GOOD:
            bad.append(f"{number}: {told}")
            if keep := os.environ.get("KEEP_MUTANTS"):
                (Path(keep) / f"{name}-{number}".replace(" ", "_")).write_bytes(data)
    return {"counts": counts, "bad": bad, "grown_mb": round(grown / 1024, 1)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    chosen = sys.argv[2]
    single = [int(word) for word in chosen.split(",") if word]
    numbers = single if "," in chosen else range(single[0])
    print(json.dumps(run_mutants(sys.argv[1], numbers, int(sys.argv[3]), Path(sys.argv[4]))))
