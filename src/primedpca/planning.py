"""Which way is cheapest for this shape, storage and number of components."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca.centred import Centred
from primedpca.priming import BlockKrylov, Exact, SubspaceIteration, as_priming
from primedpca.result import Plan

__all__ = ["all_for_mle", "likeliest_dimension", "make_plan", "plan"]

SMALL = 1024  # up to this order a full decomposition costs no more than a few passes


def plan(
    X: Any,  # noqa: N803
    n_components: int | None = None,
    *,
    priming: Any = "auto",
    extra_components: int | str = "auto",
) -> Plan:
    """Say what :class:`~primedpca.PrimedPCA` would do with these data, and why.

    Parameters
    ----------
    X : data of shape (n, d)
    n_components : int, optional
    priming, extra_components
        As the estimator has them.

    Returns
    -------
    Plan
        Its ``str`` is a sentence.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import plan
    >>> print(plan(np.ones((600, 50)), 2))
    2 components by Exact: the smaller side of the data is only 50.
    """
    return make_plan(Centred(X), n_components, priming, extra_components)


def make_plan(
    data: Centred, n_components: int | None, priming: Any, extra_components: int | str
) -> Plan:
    """Choose the priming and the number of directions.

    ========================================  ==================================
    smaller side ``m = min(n, d)``            ``priming="auto"``
    ========================================  ==================================
    at most 1024, or ``k`` over a tenth       exact
    of it (as when all are asked for)
    larger                                    block Krylov, on the left side where
                                              the data are read in columns
    ========================================  ==================================

    Blocks are as wide as the directions looked for where the data are dense, because a wider
    product costs hardly more, and at most 16 where they are sparse, because there it does.

    ``extra_components="auto"`` is 0 for exact, ``max(4, k / 4)`` for block Krylov,
    ``max(10, k)`` for subspace iteration, whose passes it saves, and 4 for the others, as in
    the paper.  Sparse data that are compressed along their longer side are decomposed exactly
    only where that side's matrix is tiny.
    """
    m = min(data.shape)
    k = _check_count(n_components, data)
    reason = "as asked for"
    if isinstance(priming, str) and priming == "auto":
        fits = data.source.axis == (0 if data.shape[0] >= data.shape[1] else 1)
        if 10 * k > m or m <= (SMALL if fits else SMALL // 4):
            priming, reason = Exact(), f"the smaller side of the data is only {m}"
            if 10 * k > m:
                reason = f"{k} of at most {m} components are wanted"
        else:
            side: Any = "right" if data.source.axis == 0 else "left"
            width = 16 if data.sparse else None
            priming = BlockKrylov(block_size=width, side=side)
            reason = f"the smaller side of the data is {m}"
    priming = as_priming(priming)
    extra = _extra(extra_components, priming, k)
    if hasattr(getattr(priming, "array", None), "shape"):  # directions that are there already
        extra = max(0, priming.array.shape[-1] - k)
    return Plan(priming, k, min(k + extra, m), reason)


def _extra(extra_components: int | str, priming: Any, k: int) -> int:
    if isinstance(extra_components, str):
        if extra_components != "auto":
            raise ValueError(
                f"`extra_components`={extra_components!r} must be 'auto' or a whole number."
            )
        if isinstance(priming, Exact):
            return 0
        if isinstance(priming, BlockKrylov):
            return max(4, -(-k // 4))
        return max(10, k) if isinstance(priming, SubspaceIteration) else 4
    if not _is_whole(extra_components) or extra_components < 0:
        raise ValueError(
            f"`extra_components`={extra_components!r} must be 'auto' or a whole number, at least 0."
        )
    return int(extra_components)


def _check_count(n_components: Any, data: Centred) -> int:
    m = min(data.shape)
    if n_components is None:
        return m
    if isinstance(n_components, (float, np.floating)) and not float(n_components).is_integer():
        raise ValueError(
            f"`n_components`={n_components} is a fraction, which this version does not resolve "
            "to a number of components; give a whole number, 'mle' or None."
        )
    if not _is_whole(n_components):
        raise ValueError(f"`n_components`={n_components!r} must be a whole number, 'mle' or None.")
    if not 1 <= n_components <= m:
        raise ValueError(
            f"`n_components`={n_components} must lie between 1 and min(n_samples, n_features)="
            f"{m}; " + ("lower it or add data." if n_components > m else "raise it.")
        )
    return int(n_components)


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def all_for_mle(data: Centred) -> int:
    """How many components the search for the likeliest number must start from: all."""
    n, d = data.shape
    if n < d or d < 2:
        raise ValueError(
            f"`n_components`='mle' needs at least 2 features and as many samples as features, "
            f"got {n} x {d}; give a whole number."
        )
    return d


def likeliest_dimension(spectrum: np.ndarray, n_samples: float) -> int:
    """The number of components of largest evidence (Minka, "Automatic choice of dimensionality
    for PCA", 2000, equation 79), as scikit-learn's ``n_components="mle"``.

    Parameters
    ----------
    spectrum : ndarray of shape (d,)
        All eigenvalues of the covariance matrix, largest first.
    n_samples : float
    """
    return 1 + int(np.argmax([_evidence(spectrum, q, n_samples) for q in range(1, spectrum.size)]))


def _evidence(spectrum: np.ndarray, q: int, n: float) -> float:
    d = spectrum.size
    if spectrum[q - 1] < np.finfo(np.float64).eps * max(spectrum[0], 1e-300):
        return -math.inf
    noise = max(float(spectrum[q:].sum()) / (d - q), np.finfo(np.float64).tiny)
    halves = (d - np.arange(q)) / 2
    prior = -q * math.log(2) + sum(math.lgamma(h) - h * math.log(math.pi) for h in halves)
    count = d * q - q * (q + 1) / 2
    flat = np.concatenate([spectrum[:q], np.full(d - q, noise)])
    curvature = 0.0
    for i in range(q):
        gaps = (spectrum[i] - spectrum[i + 1 :]) * (1 / flat[i + 1 :] - 1 / flat[i])
        if (gaps <= 0).any():
            return -math.inf
        curvature += float(np.log(gaps).sum()) + math.log(n) * gaps.size
    return (
        prior
        - n / 2 * float(np.log(spectrum[:q]).sum())
        - n * (d - q) / 2 * math.log(noise)
        + (count + q) / 2 * math.log(2 * math.pi)
        - curvature / 2
        - q / 2 * math.log(n)
    )
