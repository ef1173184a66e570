"""Drop-in replacements of scikit-learn's PCA classes, and a switch that puts them in place.

:class:`PCA`, :class:`IncrementalPCA` and :class:`TruncatedSVD` have the parameters, fitted
attributes and errors of scikit-learn's classes, of which they are subclasses.  Only the fit
differs: it runs on the engine of :class:`primedpca.PrimedPCA`, never copies or overwrites the
data, and sets one attribute more, ``certificate_``.  A fit that misses its tolerance does not warn,
as scikit-learn's does not either; the certificate says what is proven.
"""

from __future__ import annotations

import sys
from copy import copy
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_cupy_array, is_torch_array
from scipy import sparse
from sklearn import decomposition
from sklearn.base import _fit_context
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils._array_api import _convert_to_numpy, device, get_namespace
from sklearn.utils.extmath import _incremental_mean_and_var, safe_sparse_dot
from sklearn.utils.sparsefuncs import mean_variance_axis
from sklearn.utils.validation import validate_data

from primedpca._core.arrays import Like, check_unmasked, describe, dtype_name, work_dtype
from primedpca._core.orthonormal import as_components, complete
from primedpca._core.parameters import DEFAULT
from primedpca._model.attributes import unchanged_by_errors
from primedpca._planning.plan import likeliest_dimension
from primedpca.estimator import PrimedPCA
from primedpca.priming import FrequentDirections
from primedpca.result import Certificate

__all__ = ["PCA", "IncrementalPCA", "TruncatedSVD", "patch_sklearn", "unpatch_sklearn"]

#: Angles in radians to which ``"arpack"`` iterates where its own ``tol`` is 0, by dtype.  ARPACK
#: itself is off by 1e-3 for scaled PBMC3k counts with 50 components in float32.
FINEST = {"float64": 1e-8, "float32": 1e-4}
#: Order up to which a full decomposition costs less than iterations to that tolerance.
EXACT_TO = 2048
#: Passes after which ``"arpack"`` and ``"randomized"`` give up.
MOST_PASSES = {"arpack": 1000, "randomized": DEFAULT.max_passes}
#: Columns up to which a sketch keeps all directions; of wider rows half as many, if the first
#: batch has as many rows, and at least the 1.5 k + 64 of the estimator.
LOSSLESS_TO = 1024
COPIED = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_")


