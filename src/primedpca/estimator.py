"""PrimedPCA, the scikit-learn estimator, and ``load``, which reads one from a file."""

from __future__ import annotations

import math
import os
import warnings
from contextlib import nullcontext
from copy import copy
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import validation
from sklearn.utils._set_output import _get_output_config

from primedpca import rotation as rotations
from primedpca._core.arrays import (
    as_real,
    check_held,
    check_python_numbers,
    is_dense,
    is_sparse,
    namespace,
    to_numpy,
)
from primedpca._core.orthonormal import centred_product, orthonormalise
from primedpca._core.parameters import (
    DEFAULT,
    DEFAULTS,
    as_seed,
    check_choice,
    check_device,
    check_options,
    is_proven,
)
from primedpca._core.process import lock_of, reusing_memory
from primedpca._core.units import as_bytes, check_square
from primedpca._io.lazy_scores import Seen, lazy_scores
from primedpca._io.model_file import read_model, write_model
from primedpca._io.score_file import check_path, write_into, write_scores_file
from primedpca._model import probabilistic, stream
from primedpca._model.attributes import (
    attributes,
    check_names,
    deviations,
    divisible,
    unchanged_by_errors,
)
from primedpca._model.callbacks import CallbackSupportMixin, watched, with_callbacks
from primedpca._model.columns import scaled_loadings
from primedpca._model.notebook_html import model_html
from primedpca._model.tables import (
    as_frame,
    check_score_names,
    column_names,
    library_of_frame,
    row_table,
    score_names,
)
from primedpca._operator.non_finite import refuse
from primedpca._operator.operator import Centred, check_own_scale
from primedpca._operator.preparation import check_whole_numbers
from primedpca._planning.plan import all_for_mle, likeliest_dimension, make_plan
from primedpca._session.session import fit_session
from primedpca._solve.driver import Goal, solve
from primedpca.engines import storable, together
from primedpca.priming.sketch import Stream
from primedpca.priming.user_directions import with_columns_of
from primedpca.protocols import DataSource
from primedpca.result import Solution
from primedpca.sources import as_source
from primedpca.sources.memory import frames
from primedpca.sources.memory.dask_array import is_dask
from primedpca.sources.wrappers.on_device import is_device_matrix, on_device

__all__ = ["PrimedPCA", "load"]

PARAMETERS = ("n_components", *DEFAULTS)
values_of = attrgetter(*PARAMETERS)
#: Arrays of new rows up to this size are transformed without the engine.
SMALL_BYTES = 2**25


