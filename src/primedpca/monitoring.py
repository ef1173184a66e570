r"""Outlier detection: p-values of rows, from Hotelling's T² and SPE, and limits for new rows.

:func:`outliers` gives each row the probability that an ordinary row is as far out; it is the
function to begin with.  :func:`statistics` and :func:`limits` are its parts, for control charts.

With the scores :math:`t_i` of a row and the variances :math:`\lambda_i` of the k components,

.. math:: T^2 = \sum_i t_i^2 / \lambda_i, \qquad SPE = \|x - \mu\|^2 - \sum_i t_i^2 .

T² measures how far a row is from the mean inside the span of the components, and SPE (also called
Q) its squared distance from that span.  :func:`statistics` computes both in one pass over any
data, and :func:`limits` computes values that ordinary *new* rows rarely exceed.

**T².**  Rows are assumed to be normal.  If the span had been fixed beforehand, with mean and
covariance in it estimated from n rows, then for a new row :math:`T^2 \sim \frac{k(n^2-1)}{n(n-k)}
F_{k,\,n-k}` exactly (Hotelling); without centring :math:`\frac{k(n-1)}{n-k+1} F_{k,\,n-k+1}`.
The components are chosen for their large variances, so new rows have a somewhat smaller T²: the
limit is conservative, by little where n is several times d or the variances stand out.

**SPE.**  A sum of independent squares with variances :math:`\lambda_j`, j > k, has the mean
:math:`\theta_1=\sum\lambda_j` and the variance :math:`2\theta_2 = 2\sum\lambda_j^2`.  Box
approximates it by :math:`g\,\chi^2_h`, where :math:`g=\theta_2/\theta_1` and
:math:`h=\theta_1^2/\theta_2`.  :math:`\theta_1` is known from the total variance.
:math:`\theta_2` is known only after a full decomposition, so

- by default the remaining variances are assumed to decay geometrically from :math:`\lambda_k`,
  with the known sum.  Among all spectra with a convex logarithm (exponentials, power laws, and
  spectra with a noise floor) and the same :math:`\lambda_k` and sum, this one majorises the
  others, because each crosses it once and from below.  It therefore has the largest
  :math:`\theta_2`: the limit is high enough for all of them, and higher than necessary where the
  kept variances are far above the others;
- with rows for ``calibration``, the mean m and variance v of their SPE give g = v / 2m and
  h = 2m² / v (Nomikos & MacGregor 1995), which is sharp for any spectrum.

The rows of the fit are closer to its components than new rows are.  To first order in 1/n the mean
SPE of the rows of the fit is :math:`\theta_1 (n-1-\kappa)/n` and that of new rows is
:math:`\theta_1 (n+1+\kappa)/n`, where :math:`\kappa = \frac{1}{\theta_1}\sum_{i\le k<j}
\frac{\lambda_i\lambda_j}{\lambda_i-\lambda_j}`: about k, and more where the kept variances do not
stand out (without centring, the ones are zeros).  Limits are raised by the ratio of the two, with
geometrically decaying remaining variances, but by no more than the ratio of the total variance to
the remaining variance, because the SPE of a row cannot exceed its squared norm.

**Held-out rows.**  ``seen=False`` says that the m calibration rows were not part of the fit.  Both
limits are then the value that :math:`\lceil (m+1)\,level \rceil` of the rows do not exceed.  A new
row is equally likely to take each of the m + 1 ranks among them, whatever the distribution, so it
exceeds the limit with a probability of at most 1 - level: rows need not be normal.  (With fewer
rows than level / (1 - level), 99 for 0.99, there is no such value; the limits above are used and
not raised.)

**p-values.**  :func:`outliers` evaluates the same distributions.  For rows that were part of the
fit T² is bounded, and :math:`\frac{n}{(n-1)^2} T^2 \sim \mathrm{Beta}(\frac k2, \frac{n-k-1}2)`
(Tracy, Young & Mason 1992; without centring :math:`T^2/(n-1) \sim \mathrm{Beta}(\frac k2,
\frac{n-k}2)`), and g and h of their SPE are those whose quartiles are the ones observed: unlike
mean and variance, the quartiles stay the same whatever a few outliers are.  Outliers that are part
of the fit still turn components towards themselves; if there may be many, fit rows that are known
to be ordinary.  With held-out calibration rows, the p-value is the rank of a row among them,
(1 + number of calibration rows at least as far out) / (m + 1), which holds for rows of any
distribution.
"""

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import as_real, to_numpy
from primedpca._core.parameters import is_real
from primedpca._model.attributes import LEAST_VARIANCE, with_variance

