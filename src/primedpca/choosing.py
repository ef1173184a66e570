r"""How many components: the usual rules side by side, in few passes over the data.

With the variances :math:`\lambda_1\ge\lambda_2\ge\dots` of n rows and d columns, of which the first
p are computed, and the total variance T:

- **Parallel analysis** keeps the leading components whose variance exceeds what data without
  correlations would give: the quantile, over many draws, of the i-th variance of such data (Horn
  1965; the quantile after Glorfeld 1995).  Data that are small and in memory are shuffled, each
  column on its own (Buja & Eyuboglu 1992).  For others the columns are drawn from normal
  distributions and scaled to the variances of the data; their covariance matrix is drawn directly
  (Bartlett's decomposition of a Wishart matrix), so that nothing is read again.  With more than
  2,000 columns, or fewer rows than columns, all variances are compared with the largest one that n
  such rows have in the limit (deterministic parallel analysis, Dobriban & Owen 2019), the least
  value of :math:`\frac1s\left(1+\frac1n\sum_j\frac{s\sigma_j^2}{1-s\sigma_j^2}\right)` for
  :math:`0<s<1/\max\sigma_j^2`.
- **Broken stick** keeps the leading components whose ratio exceeds
  :math:`\frac1m\sum_{j=i}^m\frac1j`, the expected length of the i-th longest part of a stick
  broken into m = min(n - 1, d) parts at random (Frontier 1976).
- **Kaiser** keeps variances above the mean variance of a column, T / d.  With ``scale="std"`` that
  is n / (n - 1), because standard deviations divide by n: it keeps eigenvalues of the correlation
  matrix above 1.  Constant columns do not count in d.
- **Variance ratio** keeps the fewest components that explain a given fraction of T.
- **MLE** maximises the evidence of the probabilistic model (Minka 2000), as scikit-learn does; it
  needs all variances and n >= d.
- **Cross-validation** minimises the error of entries that are predicted without having been seen,
  approximated as by Josse & Husson (2012): :math:`\mathrm{GCV}(k) = n\,d\,\mathrm{RSS}_k /
  ((n-1)d - k(n+d-k-1))^2` with :math:`\mathrm{RSS}_k=(n-1)(T-\lambda_1-\dots-\lambda_k)`.
  Constant columns do not count in d.  k stays below the rank, unless the rank is at most half of
  min(n - 1, d).  (Leaving out whole *rows* would not do: their reconstruction improves
  with every component, noise or not.)

**Bootstrap.**  Rows get independent Poisson(1) weights, which stands for drawing n rows with
replacement.  Rows are projected once onto the p directions at hand, and a replicate is the PCA of
the weighted projections, a p x p problem.  Changes of the directions out of that span, and of
``scale``, are not part of the intervals.  The interval of a variance is
:math:`\lambda_i e^{\pm z s_i}`, where z is the normal quantile and :math:`s_i^2=\log(1+c_i^2)`
with the coefficient of variation :math:`c_i` of the replicates, as if they were log-normal:
quantiles of the replicates themselves are too large for small variances, because resampled noise
has more of it.  Intervals of loadings are quantiles.
Loadings get the sign that agrees with the model; where two variances are close, their components
swap or mix between replicates, and the intervals of their loadings are wide, as they should be.
"""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.parameters import DEFAULTS, as_seed, check_count, is_real, is_whole
from primedpca._core.process import one_blas_thread
from primedpca._io.score_file import score_blocks
from primedpca._model.columns import (
    column_variances,
    leading_above,
    rounding_of,
    standard_variance,
)
from primedpca._operator.scaling import BELOW_RANGE, UNIT
from primedpca._planning.plan import likeliest_dimension
from primedpca.estimator import PrimedPCA

__all__ = ["Choice", "Suggestion", "choose_k"]

