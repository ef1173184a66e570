"""Bounds, decisions and estimates of standard fits and audits, recorded number by number.

    python tests/trust/tightness.py            # compare with tightness.json
    python tests/trust/tightness.py --write    # record anew, and say why in the commit

The fuzzes show that no bound is false.  They do not notice a bound that has become looser, which
costs passes, or one that has become tighter because a term was lost.  Here the return values of all
functions of the certificates and of the main path are summarised for each fit.  Some fits are
repeated with a coarse unit roundoff, so that the margins for rounding are as large as the rest.

``--write`` also runs every fit on slightly perturbed data and with other kernels of OpenBLAS.  The
spread becomes the tolerance, and numbers that are mostly rounding noise are left out.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import CO_GENERATOR
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from trust.standard_cases import MODULES, cases

RECORD = Path(__file__).with_suffix(".json")
#: Smallest relative tolerance, largest one, and the tolerance in the spread that was seen.
LEAST, MOST, ROOM = 5e-4, 0.5, 20
#: Numbers of a summary; the first ones are counts, which are compared exactly.
NAMES, COUNTS = ("calls", "not above zero", "not finite", "geometric mean", "largest"), 3
#: Kernels of OpenBLAS that most processors can run.
KERNELS = ("Haswell", "Nehalem", "Sandybridge", "Zen")


# -- summaries of return values ----------------------------------------------------------------


def numbers(value: Any, depth: int = 0) -> Iterator[float]:
    """Yield the numbers of a return value that do not depend on signs and rotations."""
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        yield float(value)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        if value.ndim > 1 and value.shape[1] != 2:
            value = np.linalg.norm(np.nan_to_num(value.astype(np.float64)), axis=0)
        yield from map(
            float, value.ravel()[:200] if value.ndim < 2 else np.abs(value).ravel()[:200]
        )
    elif isinstance(value, (tuple, list)) and depth < 4:
        for part in value:
            yield from numbers(part, depth + 1)
    elif isinstance(value, dict) and depth < 4:
        yield from numbers([value[key] for key in sorted(value) if key != "seconds"], depth)
    elif dataclasses.is_dataclass(value) and depth < 4 and type(value).__name__ in KNOWN:
        for field in dataclasses.fields(value):
            yield from numbers(getattr(value, field.name), depth + 1)
    elif type(value).__name__ == "Status":
        yield 1.0 + list(type(value)).index(value)


KNOWN = {"Evidence", "Certificate", "Cluster", "Decomposition"}
#: Most fields of a tuple that are summarised one by one, and numbers of a result in one summary.
MOST_FIELDS, PIECE = 9, 16
#: Most cases in which the numbers of one function are kept, spread over all in which it is called.
MOST_CASES = 8


class Trace:
    """Summaries of all that functions return, by the names of functions and fields."""

    def __init__(self) -> None:
        self.held: dict[str, list[float]] = {}

    def add(self, name: str, value: Any, depth: int = 0) -> None:
        """Take in what one call has returned, by its fields where it has names for them."""
        if depth < 2 and isinstance(value, tuple) and value and len(value) <= MOST_FIELDS:
            fields = getattr(value, "_fields", range(len(value)))
            for field, part in zip(fields, value, strict=True):
                self.add(f"{name}.{field}", part, depth + 1)
            return
        if depth < 2 and type(value).__name__ in KNOWN and not isinstance(value, tuple):
            for field in dataclasses.fields(value):
                self.add(f"{name}.{field.name}", getattr(value, field.name), depth + 1)
            return
        calls, below, odd, count, logs, largest = self.held.setdefault(name, [0.0] * 6)
        for number in numbers(value):
            if not math.isfinite(number):
                odd += 1
                continue
            below += number <= 0
            if number:
                number = abs(number)
                count, logs, largest = count + 1, logs + math.log(number), max(largest, number)
        self.held[name] = [calls + 1, below, odd, count, logs, largest]

    def add_result(self, value: Any) -> None:
        """Take in the result of a case, a few numbers at a time."""
        every = list(numbers(value))
        for i in range(0, len(every), PIECE):
            self.add(f"result {i // PIECE + 1}", every[i : i + PIECE])

    def summary(self) -> dict[str, list[float]]:
        """Return calls, numbers not above zero, not finite ones, geometric mean and largest."""
        return {
            name: [calls, below, odd, math.exp(logs / count) if count else 0.0, largest]
            for name, (calls, below, odd, count, logs, largest) in self.held.items()
        }


def _watched(name: str, function: Callable, trace: Trace) -> Callable:
    @functools.wraps(function)
    def watched(*args: Any, **options: Any) -> Any:
        value = function(*args, **options)
        trace.add(name, value)
        return value

    return watched


def _watched_start(name: str, function: Callable, trace: Trace) -> Callable:
    @functools.wraps(function)
    def watched(self: Any, *args: Any, **options: Any) -> None:
        function(self, *args, **options)
        kept = {key: part for key, part in vars(self).items() if key not in ("omega", "seed")}
        trace.add(name, [v for v in kept.values() if isinstance(v, (bool, int, float, np.ndarray))])

    return watched


class Watch:
    """Patches of the functions and methods of the modules, undone in reverse order."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.undone: list[tuple[Any, str, Any]] = []
        # Functions are known by other modules, too, which have imported them.
        self.places: dict[int, list[tuple[Any, str]]] = {}
        self.watched: dict[int, Any] = {}
        for module, key, value in _everything():
            self.places.setdefault(id(value), []).append((module, key))

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute for the time of the trace."""
        self.undone.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def function(self, label: str, function: Any) -> None:
        """Watch a function wherever it is imported."""
        watched = _watched(label, function, self.trace)
        self.watched[id(watched)] = function
        for module, key in self.places[id(function)]:
            self.replace(module, key, watched)

    def methods(self, label: str, owner: type) -> None:
        """Watch the methods and properties of a class, and the numbers that it starts with."""
        for name, value in list(vars(owner).items()):
            of = f"{label}.{name}"
            if name == "__init__" and not dataclasses.is_dataclass(owner):
                self.replace(owner, name, _watched_start(of, value, self.trace))
            elif name.startswith("__"):
                continue
            elif _is_plain(value):
                self.replace(owner, name, _watched(of, value, self.trace))
            elif isinstance(value, property) and value.fget is not None:
                self.replace(owner, name, property(_watched(of, value.fget, self.trace)))

    def undo(self) -> None:
        """Restore all, also in modules that were first imported while this watched."""
        for owner, name, value in reversed(self.undone):
            setattr(owner, name, value)
        for module, key, value in _everything():
            if id(value) in self.watched:
                setattr(module, key, self.watched[id(value)])


def _everything() -> Iterator[tuple[Any, str, Any]]:
    """Yield what the modules of the package hold: module, name, value."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "primedpca":
            for key, value in list(vars(module).items()):
                yield module, key, value


