"""The choice of the columns of tables and data frames, by name."""

import warnings
from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np

SHOWN = 20  # columns that a warning names


def check_name(given: Any, argument: str) -> Any:
    """Return the name of one column, or None; names of data frames need not be text."""
    if not isinstance(given, Hashable):
        raise TypeError(f"`{argument}`={given!r} must be the name of one column, such as 'name'.")
    return given


def check_flag(given: Any, argument: str) -> bool | None:
    """Return an option that is on or off, or None for not given."""
    if given is not None and not isinstance(given, (bool, np.bool_)):
        raise ValueError(f"`{argument}`={given!r} must be True or False.")
    return None if given is None else bool(given)


def chosen_names(
    where: str, known: list[Any], columns: Any, others: list[Any], exclude: Any
) -> list[Any]:
    """Names of the columns to read, checked: those named, or all but the excluded ones.

    Parameters
    ----------
    where : str
        The table in messages.
    known : list
        Names of all columns.
    columns, exclude : one name or several, optional
    others : list of name or None
        Columns of names and labels.
    """
    text = all(isinstance(name, str) for name in known)
    wanted, left_out = names_of(columns, "columns", text), names_of(exclude, "exclude", text)
    named, counts = [one for one in others if one is not None], Counter(known)
    for name in [*wanted, *left_out, *named]:
        if name not in counts:
            shown = ", ".join(map(repr, known[:9])) + (" ..." if len(known) > 9 else "")
            raise ValueError(f"{where} has no column {name!r}; it has {shown}.")
    if columns is None:
        without = {*left_out, *named}
        wanted = [name for name in known if name not in without]
    if not wanted:
        raise ValueError(f"{where} has no column of numbers left to read.")
    for name in [*wanted, *named]:
        if (count := counts[name]) > 1:
            words = "rename them, or leave them out by `exclude`"
            raise ValueError(f"{where} has {count} columns named {name!r}; {words}.")
    if len(set(wanted)) < len(wanted):
        double = next(name for name in wanted if wanted.count(name) > 1)
        raise ValueError(f"{where}: `columns` names {double!r} twice; name each column once.")
    if both := [name for name in left_out if name in set(wanted)]:
        raise ValueError(f"column {both[0]!r} is both in `columns` and in `exclude`.")
    return wanted


def place_of(names: list[Any], known: list[Any], options: dict[str, Any]) -> np.ndarray:
    """Return the numbers of columns among those that a map is applied to.

    Parameters
    ----------
    names, known : list
        Columns that are named, and those that are data.
    options : dict
        Of `as_source`: the columns that are not data.
    """
    for option in ("exclude", "id_column", "label_column"):
        beside = names_of(options.get(option), option, False)
        if both := [name for name in names if name in beside and name not in known]:
            raise ValueError(
                f"column {both[0]!r} is both in `columns` and in `{option}`, which leaves it out "
                "of the totals of `map`. Name it in one of them."
            )
    place = {name: j for j, name in enumerate(known)}
    return np.array([place[name] for name in chosen_names("`X`", known, names, [], None)])


def names_of(given: Any, argument: str, text: bool = True) -> list[Any]:
    """One name or several, as a list; of columns with names of text they must be text."""
    one = isinstance(given, str) or not hasattr(given, "__iter__")
    found = [] if given is None else [given] if one else list(given)
    if not all(isinstance(name, str if text else Hashable) for name in found):
        raise TypeError(f"`{argument}`={given!r} must be the names of columns.")
    return found


def warn_left_out(where: str, reasons: dict[str, str]) -> None:
    """Warn of columns that are left out although no option names them, each with a reason."""
    if reasons:
        many = "a column" if len(reasons) == 1 else f"{len(reasons)} columns"
        shown = ", ".join(f"{name!r} ({why})" for name, why in [*reasons.items()][:SHOWN])
        more = ", ..." if len(reasons) > SHOWN else ""
        words = f"{where}: left out {many} that cannot be used: {shown}{more}."
        warnings.warn(words, UserWarning, stacklevel=2)