__all__ = ["Limits", "Outliers", "Statistics", "limits", "outliers", "statistics"]


class Statistics(NamedTuple):
    """T² and SPE of each row, both of shape ``(n,)``."""

    t2: np.ndarray
    spe: np.ndarray


class Limits(NamedTuple):
    """Limits of T² and SPE that a fraction ``level`` of ordinary new rows stays below.

    ``spe`` is 0 where the components explain all of the variance.
    """

    t2: float
    spe: float
    level: float


class Outliers(NamedTuple):
    """T² and SPE of each row with their p-values, all of shape ``(n,)``.

    Attributes
    ----------
    t2, spe : ndarray
    p_t2, p_spe : ndarray
        Probability that an ordinary row has a T², or an SPE, at least as large.
    p_value : ndarray
        Twice the smaller of the two, at most 1 (Bonferroni): small for rows that are unusual
        either way.  That of T² alone where the components explain everything.
    """

    t2: np.ndarray
    spe: np.ndarray
    p_t2: np.ndarray
    p_spe: np.ndarray
    p_value: np.ndarray


def outliers(
    model: Any,
    X: Any,  # noqa: N803
    calibration: Any = None,
    *,
    new: bool = False,
) -> Outliers:
    """Compute the p-value of every row: the probability that an ordinary row is as far out.

    Parameters
    ----------
    model : PrimedPCA
        Fitted.
    X : data of shape (n, d), or Statistics
        Rows to check.
    calibration : data of shape (m, d) or Statistics, optional
        Held-out ordinary rows, which were not part of the fit.  With them p-values hold for rows
        of any distribution, but none is below 1 / (m + 1).
    new : bool, default=False
        Whether the rows of ``X`` are new, rather than those that the model was fitted to.

    Returns
    -------
    Outliers

    Notes
    -----
    Without ``calibration`` rows are assumed to be normal.  For others p-values are approximate:
    take them as an order, not as probabilities.  Of n ordinary rows about n·α have a p-value below
    α; ``scipy.stats.false_discovery_control`` corrects for that.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import PrimedPCA
    >>> from primedpca.monitoring import outliers
    >>> X = np.random.default_rng(0).normal(size=(200, 6)) * [9, 5, 1, 1, 1, 1]
    >>> X[7, 4] = 12
    >>> found = outliers(PrimedPCA(2).fit(X), X)
    >>> int(found.p_value.argmin()), bool(found.p_value[7] < 1e-6)
    (7, True)
    """
    _check(model)
    found = _as_statistics(model, X, "X")
    if calibration is not None:
        calibration = _as_statistics(model, calibration, "calibration")
        p_t2, p_spe = (_ranks(*pair) for pair in zip(calibration, found, strict=True))
    else:
        p_t2, p_spe = _t2_tail(model, found.t2, new), _spe_tail(model, found.spe, new)
    both = np.minimum(1.0, 2 * np.minimum(p_t2, p_spe))
    if not found.spe.any():  # the components explain everything: there is one test, not two
        both = p_t2
    return Outliers(found.t2, found.spe, p_t2, p_spe, both)


