"""Checkpoints: the results of a fit so far, in a folder.

A fit is a fixed sequence of passes with small algebra between them.  The result of every pass is
kept in a file of its own.  A resumed fit repeats the algebra with these results and reads the
data only after the last of them, so it continues exactly as it would have without interruption.
Every pass is kept with a hash of its operands: if these differ in any bit, the resumed fit has
diverged from the checkpoint, and the checkpoint is refused.

All files of a fit carry the random name that its manifest gives it, so that a file of another fit
is refused.

Loops with many steps but a state of fixed size, such as those over mini-batches and streams,
keep their state every half a minute and at their end, in place of the passes that led to it.
"""

import os
import platform
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.digest import digest
from primedpca._core.packing import Packed, as_columns, as_rows, pack, unpack
from primedpca._io.tensor_file import read_file, write_file
from primedpca._operator.preparation import Columns
from primedpca._operator.statistics import Frame
from primedpca._session.interrupts import Interrupts
from primedpca._solve.history import Listener
from primedpca.engines import as_engine
from primedpca.engines.base import RecordedEngine
from primedpca.priming import REGISTRY, Given
from primedpca.protocols import Engine, Like, Parts
from primedpca.result import Certificate, Cluster, Decomposition, Plan, Solution, Status, Way
from primedpca.sources.files.common import check_regular