def _is_plain(value: Any) -> bool:
    """Whether a value is a function but not a generator."""
    return isinstance(value, FunctionType) and not value.__code__.co_flags & CO_GENERATOR


@contextmanager
def traced() -> Iterator[Trace]:
    """Summarise what every function and method of the modules returns."""
    trace = Trace()
    watch = Watch(trace)
    try:
        for short in MODULES:
            module = importlib.import_module(f"primedpca.{short}")
            for name, value in list(vars(module).items()):
                if getattr(value, "__module__", None) != module.__name__:
                    continue
                label = f"{short.split('.')[1]}.{name}"
                if isinstance(value, type):
                    watch.methods(label, value)
                elif hasattr(value, "cache_info") or _is_plain(value):
                    watch.function(label, value)
        yield trace
    finally:
        watch.undo()


# -- the record --------------------------------------------------------------------------------


def measured(name: str, seed: int = 0) -> dict[str, list[float]]:
    """Return the summaries of one case."""
    with warnings.catch_warnings(), traced() as trace:
        warnings.simplefilter("ignore")
        trace.add_result(cases(seed)[name]())
    return trace.summary()


def spread_of(name: str, others: list[dict]) -> dict[str, list]:
    """Return the numbers to record: with a tolerance where they vary, None where they are noise."""
    first, *more = others
    found = {}
    for key, known in first.items():
        if not all(key in other for other in more):
            continue
        entries: list[Any] = []
        for i, value in enumerate(known):
            room = ROOM * max((_apart(value, other[key][i]) for other in more), default=0.0)
            shown = float(f"{value:.6g}")
            if room > MOST or (i < COUNTS and room):
                entries.append(None)
            else:
                entries.append(shown if room < LEAST else [shown, float(f"{room:.2g}")])
        if any(entries):
            found[key] = entries
    return found


def _apart(a: float, b: float) -> float:
    return 0.0 if a == b else abs(a - b) / max(abs(a), abs(b))


def changed(name: str, known: dict[str, list]) -> list[str]:
    """Return, in words, the numbers of a case that are not those recorded."""
    found, words = measured(name), []
    for key, entries in known.items():
        values = found.get(key)
        if values is None:
            words.append(f"{key} is not called any more")
            continue
        for what, entry, value in zip(NAMES, entries, values, strict=True):
            if entry is None:
                continue
            expected, tolerance = entry if isinstance(entry, list) else (entry, LEAST)
            if _apart(expected, value) > (0 if what in NAMES[:COUNTS] else tolerance):
                words.append(f"{key}, {what}: {value:.6g} instead of {expected:.6g}")
    return words


def recorded() -> dict[str, dict[str, list]]:
    """Return the record."""
    known: dict[str, dict[str, list]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return known


def write(names: list[str]) -> None:
    """Record cases anew, with the spread over perturbations and kernels."""
    held = recorded() if RECORD.exists() else {}
    environments = [{}, *({"OPENBLAS_CORETYPE": kernel} for kernel in KERNELS)]
    runs = [(seed, {}) for seed in range(5)] + [(0, each) for each in environments[1:]]
    known = []
    for seed, environment in runs:
        command = [sys.executable, __file__, "--measure", str(seed), *names]
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, check=True
        )
        known.append(json.loads(done.stdout))
    for name in names:
        held[name] = spread_of(name, [each[name] for each in known])
    places: dict[str, list[str]] = {}
    for name in held:
        for key in held[name]:
            places.setdefault(key, []).append(name)
    for key, named in places.items():
        step = max(1.0, len(named) / MOST_CASES)
        kept = {named[int(i * step)] for i in range(min(len(named), MOST_CASES))}
        for name in () if key.startswith("result") else set(named) - kept:
            del held[name][key]
    lines = [
        f" {json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(key)}: {json.dumps(held[name][key])}" for key in held[name])
        + "\n }"
        for name in cases()
        if name in held
    ]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> int:
    """Compare with the record, or record anew."""
    asked = sys.argv[1:]
    if asked[:1] == ["--measure"]:
        print(json.dumps({name: measured(name, int(asked[1])) for name in asked[2:]}))
        return 0
    if asked[:1] == ["--write"]:
        write(asked[1:] or list(cases()))
        return 0
    found = {name: changed(name, known) for name, known in recorded().items()}
    for name, words in found.items():
        print(*(f"{name}: {each}" for each in words), sep="\n", end="\n" if words else "")
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