def _as_statistics(model: Any, rows: Any, name: str) -> Statistics:
    """Return the statistics of rows, or valid ones that were given instead of rows."""
    if not isinstance(rows, Statistics):
        return statistics(model, rows)
    t2, spe = (as_real(values, f"{name}.{part}") for part, values in rows._asdict().items())
    if t2.ndim != 1 or t2.shape != spe.shape:
        raise ValueError(
            f"`{name}.t2` has shape {t2.shape} and `{name}.spe` has {spe.shape}. Pass one number "
            "of each for each row."
        )
    for part, values in (("t2", t2), ("spe", spe)):
        wrong = np.flatnonzero(~(values >= 0))
        if wrong.size:
            i = wrong[0]
            raise ValueError(
                f"`{name}.{part}`[{i}]={values[i]} must be at least 0. Compute it by `statistics`."
            )
    return Statistics(t2, spe)


def _ranks(known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the p-values of values among known ones of the same distribution."""
    above = known.size - np.searchsorted(np.sort(known), values, side="left")
    return np.asarray((1 + above) / (known.size + 1))


def _t2_tail(model: Any, t2: np.ndarray, new: bool) -> np.ndarray:
    from scipy.stats import beta, f

    n, k, mean = _freedom_of_t2(model)
    if new:
        factor, last = _hotelling(n, k, mean)
        return np.asarray(f.sf(t2 / factor, k, last))
    bound = (n - 1) ** 2 / n if mean else n - 1
    return np.asarray(beta.sf(np.minimum(t2 / bound, 1.0), k / 2, (n - k - mean) / 2))


def _spe_tail(model: Any, spe: np.ndarray, new: bool) -> np.ndarray:
    from scipy.stats import chi2

    rest, h = least = _left_out(model)
    if not rest > 0:
        return np.ones_like(spe)  # the components explain everything
    n, k, mean = _freedom_of_t2(model)
    centre = (n - 1) / n * rest
    if new:
        centre *= _raised(model, n, k, mean, centre, h, *least)
    else:
        centre, h = _by_quartiles(spe, centre, h)
    return np.asarray(chi2.sf(spe * h / centre, h))


def _by_quartiles(spe: np.ndarray, centre: float, h: float) -> tuple[float, float]:
    """Return mean and degrees of freedom of the ``g chi^2_h`` that has the quartiles of ``spe``.

    Few rows, or rows of which a quarter is zero, determine none: the given ones are returned.
    """
    from scipy.optimize import brentq
    from scipy.stats import chi2

    low, middle, high = np.quantile(spe, [0.25, 0.5, 0.75])
    if spe.size < 8 or not low > 0 or not high > low:
        return centre, h

    def excess(log_h: float) -> float:
        ends = chi2.ppf([0.25, 0.75], math.exp(log_h))
        return float(math.log(ends[1] / ends[0]) - math.log(high / low))

    ends = math.log(0.05), math.log(1e8)
    if not excess(ends[1]) < 0 < excess(ends[0]):
        return centre, h
    h = math.exp(brentq(excess, *ends))
    return float(middle * h / chi2.ppf(0.5, h)), h


def statistics(model: Any, X: Any) -> Statistics:  # noqa: N803
    """Compute T² and SPE of every row, in one pass and in float64.

    Parameters
    ----------
    model : PrimedPCA
        Fitted.
    X : data of shape (n, d)
        Any data that :func:`primedpca.as_source` reads.

    Returns
    -------
    Statistics
        Components without variance count towards SPE instead of T².

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA
    >>> from primedpca.monitoring import limits, statistics
    >>> X = load_iris().data
    >>> pca = PrimedPCA(2).fit(X[::2])
    >>> found, bounds = statistics(pca, X[1::2]), limits(pca, 0.99, X[::2])
    >>> int((found.t2 > bounds.t2).sum()), int((found.spe > bounds.spe).sum())
    (1, 0)
    """
    return _scores_and_statistics(model, X)[1]


def _scores_and_statistics(model: Any, X: Any) -> tuple[np.ndarray, Statistics]:  # noqa: N803
    """Return the scores of the components with variance, not whitened, and the statistics."""
    _check(model)
    known, kept = model._model(), _kept(model)
    data = model._seen(X).widened()
    scores, squares = data.scores_and_squares(data.like.asarray(known.components[kept].T))
    scores = to_numpy(scores).astype(np.float64)
    inside = scores**2
    squares = to_numpy(squares).astype(np.float64)
    spe = squares - inside.sum(axis=1)
    # The difference of large numbers, and float32 components, leave rounding noise: make it zero.
    noise = max(np.finfo(np.float64).eps, float(np.finfo(model.components_.dtype).eps) ** 2)
    spe = np.where(spe > model.components_.shape[1] * noise * squares, spe, 0.0)
    return scores, Statistics((inside / known.variances[kept]).sum(axis=1), spe)


def limits(
    model: Any, level: float = 0.99, calibration: Any = None, *, seen: bool = True
) -> Limits:
    """Compute limits of T² and SPE that ordinary new rows rarely exceed.

    The module's documentation derives the limits.

    Parameters
    ----------
    model : PrimedPCA
        Fitted.
    level : float in (0, 1), default=0.99
        Fraction of ordinary new rows below each limit.
    calibration : data of shape (m, d) or Statistics, optional
        Ordinary rows, such as those of the fit, which sharpen the limit of SPE.
    seen : bool, default=True
        Whether the model was fitted to the calibration rows.  If not, and if there are enough of
        them, both limits hold for rows of any distribution.

    Returns
    -------
    Limits
    """
    if not (is_real(level) and 0 < level < 1):
        raise ValueError(f"`level`={level!r} must lie in (0, 1), such as 0.99.")
    _check(model)
    n, k, mean = _freedom_of_t2(model)
    if calibration is not None:
        calibration = _as_statistics(model, calibration, "calibration")
    # Order statistics of held-out rows need no assumption about their distribution.
    if calibration is not None and not seen:
        place = math.ceil((calibration.spe.size + 1) * level)
        if place <= calibration.spe.size:
            t2, spe = (float(np.sort(values)[place - 1]) for values in calibration)
            return Limits(t2, spe, level)
    rest, h = least = _left_out(model)
    # The mean SPE of the known rows, and Box's degrees of freedom.
    centre = (n - 1) / n * rest
    if calibration is not None:
        if calibration.spe.size < 2:
            raise ValueError(f"`calibration` has {calibration.spe.size} rows. Pass at least 2.")
        # In a power of two as the unit, squares and sums stay in range and no bit changes.
        unit = math.ldexp(1.0, math.frexp(float(calibration.spe.max()))[1] - 1)
        spe = calibration.spe / unit
        centre, spread = float(spe.mean()) * unit, float(spe.std(ddof=1)) * unit
        ratio = centre / spread if spread > 0 else np.inf
        h = 2 * ratio * ratio
    if calibration is None or seen:
        centre *= _raised(model, n, k, mean, centre, h, *least)
    from scipy.stats import chi2, f

    factor, last = _hotelling(n, k, mean)
    t2 = float(factor * f.ppf(level, k, last))
    # The quantile of g chi^2_h with mean g h.
    return Limits(t2, float(centre * chi2.ppf(level, h) / h) if h < np.inf else centre, level)


def _freedom_of_t2(model: Any) -> tuple[float, int, int]:
    """Return rows, components with variance, and whether the mean was estimated; check them."""
    if model.explained_variance_.size == 0:
        raise ValueError("The model has no components yet. Add rows with `partial_fit`.")
    n, k, mean = _rows_of_fit(model), int(_kept(model).sum()), int(model.center_)
    free = n - k - mean
    if k == 0:
        raise ValueError("0 components have variance, but limits need 1. Fit rows that differ.")
    if free < 1:
        raise ValueError(
            f"{k} components of {n:g} rows leave {max(free, 0.0):g} degrees of freedom, but limits "
            "need 1. Fit fewer components, or more rows."
        )
    return n, k, mean


def _hotelling(n: float, k: int, mean: int) -> tuple[float, float]:
    """Return factor and last degrees of freedom of the F distribution of T² of a new row."""
    factor = k * (n * n - 1) / (n * (n - k)) if mean else k * (n - 1) / (n - k + 1)
    return factor, n - k + 1 - mean


def _check(model: Any) -> None:
    if not hasattr(model, "_seen"):
        raise TypeError(f"`model` must be a fitted PrimedPCA, got {type(model).__name__}.")
    model._check_fitted()


def _left_out(model: Any) -> tuple[float, float]:
    """Return ``theta_1``, and Box's ``theta_1^2 / theta_2`` for a geometric decay.

    Computed in units of the last kept variance, so that no square overflows.
    """
    from scipy.optimize import brentq

    count = min(model.n_samples_, model.components_.shape[1]) - model.components_.shape[0]
    rest = float(model.noise_variance_) * count
    if not rest > 0:
        return 0.0, np.inf
    powers, first = np.arange(1, count + 1), float(model.explained_variance_[_kept(model)].min())
    ratio = min(rest / first, count)  # all equal at most, whatever rounding says

    def excess(factor: float) -> float:
        return float((factor**powers).sum() - ratio)

    factor = 1.0 if excess(1.0) <= 0 else float(brentq(excess, 0.0, 1.0, xtol=1e-15))
    squares = float((factor ** (2 * powers)).sum())
    return rest, ratio * ratio / squares if squares > 0 else 1.0  # as for a single variance


def _raised(
    model: Any, n: float, k: int, mean: int, centre: float, h: float, rest: float, least: float
) -> float:
    """Return the ratio of the mean SPE of new rows to that of the rows of the fit."""
    if not rest > 0:
        return 1.0
    # Long tails of SPE make h small, whatever the remaining variances.
    lost = min(mean + _freedoms(model, k, n, centre, max(h, least)), n - 1)
    # The SPE cannot exceed the squared norm, also where the first-order formula is far off.
    total = rest + float(np.sum(model.explained_variance_[:k], dtype=np.float64))
    return min((n + lost) / (n - lost), (n + 1) / (n - 1) * total / rest)


def _freedoms(model: Any, k: int, n: float, centre: float, h: float) -> float:
    """Return the degrees of freedom ``kappa`` that ``k`` fitted components use, at least ``k``.

    Only the mean and the mean square of the remaining variances are known; a geometric decay
    with the same two values stands for them.
    """
    if not h < np.inf or centre == 0:
        return float(k)
    # From one variance, which rounding may hide, to as many as there are columns.
    h = min(max(h, 1.0), float(model.components_.shape[1]))
    factor = (h - 1) / (h + 1)
    weights = (1 - factor) * factor ** np.arange(int(12 * h) + 1)
    others = centre * weights
    kept = np.asarray(model.explained_variance_, dtype=np.float64)[:k, None]
    # The relative sampling error of a variance is sqrt(2 / n): treat no gap as narrower.
    gaps = np.maximum(kept - others, kept * np.sqrt(2 / n))
    return float(((kept / gaps) @ weights).sum())


def _kept(model: Any) -> np.ndarray:
    """Return the mask of components with a variance to divide by, ``(k,)``."""
    variances, proof = model.explained_variance_, model.certificate_
    # A fit in float32 leaves about eps / 2, unless a certificate proves smaller variances.
    least = max(LEAST_VARIANCE, 10 * float(np.finfo(model.components_.dtype).eps))
    found = with_variance(variances, least)
    if proof is not None:
        # `zero` includes variances of 1e-12 of the largest, which float64 computes well.
        found |= with_variance(variances) & (proof.eigenvalue_bounds[:, 0] > 0)
    return found


def _rows_of_fit(model: Any) -> float:
    """Return the number of rows of the fit, or the sum of their weights."""
    if float(model.explained_variance_[0]) < sys.float_info.min:  # zero, or rounded to a few digits
        return float(model.n_samples_)
    ratio = float(model.singular_values_[0]) / math.sqrt(float(model.explained_variance_[0]))
    found = 1 + ratio * ratio
    whole = float(round(found))
    return whole if abs(found - whole) <= 1e-6 * whole else found  # an integer, except for rounding
