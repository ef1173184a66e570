"""Everything that goes wrong, as one sentence and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import typer

from primedpca.cli.printing import print_json, printable, say

__all__ = ["DONE", "INTERRUPTED", "NOT_CONVERGED", "Interrupted", "run"]

DONE, REFUSED, NOT_PARSED, NOT_CONVERGED, INTERRUPTED = 0, 1, 2, 3, 130
#: Typer has its own copy of click in some versions, and not in others.
UsageError = typer.BadParameter.__base__
#: What arguments of the library are called here.
WORDS = {
    "`n_components`": "`-k`",
    "`X`": "DATA",
    "Input X contains": "DATA contain",
    "`columns`": "`--columns`",
    "`id_column`": "`--id`",
    "`label_column`": "`--label`",
    "`exclude`": "`--exclude`",
    "`delimiter`": "`--delimiter`",
    "`header`=False": "`--no-header`",
    "`header`=True": "`--header`",
    "`header`": "`--header`",
    "pass `shape`=(n, d) and `dtype`": "pass `--shape N,D` and `--dtype`",
    "`shape`": "`--shape`",
    "`dtype`": "`--dtype`",
    "`offset`": "`--offset`",
    "Pass `follow_links`=True": "Add `--follow-links`",
    "`follow_links`": "`--follow-links`",
    "`map`": "`--map`",
    "`tol`": "`--tol`",
    "`max_passes`": "`--max-passes`",
    "`max_memory`": "`--max-memory`",
    "`missing`='mean'": "`--missing mean`",
    "`missing`": "`--missing`",
    "`scale`": "`--scale`",
    "`device`": "`--device`",
    "`priming`": "`--priming`",
    "`checkpoint`": "`--checkpoint`",
    "`random_state`": "`--seed`",
    "`components`": "COMPONENTS",
    "'mle' or None": "or mle",
    "pass `overwrite`=True": "add `--force`",
    "`out`": "`-o`",
}


class Interrupted(Exception):  # noqa: N818  (no error: the user asked for it)
    """Ctrl-C, with a sentence on how to go on."""


def run(app: Callable[..., object], words: Sequence[str]) -> int:
    """Run a command line; gives the exit code."""
    told = "--json" in words
    try:
        code = app(args=list(words) or ["--help"], prog_name="primedpca", standalone_mode=False)
        if code == INTERRUPTED:  # so Typer says it from 0.20 on; before, by Abort
            raise KeyboardInterrupt
        return code if isinstance(code, int) else DONE
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted; nothing was kept.", INTERRUPTED, told)
    except Interrupted as error:
        return _fail(str(error), INTERRUPTED, told)
    except UsageError as error:  # type: ignore[misc]
        return _fail(_usage(error, words), NOT_PARSED, told)
    except Exception as error:
        if "--debug" in words:
            import traceback

            print(printable(traceback.format_exc(), "\n\t"), file=sys.stderr)
        return _fail(_sentence(error), REFUSED, told)


def in_words_of_the_command_line(text: str) -> str:
    """A message of the library with its arguments called as they are called here."""
    for name, word in WORDS.items():
        text = text.replace(name, word)
    return text


def _usage(error: BaseException, words: Sequence[str]) -> str:
    text = error.format_message().rstrip(".")  # type: ignore[attr-defined]
    wanted = getattr(getattr(error, "param", None), "help", None)
    if text.startswith("Missing") and wanted:
        text += f": {wanted[0].lower()}{wanted[1:].rstrip('.')}"
    context = getattr(error, "ctx", None)
    # A value that is missing is told without the command that misses it.
    command = [] if context is not None or words[0].startswith("-") else [words[0]]
    path = " ".join(["primedpca", *command]) if context is None else context.command_path
    takes = [] if context is None else [parameter.name for parameter in context.command.params]
    if "unexpected extra argument" in text and "data" in takes:
        text += " (put a pattern or a name with blanks in quotes)"
    return f"{text}{' See' if text.endswith('?') else '; see'} {path} --help."


def _sentence(error: Exception) -> str:
    """What an error says; of a mistake of ours, that it is one."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}; check the path and its rights."
    known = (ValueError, TypeError, ArithmeticError, OSError, ImportError, MemoryError)
    if not isinstance(error, known):
        name = f"{type(error).__name__}: {error}".rstrip(": ")
        return f"an error of primedpca itself ({name}); --debug shows where, please report it."
    if isinstance(error, MemoryError) and not str(error):
        return "there is not enough memory; try --max-memory with less than this machine has."
    return in_words_of_the_command_line(str(error) or type(error).__name__)


def _fail(sentence: str, code: int, told: bool) -> int:
    sentence = " ".join(sentence.split())
    say(f"primedpca: {sentence}", error=True)
    if told:
        print_json({"error": sentence, "exit_code": code})
    return code
