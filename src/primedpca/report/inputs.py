"""Inputs of a report besides the model: data, scores, labels and names, all checked."""

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.arrays import as_real, dtype_name
from primedpca._model.tables import check_score_names
from primedpca.monitoring import Statistics, _kept, _scores_and_statistics
from primedpca.plots.plane import label_values
from primedpca.protocols import DataSource
from primedpca.report.facts import Facts, Gatherer, Noted, may_gather
from primedpca.sources import as_source

SHOWN = 4  # components whose scores are plotted, two to a plot
MOST_SCORES = 40_000_000  # numbers; of more, the rows are not searched for outliers
SAME = 0.02  # differences of means and variances up to which rows count as those of the fit
TINY = 1e-6  # variance, in the largest, below which those of scores are not compared


@dataclass(frozen=True)
class Inputs:
    """Description of the data that a model was fitted to; ``None`` where not known.

    Attributes
    ----------
    name, dtype : str or None
    is_file : bool
        Whether ``name`` is the name of a file or folder.
    shape : tuple of int or None
    image_shape : tuple of int or None
        Height, width and channels, if each row of the data is an image.
    scores : ndarray of shape (n, <= k) or None
    labels : ndarray of shape (n,) or None
    names : ndarray of shape (d,) or None
        Names of the columns.
    label_name : str or None
        Name of the column with the labels.
    row_names : ndarray of shape (n,) or None
    facts : Facts or None
        Facts about the columns.
    all_scores : ndarray of shape (n, <= k) or None
        Scores of all components with variance, in float64 and not whitened.
    statistics : Statistics or None
        T² and SPE of each row.
    skipped : tuple of str
        Sentences that say what was not computed, and why.
    foreign : bool
        Whether the rows are not those of the fit, or not as they were read for it.
    """

    name: str | None = None
    is_file: bool = False
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    image_shape: tuple[int, ...] | None = None
    scores: np.ndarray | None = None
    labels: np.ndarray | None = None
    names: np.ndarray | None = None
    label_name: str | None = None
    row_names: np.ndarray | None = None
    facts: Facts | None = None
    all_scores: np.ndarray | None = None
    statistics: Statistics | None = None
    skipped: tuple[str, ...] = ()
    foreign: bool = False


def check_inputs(model: Any, data: Any, scores: Any, labels: Any, names: Any) -> Inputs:
    """Check the inputs against a fitted model; missing scores are computed in one pass."""
    k, d = model.n_components_, model.n_features_in_
    known: dict[str, Any] = {}
    if data is not None:
        source: Any = as_source(data)
        if source.shape[1] != d:
            raise ValueError(f"`data` has {source.shape[1]} columns, but the model has {d}.")
        known = {"name": _name(data), "is_file": bool(data_paths(data))}
        known |= {"shape": source.shape, "dtype": dtype_name(source.dtype)}
        known["image_shape"] = source.traits.image_shape
        known["row_names"] = source.traits.row_names()
        if labels is None and scores is None:
            labels = source.traits.labels()
            known["label_name"] = _label_name(source) if labels is not None else None
        if scores is None:
            known |= _read_once(model, source)
            scores = known.pop("scores")
            known["foreign"] = _is_foreign(model, known["shape"][0], known.get("all_scores"))
    if scores is not None:
        check_score_names(scores, "scores")
        scores = as_real(scores, "scores")
        if scores.ndim != 2 or not 1 <= scores.shape[1] <= k:
            raise ValueError(f"`scores` must have shape (rows, at most {k}), got {scores.shape}.")
    if labels is not None:
        known.setdefault("label_name", getattr(labels, "name", None))
        labels, rows = label_values(labels), known.get("shape") if scores is None else scores.shape
        if rows is None:
            raise ValueError("`labels` colour the scores: pass `data` or `scores` as well.")
        if labels.shape != rows[:1]:
            words = f"`labels` has shape {labels.shape}, but there are {rows[0]} rows"
            raise ValueError(f"{words}. Pass one label for each.")
    if names is None:
        names = getattr(model, "feature_names_in_", None)
    names = None if names is None else np.asarray(names, dtype=object)
    if names is not None and names.shape != (d,):
        raise ValueError(f"`names` {names.shape} must have one name for each of the {d} columns.")
    return Inputs(scores=scores, labels=labels, names=names, **known)