ALL_UP_TO = 256  # columns, or rows: up to so many, all components are computed
FIRST = 50  # components computed of larger data
SPAN = 64  # directions of the bootstrap
SHUFFLED = 2e9  # operations; up to so many, columns are shuffled
DRAWN = 2000  # columns; up to so many, covariance matrices are drawn
DRAWS = 100  # of data without correlations
FEW, FEWER = 500, 20  # draws of more columns than so many take long, and vary little
ROWS = 4096  # rows whose products are held at a time
NO_VARIANCE = (
    "The variance of `X` is zero: there are no components to choose. All rows are equal, or differ "
    "by less than float64 can square; multiply small numbers by a constant."
)


class Suggestion(NamedTuple):
    """What one rule says.

    Attributes
    ----------
    rule : str
    n_components : int or None
        None if the rule cannot be applied.
    at_least : bool
        Whether the rule was still satisfied by the last component computed, so that it may ask
        for more.
    why : str
        What was compared, or why the rule cannot be applied.
    """

    rule: str
    n_components: int | None
    at_least: bool
    why: str

    @property
    def words(self) -> str:
        """The number in words, such as ``"3"``, ``">= 50"`` or ``"-"``."""
        if self.n_components is None:
            return "-"
        return f"{'>= ' if self.at_least else ''}{self.n_components}"


@dataclass(frozen=True, eq=False)
class Choice:
    """Result of :func:`choose_k`.

    Its ``str`` is a table, and :func:`primedpca.plots.choose_k` draws it.

    Attributes
    ----------
    suggestions : tuple of Suggestion
    variances : ndarray of shape (p,)
        Of the components computed.
    ratios : ndarray of shape (p,)
        Explained variance ratios.
    intervals : ndarray of shape (p, 2)
        Bootstrap intervals of the variances; NaN where there is none.
    level : float
        Of the intervals and of parallel analysis.
    thresholds : dict of ndarray of shape (p,)
        Variances to exceed, by the names of the rules.
    errors : ndarray of shape (q,)
        Cross-validation error of 0, 1, ..., q - 1 components.
    model : PrimedPCA
        The fitted model of p components.
    passes : float
        Number of passes over the data.
    """

    suggestions: tuple[Suggestion, ...]
    variances: np.ndarray
    ratios: np.ndarray
    intervals: np.ndarray
    level: float
    thresholds: dict[str, np.ndarray]
    errors: np.ndarray
    model: Any
    passes: float
    _turns: np.ndarray = field(repr=False)

    @property
    def n_components(self) -> int:
        """Number that parallel analysis suggests, at least 1.

        In comparisons on simulated data it is right most often (Zwick & Velicer 1986, Peres-Neto,
        Jackson & Somers 2005).
        """
        return max(1, self["parallel analysis"].n_components or 0)

    def __getitem__(self, rule: str) -> Suggestion:
        known = {one.rule: one for one in self.suggestions}
        if rule not in known:
            raise KeyError(f"Unknown rule: {rule!r}. Use one of {', '.join(known)}.")
        return known[rule]

    def loading_intervals(self, component: int = 0) -> np.ndarray:
        """Bootstrap intervals of the loadings of a component.

        Parameters
        ----------
        component : int, default=0
            Index from 0.

        Returns
        -------
        ndarray of shape (d, 2)
        """
        turns = self._turns
        if not is_whole(component) or not 0 <= component < turns.shape[2]:
            last = turns.shape[2] - 1
            raise ValueError(f"`component`={component!r} must be an index from 0 to {last}.")
        span = self.model.components_[: turns.shape[1]].astype(np.float64)
        found = np.empty((span.shape[1], 2))
        for start in range(0, len(found), ROWS):  # replicates of all loadings may not fit
            part = turns[:, :, component] @ span[:, start : start + ROWS]
            found[start : start + ROWS] = _ends(part, self.level)
        return found

    def __str__(self) -> str:
        rows = [("rule", "k", "because"), *((s.rule, s.words, s.why) for s in self.suggestions)]
        wide = [max(len(row[i]) for row in rows) for i in (0, 1)]
        table = "\n".join(f"{a:<{wide[0]}}  {b:>{wide[1]}}  {c}" for a, b, c in rows)
        return f"{table}\n{self._footnote()}"

    def _repr_html_(self) -> str:
        cells = (
            f"<tr><td>{escape(s.rule)}</td><td>{escape(s.words)}</td>"
            f"<td style='text-align:left'>{escape(s.why)}</td></tr>"
            for s in self.suggestions
        )
        head = "<tr><th>rule</th><th>k</th><th style='text-align:left'>because</th></tr>"
        return f"<table>{head}{''.join(cells)}</table><p>{escape(self._footnote())}</p>"

    def _footnote(self) -> str:
        n, d = self.model.n_samples_, self.model.n_features_in_
        known = f"{self.variances.size} variances of {n:,} rows x {d:,} columns"
        return f"{known}, in {self.passes:.3g} passes."