class _Engine(PrimedPCA, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """The estimator that computes; what it could not prove is told by its certificate alone.

    Its scores are arrays, also where ``sklearn.set_config`` asks for data frames: the class that
    it computes for makes these.
    """

    def _warn(self, words: str) -> None:
        pass


def _engine(solver: str, n_components: Any, asked: Any, X: Any, **options: Any) -> _Engine:  # noqa: N803
    """Return the unfitted estimator that a solver of scikit-learn is mapped to.

    ``asked`` is scikit-learn's estimator, of which ``tol`` and ``random_state`` are used.
    """
    if solver in ("full", "covariance_eigh"):
        return _Engine(n_components, priming="exact", random_state=0, **options)
    # A fixed seed for None: repeated fits then agree in every bit.
    state = asked.random_state
    seed = 0 if state is None else check_random_state(state).randint(2**31 - 1)
    options |= {"random_state": int(seed), "max_passes": MOST_PASSES[solver]}
    if solver == "arpack":
        options["tol"] = min(max(asked.tol, FINEST[dtype_name(X.dtype)]), DEFAULT.tol)
        if min(X.shape) <= EXACT_TO and asked.tol < DEFAULT.tol:
            options["priming"] = "exact"
    return _Engine(n_components, **options)


# scikit-learn is not typed, so a type checker cannot know its classes.
class PCA(decomposition.PCA):  # type: ignore[misc]
    """Principal component analysis with scikit-learn's signature and a certificate.

    Parameters
    ----------
    n_components : int, float, "mle" or None, default=None
        As in scikit-learn, with the same errors.
    copy : bool, default=True
        Accepted.  ``X`` is never overwritten, also not with ``False``.
    whiten : bool, default=False
        Scale the scores to unit variance.
    svd_solver : {"auto", "full", "covariance_eigh", "arpack", "randomized"}, default="auto"
        ``"auto"`` chooses among the others by scikit-learn's own rule.  ``"full"`` and
        ``"covariance_eigh"`` are both ``priming="exact"``: a full decomposition of the
        covariance or of the Gram matrix, whichever is smaller.  ``"arpack"`` iterates until each
        component is within ``tol`` of the true one (up to ``min(n_samples, n_features)`` = 2048 a
        full decomposition is quicker), and ``"randomized"`` until it is within pi/1024, by the
        cheapest algorithm that :func:`primedpca.plan` finds.
    tol : float, default=0.0
        For ``"arpack"``: angle in radians, at most pi/1024.  0 means 1e-8 for float64 and 1e-4
        for float32.
    iterated_power : int or "auto", default="auto"
        Validated and otherwise ignored: iterations continue until the tolerance is met.
    n_oversamples : int, default=10
        Validated and otherwise ignored.
    power_iteration_normalizer : {"auto", "QR", "LU", "none"}, default="auto"
        Validated and otherwise ignored.
    random_state : int, RandomState or None, default=None
        Seed for ``"arpack"`` and ``"randomized"``.  ``None`` is the same fixed seed in every fit.

    Attributes
    ----------
    certificate_ : Certificate
        Proven bounds on the error of every component; see docs/certificates.md.
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_, \
n_components_, n_samples_, noise_variance_, n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca.sklearn import PCA
    >>> pca = PCA(2).fit(load_iris().data)
    >>> pca.explained_variance_ratio_.round(3).tolist()
    [0.925, 0.053]
    >>> bool((pca.certificate_.angle_bounds < 1e-6).all())
    True
    """

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> PCA:  # noqa: N803
        """Find the components of ``X``.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            It is not modified.
        y : ignored

        Returns
        -------
        PCA
        """
        with unchanged_by_errors(self):
            self._fit_by_engine(X)
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None) -> Any:  # noqa: N803
        """Find the components of ``X`` and return the scores of its rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        array of shape (n_samples, n_components_)
        """
        with unchanged_by_errors(self):
            model, X = self._fit_by_engine(X)  # noqa: N806
        # Not by `transform`, which centres after the product: with a large mean that cancels.
        scores = _in_library_of(X, model.transform(_readable(X))[:, : self.n_components_])
        if self.whiten:
            xp, _ = get_namespace(scores)
            scale = xp.sqrt(self.explained_variance_)
            scores = scores / xp.clip(scale, min=float(xp.finfo(scale.dtype).eps))
        return scores

    def _fit_by_engine(self, X: Any) -> tuple[PrimedPCA, Any]:  # noqa: N803
        """Set the fitted attributes; return the fitted engine and the validated data."""
        X = self._validated(X)  # noqa: N806
        self._fit_svd_solver = solver = self._solver(X)
        wanted = min(X.shape) - (solver == "arpack")
        wanted = wanted if self.n_components is None else self.n_components
        _check_count(wanted, solver, X.shape)
        # These numbers are chosen by all variances.
        chosen = isinstance(wanted, str) or wanted < 1
        model = _engine(solver, None if chosen else int(wanted), self, X).fit(_readable(X))
        self._keep(model, _chosen(model, wanted) if chosen else int(wanted), X)
        return model, X

    def _validated(self, X: Any) -> Any:  # noqa: N803
        """Return the data in float32 or float64, checked with scikit-learn's errors."""
        xp, is_array_api = get_namespace(X)
        if sparse.issparse(X) and self.svd_solver not in ("auto", "arpack", "covariance_eigh"):
            raise TypeError(
                'PCA only support sparse inputs with the "arpack" and "covariance_eigh" solvers, '
                f'while "{self.svd_solver}" was passed. See TruncatedSVD for a possible '
                "alternative."
            )
        if self.svd_solver == "arpack" and is_array_api:
            raise ValueError("PCA with svd_solver='arpack' is not supported for Array API inputs.")
        options = {"accept_sparse": ("csr", "csc"), "dtype": [xp.float64, xp.float32]}
        check_unmasked(X, "`X`")
        return validate_data(self, X, **options)

    def _solver(self, X: Any) -> str:  # noqa: N803
        """Return the solver that scikit-learn would use for these data."""
        n, d = X.shape
        k = min(n, d) if self.n_components is None else self.n_components
        if self.svd_solver != "auto":
            return str(self.svd_solver)
        if sparse.issparse(X):
            return "arpack"
        if d <= 1000 and n >= 10 * d:
            return "covariance_eigh"
        small = max(n, d) <= 500 or isinstance(k, str)
        return "full" if small or not 1 <= k < 0.8 * min(n, d) else "randomized"

    def _keep(self, model: PrimedPCA, k: int, X: Any) -> None:  # noqa: N803
        """Set the fitted attributes, as arrays of the library and on the device of ``X``."""
        for name in (*COPIED, "mean_"):
            value = getattr(model, name)
            setattr(self, name, _in_library_of(X, value if name == "mean_" else value[:k].copy()))
        rank, proof = min(X.shape), model.certificate_
        # scikit-learn has the variances of all features here, and takes the mean of them.
        size = X.shape[1] if self._fit_svd_solver == "covariance_eigh" and k < rank else rank
        left = size - k
        rest = float(model.explained_variance_[k:].sum()) + (
            model.noise_variance_ * (min(X.shape) - model.n_components_)
        )
        self.n_components_, self.n_samples_ = k, X.shape[0]
        self.noise_variance_ = _number(rest / left if left else 0.0, X)
        self.certificate_ = None if proof is None else proof.first(k)