#: Seconds between two writes of the state of a loop.
EVERY = 30.0
MANIFEST, LOOP, RESULT = (f"{name}.safetensors" for name in ("manifest", "loop", "result"))
LOCK = "lock"
AGAIN = "To start again, use another folder; nothing in this one was changed."
OURS = re.compile(r"\.?(manifest|loop|result|pass-\d{6})\.safetensors(\.\w+)?|lock")
#: A file that newer versions of safetensors were writing, before it became a draft of ours.
THEIRS = re.compile(r"\.tmp\w{6}")
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
        A new or empty folder, or one with a checkpoint.
    engine : Engine, optional

    Attributes
    ----------
    engine : RecordedEngine
        The given engine; the results of its passes are kept.
    history : list of dict
        Rows of the fit that is running.
    interrupts : Interrupts
    """

    def __init__(self, folder: str | os.PathLike[str], engine: Any = None) -> None:
        self.folder = Path(folder)
        self._name = f"`checkpoint`={os.fspath(folder)!r}"
        self.engine: Engine = RecordedEngine(as_engine(engine), self)
        self.history: list[dict[str, Any]] = []
        self.interrupts = Interrupts()
        self._made = 0  # passes so far
        self._loops, self._begun = 0, 0  # loops so far, and the passes before the last of them
        self._saved, self._pause = time.monotonic(), EVERY
        self._like: Any = None
        self._loop: dict[str, Any] | None = None
        self._fit: str | None = None  # random name of the fit

    # -- start and end -----------------------------------------------------------------------

    def check(self, about: Mapping[str, Any]) -> None:
        """Check that the folder is free or belongs to this fit, and write nothing."""
        if self.folder.exists():
            self._check_folder()
        if (self.folder / MANIFEST).exists():
            self._compare(self._read(MANIFEST, "about")["about"], about)

    @contextmanager
    def opened(self, about: Mapping[str, Any], like: Like) -> Iterator[None]:
        """Check that the folder is free or belongs to this fit, and lock it."""
        self._like = like
        self._prepare_folder()
        with self._locked(), self.interrupts.held():
            if (self.folder / MANIFEST).exists():
                held = self._read(MANIFEST, "about")
                self._compare(held["about"], about)
                self._fit = held.get("fit")  # absent in files of earlier versions
                if (self.folder / LOOP).exists():
                    self._loop = self._read(LOOP, "loop")
            elif self._files():
                raise ValueError(f"{self._name} is damaged: no manifest. {AGAIN}")
            for name in os.listdir(self.folder):
                if name.startswith("."):  # a file that was being written during a crash
                    (self.folder / name).unlink(missing_ok=True)
            self._about = dict(about)
            yield

    def agreed(self, listener: Listener) -> Listener:
        """Return the listener unchanged: this process decides alone."""
        return listener

    def begin(self, plan: Plan, seed: int) -> tuple[Plan, int]:
        """Return the plan and seed of the kept fit, or keep these if it starts now."""
        if (self.folder / MANIFEST).exists():
            held = self._read(MANIFEST, "about")
            kept = unpack(held["plan"], self._like)
            return kept or plan, held["seed"]
        # A priming of the user cannot be written; only the user can have chosen it.
        kept = pack(plan) if type(plan.priming) in TYPES.values() else None
        self._fit = secrets.token_hex(16)
        self._write(MANIFEST, {"about": self._about, "plan": kept, "seed": seed})
        return plan, seed

    def solution(self, make: Callable[[], Solution]) -> Solution:
        """Return the kept solution, or compute and keep it; then drop the passes."""
        found = self.ended() or make()
        self.end(found)
        return found

    def ended(self) -> Solution | None:
        """Return the solution if the fit has ended."""
        if not (self.folder / RESULT).exists():
            return None
        kept = self._read(RESULT, "solution")
        held: Solution = unpack(kept["solution"], self._like)
        return replace(held, history=as_rows(held.history))

    def end(self, found: Solution) -> None:
        """Keep the solution, and drop the passes and loops that led to it."""
        if not (self.folder / RESULT).exists():
            kept = pack(replace(found, history=as_columns(found.history)))
            self._write(RESULT, {"solution": kept})
        for name in self._files():
            if name == LOOP or name.startswith("pass-"):
                (self.folder / name).unlink(missing_ok=True)
        self.interrupts.let_through()

    # -- passes ------------------------------------------------------------------------------

    def held(self, name: str, operands: Mapping[str, Any]) -> tuple[Any] | None:
        """Return the kept result of the next pass in a tuple, or ``None`` if there is none.

        A result for other operands is refused.
        """
        file = _pass(self._made + 1)
        if not (self.folder / file).exists():
            return None
        held = self._read(file, "asked")
        if held["asked"] != digest(name, operands):
            raise ValueError(
                f"the resumed fit has diverged from the checkpoint: {file} holds another product, "
                f"as {held['machine']} and here {_machine()} round differently. {AGAIN}"
            )
        self._made += 1
        return (unpack(held["gave"], self._like),)

    def keep(self, name: str, operands: Mapping[str, Any], result: Any) -> None:
        """Write the result of a pass."""
        asked = digest(name, operands)
        about = {"asked": asked, "gave": pack(result), "machine": _machine()}
        self._write(_pass(self._made + 1), about)
        self._made += 1
        self.interrupts.let_through()

    # -- loops with a state of fixed size -----------------------------------------------------

    def resume_loop(self) -> dict[str, Any] | None:
        """Return the kept state of a loop, or ``None`` if it starts now."""
        self._loops, self._begun = self._loops + 1, self._made
        if self._loop is None or self._loop["loop"] != self._loops:
            return None
        held: dict[str, Any]
        held, self._loop = unpack(self._loop, self._like), None
        self._begun = held["begun"]
        self.history[:], self._made = as_rows(held["history"]), held["made"]
        return held

    def keep_loop(self, loop: dict[str, Any], known: int, last: bool) -> None:
        """Write the state of a loop if it is due, before its step is reported as row ``known``."""
        due = time.monotonic() - self._saved >= self._pause
        again = self._loop is not None or (self.folder / _pass(self._made + 1)).exists()
        if again or not (due or last or self.interrupts.pending is not None):
            return
        begun = time.monotonic()
        held = loop | {"history": as_columns(self.history[:known]), "made": self._made}
        held |= {"loop": self._loops, "begun": self._begun}
        self._write(LOOP, pack(held))
        for i in range(self._begun + 1, self._made + 1):  # the state replaces these passes
            (self.folder / _pass(i)).unlink(missing_ok=True)
        self._saved = time.monotonic()
        self._pause = max(EVERY, 10 * (self._saved - begun))  # writing takes at most a tenth
        self.interrupts.let_through()

    # -- the folder --------------------------------------------------------------------------

    def _prepare_folder(self) -> None:
        try:
            if not self.folder.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"{self._name} cannot be created: {error.strerror}.") from error
        self._check_folder()

    def _check_folder(self) -> None:
        if not self.folder.is_dir():
            raise NotADirectoryError(f"{self._name} is a file. Use a folder.")
        names = sorted(os.listdir(self.folder))
        foreign = [name for name in names if not OURS.fullmatch(name)]
        if any(name[0] == "." and OURS.fullmatch(name) for name in names):  # a draft of a crash
            foreign = [name for name in foreign if not THEIRS.fullmatch(name)]
        if foreign:
            raise ValueError(f"{self._name} has {foreign[0]!r}, not part of a checkpoint. {AGAIN}")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the folder for this fit; the system releases the lock of a process that dies."""
        try:
            import fcntl
        except ImportError:  # Windows has no such locks
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
                words = "is in use by another fit. Wait for it, or use another folder."
                raise ValueError(f"{self._name} {words}") from error
            yield
        finally:
            os.close(handle)

    def _files(self) -> list[str]:
        return sorted(name for name in os.listdir(self.folder) if name != LOCK and name[0] != ".")

    def _compare(self, held: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        for part, whose in (("versions", "version"), ("data", "data"), ("options", "parameters")):
            # Other contents last: what else differs is often the reason.
            for name in sorted({*held[part], *now[part]}, key=lambda one: (one == "contents", one)):
                was, found = held[part].get(name), now[part].get(name)
                if was != found:
                    words = f"belongs to other {whose}: {name} was {was}, and is {found} now"
                    raise ValueError(f"{self._name} {words}. {AGAIN}")

    def _read(self, name: str, part: str) -> Any:
        """Return the contents of a file, which must hold ``part``: files may have been swapped."""
        check_regular(self.folder / name)
        try:
            held = read_file(self.folder / name, "checkpoint", TYPES)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self._name} cannot be read: {error} {AGAIN}") from error
        if isinstance(held, Solution):  # as earlier versions kept it
            held = {"solution": held}
        if not isinstance(held, dict) or part not in held:
            raise ValueError(f"{self._name} is damaged: {name} is another file. {AGAIN}")
        if name != MANIFEST and held.get("fit") != self._fit:
            raise ValueError(f"{self._name} is damaged: {name} belongs to another fit. {AGAIN}")
        return held

    def _write(self, name: str, value: dict[str, Any]) -> None:
        try:
            write_file(self.folder / name, "checkpoint", value | {"fit": self._fit}, TYPES)
        except OSError as error:
            words = f"the checkpoint in {self.folder} could not be written: {error}"
            raise OSError(f"{words} To resume, free some space and fit again.") from error


def _pass(number: int) -> str:
    return f"pass-{number:06d}.safetensors"


def _machine() -> str:
    return f"{platform.machine()}, NumPy {np.__version__}"