def data_paths(data: Any) -> list[Path]:
    """Return the files or folders that hold ``data``, as far as ``data`` name them."""
    found: Sequence[Any] = [data, getattr(data, "filename", None)]  # of maps and backed AnnData
    if isinstance(data, DataSource):
        found = as_source(data).traits.paths
    known = (os.fspath(part) for part in found if isinstance(part, (str, os.PathLike)))
    return [Path(part.split("::")[0]) for part in known]


def _name(data: Any) -> str:
    if paths := data_paths(data):
        return paths[0].parent.name if len(paths) > 1 else paths[0].name
    kind = type(data)
    return f"{kind.__module__.split('.')[0]}.{kind.__name__}, in memory"


def _label_name(source: Any) -> str | None:
    """Return the name of the column of labels of a table, which another source may wrap."""
    name = getattr(source, "_label", None)
    inner = getattr(source, "source", None)
    return _label_name(inner) if name is None and inner is not None else name


def _read_once(model: Any, source: Any) -> dict[str, Any]:
    """Compute the scores, and gather facts about columns and rows, in the same pass."""
    # A device would need all data in memory; one pass is cheap enough where the data are.
    near = copy(model).set_params(device=None)
    why, found = may_gather(source), dict[str, Any](scores=None)
    gatherer = None if why else Gatherer(source, model.mean_)
    read = source if gatherer is None else Noted(source, gatherer)
    k = model.n_components_
    small = source.shape[0] * k <= MOST_SCORES
    if k > 0 and small and _kept(model).any():
        every, found["statistics"] = _scores_and_statistics(near, read)
        found["all_scores"] = every
        found["scores"] = every[:, :SHOWN] / _stretch(model)[: min(SHOWN, every.shape[1])]
    elif k > 0:
        found["scores"] = _first_scores(near, read)
    skipped = [why] if why else []
    if k > 0 and not small:
        skipped.append("The rows were not searched for outliers: they are too many.")
    if gatherer is not None:
        gatherer.rest(source)
        found["facts"] = gatherer.facts()
        skipped += found["facts"].skipped
    return found | {"skipped": tuple(skipped)}


def _is_foreign(model: Any, rows: int, scores: np.ndarray | None) -> bool:
    """Whether rows are not those of the fit, by their number, and means and variances of scores."""
    if rows != model.n_samples_:
        return True
    if scores is None or rows < 2 or model.refine_share < 1:
        return False
    k = scores.shape[1]
    low = high = np.asarray(model.explained_variance_, dtype=np.float64)[:k]
    if model.certificate_ is not None:  # the variances of a sketch are too small, within bounds
        bounds = model.certificate_.eigenvalue_bounds[:k].T
        low, high = np.minimum(low, bounds[0]), np.maximum(high, bounds[1])
    means = scores.mean(axis=0) * model.center_
    variances = ((scores - means) ** 2).sum(axis=0) / (rows - 1)
    off = (variances < (1 - SAME) * low) | (variances > (1 + SAME) * high)
    off |= np.abs(means) > SAME * np.sqrt(high)
    return bool(off[high > TINY * high[0]].any())


def _stretch(model: Any) -> np.ndarray:
    """Divisors of the scores, as the model applies them."""
    if not model.whiten:
        return np.ones(model.n_components_)
    return np.asarray(model._stretch(), dtype=np.float64)[:, 0]


def _first_scores(model: Any, source: Any) -> Any:
    """Compute the scores of the first components: all of them might not fit into memory."""
    seen = model._seen(source)
    weights = (model.components_ / model._stretch())[:SHOWN]
    return seen.forward(seen.like.asarray(weights.T))


def spaced(count: int) -> str:
    """Separate thousands by a narrow space, which no country reads as a decimal sign."""
    return f"{count:,}".replace(",", "\u202f")