def _readable(X: Any) -> Any:  # noqa: N803
    """Return the data as the engine reads them: an unknown array library by way of NumPy."""
    xp, is_array_api = get_namespace(X)
    known = not is_array_api or is_torch_array(X) or is_cupy_array(X)
    return X if known else _convert_to_numpy(X, xp)


def _number(value: float, X: Any) -> Any:  # noqa: N803
    """Return a number that combines with arrays of the library of ``X``.

    With NumPy it is NumPy's, as scikit-learn's: its square may overflow without an error.
    """
    return value if get_namespace(X)[1] else np.float64(value)


def _in_library_of(X: Any, values: Any) -> Any:  # noqa: N803
    """Return ``values`` as an array of the library and on the device of ``X``."""
    xp, is_array_api = get_namespace(X)
    return xp.asarray(values, device=device(X)) if is_array_api else values


def _chosen(model: PrimedPCA, wanted: Any) -> int:
    """Return the number of components for a fraction, ``"mle"`` or 0, by scikit-learn's rules."""
    if wanted == 0:
        return 0
    if isinstance(wanted, str) and model.n_components_ < 2:
        return 0  # scikit-learn tries the numbers from 1 to below that of the features
    if isinstance(wanted, str):
        return likeliest_dimension(model.explained_variance_, model.n_samples_)
    reached = np.cumsum(model.explained_variance_ratio_)
    return min(int(np.searchsorted(reached, wanted, side="right")) + 1, reached.size)


def _check_count(wanted: Any, solver: str, shape: tuple[int, int]) -> None:
    """Raise scikit-learn's errors for a number of components that the solver does not accept."""
    most, few = min(shape), solver in ("arpack", "randomized")
    words = f"n_components={wanted!r} must be"
    if isinstance(wanted, str):
        if few:
            raise ValueError(
                f"n_components={wanted!r} cannot be a string with svd_solver={solver!r}"
            )
        if shape[0] < shape[1]:
            raise ValueError("n_components='mle' is only supported if n_samples >= n_features")
        return
    if not few <= wanted <= most:
        raise ValueError(
            f"{words} between {int(few)} and min(n_samples, n_features)={most} with "
            f"svd_solver={solver!r}"
        )
    if solver == "arpack" and wanted == most:
        raise ValueError(
            f"{words} strictly less than min(n_samples, n_features)={most} with svd_solver='arpack'"
        )