def choose_k(
    X: Any,  # noqa: N803
    max_components: int | None = None,
    *,
    variance_ratio: float = 0.9,
    level: float = 0.95,
    replicates: int = 200,
    random_state: Any = None,
    **options: Any,
) -> Choice:
    """Compare rules for the number of components, and bootstrap variances and loadings.

    The module's documentation has the rules, with references.

    Parameters
    ----------
    X : data of shape (n_samples, n_features)
        Anything that :func:`primedpca.as_source` reads.
    max_components : int or None, default=None
        Number of components to compute.  ``None`` computes all if there are at most 256 rows or
        columns, otherwise 50.
    variance_ratio : float in (0, 1), default=0.9
        Fraction of the variance that the rule of that name asks for.
    level : float in (0, 1), default=0.95
        Of the bootstrap intervals, and quantile of parallel analysis.
    replicates : int, default=200
        Number of bootstrap replicates.
    random_state : int, RandomState, Generator or None, default=None
        Seed of all random draws.
    **options
        Parameters of :class:`~primedpca.PrimedPCA`, such as ``scale="std"`` or ``missing="mean"``.

    Returns
    -------
    Choice
        Printed, it is a table with what each rule suggests and why.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import choose_k
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 20)) + rng.normal(size=(300, 20))
    >>> found = choose_k(X, random_state=0)
    >>> found.n_components, found["cross-validation"].n_components
    (3, 3)
    """
    if unknown := options.keys() - DEFAULTS.keys():
        words = "Use parameters of PrimedPCA; `max_components` sets the number of components."
        raise TypeError(f"Unknown option: `{min(unknown)}`. {words}")
    for name, value in (("variance_ratio", variance_ratio), ("level", level)):
        if not (is_real(value) and 0 < value < 1):
            raise ValueError(f"`{name}`={value!r} must be a number above 0 and below 1.")
    if not is_whole(replicates) or replicates < 2:
        raise ValueError(f"`replicates`={replicates!r} must be an integer of at least 2.")
    seed = as_seed(random_state)
    # These rules are no proofs, and the components of noise, which they discard, are hard to prove.
    model = PrimedPCA(**{"certificate": "none"} | options | {"random_state": seed})
    source = model._source(X, reset=True)
    n, d = source.shape
    model.set_params(n_components=_how_many(max_components, n, d))
    with warnings.catch_warnings():  # variances that are rounded to 0 are an error below
        warnings.filterwarnings("ignore", BELOW_RANGE, RuntimeWarning)
        model.fit(source)
    variances = model.explained_variance_.astype(np.float64)
    ratios = model.explained_variance_ratio_.astype(np.float64)
    if not min(variances[0], ratios[0]) > 0:
        raise ValueError(NO_VARIANCE)
    if variances[0] < sys.float_info.min:
        warnings.warn(f"{BELOW_RANGE} {UNIT}", RuntimeWarning, stacklevel=2)
    total, parts = float(variances[0] / ratios[0]), min(n - bool(model.center), d)
    rng = np.random.default_rng((seed, 3))
    spreads, passes = column_variances(source, model)
    null, how = _without_correlations(model, source, spreads, level, rng)
    varying = int((spreads > 0).sum())
    if not varying:  # the total variance is rounding error
        raise ValueError(NO_VARIANCE)
    common = standard_variance(model)
    mean = total / max(1, varying) if common is None else common
    thresholds = {
        "parallel analysis": null,
        "broken stick": total * _broken_stick(parts)[: variances.size],
        "Kaiser": np.full(variances.size, mean),
    }
    reasons = (
        f"variances above {how}",
        "ratios above those of a broken stick",
        f"variances above the mean of a column, {mean:.4g}",
    )
    rules = zip(thresholds.items(), reasons, strict=True)
    dtype = model.components_.dtype
    errors, most = _cross_validation_errors(variances, total, n, varying, rounding_of(dtype))
    intervals, turns = _bootstrap(model, source, replicates, level, rng)
    return Choice(
        suggestions=(
            *(_above(rule, variances, least, why, parts, dtype) for (rule, least), why in rules),
            _by_ratio(ratios, variance_ratio),
            _by_likelihood(variances, n, d),
            _by_error(errors, most),
        ),
        variances=variances,
        ratios=ratios,
        intervals=intervals,
        level=level,
        thresholds=thresholds,
        errors=errors,
        model=model,
        passes=model.n_passes_ + passes + 1,
        _turns=turns,
    )


