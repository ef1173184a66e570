"""Errors as one sentence and an exit code."""

import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

import typer

from primedpca.cli.printing import in_words_of_the_command_line, print_json, printable, say

DONE, INVALID, USAGE, NOT_CONVERGED, INTERRUPTED = 0, 1, 2, 3, 130
#: Some versions of Typer bundle their own copy of click.
UsageError = typer.BadParameter.__base__


class Interrupted(Exception):  # noqa: N818  (not an error: the user pressed Ctrl-C)
    """Ctrl-C during a fit; the message says how to resume."""


class OutputError(Exception):
    """Standard output could not be written; not an OSError, which Typer would treat itself."""


class _Output:
    """Standard output whose errors are distinguished from those of files.

    Characters that its encoding lacks are escaped: a pipe on Windows, or in the locale C, cannot
    take the degree sign, and a fit must not end in an error because of that.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> Any:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
        with _named_errors():
            return self._stream.write(text)

    def flush(self) -> None:
        with _named_errors():
            self._stream.flush()


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        words = f"The output could not be written (standard output: {reason})."
        raise OutputError(f"{words} Write it to another place.") from error


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print warnings of the library in the words of the command line, not as lines of its code."""

    def show(message: Any, *place: Any, **more: Any) -> None:
        say(f"primedpca: warning: {in_words_of_the_command_line(str(message))}", error=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def run(app: Callable[..., object], words: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    if sys.stdout is None:  # closed; then nothing is printed
        with _warnings_as_lines():
            return _run(app, words)
    try:
        with redirect_stdout(_Output(sys.stdout)), _warnings_as_lines():
            code = _run(app, words)
            sys.stdout.flush()  # an error at the end of the process could not be reported
            return code
    except OutputError as error:
        # A reader that has seen enough, such as `head`, is not worth a message.
        if getattr(error.__cause__, "errno", None) != errno.EPIPE:
            say(f"primedpca: {error}", error=True)
        return INVALID


def discard_unwritten() -> None:
    """Discard output that could not be written: Python would try again at exit, and complain."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(app: Callable[..., object], words: Sequence[str]) -> int:
    as_json = "--json" in words
    try:
        code = app(args=list(words) or ["--help"], prog_name="primedpca", standalone_mode=False)
        if code == INTERRUPTED:  # Typer 0.20 and later; earlier versions raise Abort
            raise KeyboardInterrupt
        return code if isinstance(code, int) else DONE
    except OutputError:
        raise
    except (KeyboardInterrupt, typer.Abort, Interrupted) as error:
        return _fail(str(error) or "interrupted; nothing was saved.", INTERRUPTED, as_json)
    except UsageError as error:  # type: ignore[misc]
        return _fail(_usage(error, words), USAGE, as_json)
    except Exception as error:
        if "--debug" in words:
            import traceback

            print(printable(traceback.format_exc(), "\n\t"), file=sys.stderr)
        return _fail(_sentence(error), INVALID, as_json)


def _usage(error: BaseException, words: Sequence[str]) -> str:
    text = error.format_message().rstrip(".")  # type: ignore[attr-defined]
    wanted = getattr(getattr(error, "param", None), "help", None)
    if text.startswith("Missing") and wanted:
        text += f": {wanted[0].lower()}{wanted[1:].rstrip('.')}"
    context = getattr(error, "ctx", None)
    # An error about a missing value carries no context, so take the command from the line.
    command = [] if context is not None or words[0].startswith("-") else [words[0]]
    path = " ".join(["primedpca", *command]) if context is None else context.command_path
    takes = [] if context is None else [parameter.name for parameter in context.command.params]
    if "unexpected extra argument" in text and "data" in takes:
        text += " (put a pattern or a name with spaces in quotes)"
    return f"{text}{' See' if text.endswith('?') else '; see'} {path} --help."


def _sentence(error: Exception) -> str:
    """Return the message of an error; an unexpected one is reported as a bug."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}. Check the path and its permissions."
    known = (ValueError, TypeError, ArithmeticError, OSError, ImportError, MemoryError)
    if not isinstance(error, known):
        name = f"{type(error).__name__}: {error}".rstrip(": ")
        return f"internal error ({name}). Run with --debug to see where, and please report it."
    if isinstance(error, MemoryError) and not str(error):
        return "out of memory. Set --max-memory below the memory of this machine."
    return in_words_of_the_command_line(str(error) or type(error).__name__)


def _fail(sentence: str, code: int, as_json: bool) -> int:
    sentence = " ".join(sentence.split())
    say(f"primedpca: {sentence}", error=True)
    if as_json:
        print_json({"error": sentence, "exit_code": code})
    return code