class IncrementalPCA(decomposition.IncrementalPCA):  # type: ignore[misc]
    """PCA of rows that arrive in batches, with scikit-learn's signature and a certificate.

    Rows are taken into the sketch of :meth:`primedpca.PrimedPCA.partial_fit`.  With up to 1,024
    columns it keeps all directions, so that nothing is lost from batch to batch and the result is
    the PCA of all rows.  With more it keeps as many directions as the first batch has rows, at
    most 512 and at least ``1.5 n_components + 64``, where scikit-learn keeps ``n_components``.
    What is lost then makes ``explained_variance_`` too small.  :meth:`fit` reads ``X`` once.

    Parameters
    ----------
    n_components : int or None, default=None
        As in scikit-learn, with the same errors.
    whiten : bool, default=False
        Scale the scores to unit variance.
    copy : bool, default=True
        Accepted.  ``X`` is never overwritten, also not with ``False``.
    batch_size : int or None, default=None
        Rows that :meth:`fit` takes at a time; ``None`` is ``5 * n_features``.  It affects memory
        only.

    Attributes
    ----------
    certificate_ : Certificate
        Deterministic; wide for more than 1,024 columns, because rows that are seen once give no
        residuals.
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_, var_, \
noise_variance_, n_components_, n_samples_seen_, batch_size_, n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca.sklearn import IncrementalPCA
    >>> X = load_iris().data
    >>> pca = IncrementalPCA(2).partial_fit(X[:50]).partial_fit(X[50:])
    >>> pca.explained_variance_ratio_.round(3).tolist()
    [0.925, 0.053]
    """

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> IncrementalPCA:  # noqa: N803
        """Fit the model to ``X``, in batches of ``batch_size`` rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            It is not modified.
        y : ignored

        Returns
        -------
        IncrementalPCA
        """
        options = {"accept_sparse": ["csr", "csc", "lil"], "dtype": [np.float64, np.float32]}
        check_unmasked(X, "`X`")
        with unchanged_by_errors(self):
            X = validate_data(self, X, **options)  # noqa: N806
            n, d = X.shape
            self.batch_size_ = 5 * d if self.batch_size is None else self.batch_size
            X = X.tocsr() if sparse.issparse(X) else X  # noqa: N806
            self._begin()
            for rows in gen_batches(n, self.batch_size_, min_batch_size=self.n_components or 0):
                self._take(X[rows].toarray() if sparse.issparse(X) else X[rows])
            self._keep()
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, check_input: bool = True) -> IncrementalPCA:  # noqa: N803
        """Update the model with more rows.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            It is not modified.
        y : ignored
        check_input : bool, default=True
            Whether to validate ``X``.

        Returns
        -------
        IncrementalPCA
        """
        if check_input and sparse.issparse(X):
            raise TypeError(
                "IncrementalPCA.partial_fit does not support sparse input. Either convert "
                "data to dense or use IncrementalPCA.fit to do so in batches."
            )
        first = not hasattr(self, "components_")
        with unchanged_by_errors(self):
            if check_input:
                check_unmasked(X, "`X`")
                kinds = [np.float64, np.float32]
                X = validate_data(self, X, dtype=kinds, reset=first)  # noqa: N806
            if first:
                self._begin()
            self._take(X)
            self._keep()
        return self

    def _begin(self) -> None:
        """Forget all rows."""
        self._sketch: PrimedPCA | None = None
        self.n_samples_seen_, self.mean_, self.var_ = 0, 0.0, 0.0

    def _take(self, X: np.ndarray) -> None:  # noqa: N803
        """Take a batch into the sketch and into the statistics of the columns."""
        k = self._count(X.shape)
        if self._sketch is None:
            sketch: PrimedPCA = _Engine(k, priming=FrequentDirections(_sketch_size(k, X.shape)))
        else:
            sketch = copy(self._sketch)  # after an error the model has the sketch without `X`
        # First the sketch, which refuses rows that it cannot hold.
        self._sketch = sketch.partial_fit(X)
        self.mean_, self.var_, seen = _incremental_mean_and_var(
            X,
            last_mean=self.mean_,
            last_variance=self.var_,
            last_sample_count=np.repeat(self.n_samples_seen_, X.shape[1]),
        )
        self.n_samples_seen_, self.n_components_ = seen[0], k

    def _count(self, shape: tuple[int, int]) -> int:
        """Return the number of components, checked with scikit-learn's errors."""
        n, d = shape
        known = None if self._sketch is None else self.n_components_
        k = self.n_components
        if k is None:
            return min(n, d) if known is None else int(known)
        if k > d:
            raise ValueError(
                f"n_components={k!r} invalid for n_features={d}, need more rows than columns for "
                "IncrementalPCA processing"
            )
        if known is None and k > n:
            raise ValueError(
                f"n_components={k} must be less or equal to the batch number of samples {n} for "
                "the first partial_fit call."
            )
        if known is not None and k != known:
            raise ValueError(
                f"Number of input features has changed from {known} to {k} between calls to "
                "partial_fit! Try setting n_components to a fixed value."
            )
        return int(k)

    def _keep(self) -> None:
        """Set the fitted attributes by the sketch."""
        model: Any = self._sketch
        k, seen = self.n_components_, self.n_samples_seen_
        more = k - model.n_components_
        self.components_ = _filled(model.components_, more)
        self.explained_variance_ = np.pad(model.explained_variance_, (0, more))
        self.singular_values_ = np.pad(model.singular_values_, (0, more))
        total = float(np.sum(self.var_)) * seen
        squares = self.singular_values_**2
        # Rounding may leave less in the total than in its parts.
        self.explained_variance_ratio_ = squares / (max(total, float(squares.sum())) or 1.0)
        self.noise_variance_ = np.float64(model.noise_variance_)  # as `_number` of NumPy
        self.certificate_ = _with_zeros(model.certificate_, more)