def _how_many(asked: int | None, n: int, d: int) -> int:
    most = min(n, d)
    if asked is None:
        return most if most <= ALL_UP_TO else FIRST
    check_count("max_components", asked)
    if asked > most:
        words = f"`max_components`={asked} exceeds min(n_samples, n_features)={most}"
        raise ValueError(f"{words}. Use a smaller value.")
    return int(asked)


# -- rules ------------------------------------------------------------------------------------


def _above(
    rule: str,
    variances: np.ndarray,
    thresholds: np.ndarray,
    why: str,
    most: int,
    dtype: Any,
) -> Suggestion:
    """Keep the leading variances that exceed their thresholds by more than rounding.

    The only column of data, shuffled, has the same variance but for rounding.
    """
    p = thresholds.size
    k = leading_above(variances[:p], thresholds, dtype)
    return Suggestion(rule, k, k == p < most, why)


def _broken_stick(parts: int) -> np.ndarray:
    """Return the expected lengths ``(parts,)`` of a stick broken at random, the longest first.

    Examples
    --------
    >>> _broken_stick(2).tolist()
    [0.75, 0.25]
    """
    return np.cumsum(1 / np.arange(parts, 0, -1.0))[::-1] / parts


def _by_ratio(ratios: np.ndarray, wanted: float) -> Suggestion:
    # Rounding: the ratios of all components may add up to slightly less than 1.
    reached = np.flatnonzero(np.cumsum(ratios) >= wanted - 1e-12)
    why = f"explain {100 * wanted:g} % of the variance"
    if reached.size:
        return Suggestion("variance ratio", int(reached[0]) + 1, False, why)
    why = f"{ratios.size} {why[:7]} only {100 * ratios.sum():.3g} % of the variance"
    return Suggestion("variance ratio", ratios.size, True, why)


def _by_likelihood(variances: np.ndarray, n: int, d: int) -> Suggestion:
    if n < d or d < 2 or variances.size < d:
        need = f"needs all {d:,} variances" if d > 1 and n >= d else "needs as many rows as columns"
        return Suggestion("MLE", None, False, need)
    k = likeliest_dimension(variances, n)
    return Suggestion("MLE", k, False, "largest evidence of the probabilistic model")


