"""Survive a kill: what a fit has worked out so far, in a folder.

A fit is a fixed sequence of passes with small algebra between them.  What every pass gave is
kept as a file of its own; a fit that is begun again works out the algebra anew from these and
reads the data only where they end, so it goes exactly the way it would have gone.  With every
pass goes a hash of what the data were multiplied with: if that is not the same to the last bit,
the way has parted, and the checkpoint is refused.

Loops with many steps but a state of fixed size, above all those over mini-batches and streams,
keep their state every half a minute and at their end, in place of the passes that led to it.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.arrays import like_block
from primedpca._core.digest import digest
from primedpca._core.packing import Packed, as_columns, as_rows, pack, unpack
from primedpca._io.tensor_file import read_file, write_file
from primedpca._operator.preparation import Columns
from primedpca._operator.statistics import Frame
from primedpca._planning.costs import Way
from primedpca._session.interrupts import Interrupts
from primedpca._solve.history import Listener
from primedpca._solve.solution import Solution
from primedpca.engines import as_engine
from primedpca.engines.recorded import RecordedEngine
from primedpca.priming import REGISTRY, Given
from primedpca.protocols import DataSource, Engine, Parts
from primedpca.result import Certificate, Cluster, Decomposition, Plan, Status
from primedpca.sources.files.regular_files import check_regular

__all__ = ["TYPES", "Checkpoint"]

#: Seconds between two writings of the state of a loop.
EVERY = 30.0
MANIFEST, LOOP, RESULT = (f"{name}.safetensors" for name in ("manifest", "loop", "result"))
LOCK = "lock"
OURS = re.compile(r"\.?(manifest|loop|result|pass-\d{6})\.safetensors(\.\w+)?|lock")
TYPES: dict[str, Any] = {
    known.__name__: known
    for known in (
        *(*REGISTRY.values(), Given, Certificate, Cluster, Columns, Decomposition, Frame),
        *(Packed, Parts, Plan, Solution, Status, Way),
    )
}


class Checkpoint:
    """A folder that holds one fit.

    Parameters
    ----------
    folder : path
        New, empty, or with a checkpoint in it.
    engine : Engine, optional

    Attributes
    ----------
    engine : RecordedEngine
        The one given, its passes kept.
    history : list of dict
        The rows of the fit that is running.
    interrupts : Interrupts
    speaks : bool
        Whether this process reports on the fit.
    """

    speaks = True

    def __init__(self, folder: str | os.PathLike[str], engine: Any = None) -> None:
        self.folder = Path(folder)
        self.engine: Engine = RecordedEngine(as_engine(engine), self)
        self.history: list[dict[str, Any]] = []
        self.interrupts = Interrupts()
        self._made, self._depth = 0, 0  # passes; of those that are made of several
        self._loops, self._begun = 0, 0  # loops, and the passes before the last of them
        self._saved, self._pause = time.monotonic(), EVERY
        self._like: Any = None
        self._loop: dict[str, Any] | None = None

    # -- beginning and end -------------------------------------------------------------------

    @contextmanager
    def opened(self, about: Mapping[str, Any], source: DataSource) -> Iterator[None]:
        """Check that the folder is free or belongs to this fit, and keep others out of it."""
        self._like = like_block(next(iter(source.scan()))[1], source.shape[1])
        self._prepare_folder()
        with self._locked(), self.interrupts.held():
            if (self.folder / MANIFEST).exists():
                self._compare(self._read(MANIFEST)["about"], about)
                if (self.folder / LOOP).exists():
                    self._loop = self._read(LOOP)
            else:
                self._refuse_if(self._files(), "passes but no manifest")
            for name in os.listdir(self.folder):
                if name.startswith("."):  # what a kill left of a file that was being written
                    (self.folder / name).unlink(missing_ok=True)
            self._about = dict(about)
            yield

    def agreed(self, listener: Listener) -> Listener:
        """The listener itself: whoever it asks decides alone."""
        return listener

    def begin(self, plan: Plan, seed: int) -> tuple[Plan, int]:
        """The plan and seed that the fit was begun with, which are these if it begins now."""
        if (self.folder / MANIFEST).exists():
            held = self._read(MANIFEST)
            kept = unpack(held["plan"], self._like)
            return kept or plan, held["seed"]
        # A priming of the user's own cannot be written, and is chosen by nobody else.
        kept = pack(plan) if type(plan.priming) in TYPES.values() else None
        self._write(MANIFEST, {"about": self._about, "plan": kept, "seed": seed})
        return plan, seed

    def solution(self, make: Callable[[], Solution]) -> Solution:
        """What the fit came to, if it has ended, or comes to now; what led to it is dropped."""
        found = self.ended() or make()
        self.end(found)
        return found

    def ended(self) -> Solution | None:
        """What the fit came to, if it has ended."""
        if not (self.folder / RESULT).exists():
            return None
        held: Solution = unpack(self._read(RESULT), self._like)
        return replace(held, history=as_rows(held.history))

    def end(self, found: Solution) -> None:
        """Keep what the fit came to, and drop what led to it."""
        if not (self.folder / RESULT).exists():
            self._write(RESULT, pack(replace(found, history=as_columns(found.history))))
        for name in self._files():
            if name == LOOP or name.startswith("pass-"):
                (self.folder / name).unlink(missing_ok=True)
        self.interrupts.let_through()

    # -- passes ------------------------------------------------------------------------------

    def once(self, name: str, operands: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """What a pass gave when it was made, or gives now; see :class:`RecordedEngine`."""
        if self._depth:
            return make()
        held = self.held(name, operands)
        if held is not None:
            return held[0]
        self._depth += 1
        try:
            gave = make()
        finally:
            self._depth -= 1
        self.keep(name, operands, gave)
        return gave

    def held(self, name: str, operands: Mapping[str, Any]) -> tuple[Any] | None:
        """What the next pass gave when it was made, in a tuple of its own; ``None`` if it was not.

        One of other operands is refused.
        """
        file = _pass(self._made + 1)
        if not (self.folder / file).exists():
            return None
        held = self._read(file)
        if held["asked"] != digest(name, operands):
            raise ValueError(
                f"{self.folder / file} holds another product than the fit asks for now: this "
                f"machine or its libraries round otherwise than where it was made "
                f"({held['machine']}; here: {_machine()}). Go on there, or name another "
                "folder as `checkpoint` to begin anew."
            )
        self._made += 1
        return (unpack(held["gave"], self._like),)

    def keep(self, name: str, operands: Mapping[str, Any], gave: Any) -> None:
        """Write what a pass gave."""
        asked = digest(name, operands)
        about = {"asked": asked, "gave": pack(gave), "machine": _machine()}
        self._write(_pass(self._made + 1), about)
        self._made += 1
        self.interrupts.let_through()

    # -- loops with a state of fixed size -----------------------------------------------------

    def resume_loop(self, data: Any) -> dict[str, Any] | None:
        """Where a loop stood, and the data as it had found them; ``None`` if it begins."""
        self._loops, self._begun = self._loops + 1, self._made
        if self._loop is None or self._loop["loop"] != self._loops:
            return None
        held, self._loop = unpack(self._loop, self._like), None
        self._begun = held["begun"]
        data.frame, data.passes, data.position = (held[n] for n in ("frame", "passes", "position"))
        self.history[:], self._made = as_rows(held["history"]), held["made"]
        return held

    def keep_loop(self, data: Any, known: int, last: bool, **loop: Any) -> None:
        """Write where a loop stands, now and then, before its step is told as row ``known``."""
        due = time.monotonic() - self._saved >= self._pause
        again = self._loop is not None or (self.folder / _pass(self._made + 1)).exists()
        if again or not (due or last or self.interrupts.pending is not None):
            return
        begun = time.monotonic()
        held = loop | {"frame": data.frame, "passes": data.passes, "position": data.position}
        held |= {"history": as_columns(self.history[:known]), "made": self._made}
        held |= {"loop": self._loops, "begun": self._begun}
        self._write(LOOP, pack(held))
        for i in range(self._begun + 1, self._made + 1):  # these are in the state
            (self.folder / _pass(i)).unlink(missing_ok=True)
        self._saved = time.monotonic()
        self._pause = max(EVERY, 10 * (self._saved - begun))  # at most a tenth of the time
        self.interrupts.let_through()

    # -- the folder --------------------------------------------------------------------------

    def _prepare_folder(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(
                f"`checkpoint`={os.fspath(self.folder)!r} is a file; name a folder."
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                f"`checkpoint`={os.fspath(self.folder)!r} cannot be made: {error.strerror}; "
                "name a folder that can be written."
            ) from error
        foreign = sorted(name for name in os.listdir(self.folder) if not OURS.fullmatch(name))
        if foreign:
            raise ValueError(
                f"`checkpoint`={os.fspath(self.folder)!r} holds {foreign[0]!r}, which is no part "
                "of a checkpoint; name a new or empty folder."
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The folder for this fit alone; the system takes the lock off whoever dies."""
        try:
            import fcntl
        except ImportError:  # no such locks here
            yield
            return
        try:
            handle = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise OSError(f"{self.folder} cannot be written to: {error}") from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ValueError(
                    f"`checkpoint`={os.fspath(self.folder)!r} is in use by another fit; wait for "
                    "it, or name another folder."
                ) from error
            yield
        finally:
            os.close(handle)

    def _files(self) -> list[str]:
        return sorted(name for name in os.listdir(self.folder) if name != LOCK and name[0] != ".")

    def _compare(self, held: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        for part, whose in (("versions", "version"), ("data", "data"), ("options", "parameters")):
            for name in sorted({*held[part], *now[part]}):
                was, found = held[part].get(name), now[part].get(name)
                if was != found:
                    raise ValueError(
                        f"the checkpoint in {self.folder} is of other {whose}: {name} was {was}, "
                        f"and is {found} now. Fit as it was begun, or name another folder as "
                        "`checkpoint`; nothing in this one was changed."
                    )

    def _refuse_if(self, found: Any, what: str) -> None:
        if found:
            raise ValueError(
                f"the checkpoint in {self.folder} is damaged: there are {what}; delete the "
                "folder, or name another as `checkpoint`."
            )

    def _read(self, name: str) -> Any:
        check_regular(self.folder / name)
        try:
            return read_file(self.folder / name, "checkpoint", TYPES)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"the checkpoint in {self.folder} cannot be read: {error} Delete the folder to "
                "begin anew, or name another as `checkpoint`; nothing in this one was changed."
            ) from error

    def _write(self, name: str, value: Any) -> None:
        try:
            write_file(self.folder / name, "checkpoint", value, TYPES)
        except OSError as error:
            raise OSError(
                f"the checkpoint in {self.folder} could not go on: {error} What was written "
                "before is whole: make room and fit again to go on from there, or set "
                "`checkpoint`=None."
            ) from error


def _pass(number: int) -> str:
    return f"pass-{number:06d}.safetensors"


def _machine() -> str:
    return f"{platform.machine()}, NumPy {np.__version__}"
