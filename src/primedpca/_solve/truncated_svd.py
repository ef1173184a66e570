"""Truncated singular value decomposition with a certificate."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import Array, check_held, is_dense, to_numpy
from primedpca._core.orthonormal import orthonormalise
from primedpca._core.parameters import DEFAULTS, as_seed, check_options, is_proven, is_whole
from primedpca._core.process import one_blas_thread, reusing_memory
from primedpca._core.units import as_bytes
from primedpca._operator.operator import Centred, check_own_scale
from primedpca._planning.plan import make_plan
from primedpca._solve.driver import Goal, solve
from primedpca.result import Certificate, Solution, Status
from primedpca.sources import as_source
from primedpca.sources.wrappers.on_device import on_device

__all__ = ["SVD", "svd"]

#: Parameters of the estimator that have no meaning for a single decomposition.
FOREIGN = ("whiten", "checkpoint", "warm_start", "refine_share", "verbose")
LAST_BITS = 2.0**-50  # relative error of a square root and of a product, and some room


class _Factors(NamedTuple):
    U: Array
    s: Array
    Vt: Array


class SVD(_Factors):
    """Result of :func:`primedpca.svd`: unpacks to ``U, s, Vt``.

    Parameters
    ----------
    U : array of shape (n, k)
        Left singular vectors, orthonormal columns.
    s : array of shape (k,)
        Singular values, largest first.
    Vt : array of shape (k, d)
        Right singular vectors, orthonormal rows; the largest entry of each is positive.

    Attributes
    ----------
    certificate : Certificate or None
        Bounds on the right singular vectors; its ``eigenvalue_bounds`` are of ``s**2 / (n - 1)``.
    singular_value_bounds : ndarray of shape (k, 2) or None
        Interval that contains each true singular value.
    status : Status
        How the iterations ended; ``str(status)`` is a sentence.
    """

    certificate: Certificate | None
    singular_value_bounds: np.ndarray | None
    status: Status


def svd(
    A: Any,  # noqa: N803
    k: int,
    *,
    tol: float = DEFAULTS["tol"],
    center: bool = False,
    random_state: Any = None,
    **options: Any,
) -> SVD:
    """Return the ``k`` largest singular values of a matrix and their vectors, with a proof.

    Parameters
    ----------
    A : data of shape (n, d)
        Anything that :func:`primedpca.as_source` reads: dense, sparse, tall, wide, files.  It is
        not modified.
    k : int
        Number of singular values, at most ``min(n, d)``.
    tol : float, default=pi/1024
        Target angle in radians between each computed and true right singular vector.
    center : bool, default=False
        Subtract the mean of each column first, which makes this a PCA.
    random_state : int, RandomState, Generator or None, default=None
        Seed of all random draws.
    **options
        Other parameters of :class:`~primedpca.PrimedPCA`, such as ``max_passes``,
        ``certificate``, ``engine`` or ``max_memory``.

    Returns
    -------
    SVD
        Unpacks to ``U`` (n, k), ``s`` (k,) and ``Vt`` (k, d); also has ``certificate``,
        ``singular_value_bounds`` and ``status``.  The arrays are of the library and on the device
        of ``A``; NumPy for sparse data, frames and files.

    Warns
    -----
    UserWarning
        If not every vector was proven to be within ``tol``; the message says which.

    Examples
    --------
    >>> import numpy as np
    >>> import primedpca
    >>> A = np.random.default_rng(0).normal(size=(300, 40)) / np.arange(1, 41)
    >>> U, s, Vt = found = primedpca.svd(A, 3, random_state=0)
    >>> U.shape, s.shape, Vt.shape
    ((300, 3), (3,), (3, 40))
    >>> low, high = found.singular_value_bounds.T
    >>> true = np.linalg.svd(A, compute_uv=False)[:3]
    >>> bool(((low <= true) & (true <= high)).all())
    True
    """
    check_held(A, "`A`")
    known = _known(A, k, {"tol": tol, "center": center, "random_state": random_state}, options)
    source = on_device(as_source(A), known["device"])
    check_own_scale(source, known["scale"])
    data = Centred(
        source,
        known["engine"],
        **{name: known[name] for name in ("center", "scale", "missing")},
    )
    data.check_rows()
    with reusing_memory(known["max_memory"] is None):
        solution = _solved(data, k, known)
        kept = solution.decomposition
        vectors = data.like.asarray(kept.components).T
        images = data.forward(vectors)
        data.check_finite(images)
        with one_blas_thread:
            left = orthonormalise(images)[0]
    if solution.warns:
        warnings.warn(solution.shortfall(tol, k), stacklevel=2)
    parts = (left, data.like.asarray(kept.singular_values), vectors.T)
    if not is_dense(A) or isinstance(A, np.ndarray):  # anything but a tensor
        parts = tuple(map(to_numpy, parts))  # type: ignore[assignment]
    found = SVD(*parts)
    found.certificate, found.status = solution.certificate, solution.status
    found.singular_value_bounds = _intervals(solution.certificate, kept.n_samples)
    return found


def _known(A: Any, k: Any, named: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:  # noqa: N803
    """Return all parameters by name, validated."""
    if unknown := options.keys() - (DEFAULTS.keys() - set(FOREIGN)):
        raise TypeError(f"Unknown option: `{min(unknown)}`. Use parameters of PrimedPCA.")
    if not is_whole(k) or k < 1:
        raise ValueError(f"`k`={k!r} must be an integer of at least 1.")
    known = DEFAULTS | named | options
    check_options(known | {"n_components": k})
    return known


def _solved(data: Centred, k: int, known: dict[str, Any]) -> Solution:
    """Run the plan for these parameters."""
    if k > min(data.shape):
        raise ValueError(f"`k`={k} exceeds min(n, d)={min(data.shape)}. Use a smaller value.")
    proven = is_proven(known)
    memory = math.inf if known["max_memory"] is None else as_bytes(known["max_memory"])
    plan = make_plan(
        data,
        k,
        known["priming"],
        known["extra_components"],
        tol=known["tol"],
        proven=proven,
        max_memory=memory,
        batch_size=known["batch_size"],
    )
    failure = 0.0 if known["certificate"] == "deterministic" else known["failure_probability"]
    goal = Goal(
        tol=known["tol"],
        max_passes=known["max_passes"],
        batch_size=known["batch_size"],
        failure_probability=failure,
        seed=as_seed(known["random_state"]),
        proven=proven,
    )
    return solve(data, plan, goal)


def _intervals(proof: Certificate | None, n: float) -> np.ndarray | None:
    """Return intervals of singular values, rounded outward."""
    if proof is None:
        return None
    values: np.ndarray = np.sqrt(np.maximum(proof.eigenvalue_bounds, 0.0)) * math.sqrt(n - 1)
    values *= np.array([1 - LAST_BITS, 1 + LAST_BITS])
    return values