def _cross_validation_errors(
    variances: np.ndarray, total: float, n: int, d: int, rounding: float
) -> tuple[np.ndarray, int]:
    """Return GCV of 0, 1, ... components, and how many numbers have one if all are computed.

    Numbers stop where degrees of freedom end.  They also stop below the rank, where the rest is at
    most ``rounding`` times the total: no rest says nothing about entries if, for example, only one
    of many columns is the copy of another.  A rank of at most half of the degrees of freedom is
    evaluated, as that of data without noise.
    """
    most = min(n - 1, d)
    rest = total - np.concatenate([[0.0], np.cumsum(variances)])[:most]
    full = np.flatnonzero(rest <= rounding * total)
    if full.size:
        rank = int(full[0])
        rest[rank] = 0.0
        most = rank + (2 * rank <= most)
        rest = rest[:most]
    k = np.arange(rest.size)
    left = (n - 1) * d - k * (n + d - k - 1.0)
    # In this order, no product leaves the range of float64 unless the variances nearly do.
    return np.asarray(rest * ((n - 1) / left) * (n * d / left)), most


def _by_error(errors: np.ndarray, most: int) -> Suggestion:
    k = int(np.argmin(errors))
    why = "least error of entries left out (GCV)"
    return Suggestion("cross-validation", k, 0 < k == errors.size - 1 < most - 1, why)


# -- data without correlations ----------------------------------------------------------------


@one_blas_thread  # the same bits on any machine, and no waiting on a busy one
def _without_correlations(
    model: Any, source: Any, spreads: np.ndarray, level: float, rng: Any
) -> tuple[np.ndarray, str]:
    """Return the variances to exceed ``(p,)``, and in words what they are those of."""
    (n, d), p, array = source.shape, model.n_components_, source.traits.array
    plain = isinstance(array, np.ndarray) and model.missing == "error"
    which = f"the {100 * level:g} % quantile of "
    if plain and DRAWS * n * d * min(n, d) <= SHUFFLED:
        rows = np.asarray(array, dtype=np.float64) / (1.0 if model.scale_ is None else model.scale_)
        draws = [_variances(rng.permuted(rows, axis=0), model.center)[:p] for _ in range(DRAWS)]
        return np.quantile(draws, level, axis=0), f"{which}shuffled columns"
    if d < n and d <= DRAWN:
        count = DRAWS if d <= FEW else FEWER
        draws = [_wishart_variances(spreads, n - 1, rng)[:p] for _ in range(count)]
        return np.quantile(draws, level, axis=0), f"{which}normal columns"
    return np.full(p, _largest_of_noise(spreads, n)), "the largest of uncorrelated columns (limit)"


def _variances(rows: np.ndarray, center: bool) -> np.ndarray:
    """Return the variances of the components of rows, largest first."""
    largest = float(np.abs(rows).max(initial=0.0))
    # Sums of squares may overflow where variances do not; a power of two changes no digit.
    unit = 2.0 ** -math.frexp(largest)[1] if largest > 2.0**500 else 1.0
    rows = rows * unit
    rows = rows - rows.mean(axis=0) if center else rows
    n, d = rows.shape
    square = rows.T @ rows if d <= n else rows @ rows.T
    return np.asarray(np.maximum(np.linalg.eigvalsh(square)[::-1], 0.0) / (n - 1) / unit / unit)


def _wishart_variances(spreads: np.ndarray, freedom: int, rng: Any) -> np.ndarray:
    """Return the variances of components of normal columns that have just these variances.

    Bartlett: the Cholesky factor of a Wishart matrix has the roots of chi-squared variates on its
    diagonal and standard normal ones below.  Columns are scaled to the variances of the data, as
    shuffled ones would have them.
    """
    d = spreads.size
    lower = np.tril(rng.standard_normal((d, d)), -1)
    lower[np.diag_indices(d)] = np.sqrt(rng.chisquare(freedom - np.arange(d)))
    lower *= (np.sqrt(spreads) / np.linalg.norm(lower, axis=1))[:, None]
    return np.maximum(np.linalg.eigvalsh(lower @ lower.T)[::-1], 0.0)


