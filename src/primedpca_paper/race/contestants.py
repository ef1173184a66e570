"""Contestants named on the command line: primings, functions and other solvers."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from primedpca.priming import REGISTRY, as_priming
from primedpca.protocols import Priming
from primedpca_paper.peers import PEERS, Found, Ours, Peer, Setting
from primedpca_paper.protocol import THRESHOLDS

__all__ = ["FunctionPeer", "known_peers", "peer_of", "priming_of"]

WORDS = re.compile(r"(?P<what>[^()]+?)\s*(?:\((?P<options>.*)\))?", re.S)


@dataclass(frozen=True)
class FunctionPeer(Peer):
    """A function ``(X, k) -> components`` of shape ``(k, d)``.

    Attributes
    ----------
    function : callable
    """

    function: Callable[..., Any] = print
    package: str = "numpy"
    seeded: bool = False

    def label(self, setting: Setting) -> str:
        """Return an empty text: a function has no settings."""
        return ""

    def run(self, X: Any, k: int, setting: Setting, seed: int) -> Found:  # noqa: N803
        """Call the function, and check what it returns."""
        found, d = np.asarray(self.function(X, k)), X.shape[1]
        if found.shape[1:] != (d,) or found.dtype.kind not in "iuf":
            raise ValueError(
                f"{self.name} returned {found.dtype} of shape {found.shape}. Return real "
                f"components of shape {(k, d)}, one in each row."
            )
        return Found(found)


def known_peers() -> dict[str, Peer]:
    """Return the peers by the names that the command line takes, without spaces."""
    own = (
        Ours(name="primedpca", certificate="auto", efforts=THRESHOLDS),
        Ours(name="primedpca unproven", efforts=THRESHOLDS),
    )
    return {peer.name.replace(" ", "."): peer for peer in (*own, *PEERS)}


def peer_of(words: str) -> Peer:
    """Return the peer of a name, or of ``module:function`` with ``(X, k) -> components``."""
    known = known_peers()
    if words in known:
        return known[words]
    if ":" not in words:
        raise ValueError(
            f"Unknown peer {words!r}. Use one of {', '.join(known)}, or module:function."
        )
    function = _imported(words)
    if not callable(function):
        raise TypeError(f"The peer {words!r} is not a function (X, k) -> components.")
    return FunctionPeer(name=words.rpartition(":")[2], function=function)


def priming_of(words: str) -> tuple[str, Priming]:
    """Return the name and the priming that a text describes.

    Parameters
    ----------
    words : str
        ``oja``, ``oja(learning_rate=0.001, steps=500)``, ``module:Class``, ``file.py:Class`` or
        ``file.py:function``, also with options.

    Examples
    --------
    >>> priming_of("oja(steps=50)")[1].steps
    50
    """
    found = WORDS.fullmatch(words.strip())
    if found is None:
        raise ValueError(f"Invalid priming: {words!r}. Write oja(steps=100) or module:Class.")
    what, options = found["what"], _options(words, found["options"])
    if what in REGISTRY:
        return words, as_priming(_made(words, REGISTRY[what], options))
    if ":" not in what:
        names = ", ".join(sorted(REGISTRY))
        raise ValueError(f"Unknown priming {what!r}. Use one of {names}, or module:Class.")
    made = _imported(what)
    if isinstance(made, type):
        made = _made(words, made, options)
    elif options:
        raise ValueError(f"{what!r} is not a class, so it takes no options. Leave them out.")
    return words.rpartition(":")[2], as_priming(made)


def _made(words: str, kind: type, options: dict[str, Any]) -> Any:
    """Return a priming of this class with these options."""
    try:
        return kind(**options)
    except TypeError as error:
        known = ", ".join(inspect.signature(kind).parameters) or "no options"
        raise ValueError(f"Invalid options in {words!r}: {error}. Use {known}.") from error


def _options(words: str, text: str | None) -> dict[str, Any]:
    """Parse ``a=1, b="text"``; values are literals."""
    if not text:
        return {}
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args or any(part.arg is None for part in call.keywords):
            raise ValueError("positional")
        return {str(part.arg): ast.literal_eval(part.value) for part in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"Invalid options in {words!r}. Write them as name=value, separated by commas."
        ) from error


def _imported(words: str) -> Any:
    """Return the object that ``module:name`` or ``file.py:name`` names."""
    place, _, name = words.rpartition(":")
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise FileNotFoundError(f"File not found: {place!r}. Check the path.")
        spec = importlib.util.spec_from_file_location(f"primedpca_race_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # of code that is not this library's
            said = f"{type(error).__name__}: {error}"
            raise ValueError(f"{place!r} cannot be run ({said}). Correct the file.") from error
    else:
        if "" not in sys.path and "." not in sys.path:
            sys.path.insert(0, "")  # modules in the working folder, as `python -m` finds them
        try:
            module = importlib.import_module(place)
        except Exception as error:  # of code that is not this library's
            said = f"{type(error).__name__}: {error}"
            raise ImportError(f"Cannot import {place!r} ({said}). Check the name.") from error
    if name not in vars(module):
        raise ValueError(f"{place!r} has no {name!r}. Check the name after the colon.")
    return vars(module)[name]
