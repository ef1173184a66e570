r"""Number of extra directions: the paper's open question of how :math:`l` should vary.

A pass over the data with :math:`p = k + l` directions costs :math:`c + p` columns, where
:math:`c` is its fixed cost (reading), counted in columns.  More directions make a pass more
expensive and fewer passes necessary.  ``docs/extra_components.md`` has the measurements.
"""

from __future__ import annotations

import math

import numpy as np

from primedpca.protocols import Array

#: ``c`` of dense data in memory, measured: the fixed cost of a pass equals that of 16 columns.
MEMORY = 16.0
#: Reduction of the error that passes are predicted for: from a random start of tangent 100 to a
#: thousandth of a radian.  Only its logarithm enters, so that its exact value hardly matters.
REDUCTION = 1e5
STOCHASTIC = frozenset({"eigengame", "krasulina", "mu_eigengame", "oja"})


def best_extra(
    spectrum: Array | None,
    k: int,
    priming: str,
    *,
    overhead: float = MEMORY,
    limit: int | None = None,
) -> int:
    """Return the number of extra directions ``l`` with which a fit should continue.

    The spectrum determines the convergence rate of subspace iteration, which uses :func:`by_rate`
    once variances beyond the ``k``-th are known.  For the other primings the spectrum did not
    improve on a formula, and they use :func:`by_count`.

    Parameters
    ----------
    spectrum : array of shape (m,) or None
        Variances (Ritz values) known so far, largest first; ``None`` if there are none.
    k : int
        Number of components wanted.
    priming : str
        A name in :data:`primedpca.priming.REGISTRY`.
    overhead : float, default=16.0
        Fixed cost of a pass in columns: 0 where only flops count (sparse data in memory), 16 for
        dense data in memory, hundreds for a slow disk or a network.
    limit : int or None, default=None
        Maximum to return; ``None`` means ``max(64, k)``.

    Returns
    -------
    int
        Number of extra directions.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca.priming import best_extra
    >>> best_extra(1 / np.arange(1, 31), 16, "subspace_iteration")  # decays slowly: many pay
    39
    >>> best_extra([9.0, 8.0, 0.1, 0.09, 0.08], 2, "subspace_iteration")  # a step: few do
    0
    >>> best_extra(None, 16, "block_krylov"), best_extra(None, 16, "oja")
    (4, 16)
    """
    if not (math.isfinite(overhead) and overhead >= 0):
        raise ValueError(f"`overhead`={overhead} must be a finite number of at least 0.")
    limit = max(64, k) if limit is None else limit
    if priming == "subspace_iteration" and spectrum is not None:
        values = np.asarray(spectrum, dtype=np.float64)
        if values.size > k and values[k - 1] > 0:
            return by_rate(values, k, overhead=overhead, limit=limit)
    return by_count(k, priming, overhead=overhead, limit=limit)


def by_count(k: int, priming: str, *, overhead: float = MEMORY, limit: int = 64) -> int:
    r"""Return the number of extra directions for an unknown spectrum.

    ==================  =====================================================
    exact               0
    block Krylov        :math:`c / 4`, at least 4: the basis keeps all products,
                        so that wider blocks only save passes
    subspace iteration  :math:`k + c`, until Ritz values are known
    stochastic ones     :math:`(k + c) / 2`
    others              4, as in the paper; not studied
    ==================  =====================================================
    """
    if priming in STOCHASTIC:
        return min(limit, round((k + overhead) / 2))
    wanted = {
        "exact": 0.0,
        "block_krylov": max(4.0, overhead / 4),
        "subspace_iteration": k + overhead,
    }
    return min(limit, round(wanted.get(priming, 4.0)))


def by_rate(
    spectrum: np.ndarray, k: int, *, overhead: float, limit: int, accelerated: bool = False
) -> int:
    """Return the ``l`` of least predicted cost, ``passes(l) * (overhead + k + l)``."""
    passes = predicted_passes(spectrum, k, limit, accelerated)
    return int(np.argmin(passes * (overhead + k + np.arange(limit + 1))))


def predicted_passes(
    spectrum: np.ndarray, k: int, limit: int, accelerated: bool = False
) -> np.ndarray:
    r"""Predict the passes for each ``l`` from 0 to ``limit``, ``(limit + 1,)``.

    The part of the ``k``-th component that the span misses shrinks by
    :math:`r = \lambda_{p+1}/\lambda_k` in a pass.  It begins at about
    :math:`\sqrt{d}\sqrt{p}/(l+1)`, because a square Gaussian matrix is ill-conditioned and one
    with ``l`` more columns is not (Halko, Martinsson and Tropp 2011, proposition 10.4).
    One more pass refines:

    .. math:: 1 + \log\Big(\frac{\sqrt{p}}{l+1}\,10^5\Big) \Big/ \log\frac{1}{r}.

    With ``accelerated``, the rate is Chebyshev's instead of the power method's, as in a Krylov
    space or with momentum: both logarithms become :math:`\operatorname{arcosh}`, and
    :math:`1/r` becomes :math:`2/r - 1`.
    """
    extra = np.arange(limit + 1)
    ahead = extended(spectrum, k, k + limit + 1)[k:]
    # A tie (ratio 1) or a drop to zero would divide by zero below.
    ratio = np.clip(ahead / spectrum[k - 1], 1e-12, 1 - 1e-12)
    far = REDUCTION * np.sqrt(k + extra) / (extra + 1)
    passes: np.ndarray
    if accelerated:
        passes = 1 + np.maximum(1, np.arccosh(far) / np.arccosh(2 / ratio - 1))
    else:
        passes = 1 + np.maximum(1, np.log(far) / -np.log(ratio))
    return passes


def extended(spectrum: np.ndarray, k: int, size: int) -> np.ndarray:
    r"""Extrapolate the spectrum to ``size`` values.

    The tail is a power of the index, :math:`\lambda_i \propto i^{-s}`, where :math:`s` is fitted
    to the last half of the values, or to those beyond the ``k``-th if that gives a smaller power.
    A power decays more slowly than a geometric series through the same values, so that the
    benefit of more directions is not overestimated.  The last three Ritz values lie too low and
    are left out, but two beyond the ``k``-th are always kept.
    """
    if spectrum.size >= size:
        return spectrum[:size]
    m = max(spectrum.size - 3, min(k + 2, spectrum.size))
    seen = np.maximum(spectrum[:m], 0.0)
    if seen[-1] == 0:
        return np.concatenate([seen, np.zeros(size - m)])
    since = {max(1, m // 2), k + 1} - {m}
    power = min(np.log(seen[i - 1] / seen[-1]) / np.log(m / i) for i in since)
    later = np.arange(m + 1, size + 1)
    return np.concatenate([seen, seen[-1] * (later / m) ** -power])
