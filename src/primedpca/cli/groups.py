"""Groups of options that several commands share, declared once.

A command declares a group as one parameter; :func:`flat` replaces it by the group's options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

from primedpca.cli import options as opt

__all__ = ["FitOptions", "Output", "Preparation", "Reading", "Search", "flat"]


@dataclass(frozen=True)
class Reading:
    """Options for reading DATA."""

    columns: opt.ColumnNames = None
    exclude: opt.Exclude = None
    id_column: opt.Id = None
    label_column: opt.Label = None
    delimiter: opt.Delimiter = None
    header: opt.Header = None
    map_rows: opt.Map = None
    shape: opt.Shape = None
    dtype: opt.Dtype = None
    offset: opt.Offset = None
    follow_links: opt.FollowLinks = None

    def given(self) -> dict[str, Any]:
        """Return the options that were given, as arguments of ``as_source``."""
        found = {name: value for name, value in _values(self, Reading).items() if value is not None}
        if "map_rows" in found:
            from primedpca.sources import maps

            found["map"] = getattr(maps, found.pop("map_rows"))
        if "shape" in found and "dtype" in found:
            found["exact"] = True  # a longer file means that the shape or type is wrong
        return found


@dataclass(frozen=True)
class Search:
    """Options for finding the components."""

    # Defaults are those of the estimator, which a test compares: importing it would take a second.
    tol: opt.Tol = "pi/1024"
    priming: opt.Priming = "auto"
    max_passes: opt.MaxPasses = 60
    max_memory: opt.MaxMemory = None
    checkpoint: opt.Checkpoint = None


@dataclass(frozen=True)
class Preparation:
    """Options for preparing the columns, the device and the seed."""

    scale: opt.Scale = None
    missing: opt.Missing = "error"
    device: opt.Device = None
    random_state: opt.Seed = None


@dataclass(frozen=True)
class Output:
    """Options for files to write and messages."""

    out: opt.Out = None
    report: opt.Report = None
    force: opt.Force = False
    verbose: opt.Verbose = False


@dataclass(frozen=True)
class FitOptions(Output, Preparation, Reading, Search):
    """All options of fit, which plan takes too; the help lists the last base first."""

    def parameters(self) -> dict[str, Any]:
        """Return the options that are parameters of the estimator."""
        return _values(self, Search) | _values(self, Preparation)


def _values(options: Any, group: Any) -> dict[str, Any]:
    return {field.name: getattr(options, field.name) for field in fields(group)}


def flat(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with each group replaced by the options in it."""
    kinds = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}
    parameters: list[Parameter] = []
    for name, own in signature(command).parameters.items():
        if name not in groups:
            parameters.append(own.replace(kind=Parameter.KEYWORD_ONLY, annotation=kinds[name]))
            continue
        within = get_type_hints(kinds[name], include_extras=True)
        for field in fields(kinds[name]):
            option = Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default)
            parameters.append(option.replace(annotation=within[field.name]))

    @wraps(command)
    def called(**given: Any) -> Any:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        return command(**given)

    # Typer reads the options from the signature and the annotations.
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {own.name: own.annotation for own in parameters}
    return called
