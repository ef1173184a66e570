r"""How many extra directions pay: the paper's open question of how :math:`l` should vary.

A visit to the data with :math:`p = k + l` directions costs :math:`c + p` columns, where
:math:`c` is what it costs whatever its width (reading), counted in columns.  More directions make
a visit dearer and fewer visits necessary.  ``docs/extra_components.md`` has the measurements.
"""

from __future__ import annotations

import numpy as np

from primedpca.protocols import Array

__all__ = ["MEMORY", "best_extra", "by_count", "by_rate", "extended", "predicted_passes"]

#: ``c`` of dense data in memory, measured: a pass with one column costs what 16 more cost.
MEMORY = 16.0
#: The accuracy that passes are predicted for, over what a random start of one direction has:
#: a thousandth of a radian, and a start a hundred times off.  It enters as a logarithm.
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
    """The number of extra directions ``l`` with which the fit should go on.

    Subspace iteration converges at a rate that the spectrum tells, and follows
    :func:`by_rate` once values beyond the ``k``-th were seen.  For all others the spectrum
    bought nothing over a formula, and they follow :func:`by_count`.

    Parameters
    ----------
    spectrum : array of shape (m,) or None
        The variances (Ritz values) seen so far, largest first, as many as there are.
    k : int
        The number of components wanted.
    priming : str
        A name of :data:`primedpca.priming.REGISTRY`.
    overhead : float
        What a visit costs whatever its width, in columns: 0 where only flops count (sparse
        data in memory), 16 for dense data in memory, hundreds for a slow disk or a network.
    limit : int, optional
        The most to return; by default ``max(64, k)``.

    Returns
    -------
    int

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca._planning.extra_directions import best_extra
    >>> best_extra(1 / np.arange(1, 31), 16, "subspace_iteration")  # decays slowly: many pay
    39
    >>> best_extra([9.0, 8.0, 0.1, 0.09, 0.08], 2, "subspace_iteration")  # a step: few do
    0
    >>> best_extra(None, 16, "block_krylov"), best_extra(None, 16, "oja")
    (4, 16)
    """
    if not (np.isfinite(overhead) and overhead >= 0):
        raise ValueError(f"`overhead`={overhead} must be finite and at least 0.")
    limit = max(64, k) if limit is None else limit
    values = np.zeros(0) if spectrum is None else np.asarray(spectrum, dtype=np.float64)
    if priming == "subspace_iteration" and values.size > k and values[k - 1] > 0:
        return by_rate(values, k, overhead=overhead, limit=limit)
    return by_count(k, priming, overhead=overhead, limit=limit)


def by_count(k: int, priming: str, *, overhead: float = MEMORY, limit: int = 64) -> int:
    r"""The choice that knows nothing of the spectrum.

    ==================  =====================================================
    exact               0
    block Krylov        :math:`c / 4`, at least 4: the basis keeps all it saw,
                        so width buys little but fewer readings
    subspace iteration  :math:`k + c`, until Ritz values tell better
    stochastic ones     :math:`(k + c) / 2`
    others              4, as in the paper; they were not studied
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
    """The ``l`` of least predicted cost, ``passes(l) * (overhead + k + l)``."""
    passes = predicted_passes(spectrum, k, limit, accelerated)
    return int(np.argmin(passes * (overhead + k + np.arange(limit + 1))))


def predicted_passes(
    spectrum: np.ndarray, k: int, limit: int, accelerated: bool = False
) -> np.ndarray:
    r"""Passes for each ``l`` from 0 to ``limit``, shape ``(limit + 1,)``.

    The part of the ``k``-th component that the span misses shrinks by
    :math:`r = \lambda_{p+1}/\lambda_k` in a pass.  It begins at about
    :math:`\sqrt{d}\sqrt{p}/(l+1)`, because a square Gaussian matrix is badly conditioned and one
    with ``l`` more columns is not (Halko, Martinsson and Tropp 2011, proposition 10.4).
    Then one pass refines:

    .. math:: 1 + \log\Big(\frac{\sqrt{p}}{l+1}\,10^5\Big) \Big/ \log\frac{1}{r}.

    With ``accelerated``, Chebyshev's rate stands in the place of the power's, as in a Krylov
    space or with momentum: both logarithms become :math:`\operatorname{arcosh}`, and
    :math:`1/r` becomes :math:`2/r - 1`.
    """
    extra = np.arange(limit + 1)
    ahead = extended(spectrum, k, k + limit + 1)[k:]
    # Neither a tie nor a drop to zero may divide by zero.
    ratio = np.clip(ahead / spectrum[k - 1], 1e-12, 1 - 1e-12)
    far = REDUCTION * np.sqrt(k + extra) / (extra + 1)
    if accelerated:
        return 1 + np.maximum(1, np.arccosh(far) / np.arccosh(2 / ratio - 1))
    return 1 + np.maximum(1, np.log(far) / -np.log(ratio))


def extended(spectrum: np.ndarray, k: int, size: int) -> np.ndarray:
    r"""The spectrum, and what may follow it, ``(size,)``.

    The tail falls like a power of the index, :math:`\lambda_i \propto i^{-s}`, with the power
    seen over the last half of the values, or over those beyond the ``k``-th if that is less.
    It is slower than the geometric decay through the same values, so it promises less of more
    directions.  The last three Ritz values, of which two beyond ``k`` are kept, lie too low
    and are left out.
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