# scikit-learn is not typed, so a type checker cannot know its classes.
class PrimedPCA(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    CallbackSupportMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    r"""Principal component analysis with a proven bound on the error of every component.

    A priming finds ``k + l`` rough directions, and an exact PCA inside their span gives the
    ``k`` components (Máté & Fleuret, "Speeding up PCA with priming").  A certificate then bounds
    the angle between each component and the true one.  Data are never copied, centred in place
    or, if sparse, made dense.

    Parameters
    ----------
    n_components : int, float, "mle" or None, default=None
        Number of components.  A float in (0, 1) keeps the fewest components that provably reach
        this explained variance ratio; ``None`` keeps ``min(n_samples, n_features)``; ``"mle"``
        chooses the number by scikit-learn's formula, but counts a variance as rounding below
        ``n_features * 2.2e-16`` of the largest, where scikit-learn's limit is 1e-15 itself.
    priming : str, Priming, callable or array of shape (n_features, q), default="auto"
        Algorithm that finds the initial directions: ``"auto"``, a name from
        :mod:`primedpca.priming`, an object with the methods of a Priming, a function
        ``(X, n_directions) -> directions``, or the directions themselves.
    extra_components : int or "auto", default="auto"
        The paper's ``l``: number of directions beyond ``n_components``.
    tol : float, default=pi/1024
        Target angle in radians between each computed and true component.  With a certificate
        every component is proven to be within it; without, iterations stop when the estimated
        remaining change is below it.
    max_passes : int, default=100
        Maximum number of passes over the data, those of the proof included (for the power method,
        of steps per component).  A first step and its proof, at most 8 passes, are always made,
        and so is a full decomposition where that is planned.  If it ends a fit whose blocks are
        narrower than ``n_components``, there may be fewer components.  Stochastic primings have
        ``steps`` of their own instead, and the proof that follows them may take as many passes.
    batch_size : int, default=1000
        Rows in a mini-batch of the stochastic primings.
    center : bool, default=True
        Subtract the mean.  With ``False``, second moments take the place of variances.
    scale : None, "std" or array of shape (n_features,), default=None
        Divisors of the centred columns; ``"std"`` is what StandardScaler does, after missing
        values were replaced.  Numbers with labels, such as a Series, go by the names of columns.
    whiten : bool, default=False
        Scale the scores to unit variance.
    missing : {"error", "mean"}, default="error"
        Treatment of NaN: refuse it, or replace it by the mean of the column.
    refine_share : float in (0, 1], default=1.0
        Fraction of the rows, drawn at random, that refining uses.
    certificate : {"auto", "none", "deterministic", "probabilistic"}, default="auto"
        Kind of proof.  Iterations continue until every component is proven to be within ``tol``,
        or until a proof would cost more than the components did (status ``UNPROVEN``).
        ``"auto"`` is ``"probabilistic"`` (exact or deterministic where that costs no more), and
        ``"none"`` with a ``refine_share`` below 1, which proves nothing.
    failure_probability : float in (0, 1), default=1e-6
        Probability that a probabilistic certificate is false.
    device : str or None, default=None
        Where to compute, such as ``"cuda"``: data of any kind are sent there with PyTorch, and
        stay there as far as they fit.  See docs/gpus.md.
    engine : None, distributed.Client, str or Engine, default=None
        Where blocks are processed: ``None`` is this machine, or for a Dask array the client in
        scope; a Dask client or the address of its scheduler is that cluster;
        ``"torch_distributed"`` are the ranks started by ``torchrun``.  See docs/clusters.md.
    max_memory : int, str or None, default=None
        Bytes, or a string such as ``"2GB"``, by which the memory of the process may grow beyond
        the data: basis, blocks, sketch.  On a cluster the limit holds for every process.  With
        ``device``, it holds for the memory of the device, too, data that stay there included.
    checkpoint : path or None, default=None
        Folder that keeps the results of every pass.  A fit that was killed resumes from there
        with bitwise identical results; a finished fit is returned at once.  See
        docs/checkpoints.md.
    warm_start : bool, default=False
        Start from the components of the last fit.
    random_state : int, RandomState, Generator or None, default=None
        Seed of all random draws.
    verbose : int or callable, default=0
        1 prints a line after every pass and one at the end; a function is called with a row of
        ``history_`` after every pass.  Callbacks of scikit-learn 1.9 are set with
        ``set_callbacks``; see docs/progress.md.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features)
        Orthonormal rows, sorted by variance; the largest entry of each is positive.
    explained_variance_ : ndarray of shape (n_components_,)
        Sums of squares divided by the sum of the weights minus 1, which is ``n_samples - 1``
        without ``sample_weight``; of the scaled data if ``scale`` is given.
    explained_variance_ratio_ : ndarray of shape (n_components_,)
    singular_values_ : ndarray of shape (n_components_,)
    mean_ : ndarray of shape (n_features,)
    scale_ : ndarray of shape (n_features,) or None
    center_ : bool
        Whether the mean was subtracted in the fit.
    standardised_ : bool
        Whether the columns were divided by their standard deviations in the fit.
    fill_ : ndarray of shape (n_features,) or None
        What replaces missing values where ``mean_`` is zero, because ``center_`` is False: the
        means of the columns.
    n_components_ : int
    n_samples_ : int
        Number of rows without those of weight zero, or the sum of the weights if it is larger.
    noise_variance_ : float
        Mean of the variances left out.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If ``X`` has names for all its columns.
    converged_ : bool
        Whether the result is exact, proven, or has converged; not if a priming just ran to its
        end.
    status_ : Status
        How the fit ended; ``str(status_)`` is a sentence.
    certificate_ : Certificate or None
    angle_bounds_ : ndarray of shape (n_components_,)
        In radians; pi/2 where nothing is proven.  ``None`` without a certificate.
    n_passes_ : float
        Number of passes over the data.
    map_ : str or None
        Name of the function of ``as_source(X, map=...)``; new rows need the same.
    layout_ : str or None
        Grid of xarray's fields, shape of images, or checksum of the alleles that genotypes count;
        new rows need the same.
    where_ : str
        What made the passes: this machine, the ranks of torchrun, a Dask cluster.
    plan_ : Plan
    history_ : list of dict
        One row for every step of the priming: step, passes, seconds, the estimated remaining
        change, and with a certificate the angle bounds and variances so far.

    Notes
    -----
    Attributes are NumPy arrays whatever ``X`` was; :meth:`transform` returns an array of the
    library and on the device of its input.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA
    >>> X = load_iris().data
    >>> pca = PrimedPCA(2).fit(X)
    >>> pca.explained_variance_ratio_.round(3).tolist()
    [0.925, 0.053]
    >>> pca.transform(X).shape
    (150, 2)
    """

    def __init__(
        self,
        n_components: Any = None,
        *,
        priming: Any = DEFAULT.priming,
        extra_components: Any = DEFAULT.extra_components,
        tol: float = DEFAULT.tol,
        max_passes: int = DEFAULT.max_passes,
        batch_size: int = DEFAULT.batch_size,
        center: bool = DEFAULT.center,
        scale: Any = DEFAULT.scale,
        whiten: bool = DEFAULT.whiten,
        missing: str = DEFAULT.missing,
        refine_share: float = DEFAULT.refine_share,
        certificate: str = DEFAULT.certificate,
        failure_probability: float = DEFAULT.failure_probability,
        device: Any = DEFAULT.device,
        engine: Any = DEFAULT.engine,
        max_memory: Any = DEFAULT.max_memory,
        checkpoint: Any = DEFAULT.checkpoint,
        warm_start: bool = DEFAULT.warm_start,
        random_state: Any = DEFAULT.random_state,
        verbose: Any = DEFAULT.verbose,
    ) -> None:
        self.n_components = n_components
        self.priming = priming
        self.extra_components = extra_components
        self.tol = tol
        self.max_passes = max_passes
        self.batch_size = batch_size
        self.center = center
        self.scale = scale
        self.whiten = whiten
        self.missing = missing
        self.refine_share = refine_share
        self.certificate = certificate
        self.failure_probability = failure_probability
        self.device = device
        self.engine = engine
        self.max_memory = max_memory
        self.checkpoint = checkpoint
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    # -- fitting -----------------------------------------------------------------------------

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> PrimedPCA:  # noqa: N803
        """Find the components of ``X``.

        Parameters
        ----------
        X : data of shape (n_samples, n_features)
            Anything that :func:`primedpca.as_source` reads.  It is not modified.
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            Frequencies: a row of weight 2 counts as that row twice, and one of weight 0 not at
            all.  Only the number of components cannot exceed the number of rows, also for
            ``n_components=None``: further ones have no variance.  Weights need not be integers,
            but their sum must exceed 1.  They go by position; a Series with the names of the rows
            in another order is refused.

        Returns
        -------
        PrimedPCA
            Itself.  After an error it is as it was before the call.
        """
        with together(self.engine, "a fit"):
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> PrimedPCA:  # noqa: N803
        options = self._options()
        check_options(options)
        source = self._source(X, reset=True)
        start = self._warm_directions() if self.warm_start else None
        shared = source.traits.shared
        if shared is not None:  # every rank has weights for its own rows
            sample_weight = shared.of_all(sample_weight)
        if self.scale is not None:
            check_own_scale(source, self.scale)
        data = Centred(
            source,
            self.engine,
            sample_weight=sample_weight,
            center=self.center,
            scale=self.scale,
            missing=self.missing,
        )
        data.check_rows()
        self.history_: list[dict[str, Any]] = []
        shown = None if sample_weight is None else {"sample_weight": sample_weight}
        proven, traits = is_proven(options), data.engine.traits
        alone, speaks = traits.ranks == 1 and self.checkpoint is None, traits.rank == 0
        present = data.shape[0] if data.root is None else int((data.root > 0).sum())
        describe = partial(
            attributes,
            present=present,
            center=bool(data.center),
            standardised=data.standardise,
        )
        opened = None if alone else fit_session(data, options, sample_weight, start)
        with (
            # With `max_memory` set, freed memory is not kept for reuse; vectors of short data are
            # small, and the settings would cost more than they save.
            reusing_memory(self.max_memory is None and max(data.shape) > 2000),
            opened or nullcontext() as session,
            watched(self, describe, speaks, X=X, y=y, metadata=shown) as tell,
        ):
            data = data if session is None else data.view(engine=session.engine)
            guess = isinstance(self.n_components, str) and self.n_components == "mle"
            plan = make_plan(
                data,
                all_for_mle(data.shape) if guess else self.n_components,
                self.priming,
                self.extra_components,
                tol=self.tol,
                proven=proven,
                max_memory=math.inf if self.max_memory is None else as_bytes(self.max_memory),
                batch_size=self.batch_size,
            )
            seed = as_seed(self.random_state)
            self.plan_, seed = (plan, seed) if session is None else session.begin(plan, seed)
            deterministic = self.certificate == "deterministic"
            goal = Goal(
                tol=self.tol,
                max_passes=self.max_passes,
                batch_size=self.batch_size,
                refine_share=self.refine_share,
                failure_probability=0.0 if deterministic else self.failure_probability,
                seed=seed,
                proven=proven,
            )
            told = tell if session is None else session.agreed(tell)
            fit = partial(solve, data, self.plan_, goal, start=start, progress=told)
            self._keep(fit() if session is None else session.solution(fit), data, describe, guess)
        return self

    def _options(self) -> dict[str, Any]:
        """The parameters by name, from attributes: a subclass may have a signature of its own."""
        return dict(zip(PARAMETERS, values_of(self), strict=True))

    def _warm_directions(self) -> np.ndarray | None:
        """Return the components of the last fit as columns, if there was one of as many columns."""
        known: Any = getattr(self, "components_", None)
        if known is None or known.shape[1] != self.n_features_in_:
            return None
        return np.ascontiguousarray(known.T)

    def _keep(self, solution: Solution, data: Centred, describe: Any, guess: bool) -> None:
        """Set the fitted attributes."""
        self.__dict__.pop("stream_", None)  # of rows that this fit knows nothing of
        found = solution.decomposition
        k = found.explained_variance.size
        if guess:
            k = likeliest_dimension(found.explained_variance, found.n_samples)
            solution = solution.first(k)
        self.__dict__.update(describe(found, k))
        device = data.source.device
        on = "" if device in (None, "cpu") else f", on {device}"
        self.map_, self.where_ = data.traits.map_name, data.engine.traits.where + on
        self.layout_ = data.traits.layout
        self.status_, self.n_passes_ = solution.status, solution.passes
        self.converged_, proof = solution.converged, solution.certificate
        self.history_, self.certificate_ = solution.history, proof
        self.angle_bounds_: Any = None if proof is None else proof.angle_bounds.copy()
        if solution.warns:
            self._warn(solution.shortfall(self.tol, self.n_components))

    def _warn(self, words: str) -> None:
        """Warn of a fit that fell short; the drop-ins leave that to their certificates."""
        warnings.warn(words, ConvergenceWarning, stacklevel=7)

    # -- scores --------------------------------------------------------------------------------

    def transform(self, X: Any, out: Any = None) -> Any:  # noqa: N803
        """Scores: the rows of ``X`` in the coordinates of the components.

        Parameters
        ----------
        X : data of shape (n_samples, n_features)
        out : ndarray of shape (n_samples, n_components_) or path, optional
            Where to write the scores: an array, or the name of a new ``.npy``, ``.csv``,
            ``.tsv``, ``.parquet`` or ``.zarr`` file, which is written block by block, so that the
            scores need not fit into memory, and atomically.  In tables the scores are named
            ``PC1, PC2, ...``, and names and labels of the rows that ``X`` has stand beside them.

        Returns
        -------
        array of shape (n_samples, n_components_)
            Of the library of ``X``; NumPy for sparse data and frames; ``out`` if that is an
            array, a read-only memory map if it is a ``.npy`` file, a zarr.Array, or the path of
            a table.  For a Dask array a lazy Dask array, unless ``set_output`` asks for a frame.
        """
        if out is None and type(X) is np.ndarray:
            scores = self._scores_at_once(X)
            if scores is not None:
                return scores
        framed = _get_output_config("transform", self)["dense"] != "default"
        if out is None and is_dask(X):
            self._check_fitted()
            self._source(X, reset=False)  # checks names and number of columns
            weights = self.components_ / self._stretch()
            scores = lazy_scores(X, Seen(weights, *self._preparation()))
            return np.asarray(scores) if framed else scores  # a data frame holds numbers
        if out is not None and framed:
            raise ValueError(
                "`out` returns what was written, not the data frame that `set_output` asks for. "
                "Call `set_output`(transform='default'), or omit `out`."
            )
        path = check_path(out) if isinstance(out, (str, os.PathLike)) else None
        data = self._seen(X)
        vectors = data.like.asarray((self.components_ / self._stretch()).T)
        if path is not None:
            return write_scores_file(path, data, vectors, score_names(self._n_features_out))
        scores = data.forward(vectors)
        data.check_finite(scores)
        # Anything but a dense tensor.
        if not is_dense(X) or isinstance(X, np.ndarray) or is_device_matrix(X):
            scores = to_numpy(scores)
        return scores if out is None else write_into(out, scores)

    def _scores_at_once(self, X: np.ndarray) -> np.ndarray | None:  # noqa: N803
        """Return the scores of a small array, or None where the long way must check or convert.

        The long way takes longer to begin than a service takes for a row.
        """
        fitted = self.__dict__
        components: Any = fitted.get("components_")
        mean: Any = fitted.get("mean_")
        if (
            components is None  # perhaps of a stream
            or self.device is not None
            or "feature_names_in_" in fitted
            or not (X.dtype == components.dtype == mean.dtype)
            or X.ndim != 2
            or X.shape[1] != components.shape[1]
            or not 0 < X.nbytes <= SMALL_BYTES
        ):
            return None
        scores = centred_product(X, mean, self.scale_, components.T)
        if self.whiten:
            scores /= deviations(self)
        # NaN and infinity in a row reach its scores; the long way says where, or fills them.
        return scores if np.isfinite(scores).all() else None

    def fit_transform(self, X: Any, y: Any = None, *, out: Any = None, **fit_params: Any) -> Any:  # noqa: N803
        """Fit, then return the scores of the same rows; see :meth:`fit` and :meth:`transform`.

        Parameters
        ----------
        X : data of shape (n_samples, n_features)
        y : ignored
        out : ndarray of shape (n_samples, n_components_) or path, optional
        **fit_params
            Of :meth:`fit`, such as ``sample_weight``.

        Returns
        -------
        array of shape (n_samples, n_components_)
        """
        if isinstance(out, (str, os.PathLike)):
            check_path(out)  # before the fit
        return self.fit(X, y, **fit_params).transform(X, out=out)

    def inverse_transform(self, X: Any) -> Any:  # noqa: N803
        """Rows in the space of the data, from scores.

        Parameters
        ----------
        X : array of shape (n_samples, n_components_)

        Returns
        -------
        array of shape (n_samples, n_features)
            Of the library and on the device of ``X``.
        """
        self._check_fitted()
        X = frames.without_index(X)  # noqa: N806
        check_score_names(X, "X")
        floats = getattr(getattr(X, "dtype", None), "kind", "f") == "f"  # others have no `kind`
        plain = is_dense(X) and floats and not isinstance(X, np.ma.MaskedArray)
        scores = X if plain else as_real(X, "X")
        if len(scores.shape) != 2 or scores.shape[1] != self.n_components_:
            wanted = f"(n_samples, n_components_={self.n_components_})"
            raise ValueError(f"`X` must have shape {wanted}, got {tuple(scores.shape)}.")
        if not (is_dask(scores) or getattr(scores, "is_meta", False)):  # without numbers as yet
            _check_scores(scores)
        weights = self.components_ * self._stretch()
        back = weights if self.scale_ is None else weights * self.scale_
        xp = namespace(scores)
        where = {"device": scores.device} if hasattr(scores, "device") and xp is not np else {}
        parts = scores, xp.asarray(back, **where), xp.asarray(self.mean_, **where)
        kind = xp.result_type(*parts)  # some libraries multiply only arrays of one type
        scores, back, mean = (xp.astype(part, kind, copy=False) for part in parts)
        return scores @ back + mean

    def _check_fitted(self) -> None:
        validation.check_is_fitted(self)

    def _stretch(self) -> Any:
        """Divisors of the scores: their standard deviations, with ``whiten``."""
        return deviations(self)[:, None] if self.whiten else self.components_.dtype.type(1)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the scores, counted from 1: ``PC1``, ``PC2``, ...

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str of shape (n_components_,)
        """
        self._check_fitted()
        return np.array(score_names(self._n_features_out), dtype=object)

    # -- tables ----------------------------------------------------------------------------------

    def loadings(self, *, scaled: bool = False, rotation: str | None = None) -> Any:
        """Loadings as a data frame: a row for each feature, a column for each component.

        Parameters
        ----------
        scaled : bool, default=False
            Multiply the loadings of each component, which have length 1, by its standard
            deviation: covariances of the features, divided by ``scale_`` if there is one, with
            components of unit variance.  With ``scale="std"`` they are divided by the standard
            deviation of the features, too, and are correlations.  With ``center=False`` second
            moments take the place of covariances and correlations.
        rotation : {None, "varimax", "promax"}, default=None
            Rotate the scaled loadings, see :mod:`primedpca.rotation`.  Rotated components are
            named ``RC1, RC2, ...``.

        Returns
        -------
        pandas.DataFrame or other frame
            Of the library of the frame that the model was fitted to, otherwise of pandas, polars
            or pyarrow, the first that is installed.  The index of a pandas frame, or the first
            column of another, is ``feature``.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from primedpca import PrimedPCA
        >>> iris = load_iris(as_frame=True)
        >>> PrimedPCA(2).fit(iris.data).loadings().round(2).loc["petal length (cm)"].tolist()
        [0.86, -0.17]
        """
        return self._feature_frame(*self._loadings(scaled, rotation))

    def _loadings(self, scaled: bool, rotation: str | None) -> tuple[list[str], np.ndarray]:
        """Names of the components, and their loadings of shape (d, k)."""
        self._check_fitted()
        numbers, names = self.components_.T.astype(np.float64), score_names(self._n_features_out)
        if scaled or rotation is not None:
            numbers = scaled_loadings(self)
        if rotation is None:
            return names, numbers
        # The rotation could not know that variances were computed in float32.
        numbers[:, ~divisible(self)] = 0.0
        check_choice("rotation", rotation, ("varimax", "promax"))
        if not numbers.size:
            raise ValueError("The model has no components yet. Add rows with `partial_fit`.")
        turned: np.ndarray = getattr(rotations, rotation)(numbers).loadings
        return [f"R{name[1:]}" for name in names], turned

    def contributions(self, X: Any = None) -> Any:  # noqa: N803
        r"""Contributions of features, or of rows, to the components, in percent.

        Parameters
        ----------
        X : data of shape (n_samples, n_features), optional
            Rows whose contributions are computed, in one pass; by default those of the features.

        Returns
        -------
        pandas.DataFrame or other frame
            Of the library of ``X``, or as for :meth:`loadings`.  Of features, like the loadings:
            squared loadings in percent.  Of rows, one row for each row of ``X`` and component,
            with columns ``row`` (its name, or its number from 0), ``component``,
            ``contribution`` (squared score in percent of the sum over the rows of ``X``) and
            ``cos2`` (squared cosine of the angle between the centred row and the component: the
            fraction of the row that the component explains).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from primedpca import PrimedPCA
        >>> iris = load_iris(as_frame=True).data
        >>> pca = PrimedPCA(2).fit(iris)
        >>> pca.contributions().sum().round(6).tolist()
        [100.0, 100.0]
        >>> pca.contributions(iris).columns.tolist()
        ['row', 'component', 'contribution', 'cos2']
        """
        self._check_fitted()
        if X is None:
            shares = 100 * self.components_.T.astype(np.float64) ** 2
            return self._feature_frame(score_names(self._n_features_out), shares)
        library = library_of_frame(X) or self._frame_library()
        return as_frame(row_table(self, self._seen(X).widened()), library)

    def _feature_frame(self, names: list[str], numbers: np.ndarray) -> Any:
        columns = {"feature": column_names(self)} | dict(zip(names, numbers.T, strict=True))
        return as_frame(columns, self._frame_library(), index="feature")

    def _frame_library(self) -> str | None:
        """Package of the frame that the model was fitted to; a loaded model does not know it."""
        return self.__dict__.get("_frames")

    # -- the probabilistic model -----------------------------------------------------------------

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Mean log-likelihood of the rows under the probabilistic PCA model.

        Parameters
        ----------
        X : data of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        return float(np.mean(self.score_samples(X)))

    def score_samples(self, X: Any) -> np.ndarray:  # noqa: N803
        """Log-likelihood of each row under the probabilistic PCA model.

        Needs no matrix of order ``n_features``.

        Parameters
        ----------
        X : data of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        model = self._model()
        return probabilistic.log_likelihood(model, self._seen(X).widened())

    def get_covariance(self) -> np.ndarray:
        """Covariance of the probabilistic PCA model.

        Refused if it takes more than ``max_memory`` or, without one, more than a quarter of the
        memory of the machine.

        Returns
        -------
        ndarray of shape (n_features, n_features)
        """
        return probabilistic.covariance(self._model(square=True))

    def get_precision(self) -> np.ndarray:
        """Inverse of :meth:`get_covariance`, with the same limit on memory.

        Returns
        -------
        ndarray of shape (n_features, n_features)
        """
        return probabilistic.precision(self._model(square=True))

    def _model(self, square: bool = False) -> probabilistic.Model:
        self._check_fitted()
        if square:
            check_square(self.components_.shape[1], as_bytes(self.max_memory))
        return probabilistic.Model(
            # Orthonormal in float64: small distances from the span depend on it.
            orthonormalise(self.components_.T.astype(np.float64, order="C"))[0].T,
            self.explained_variance_.astype(np.float64),
            self.noise_variance_,
            self.scale_,
        )

    # -- rows in batches -------------------------------------------------------------------------

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> PrimedPCA:  # noqa: N803
        """Update the model with more rows, each seen once, in memory fixed by the first call.

        Frequent Directions keeps a sketch of ``1.5 n_components + 64`` directions, or as many as
        ``priming=FrequentDirections(sketch_size=...)`` says or ``max_memory`` allows; more
        directions take longer and prove more.  The cut into batches makes no difference, and a
        batch may be a single row: rows are buffered until enough can be processed together.
        Attributes are computed when they are first read after a batch, which costs one
        decomposition of the sketch.  The first call after ``fit``, which keeps no sketch, starts
        anew.

        With fewer than ``n_components + 1`` rows so far there are ``n_components_`` =
        ``n_samples_ - 1`` components, or ``n_samples_`` without centring.  ``certificate_`` is
        deterministic, and wide: one pass gives no residuals.  If the data can be read again,
        ``fit`` with ``warm_start=True`` starts from what is known.  ``checkpoint`` and ``engine``
        are for ``fit``: save the model between batches to continue after a crash.

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
        # Rows of two threads are added one batch after the other.
        with lock_of(self), unchanged_by_errors(self):
            options = self._options()
            check_options(options)
            stream.check_source(None, options)
            known = self.__dict__.get("stream_")
            source = self._source(X, reset=known is None)
            stream.check_source(source, options)
            labels = partial(frames.column_labels, source)
            options["scale"] = frames.aligned_rows(options["scale"], labels, "scale")
            frames.check_row_order(sample_weight, source)
            k = stream.component_count(self.n_components, source.shape[1])
            known = known or stream.empty_stream(source.shape[1], k, options)
            stream.check_unchanged(known, k, options)
            layout = None
            if known.rows:
                layout = vars(self).get("layout_")
                stream.check_map(vars(self).get("map_"), source.traits.map_name)
                stream.check_layout(layout, source.traits.layout)
            weights = stream.as_weights(sample_weight, source.shape[0])
            self._set_stream(stream.taken_in(known, source, weights, self.center))
            self.map_ = source.traits.map_name
            self.layout_ = source.traits.layout or layout
            self._stream_components = k
        return self

    def merge(self, other: Any) -> PrimedPCA:
        """Add the rows that another model has seen by ``partial_fit``; the bounds of both add up.

        Parameters
        ----------
        other : PrimedPCA
            Of the same columns, centred and scaled alike.  It is not changed.

        Returns
        -------
        PrimedPCA
            Itself, as after the rows of both, with the sketch in its own size.
        """
        with lock_of(self), unchanged_by_errors(self):
            if not isinstance(other, PrimedPCA):
                raise TypeError(f"`other` is a {type(other).__name__}. Pass a PrimedPCA.")
            mine, theirs = (vars(model).get("stream_") for model in (self, other))
            if mine is None or theirs is None:
                raise ValueError("merging needs sketches. Call `partial_fit` on both first.")
            one, two = (vars(model).get("feature_names_in_") for model in (self, other))
            if one is not None and two is not None and not np.array_equal(one, two):
                raise ValueError("the models have different `feature_names_in_`. Rename columns.")
            stream.check_map(vars(self).get("map_"), vars(other).get("map_"))
            stream.check_layout(vars(self).get("layout_"), vars(other).get("layout_"))
            self._set_stream(stream.merged(mine, theirs))
        return self

    def _set_stream(self, seen: Stream) -> None:
        for name in stream.LEARNT:
            self.__dict__.pop(name, None)
        self.stream_ = seen

    def __getattr__(self, name: str) -> Any:
        # Called only for missing attributes: those of a stream are computed when first read.
        if name in stream.LEARNT and "stream_" in self.__dict__:
            with lock_of(self):  # or they might be those of an earlier stream
                if name not in self.__dict__:
                    proven = self.certificate != "none"
                    # As of the last batch: a later `n_components` may suit `fit` only.
                    k = vars(self).get("_stream_components", self.n_components)
                    found = stream.fitted_by(self.stream_, k, self.tol, proven)
                    self.__dict__.update(found)
                return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- files and other forms ---------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model to one safetensors file; :func:`primedpca.load` reads it.

        Parameters
        ----------
        path : path
            By custom ``something.safetensors``, written atomically.  Parameters that belong to a
            machine are not saved: ``engine``, ``checkpoint``, ``device`` and ``max_memory``.  Of
            a ``scale`` or ``priming`` with labels, the numbers are saved in the order of the
            columns.
        overwrite : bool, default=False
            Whether to replace an existing file.
        """
        getattr(self, "components_", None)  # attributes of a stream are computed when read
        fitted = {name: value for name, value in self.__dict__.items() if name.endswith("_")}
        options, names = self._options(), partial(fitted.get, "feature_names_in_")
        # A file has no labels: the numbers must be in the order in which they will be read.
        options["scale"] = frames.aligned_rows(options["scale"], names, "scale")
        options["priming"] = with_columns_of(options["priming"], names)
        write_model(path, options, fitted, overwrite)

    def to_sklearn(self) -> Any:
        """Return the same model as scikit-learn's PCA, for use without primedpca.

        Returns
        -------
        sklearn.decomposition.PCA
            Or, if columns were scaled, a Pipeline of a StandardScaler and a PCA.  It holds
            copies, and transforms as this model does, up to rounding, without certificates.  With
            ``whiten``, components without variance have 1 in ``explained_variance_``, because
            they are not divided here; scikit-learn divides by at least 2.2e-16, so give data with
            smaller standard deviations in another unit.
        """
        from sklearn.decomposition import PCA
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        self._check_fitted()
        # While `patch_sklearn` replaces it, scikit-learn's own class is the base of ours.
        own = PCA if PCA.__module__.startswith("sklearn.") else PCA.__base__
        pca = own(self.n_components_, whiten=self.whiten)
        for name in (
            *("components_", "explained_variance_", "explained_variance_ratio_"),
            *("singular_values_", "mean_", "n_components_", "n_samples_", "noise_variance_"),
            *("n_features_in_", "feature_names_in_"),
        ):
            if hasattr(self, name):
                setattr(pca, name, copy(getattr(self, name)))
        if self.whiten:
            # In float64: scikit-learn divides by no deviation below the resolution of the type.
            variances = self.explained_variance_.astype(np.float64)
            pca.explained_variance_ = np.where(self._stretch()[:, 0] == 1.0, 1.0, variances)
        if self.scale_ is None:
            return pca
        scaler = StandardScaler()
        scaler.mean_, scaler.scale_ = self.mean_.copy(), self.scale_.copy()
        scaler.var_, scaler.n_samples_seen_ = self.scale_**2, self.n_samples_
        scaler.n_features_in_ = self.n_features_in_
        pca.mean_ = np.zeros_like(self.mean_)
        if hasattr(self, "feature_names_in_"):
            scaler.feature_names_in_ = pca.feature_names_in_
            del pca.feature_names_in_
        return make_pipeline(scaler, pca)

    # -- input -------------------------------------------------------------------------------

    def _source(self, X: Any, reset: bool) -> DataSource:  # noqa: N803
        """``X`` as a source; scikit-learn validates the types that it knows."""
        if reset:
            self.__dict__.pop("_frames", None)
        array = type(X) is np.ndarray and X.ndim == 2 and X.size and X.dtype.kind in "biuf"
        if reset and array:
            # Such an array passes all of scikit-learn's checks, which take as long as a small fit.
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = X.shape[1]
            source = as_source(X)
        elif isinstance(X, (np.memmap, np.ma.MaskedArray)) or not (
            isinstance(X, (list, tuple, np.ndarray)) or is_sparse(X)
        ):
            check_held(X, "`X`")
            X = frames.as_native(X)  # noqa: N806  (scikit-learn knows the names of these)
            library = library_of_frame(X)
            if reset and library is not None:
                self._frames = library
            source = as_source(X)
            # The names of frames are compared in scikit-learn's own words.
            named = library is None and check_names(self, source, reset)
            if not named and (reset or not isinstance(X, DataSource)):
                validation._check_feature_names(self, frames.without_index(X), reset=reset)
            if reset:
                self.n_features_in_ = source.shape[1]
            else:
                validation._check_n_features(self, np.broadcast_to(0, source.shape), reset=False)
        else:
            check_python_numbers(X, "`X`")
            options = {"accept_sparse": True, "dtype": "numeric", "ensure_all_finite": False}
            source = as_source(validation.validate_data(self, X, reset=reset, **options))
        if self.device is None:
            return source
        check_device(self.device)
        return on_device(source, self.device, as_bytes(self.max_memory))

    def _seen(self, X: Any) -> Centred:  # noqa: N803
        """Operator of new rows, with the fitted mean and scale."""
        self._check_fitted()
        source = self._source(X, reset=False)
        stream.check_same_map(vars(self).get("map_"), source.traits.map_name)
        stream.check_layout(vars(self).get("layout_"), source.traits.layout)
        shared = source.traits.shared  # of rows on several ranks, use this one's
        own = source if shared is None else shared.own
        return self._prepared(own)

    def _prepared(self, source: Any) -> Centred:
        """Operator of rows of any kind, with the fitted mean, scale and fill values."""
        if self.center_:
            check_whole_numbers(source, self.mean_, self.scale_, self.explained_variance_)
        return Centred.given(source, *self._preparation())

    def _preparation(self) -> tuple[np.ndarray, np.ndarray | None, str, np.ndarray | None]:
        """Mean, scale, treatment of missing values, and what replaces them if that is known.

        Without centring, earlier versions did not keep what they filled in.
        """
        fill = self.mean_ if self.center_ else getattr(self, "fill_", None)
        return self.mean_, self.scale_, self.missing, fill

    def _repr_html_inner(self) -> str:
        """scikit-learn's diagram, followed by what was found and proven if the model is fitted."""
        return str(super()._repr_html_inner()) + self._fitted_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Formats from which a notebook chooses; HTML unless scikit-learn is set to text."""
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._fitted_html()
        return bundle

    def _fitted_html(self) -> str:
        return model_html(self) if hasattr(self, "n_components_") else ""

    def __getstate__(self) -> dict[str, Any]:
        """All attributes, for a pickle or a copy; of the client of a cluster its address."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"engine": storable(self.engine)}

    def __sklearn_clone__(self) -> PrimedPCA:
        """A fresh estimator on the same engine: a client of a cluster is not copied."""
        bare = copy(self)
        bare.engine = None
        fresh: PrimedPCA = super(PrimedPCA, bare).__sklearn_clone__()
        fresh.engine = self.engine
        return fresh

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "mean"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _check_scores(scores: Any) -> None:
    """Refuse scores that are not finite, in the words of ``transform``."""
    xp = namespace(scores)
    finite = xp.isfinite(scores)
    if not bool(xp.all(finite)):
        wrong = int(xp.sum(xp.astype(~finite, xp.int64)))
        refuse(Centred(as_source(scores), center=False), wrong, fillable=False)


def load(path: str | os.PathLike[str]) -> PrimedPCA:
    """Read a model that :meth:`PrimedPCA.save` wrote.

    Parameters
    ----------
    path : path
        The file may come from anywhere: nothing in it is run, every byte is compared with its
        checksum, and every value is validated.  Raises ValueError for an invalid one.

    Returns
    -------
    PrimedPCA
        With its parameters, components, certificate and history.  ``engine``, ``checkpoint``,
        ``device`` and ``max_memory`` belong to a machine and not to a model: they are not saved,
        and have their defaults.  Continue on new data with
        ``load(path).set_params(warm_start=True).fit(X)``.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> from primedpca import PrimedPCA, load
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> PrimedPCA(2).fit(X).save(path)
    >>> load(path).transform(X).shape
    (100, 2)
    """
    params, fitted = read_model(path)
    model = PrimedPCA(**params)
    # Not in files before 0.2.
    known = {"center_": bool(model.center), "standardised_": isinstance(model.scale, str)}
    model.__dict__.update(known | fitted)
    return model
