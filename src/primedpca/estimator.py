"""PrimedPCA, the scikit-learn face; the only module that imports scikit-learn."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    check_is_fitted,
    validate_data,
)

from primedpca import gaussian
from primedpca.arrays import is_dense, is_sparse, namespace, to_numpy
from primedpca.centred import Centred
from primedpca.planning import likeliest_dimension, make_plan
from primedpca.prime import as_seed
from primedpca.protocols import DataSource
from primedpca.refine import check_rows
from primedpca.result import Decomposition, Status
from primedpca.solve import Solution, solve
from primedpca.sources import as_source

__all__ = ["PrimedPCA"]


class PrimedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Principal component analysis, primed and then refined.

    A priming finds ``k + l`` rough directions, and an exact PCA inside their span gives the
    ``k`` components (Máté & Fleuret, "Speeding up PCA with priming").  Data are never copied,
    centred in place or, if sparse, made dense.

    Parameters
    ----------
    n_components : int, "mle" or None
        How many components to keep; ``None`` keeps ``min(n_samples, n_features)``, ``"mle"``
        guesses the number as scikit-learn does.
    priming : str, Priming, callable or array of shape (n_features, q)
        Who looks for the span: ``"auto"``, a name from :mod:`primedpca.priming`, an object
        with the methods of a Priming, a function ``(X, n_directions) -> directions``, or the
        directions themselves.
    extra_components : int or "auto"
        The paper's ``l``: directions to look for beyond ``n_components``.
    tol : float
        The angle in radians by which the span may still move in a pass when fitting stops,
        for primings that visit the whole data.
    max_passes : int
        The most such visits (for the power method, for each component).
    batch_size : int
        Rows in a mini-batch of the stochastic primings.
    center : bool
        Subtract the mean.  With ``False``, second moments take the place of variances.
    scale : None, "std" or array of shape (n_features,)
        What the centred columns are divided by; ``"std"`` is what StandardScaler does.
    whiten : bool
        Give the transformed data unit variances.
    missing : {"error", "mean"}
        What to do with NaN: refuse, or put the mean of the column in its place.
    refine_share : float in (0, 1]
        The share of the rows, drawn at random, to refine with.
    certificate : {"auto", "none"}
        Certificates are not available in this version; ``"auto"`` is ``"none"``.
    failure_probability : float
        Reserved for certificates; must be left at its default.
    device : str, optional
        Where to compute, such as ``"cuda"``: dense data are moved there with PyTorch.
    engine : Engine, optional
        Where blocks are worked on; ``None`` is this machine.
    max_memory : None
        Not available in this version.
    checkpoint : None
        Not available in this version.
    warm_start : bool
        Start from the components of the last fit.
    random_state : int, RandomState, Generator or None
    verbose : int
        1 prints a line for every pass.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features)
        Orthonormal rows, sorted by variance; the largest entry of each is positive.
    explained_variance_ : ndarray of shape (n_components_,)
        Divided by ``n_samples - 1``, of the scaled data if ``scale`` is given.
    explained_variance_ratio_ : ndarray of shape (n_components_,)
    singular_values_ : ndarray of shape (n_components_,)
    mean_ : ndarray of shape (n_features,)
    scale_ : ndarray of shape (n_features,) or None
    n_components_ : int
    n_samples_ : int
    noise_variance_ : float
        The mean of the variances left out.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Where ``X`` has names for all its columns.
    converged_ : bool
    status_ : Status
        How the fit ended; ``str(status_)`` is a sentence.
    n_passes_ : float
        How often the data were read.
    plan_ : Plan
    history_ : list of dict
        One row for every step of the priming: step, passes, seconds, and the change.

    Notes
    -----
    Attributes are NumPy arrays whatever ``X`` was; :meth:`transform` returns an array of the
    library and on the device of what it is given.

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
        priming: Any = "auto",
        extra_components: Any = "auto",
        tol: float = math.pi / 1024,
        max_passes: int = 60,
        batch_size: int = 1000,
        center: bool = True,
        scale: Any = None,
        whiten: bool = False,
        missing: str = "error",
        refine_share: float = 1.0,
        certificate: str = "auto",
        failure_probability: float = 1e-6,
        device: Any = None,
        engine: Any = None,
        max_memory: Any = None,
        checkpoint: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> PrimedPCA:  # noqa: N803
        """Find the components of ``X``.

        Parameters
        ----------
        X : data of shape (n_samples, n_features)
            Anything that :func:`primedpca.as_source` reads.  It is not modified.
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            Frequencies: a row of weight 2 counts as that row twice.

        Returns
        -------
        PrimedPCA
        """
        self._check_options()
        data = Centred(
            self._source(X, reset=True),
            self.engine,
            sample_weight=sample_weight,
            center=self.center,
            scale=self.scale,
            missing=self.missing,
        )
        check_rows(data)
        guess = self.n_components == "mle" if isinstance(self.n_components, str) else False
        wanted = self._all_for_mle(data) if guess else self.n_components
        plan = make_plan(data, wanted, self.priming, self.extra_components)
        solution = solve(
            data,
            plan,
            tol=self.tol,
            max_passes=self.max_passes,
            batch_size=self.batch_size,
            refine_share=self.refine_share,
            seed=as_seed(self.random_state),
            start=self._warm_directions(),
            progress=self._print if self.verbose else lambda row: None,
        )
        self.plan_ = plan
        self._keep(solution, data, guess)
        return self

    def _check_options(self) -> None:
        """Refuse what is out of range, and what this version does not do."""
        if not (isinstance(self.tol, (int, float)) and 0 < self.tol < math.pi / 2):
            raise ValueError(f"`tol`={self.tol!r} must be an angle between 0 and pi/2 radians.")
        if not 0 < self.refine_share <= 1:
            raise ValueError(f"`refine_share`={self.refine_share} must lie in (0, 1].")
        later = {
            "certificate": self.certificate not in ("auto", "none"),
            "failure_probability": self.failure_probability != 1e-6,
            "max_memory": self.max_memory is not None,
            "checkpoint": self.checkpoint is not None,
        }
        for name, asked in later.items():
            if asked:
                raise ValueError(
                    f"`{name}`={getattr(self, name)!r} is not available in this version of "
                    "primedpca; leave it at its default."
                )

    def _all_for_mle(self, data: Centred) -> int:
        n, d = data.shape
        if n < d:
            raise ValueError(
                f"`n_components`='mle' needs n_samples >= n_features, got {n} < {d}; give a "
                "whole number."
            )
        if d < 2:
            raise ValueError("`n_components`='mle' needs at least 2 features; give 1.")
        return d

    def _warm_directions(self) -> np.ndarray | None:
        if not (self.warm_start and hasattr(self, "components_")):
            return None
        if self.components_.shape[1] != self.n_features_in_:
            return None
        return np.ascontiguousarray(self.components_.T)

    def _print(self, row: dict[str, Any]) -> None:
        change = f", change {row['change']:.2e} rad" if "change" in row else ""
        print(
            f"primedpca: step {row['step']}, {row['passes']:.1f} passes, "
            f"{row['seconds']:.2f} s{change}"
        )

    def _keep(self, solution: Solution, data: Centred, guess: bool) -> None:
        found, status = solution.decomposition, solution.status
        k = found.explained_variance.size
        if guess:
            k = likeliest_dimension(found.explained_variance, found.n_samples)
        dtype = to_numpy(found.components).dtype
        self.components_ = np.ascontiguousarray(to_numpy(found.components)[:k])
        self.mean_ = to_numpy(found.mean)
        self.scale_ = None if found.scale is None else to_numpy(found.scale)
        self.n_components_, self.n_samples_ = k, data.shape[0]
        self._keep_variances(found, k, dtype)
        self.status_, self.n_passes_ = status, solution.passes
        self.converged_ = status is not Status.MAX_PASSES
        self.history_ = solution.history
        if not self.converged_:
            warnings.warn(str(status), ConvergenceWarning, stacklevel=3)

    def _keep_variances(self, found: Decomposition, k: int, dtype: Any) -> None:
        variances, total = found.explained_variance[:k], found.total_variance
        self.explained_variance_ = _fitting(variances, dtype)
        ratio = variances / total if total > 0 else np.zeros_like(variances)
        self.explained_variance_ratio_ = ratio.astype(dtype)
        self.singular_values_ = _fitting(found.singular_values[:k], dtype)
        left = min(self.n_samples_, self.n_features_in_) - k
        rest = max(0.0, total - float(variances.sum()))
        # A rest below rounding is no noise, but what is left of the sum.
        rest = 0.0 if rest <= 10 * np.finfo(dtype).eps * total else rest
        self.noise_variance_ = rest / left if left else 0.0

    # -- using -------------------------------------------------------------------------------

    def transform(self, X: Any, out: Any = None) -> Any:  # noqa: N803
        """Scores: the rows of ``X`` in the coordinates of the components.

        Parameters
        ----------
        X : data of shape (n_samples, n_features)
        out : ndarray of shape (n_samples, n_components_), optional
            Where to write the scores.

        Returns
        -------
        array of shape (n_samples, n_components_)
            Of the library of ``X``; NumPy for sparse data and frames.
        """
        check_is_fitted(self)
        source = self._source(X, reset=False)
        data = Centred.given(source, self.mean_, self.scale_, self.missing)
        weights = self.components_ / self._whitening()[:, None] if self.whiten else self.components_
        scores = data.forward(data.like.asarray(weights.T))
        data.check_finite(scores)
        scores = scores if _is_tensor(X) else to_numpy(scores)
        if out is None:
            return scores
        return _write(out, scores)

    def inverse_transform(self, X: Any) -> Any:  # noqa: N803
        """Rows in the space of the data from scores ``X`` of shape (n_samples, n_components_)."""
        check_is_fitted(self)
        scores = X if is_dense(X) else np.asarray(X)
        if len(scores.shape) != 2 or scores.shape[1] != self.n_components_:
            raise ValueError(
                f"`X` must have shape (n_samples, n_components_={self.n_components_}), got "
                f"{tuple(scores.shape)}."
            )
        weights = self.components_ * self._whitening()[:, None] if self.whiten else self.components_
        back = weights if self.scale_ is None else weights * self.scale_
        xp = namespace(scores)
        where = {} if xp is np else {"device": scores.device}
        return scores @ xp.asarray(back, **where) + xp.asarray(self.mean_, **where)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """The mean log-likelihood of the rows under the probabilistic PCA model."""
        return float(np.mean(self.score_samples(X)))

    def score_samples(self, X: Any) -> np.ndarray:  # noqa: N803
        """The log-likelihood of each row under the probabilistic PCA model.

        Needs no matrix of order ``n_features``.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        data = Centred.given(self._source(X, reset=False), self.mean_, self.scale_, self.missing)
        return gaussian.log_likelihood(self._model(), data)

    def get_covariance(self) -> np.ndarray:
        """The covariance of the probabilistic PCA model, ``(n_features, n_features)``."""
        check_is_fitted(self)
        return gaussian.covariance(self._model())

    def get_precision(self) -> np.ndarray:
        """The inverse of :meth:`get_covariance`."""
        check_is_fitted(self)
        return gaussian.precision(self._model())

    def _model(self) -> gaussian.Model:
        return gaussian.Model(
            self.components_.astype(np.float64),
            self.explained_variance_.astype(np.float64),
            self.noise_variance_,
            self.scale_,
        )

    def _whitening(self) -> np.ndarray:
        """Standard deviations; 1 where the variance is nothing but rounding."""
        deviation = np.sqrt(self.explained_variance_)
        floor = np.finfo(self.components_.dtype).eps * deviation.max(initial=0.0)
        return np.where(deviation > floor, deviation, 1.0).astype(self.components_.dtype)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    # -- input -------------------------------------------------------------------------------

    def _source(self, X: Any, reset: bool) -> DataSource:  # noqa: N803
        """``X`` as a source; scikit-learn looks at what it knows how to look at."""
        if isinstance(X, np.memmap) or not (
            isinstance(X, (list, tuple, np.ndarray)) or is_sparse(X) or np.isscalar(X)
        ):
            if not isinstance(X, DataSource):
                _check_feature_names(self, X, reset=reset)
            source = as_source(X)
            if reset:
                self.n_features_in_ = source.shape[1]
            else:
                _check_n_features(self, np.broadcast_to(0, source.shape), reset=False)
            return self._placed(source)
        checked = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse=True,
            accept_large_sparse=True,
            dtype="numeric",
            ensure_all_finite=False,
        )
        return self._placed(as_source(checked))

    def _placed(self, source: DataSource) -> DataSource:
        if self.device is None or str(self.device) == str(source.device or "cpu"):
            return source
        if not hasattr(source, "array") or is_sparse(source.array):
            raise ValueError(
                f"`device`={self.device!r} takes dense data in memory, not {source!r}; leave "
                "`device` at None."
            )
        try:
            import torch
        except ImportError as error:
            raise ImportError(
                f"`device`={self.device!r} needs PyTorch: pip install 'primedpca[torch]'."
            ) from error
        with warnings.catch_warnings():
            # PyTorch warns that it cannot mark its view as read-only; nothing here writes to it.
            warnings.simplefilter("ignore", UserWarning)
            try:
                return as_source(torch.as_tensor(source.array, device=self.device))
            except (RuntimeError, AssertionError) as error:
                raise ValueError(
                    f"`device`={self.device!r} cannot be used here: {error}"
                ) from error

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "mean"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _fitting(values: np.ndarray, dtype: Any) -> np.ndarray:
    """``values`` in ``dtype``, or in float64 where they would not survive it."""
    info = np.finfo(dtype)
    sizes = np.abs(values[values != 0])
    fits = sizes.size == 0 or (sizes.max() <= info.max and sizes.max() >= info.tiny)
    return values.astype(dtype) if fits else values


def _is_tensor(x: Any) -> bool:
    return is_dense(x) and not isinstance(x, np.ndarray)


def _write(out: Any, scores: Any) -> Any:
    if not hasattr(out, "shape") or tuple(out.shape) != tuple(scores.shape):
        raise ValueError(
            f"`out` must be an array of shape {tuple(scores.shape)}, got "
            f"{getattr(out, 'shape', repr(out))}."
        )
    out[...] = scores
    return out
