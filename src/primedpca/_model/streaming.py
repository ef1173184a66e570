"""Rows that come in batches and are seen once: the estimator's ``partial_fit`` and ``merge``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np

from primedpca._core.allocator import keep_freed
from primedpca._core.arrays import to_numpy
from primedpca._core.parameters import check_options
from primedpca._core.threads import lock_of
from primedpca._core.units import as_bytes
from primedpca._model.attributes import attributes, map_of
from primedpca._model.sketching import Stream, as_weights, found_by, same_scale, taken_in, worked_in
from primedpca._operator.operator import Centred
from primedpca.engines.local import one_blas_thread
from primedpca.priming import FrequentDirections
from primedpca.priming.sketch import merge
from primedpca.protocols import DataSource
from primedpca.result import Plan, Status
from primedpca.sources.base import OneBlock

__all__ = ["Streaming"]

ALL_TO = 512  # columns up to which a sketch that holds all of them is small
#: Directions of a sketch for each component, and beside.  Of 20,000 images of CIFAR-10 with 16
#: components, 44, 64, 88, 128, 200 and 400 leave the worst 1.5, 0.6, 0.3, 0.14, 0.05 and 0.01
#: degrees off, in 0.7, 0.9, 1, 1.4, 2 and 4.7 times the time.
EACH, BESIDE = 1.5, 64
#: Rows of ``d`` numbers in memory at the peak, for each row of the sketch, as measured: sketches
#: old and new, rows that wait, their copies on the way in, and what the allocator keeps of them.
ROWS_ALIVE = 28
#: What is learnt from the sketch when it is first asked for after a batch.
LEARNT = (
    *("components_", "mean_", "scale_", "n_components_", "n_samples_", "explained_variance_"),
    *("explained_variance_ratio_", "singular_values_", "noise_variance_", "status_"),
    *("converged_", "certificate_", "angle_bounds_", "n_passes_", "plan_", "history_"),
    "where_",
)


class Streaming(ABC):
    """``partial_fit`` and ``merge`` of an estimator that has ``_source``."""

    n_components: Any
    priming: Any
    center: bool
    scale: Any
    missing: str
    tol: float
    certificate: str
    max_memory: Any
    n_features_in_: int
    stream_: Stream

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:  # noqa: N803
        """Go on with more rows, each seen once; memory is fixed by the first call.

        Frequent Directions keeps a sketch of ``1.5 n_components + 64`` directions, or as many as
        ``priming=FrequentDirections(sketch_size=...)`` says, or as ``max_memory`` holds; more
        directions take longer and prove more.  How rows are cut into batches makes no difference,
        and a batch may be a single row: rows wait until enough can be worked in together.
        Attributes are computed when they are first asked for after a batch, which costs one
        decomposition of the sketch.  The first call after ``fit``, which keeps no sketch, begins
        anew.

        With fewer than ``n_components + 1`` rows so far there are ``n_components_`` =
        ``n_samples_ - 1`` components, and none after the first row.  ``certificate_`` is
        deterministic, and wide: one pass knows no residual.  If the data can be read again,
        ``fit`` with ``warm_start=True`` starts from what is known.

        Parameters
        ----------
        X : data of shape (n_samples, n_features)
            Anything that :func:`primedpca.as_source` reads.
        y : ignored
        sample_weight : array of shape (n_samples,), optional

        Returns
        -------
        PrimedPCA
            Itself.  After an error it is as it was before the call.
        """
        with self._alone():  # rows of two threads, one batch after the other
            known = self._stream_so_far()
            source = self._source(X, reset=known is None)
            self._check_source(source)
            known = self._empty(source.shape[1]) if known is None else known
            self._check_same(known)
            weights = as_weights(sample_weight, source.shape[0])
            seen = taken_in(known, source, weights, self.center)
            self._set_stream(seen)
            self.map_ = map_of(source)
        return self

    def merge(self, other: Any) -> Any:
        """Take in what another model has seen by ``partial_fit``; the bounds of both add up.

        Parameters
        ----------
        other : PrimedPCA
            Of the same columns, centred and scaled alike.  It is not changed.

        Returns
        -------
        PrimedPCA
            Itself, as after the rows of both, with the sketch in its own size.
        """
        with self._alone():
            return self._merged(other)

    def _merged(self, other: Any) -> Any:
        both = [vars(model).get("stream_") for model in (self, other)]
        if None in both:
            raise ValueError(
                "models are merged by the sketches that `partial_fit` keeps; call it on both "
                "first (`fit` keeps none)."
            )
        mine, theirs = (worked_in(part, bool(part.sketch.center)) for part in both if part)
        one, two = (vars(model).get("feature_names_in_") for model in (self, other))
        if one is not None and two is not None and not np.array_equal(one, two):
            raise ValueError("the two models have other `feature_names_in_`; merge like with like.")
        if not same_scale(mine.scale, theirs.scale):
            raise ValueError("the two models have another `scale`; only like ones can be merged.")
        factor = None if mine.scale is None else 1 / mine.scale
        with one_blas_thread():
            sketch = merge(mine.sketch, theirs.sketch, factor)
        self._set_stream(
            mine._replace(
                sketch=sketch,
                rows=mine.rows + theirs.rows,
                counted=mine.counted + theirs.counted,
                single=mine.single and theirs.single,
            )
        )
        return self

    def _alone(self) -> Any:
        """The lock by which threads that call on one model wait for each other."""
        return lock_of(self)

    def __getattr__(self, name: str) -> Any:
        # Only for what is not there: attributes that a stream has yet to be asked for.
        if name in LEARNT and "stream_" in self.__dict__:
            with self._alone():  # or they might be those of an earlier stream
                if name not in self.__dict__:
                    self.__dict__.update(self._learnt())
                return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _set_stream(self, seen: Stream) -> None:
        for name in LEARNT:
            self.__dict__.pop(name, None)
        self.stream_ = seen

    def _stream_so_far(self) -> Stream | None:
        check_options(self.get_params(deep=False))  # type: ignore[attr-defined]
        if isinstance(self.scale, str):
            raise ValueError(
                f"`scale`={self.scale!r} needs all rows before the first is used; give the scale "
                "of every column as an array, or use `fit`."
            )
        if self.missing != "error":
            raise ValueError(
                f"`missing`={self.missing!r} needs the means of all rows before the first is "
                "used; fill the missing values, or use `fit`."
            )
        return vars(self).get("stream_")

    def _check_source(self, source: Any) -> None:
        """Refuse data that bring what only all rows together can tell."""
        if source.traits.missing == "mean":
            raise ValueError(
                f"{source!r} fills missing values by the means of all rows, which `partial_fit` "
                "cannot know; open it with `missing`='error', or use `fit`."
            )
        if source.traits.scale is not None and self.scale is None:
            raise ValueError(
                f"{source!r} has a scale of its own, which may be another for the next batch; "
                "pass the scale of all as `scale`, or use `fit`."
            )

    def _empty(self, d: int) -> Stream:
        k = self._count(d)
        size = getattr(self.priming, "sketch_size", None)
        if size is None:
            size = min(int(EACH * k) + BESIDE, max(k, d))
            budget, each = as_bytes(self.max_memory), 8.0 * d * ROWS_ALIVE
            if k * each > budget:
                raise ValueError(
                    f"`max_memory`={budget / 1e6:.0f} MB is less than the {k * each / 1e6:.0f} MB "
                    f"that a sketch for `n_components`={k} needs; raise it or lower that."
                )
            size = int(min(budget / each, size))
        keep_freed()  # a few arrays of the size of the sketch come and go with every group of rows
        like = Centred(OneBlock(np.zeros((1, d)))).like
        sketch = FrequentDirections(size).init(like, k, 0)._replace(center=bool(self.center))
        scale = None if self.scale is None else to_numpy(self.scale).astype(np.float64)
        return Stream(sketch, (), (), size, 0, 0, True, scale)

    def _count(self, d: int) -> int:
        """How many components are looked for, as far as columns and the sketch go."""
        k = self.n_components
        if k is None and d <= ALL_TO:
            return d
        if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or k < 1:
            raise ValueError(
                f"`n_components`={k!r} does not fix the memory of a stream of {d} columns; "
                "`partial_fit` needs a whole number, at least 1."
            )
        if k > d:
            raise ValueError(f"`n_components`={k} must be at most n_features={d}; lower it.")
        return int(k)

    def _check_same(self, known: Stream) -> None:
        """Refuse parameters that were changed since the first batch."""
        k = self._count(known.sketch.sketch.shape[1])
        if k > known.size:
            raise ValueError(
                f"`n_components`={k} exceeds the {known.size} directions that the sketch has "
                "kept since its first batch; lower it, or begin again with a new model."
            )
        if known.sketch.center != bool(self.center):
            raise ValueError(
                f"`center`={self.center} is not what the rows so far were seen with; set it back, "
                "or begin again with a new model."
            )
        scale = None if self.scale is None else to_numpy(self.scale).astype(np.float64)
        if not same_scale(scale, known.scale):
            raise ValueError(
                "`scale` is not what the rows so far were seen with; set it back, or begin again "
                "with a new model."
            )

    def _learnt(self) -> dict[str, Any]:
        """The fitted attributes after the rows so far; the stream itself is left as it is."""
        known = self.stream_
        sketch = worked_in(known, known.sketch.center).sketch
        d = sketch.sketch.shape[1]
        # A sum of weights that rounding cannot tell from 1 has nothing to divide by.
        enough = sketch.weight - 1 > (sketch.depth + 16) * 2.0**-50 * sketch.weight
        most = known.counted - 1 if enough else 0
        wanted = d if self.n_components is None else int(self.n_components)
        k = min(wanted, known.size, d, most)
        with one_blas_thread():
            found, proof = found_by(sketch, known.scale, k)
        if known.single:
            cast = {"components": found.components.astype(np.float32)}
            cast["mean"] = found.mean.astype(np.float32)
            if known.scale is not None:
                cast["scale"] = known.scale.astype(np.float32)
            found, proof = replace(found, **cast), proof.rounded(2.0**-23)
        proven = k == wanted and bool(proof.met(self.tol).all())
        asked = self.certificate != "none"
        return {
            **attributes(found, max(k, 0), (known.rows, d)),
            "status_": Status.CERTIFIED if proven else Status.STREAMED,
            "converged_": proven,
            "certificate_": proof if asked else None,
            "angle_bounds_": proof.angle_bounds if asked else None,
            "n_passes_": 1.0,
            "where_": "this machine",
            "history_": [],
            "plan_": Plan(
                FrequentDirections(known.size),
                wanted,
                known.size,
                "rows come in batches and are seen once",
            ),
        }

    @abstractmethod
    def _source(self, X: Any, reset: bool) -> DataSource:  # noqa: N803
        """``X`` as a source, its columns learnt (``reset``) or compared with those learnt."""
