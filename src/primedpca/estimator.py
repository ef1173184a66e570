"""PrimedPCA, the scikit-learn face."""

from __future__ import annotations

import math
import warnings
from copy import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    check_is_fitted,
    validate_data,
)

from primedpca._core.arrays import check_python_numbers, is_sparse
from primedpca._core.parameters import as_bytes, check_options, is_proven
from primedpca._model.attributes import attributes, check_names, circumstances
from primedpca._model.callbacks import Watched, with_callbacks
from primedpca._model.gaussian import Probabilistic
from primedpca._model.keeping import Keeping
from primedpca._model.projection import Projecting
from primedpca._model.streaming import Streaming
from primedpca._operator.operator import Centred
from primedpca._planning.plan import all_for_mle, likeliest_dimension, make_plan
from primedpca._session.session import begun_fit
from primedpca._solve.driver import solve
from primedpca._solve.prime import as_seed
from primedpca._solve.refine import check_rows
from primedpca._solve.solution import Solution
from primedpca.engines import together
from primedpca.protocols import DataSource
from primedpca.sources import as_source
from primedpca.sources.memory.frames import is_frame
from primedpca.sources.wrappers.on_device import on_device

__all__ = ["PrimedPCA"]


class PrimedPCA(
    ClassNamePrefixFeaturesOutMixin,
    Projecting,
    Probabilistic,
    Keeping,
    Streaming,
    Watched,
    BaseEstimator,
):
    r"""Principal component analysis, primed and then refined.

    A priming finds ``k + l`` rough directions, and an exact PCA inside their span gives the
    ``k`` components (Máté & Fleuret, "Speeding up PCA with priming").  Data are never copied,
    centred in place or, if sparse, made dense.

    Parameters
    ----------
    n_components : int, float, "mle" or None
        How many components to keep; a share of the variance in (0, 1) keeps the fewest that
        provably hold it, ``None`` keeps ``min(n_samples, n_features)``, ``"mle"`` guesses the
        number as scikit-learn does.
    priming : str, Priming, callable or array of shape (n_features, q)
        Who looks for the span: ``"auto"``, a name from :mod:`primedpca.priming`, an object
        with the methods of a Priming, a function ``(X, n_directions) -> directions``, or the
        directions themselves.
    extra_components : int or "auto"
        The paper's ``l``: directions to look for beyond ``n_components``.
    tol : float
        An angle in radians, pi/1024 by default.  With a certificate, what every component is
        proven to lie within; without, what primings that visit all data expect still to change.
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
    certificate : {"auto", "none", "deterministic", "probabilistic"}
        Prove how wrong each component may be, and go on until all are proven within ``tol``.
        ``"auto"`` is ``"probabilistic"`` (exact or deterministic where that costs no more), and
        ``"none"`` with a ``refine_share`` below 1, which proves nothing.
    failure_probability : float in (0, 1)
        The probability that a probabilistic certificate is false.
    device : str, optional
        Where to compute, such as ``"cuda"``: dense data are moved there with PyTorch.
    engine : None, distributed.Client, str or Engine
        Where blocks are worked on: ``None`` is this machine, and for a Dask array the client in
        scope; a Dask client or the address of its scheduler is that cluster;
        ``"torch_distributed"`` the ranks that ``torchrun`` has started: see docs/clusters.md.
    max_memory : int, str or None
        Bytes, or words such as ``"2GB"``, by which the memory of the process may grow: the
        basis, the blocks and the sketch of a stream are kept to it, beside the data.  On a
        cluster every process keeps to it.
    checkpoint : path or None
        A folder in which the fit keeps what it has found after every pass.  One that was killed
        goes on from there when it is begun again, and ends as it would have, to the bit; one
        that has ended returns what it found at once.  See docs/checkpoints.md.
    warm_start : bool
        Start from the components of the last fit.
    random_state : int, RandomState, Generator or None
    verbose : int or callable
        1 prints a line for every pass and one at the end; a function is called with a row of
        ``history_`` after every pass.  Callbacks of scikit-learn 1.9 are set with
        ``set_callbacks``; see docs/progress.md.

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
        Whether that was exact, proven, or settled; not for a priming that just came to its end.
    status_ : Status
        How the fit ended; ``str(status_)`` is a sentence.
    certificate_ : Certificate or None
    angle_bounds_ : ndarray of shape (n_components_,)
        In radians; pi/2 where nothing is proven.  ``None`` without a certificate.
    n_passes_ : float
        How often the data were read.
    map_ : str or None
        What rows went through, in ``as_source(X, map=...)``; those to transform must, too.
    where_ : str
        Who made the passes: this machine, the ranks of torchrun, a Dask cluster.
    plan_ : Plan
    history_ : list of dict
        One row for every step of the priming: step, passes, seconds, the change it expects
        still, and with a certificate the angle bounds and variances so far.

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
        verbose: Any = 0,
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

    @with_callbacks  # type: ignore[untyped-decorator]
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
        with self._alone(), together(self.engine, "a fit"):
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> PrimedPCA:  # noqa: N803
        options = self.get_params(deep=False)
        check_options(options)
        preparation = {name: options[name] for name in ("center", "scale", "missing")}
        source, start = self._source(X, reset=True), self._warm_directions()
        if source.traits.shared is not None:  # every rank has weights for its own rows
            sample_weight = source.traits.shared.of_all(sample_weight)
        preparation["sample_weight"] = sample_weight
        if self.engine is None:  # a Dask array goes to the client in scope
            options["engine"] = source.traits.client()
        rows, self.history_ = source.shape[0], []
        with (
            begun_fit(source, options, sample_weight, start) as fit,
            self._watched(X, y, sample_weight, rows, fit) as told,
        ):
            data = Centred(source, fit.engine, **preparation)
            check_rows(data)
            proven = is_proven(options)
            wide = Centred(source, fit.engine, float64=True, **preparation) if proven else None
            guess = isinstance(self.n_components, str) and self.n_components == "mle"
            wanted = all_for_mle(data) if guess else self.n_components
            limits: dict[str, Any] = {"tol": self.tol, "batch_size": self.batch_size}
            extra, limits["max_memory"] = self.extra_components, as_bytes(self.max_memory)
            plan = make_plan(data, wanted, self.priming, extra, proven=proven, **limits)
            self.plan_, seed = fit.begin(plan, as_seed(self.random_state))
            solution = fit.solution(
                lambda: solve(
                    data,
                    self.plan_,
                    tol=self.tol,
                    max_passes=self.max_passes,
                    batch_size=self.batch_size,
                    refine_share=self.refine_share,
                    seed=seed,
                    start=start,
                    progress=told,
                    wide=wide,
                    failure_probability=self.failure_probability
                    * (self.certificate != "deterministic"),
                )
            )
            self._keep(solution, data, guess)
        if self.verbose and not callable(self.verbose) and fit.speaks:
            print(f"primedpca: {self.certificate_ or self.status_}")
        return self

    def _warm_directions(self) -> np.ndarray | None:
        known: Any = getattr(self, "components_", None) if self.warm_start else None
        if known is None or known.shape[1] != self.n_features_in_:
            return None
        return np.ascontiguousarray(known.T)

    def _keep(self, solution: Solution, data: Centred, guess: bool) -> None:
        self.__dict__.pop("stream_", None)  # of rows that this fit knows nothing of
        found = solution.decomposition
        k = found.explained_variance.size
        if guess:
            k = likeliest_dimension(found.explained_variance, found.n_samples)
        for name, value in (attributes(found, k, data.shape) | circumstances(data)).items():
            setattr(self, name, value)
        solution = solution.first(k)
        self.status_, self.n_passes_ = solution.status, solution.passes
        self.converged_, proof = solution.converged, solution.certificate
        self.history_, self.certificate_ = solution.history, proof
        self.angle_bounds_: Any = None if proof is None else proof.angle_bounds
        if solution.warns:
            warnings.warn(solution.shortfall(self.tol), ConvergenceWarning, stacklevel=5)

    def _check_fitted(self) -> None:
        check_is_fitted(self)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    # -- input -------------------------------------------------------------------------------

    def _source(self, X: Any, reset: bool) -> DataSource:  # noqa: N803
        """``X`` as a source; scikit-learn looks at what it knows how to look at."""
        if isinstance(X, (np.memmap, np.ma.MaskedArray)) or not (
            isinstance(X, (list, tuple, np.ndarray)) or is_sparse(X)
        ):
            source = as_source(X)
            # The names of frames are compared in scikit-learn's own words.
            named = not is_frame(X) and check_names(self, source, reset)
            if not named and (reset or not isinstance(X, DataSource)):
                _check_feature_names(self, X, reset=reset)
            if reset:
                self.n_features_in_ = source.shape[1]
            else:
                _check_n_features(self, np.broadcast_to(0, source.shape), reset=False)
            return on_device(source, self.device)
        check_python_numbers(X, "`X`")
        checked = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse=True,
            dtype="numeric",
            ensure_all_finite=False,
        )
        return on_device(as_source(checked), self.device)

    def __sklearn_clone__(self) -> PrimedPCA:
        """A fresh estimator on the same engine: there is one cluster, and no client is copied."""
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