def _largest_of_noise(spreads: np.ndarray, n: int) -> float:
    """Return the largest variance of n rows of many uncorrelated columns, in the limit.

    Examples
    --------
    >>> round(_largest_of_noise(np.ones(400), 100), 6)  # (1 + sqrt(d / n))^2
    9.0
    """
    from scipy.optimize import minimize_scalar

    top = float(spreads.max())
    shares = spreads / top

    def edge(s: float) -> float:
        return (1 + float(np.sum(s * shares / (1 - s * shares))) / n) / s

    found = minimize_scalar(
        edge, bounds=(1e-9, 1 - 1e-12), method="bounded", options={"xatol": 1e-10}
    )
    return top * float(found.fun)


# -- bootstrap --------------------------------------------------------------------------------


@one_blas_thread
def _bootstrap(
    model: Any, source: Any, replicates: int, level: float, rng: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return intervals of the variances ``(p, 2)``, and the turns of the components.

    The turns ``(replicates, q, q)`` have the replicates' components as columns, in the basis of
    the model's first q.
    """
    from scipy.special import ndtri

    q = min(model.n_components_, SPAN)
    data = model._prepared(source).widened()
    blocks = score_blocks(data, data.like.asarray(model._model().components[:q].T))
    variances = model.explained_variance_.astype(np.float64)
    # Fourth powers of the scores must stay in range; a power of two changes no digit.
    unit = 2.0 ** -(math.frexp(variances[0])[1] // 2)
    weights, sums, squares = _weighted_moments(blocks, q, replicates, rng, unit)
    if model.center:
        squares -= sums[:, :, None] * sums[:, None, :] / weights[:, None, None]
    values, turns = np.linalg.eigh(squares / (weights - 1)[:, None, None])
    values, turns = values[:, ::-1], turns[:, :, ::-1]
    signs = np.diagonal(turns, axis1=1, axis2=2) < 0
    turns = np.where(signs[:, None, :], -turns, turns)
    intervals = np.full((variances.size, 2), np.nan)
    known = np.flatnonzero(variances[:q] > 1e-12 * variances[0])  # others are rounding
    spread = values[:, known].std(axis=0, ddof=1) / values[:, known].mean(axis=0)
    reach = np.exp(float(ndtri((1 + level) / 2)) * np.sqrt(np.log1p(spread**2)))
    with np.errstate(over="ignore"):  # an upper end beyond the range of float64 is infinite
        intervals[known] = np.stack([variances[known] / reach, variances[known] * reach], axis=1)
    return intervals, turns


def _weighted_moments(
    blocks: Any, q: int, replicates: int, rng: Any, unit: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sums of the weights, of weighted scores times ``unit`` and of their weighted products.

    One matrix product for all replicates: weights by products of scores, some rows at a time.
    """
    upper = np.triu_indices(q)
    held = max(1, min(ROWS, 2**24 // upper[0].size))
    sums, products = np.zeros((replicates, q + 1)), np.zeros((replicates, upper[0].size))
    for block in blocks:
        for start in range(0, len(block), held):
            rows = np.asarray(block[start : start + held], dtype=np.float64) * unit
            weights = rng.poisson(1.0, (replicates, len(rows))).astype(np.float64)
            sums[:, :q] += weights @ rows
            sums[:, q] += weights.sum(axis=1)
            products += weights @ (rows[:, upper[0]] * rows[:, upper[1]])
    squares = np.zeros((replicates, q, q))
    squares[:, upper[0], upper[1]] = squares[:, upper[1], upper[0]] = products
    # With very few rows, a replicate can have no row at all.
    return np.maximum(sums[:, q], 2.0), sums[:, :q], squares


def _ends(values: np.ndarray, level: float) -> np.ndarray:
    """Return the ends of the middle part of replicates ``(replicates, m)``, as ``(m, 2)``."""
    return np.asarray(np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0).T)