def _sketch_size(k: int, shape: tuple[int, int]) -> int:
    """Return the number of directions to keep: all of narrow rows, so that nothing is lost."""
    n, d = shape
    return d if d <= LOSSLESS_TO else min(d, max(int(1.5 * k) + 64, min(n, LOSSLESS_TO // 2)))


def _filled(components: np.ndarray, more: int) -> np.ndarray:
    """Append orthonormal rows, for directions without variance."""
    if not more:
        return components
    k, d = components.shape
    like = Like(array_namespace(components), None, components.dtype, d)
    return np.asarray(as_components(complete(components.T, like, k + more, 0)))


def _with_zeros(proof: Certificate, more: int) -> Certificate:
    """Extend a certificate by components beyond the rank of the rows, which have no variance."""
    return Certificate(
        np.pad(proof.angle_bounds, (0, more), constant_values=np.pi / 2),
        np.pad(proof.eigenvalue_bounds, ((0, more), (0, 0))),
        proof.clusters,
        proof.kind,
        proof.failure_probability,
        np.pad(proof.zero, (0, more), constant_values=True),
    )


class TruncatedSVD(decomposition.TruncatedSVD):  # type: ignore[misc]
    """Truncated SVD, without centring, with scikit-learn's signature and a certificate.

    Parameters
    ----------
    n_components : int, default=2
        As in scikit-learn, with the same errors.
    algorithm : {"arpack", "randomized"}, default="randomized"
        ``"arpack"`` iterates until each vector is within ``tol`` of the true one, and
        ``"randomized"`` until it is within pi/1024.
    n_iter : int, default=5
        Validated and otherwise ignored: iterations continue until the tolerance is met.
    n_oversamples : int, default=10
        Validated and otherwise ignored.
    power_iteration_normalizer : {"auto", "QR", "LU", "none"}, default="auto"
        Validated and otherwise ignored.
    random_state : int, RandomState or None, default=None
        Seed.  ``None`` is the same fixed seed in every fit.
    tol : float, default=0.0
        For ``"arpack"``: angle in radians, at most pi/1024.  0 means 1e-8 for float64 and 1e-4
        for float32.

    Attributes
    ----------
    certificate_ : Certificate
        Proven bounds on the error of every right singular vector.  Its ``eigenvalue_bounds`` are
        of squared singular values divided by ``n_samples - 1``.
    components_, explained_variance_, explained_variance_ratio_, singular_values_, \
n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from scipy import sparse
    >>> from primedpca.sklearn import TruncatedSVD
    >>> X = sparse.random(200, 100, density=0.1, format="csr", rng=0)
    >>> TruncatedSVD(5).fit_transform(X).shape
    (200, 5)
    """

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:  # noqa: N803
        """Find the singular vectors of ``X`` and return the scores of its rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            It is not modified.
        y : ignored

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        with unchanged_by_errors(self):
            return self._fit_by_engine(X)

    def _fit_by_engine(self, X: Any) -> np.ndarray:  # noqa: N803
        """Set the fitted attributes; return the scores of the rows."""
        options = {"accept_sparse": ["csr", "csc"], "ensure_min_features": 2}
        check_unmasked(X, "`X`")
        X = validate_data(self, X, **options)  # noqa: N806
        if not (isinstance(X, np.ndarray) or sparse.issparse(X)):
            # `array_api_dispatch` keeps tensors as they are.
            raise TypeError(f"TruncatedSVD does not support {describe(X)}. Pass a NumPy array.")
        work_dtype(X.dtype)  # refuses dates
        # scikit-learn computes in float64 unless the data are float32.
        X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)  # noqa: N806
        k = self._count(X.shape)
        model = _engine(self.algorithm, k, self, X, center=False).fit(X)
        self.components_, self.singular_values_ = model.components_, model.singular_values_
        self.certificate_ = model.certificate_
        scores: np.ndarray = safe_sparse_dot(X, self.components_.T)
        self.explained_variance_ = np.var(scores, axis=0)
        self.explained_variance_ratio_ = self.explained_variance_ / _total_variance(X)
        return scores

    def _count(self, shape: tuple[int, int]) -> int:
        """Return the number of components, checked with scikit-learn's and SciPy's errors."""
        k, d = self.n_components, shape[1]
        if self.algorithm == "arpack" and k >= min(shape):
            raise ValueError("`k` must be an integer satisfying `0 < k < min(A.shape)`.")
        if k > d:
            raise ValueError(f"n_components({k}) must be <= n_features({d}).")
        return min(int(k), min(shape))


def _total_variance(X: Any) -> float:  # noqa: N803
    """Return the sum of the variances of all columns, of a few columns at a time."""
    if sparse.issparse(X):
        return float(mean_variance_axis(X, axis=0)[1].sum())
    columns = gen_batches(X.shape[1], max(1, 2**21 // X.shape[0]))
    return float(sum(np.var(X[:, some], axis=0).sum() for some in columns))


# -- in place of scikit-learn's own ----------------------------------------------------------

#: scikit-learn's classes, and those that take their place.
REPLACED: dict[type, type] = {
    getattr(decomposition, new.__name__): new for new in (PCA, IncrementalPCA, TruncatedSVD)
}
#: Names that were bound to the classes here before :func:`patch_sklearn`; None if it is not active.
_own: set[tuple[str, str]] | None = None


class _Patch:
    """Result of :func:`patch_sklearn`: leaving it as a context undoes what that call did."""

    def __init__(self, fresh: bool) -> None:
        self.fresh = fresh

    def __enter__(self) -> _Patch:
        return self

    def __exit__(self, *error: object) -> None:
        if self.fresh:
            unpatch_sklearn()

    def __repr__(self) -> str:
        names = ", ".join(new.__name__ for new in REPLACED.values())
        return f"<primedpca in place of sklearn.decomposition: {names}>"


def patch_sklearn() -> _Patch:
    """Put the classes of this module in the place of scikit-learn's.

    Afterwards ``from sklearn.decomposition import PCA`` imports :class:`PCA` of this module, and
    likewise :class:`IncrementalPCA` and :class:`TruncatedSVD`.  Names that modules have already
    bound to scikit-learn's classes are bound anew, in every module that is loaded, so that
    scanpy, pipelines and notebooks need no change and the order of imports does not matter.

    Objects that exist keep their class, as do references that are not names of a module: in
    lists, in default arguments, in base classes.  Models pickled before are unpickled as
    scikit-learn's.  A second call changes nothing more.

    Returns
    -------
    context manager
        To be ignored, or used in a ``with`` statement that ends with :func:`unpatch_sklearn`.

    Examples
    --------
    >>> import primedpca
    >>> with primedpca.patch_sklearn():
    ...     from sklearn.decomposition import PCA
    ...     print(PCA.__module__)
    primedpca.sklearn
    """
    global _own
    fresh = _own is None
    if fresh:
        _own = {place[:2] for place in _bindings(set(REPLACED.values()))}
    for module, name, old in _bindings(set(REPLACED)):
        setattr(sys.modules[module], name, REPLACED[old])
    return _Patch(fresh)


def unpatch_sklearn() -> None:
    """Undo :func:`patch_sklearn`: put scikit-learn's own classes back.

    Names that were imported from :mod:`primedpca.sklearn` before the patch keep their class, and
    so do models that were fitted meanwhile.  Without a patch nothing happens.

    Examples
    --------
    >>> import primedpca
    >>> _ = primedpca.patch_sklearn()
    >>> primedpca.unpatch_sklearn()
    >>> from sklearn.decomposition import PCA
    >>> PCA.__module__
    'sklearn.decomposition._pca'
    """
    global _own
    if _own is None:
        return
    originals = {new: old for old, new in REPLACED.items()}
    for module, name, new in _bindings(set(originals)):
        if (module, name) not in _own:
            setattr(sys.modules[module], name, originals[new])
    _own = None


def _bindings(classes: set[type]) -> list[tuple[str, str, type]]:
    """Return module, name and class of every global name that is bound to one of ``classes``.

    The modules that define them are left out: pickle looks there for the class of an object.
    """
    homes, known = {kind.__module__ for kind in classes}, {id(kind): kind for kind in classes}
    found = []
    for module, loaded in list(sys.modules.items()):
        if module in homes or module.partition(".")[0] == "primedpca":
            continue
        # Not by `getattr`, which would import what a module provides lazily.
        names = getattr(loaded, "__dict__", {})
        for name, value in list(names.items()) if isinstance(names, dict) else ():
            if id(value) in known:  # comparing or asking objects of others may run their code
                found.append((module, name, known[id(value)]))
    return found
