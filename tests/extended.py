"""Principal components of small data in integer arithmetic, with a bound on their own error.

Every stored number is an integer times a power of two, so means, sums of squares and their
products are exact.  Only two steps round, both at 2^-256 of the largest variance: the entries of
the covariance, once each, and the eigenvectors, whose residual is computed afterwards and bounds
how far they and the eigenvalues are from the truth (Weyl; Davis & Kahan).  Nothing here uses the
library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

BITS = 256
ONE = 1 << BITS
SPARE = 64  # bits beyond BITS in what is computed before the covariance is rounded


class Rational:
    """``num / den * 2^exp``: a fraction that is never reduced, because that is slow."""

    __slots__ = ("den", "exp", "num")

    def __init__(self, num: int, den: int = 1, exp: int = 0) -> None:
        self.num, self.den, self.exp = int(num), int(den), int(exp)

    def __mul__(self, other: Rational) -> Rational:
        return Rational(self.num * other.num, self.den * other.den, self.exp + other.exp)

    def __truediv__(self, other: Rational) -> Rational:
        return Rational(self.num * other.den, self.den * other.num, self.exp - other.exp)

    def fixed(self, bits: int) -> int:
        """``floor(self * 2^bits)``."""
        up = self.exp + bits
        return (self.num << up) // self.den if up >= 0 else self.num // (self.den << -up)

    def top(self) -> int:
        """A power of two at least as large as ``abs(self)``, at most four times: its exponent."""
        return abs(self.num).bit_length() - self.den.bit_length() + 1 + self.exp

    def root(self) -> Rational:
        """The square root, to ``BITS + SPARE`` bits."""
        even = 2 * (BITS + SPARE) + 2 * abs(self.den.bit_length() - self.num.bit_length())
        even += (even + self.exp) % 2
        return Rational(math.isqrt((self.num << even) // self.den), 1, (self.exp - even) // 2)

    def __float__(self) -> float:
        return scaled(Fraction(self.num, self.den), self.exp) if self.num else 0.0


def scaled(value: Fraction, exp: int) -> float:
    """``value * 2^exp`` to a relative 1e-15, infinite or zero beyond the range of float64."""
    if value == 0:
        return 0.0
    size = abs(value.numerator).bit_length() - value.denominator.bit_length()
    shift = Fraction(1 << size) if size >= 0 else Fraction(1, 1 << -size)
    try:
        return math.ldexp(float(value / shift), size + exp)
    except OverflowError:
        return math.copysign(math.inf, value)


def integers(values: np.ndarray) -> tuple[np.ndarray, int]:
    """``values`` as Python integers times one power of two; NaN becomes 0."""
    values = np.asarray(values)
    if values.dtype.kind in "biu":
        return values.astype(object) + 0, 0
    wide = values.dtype if values.dtype == np.longdouble else np.dtype(np.float64)
    mantissa, exponent = np.frexp(np.nan_to_num(values.astype(wide), nan=0.0))
    digits = 53 if wide == np.float64 else 64
    whole = np.ldexp(mantissa, digits)
    whole = whole.astype(np.int64).astype(object) if digits == 53 else _each(int, whole)
    used = exponent[mantissa != 0]
    low = int(used.min()) if used.size else 0
    shifts = np.where(mantissa != 0, exponent - low, 0).astype(object)
    return whole << shifts, low - digits


def _each(function, values: np.ndarray) -> np.ndarray:
    made = np.empty(values.shape, dtype=object)
    made.ravel()[:] = [function(value) for value in values.ravel()]
    return made


@dataclass(frozen=True)
class Truth:
    """Eigenvalues and eigenvectors of a covariance, and how far they can be from the exact ones.

    ``values[i] * 2^exp`` is eigenvalue ``i``, ``vectors[:, i] * 2^-BITS`` its vector; each
    eigenvalue is off by ``slip * 2^exp`` at most, the vectors by ``slip`` over their gap.
    """

    values: list[int]
    vectors: np.ndarray
    slip: int
    exp: int
    trace: int
    means: list[Rational]
    deviations: list[Rational]
    ratio: float  # how large the mean is beside the largest standard deviation, as prepared
    weight: Rational

    def value(self, i: int) -> float:
        """Eigenvalue ``i`` as a float."""
        return scaled(Fraction(self.values[i]), self.exp)

    def gap(self, start: int, stop: int) -> int:
        """From the run of eigenvalues to the others, for certain; negative: not known to be apart.

        Without others it is larger than any eigenvalue.
        """
        gaps = [2 * (self.trace + self.slip) + 2]
        if start > 0:
            gaps.append(self.values[start - 1] - self.values[start])
        if stop < len(self.values):
            gaps.append(self.values[stop - 1] - self.values[stop])
        return min(gaps) - 2 * self.slip

    def blur(self, start: int, stop: int) -> float:
        """How far the span of these eigenvectors can be from the true one, in radians."""
        gap = self.gap(start, stop)
        if gap <= 0:
            return math.inf
        return 2 * math.sqrt(stop - start) * self.slip / gap

    def coordinates(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors ``(m, d)``, made of unit length, along the eigenvectors: ``(d, m)``.

        Small coordinates keep their relative accuracy.
        """
        found = np.empty((len(self.values), len(vectors)))
        for j, vector in enumerate(vectors):
            whole, _ = integers(vector)
            along = self.vectors.T @ whole
            size = math.isqrt(sum(int(a) ** 2 for a in along)) or 1
            found[:, j] = [int(a) / size for a in along]
        return found

    def angle(self, components: np.ndarray, start: int, stop: int) -> float:
        """The largest angle between the span of the components and that of eigenvectors.

        Of fewer components than eigenvectors, the angle at which their span leaves the other.
        """
        along = self.coordinates(components)
        inside = along[start:stop]
        outside = np.delete(along, np.s_[start:stop], axis=0)
        if len(components) == 1:
            return math.atan2(float(np.linalg.norm(outside)), float(np.linalg.norm(inside)))
        if outside.size == 0:
            return 0.0
        if len(components) == stop - start and np.linalg.norm(inside, ord=-2) > 0.5:
            return math.atan(float(np.linalg.norm(outside @ np.linalg.inv(inside), ord=2)))
        basis = np.linalg.qr(np.concatenate([inside, outside]))[0]
        inside, outside = basis[: stop - start], basis[stop - start :]
        low = np.linalg.svd(inside, compute_uv=False)[len(components) - 1]
        return math.atan2(float(np.linalg.norm(outside, ord=2)), float(low))

    def holds(self, count: int, share: float) -> Fraction:
        """By how much of the total the first ``count`` hold more than ``share``; less: negative."""
        held = Fraction(sum(self.values[:count]), self.trace)
        return held - Fraction(share)

    @property
    def share_slip(self) -> Fraction:
        """How far :meth:`holds` can be off."""
        return Fraction(2 * (len(self.values) + 1) * self.slip, self.trace)


def truth(
    X: np.ndarray,
    *,
    weights: np.ndarray | None = None,
    center: bool = True,
    scale: np.ndarray | str | None = None,
) -> Truth:
    """The components of the data as given, NaN standing for the exact mean of its column."""
    entries, means, deviations, weight = _covariance(X, weights, center, scale)
    d = len(means)
    exp = max((entries[j, j].top() for j in range(d) if entries[j, j].num), default=BITS)
    square = np.empty((d, d), dtype=object)
    for (j, k), entry in entries.items():
        square[j, k] = square[k, j] = entry.fixed(BITS - exp)
    values, vectors, slip = _eigen(square)
    if not any(values) and not square.any():
        slip = 0
    sizes = [float(m) for m in means]
    lengths = _lengths(X, scale, deviations)
    top = math.sqrt(max(values[0], 1)) * 2.0 ** ((exp - BITS) % 2 / 2)
    half = (exp - BITS) // 2
    with np.errstate(all="ignore"):
        far = [abs(s) / length for s, length in zip(sizes, lengths, strict=True)]
        size = max(far) if center else 0.0
    ratio = size / math.ldexp(top, half) if values[0] and half > -1000 else math.inf
    trace = sum(int(square[j, j]) for j in range(d))
    return Truth(values, vectors, slip, exp - BITS, trace, means, deviations, ratio, weight)


def _lengths(X: np.ndarray, scale: np.ndarray | str | None, deviations: list) -> list[float]:
    """What the columns are divided by, as floats."""
    if scale is None:
        return [1.0] * X.shape[1]
    if isinstance(scale, str):
        return [float(s) or 1.0 for s in deviations]
    return [float(s) for s in scale]


def _covariance(X, weights, center, scale):
    """The covariance as Rationals ``{(j, k): entry}``, k <= j; means, deviations, weight."""
    n, d = X.shape
    row, low = integers(np.ones(n, dtype=int) if weights is None else np.asarray(weights, float))
    there = ~np.isnan(X) if X.dtype.kind == "f" else np.ones((n, d), dtype=bool)
    columns, means, deviations, total = [], [], [], int(row.sum())
    for j in range(d):
        column, exp = integers(X[:, j])
        mine = int(row[there[:, j]].sum())
        sums = int((row * column)[there[:, j]].sum())
        about = np.where(there[:, j], mine * column - sums, 0)
        means.append(Rational(sums, mine, exp))
        squares = int((row * about * about).sum())
        # Of the column with its missing values filled by the mean.
        deviations.append(Rational(squares, mine**2 * total, 2 * exp).root())
        shown = about if center else np.where(there[:, j], mine * column, sums)
        columns.append((shown, mine, exp))
    whole = Rational(total, 1, low)
    less = total - (1 << -low) if low < 0 else (total << low) - 1
    less = Rational(less, 1, min(low, 0))
    units = [Rational(1)] * d
    if isinstance(scale, str):
        units = [s if s.num else Rational(1) for s in deviations]
    elif scale is not None:
        units = [Rational(int(i[0]), 1, e) for i, e in map(integers, np.asarray(scale)[:, None])]
    entries = {}
    for j, (one, w1, e1) in enumerate(columns):
        rowed = row * one
        for k, (two, w2, e2) in enumerate(columns[: j + 1]):
            product = Rational(int((rowed * two).sum()), w1 * w2, e1 + e2 + low)
            entries[j, k] = product / less / (units[j] * units[k])
    return entries, means, deviations, whole


def _times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a @ b) >> BITS


def _eigen(square: np.ndarray) -> tuple[list[int], np.ndarray, int]:
    """Eigenvalues, largest first, eigenvectors, and a bound on the error of the former.

    LAPACK gives the first digits, Jacobi rotations in fixed point the others.
    """
    d = len(square)
    peak = max(int(abs(a)) for a in square.ravel()) or 1
    rough = np.array([[int(a) / peak for a in row] for row in square], dtype=np.float64)
    start = np.linalg.eigh(rough)[1][:, ::-1]
    vectors = np.array([[int(math.ldexp(x, 80)) << (BITS - 80) for x in row] for row in start])
    vectors = vectors.astype(object).reshape(d, d)
    eye = np.diag(np.full(d, ONE, dtype=object)) if d > 1 else np.array([[ONE]], dtype=object)
    for _ in range(4):  # Newton's iteration for the nearest orthogonal matrix
        vectors = _times(vectors, 3 * eye - _times(vectors.T, vectors)) >> 1
    small = _times(vectors.T, _times(square, vectors))
    small = (small + small.T) >> 1
    for _ in range(12):
        if not _sweep(small, vectors):
            break
    values = [int(small[i, i]) for i in range(d)]
    order = sorted(range(d), key=lambda i: -values[i])
    values, vectors = [values[i] for i in order], vectors[:, order]
    off = square @ vectors - (vectors * np.array(values, dtype=object)[None, :])
    skew = vectors.T @ vectors - (eye << BITS)
    residual = math.isqrt(sum(int(a) ** 2 for a in off.ravel())) >> BITS
    uneven = math.isqrt(sum(int(a) ** 2 for a in skew.ravel())) >> BITS
    # The entries of the covariance are off by less than 2 each; the vectors are orthogonal up to
    # `uneven`, which moves eigenvalues by as much of the largest.
    return values, vectors, 2 * residual + 2 * (uneven + 2) * d + 4 * d + 4


def _sweep(a: np.ndarray, v: np.ndarray) -> bool:
    """One sweep of Jacobi rotations, in place; whether any was large enough to be made."""
    made = False
    for p, q in combinations(range(len(a)), 2):
        off = int(a[p, q])
        if abs(off) <= 4:
            continue
        made = True
        half = int(a[q, q]) - int(a[p, p])
        root = math.isqrt(half * half + 4 * off * off)
        tangent = (2 * off << BITS) // (half + root if half >= 0 else half - root)
        c = (ONE << BITS) // math.isqrt((ONE << BITS) + tangent * tangent)
        s = (c * tangent) >> BITS
        for rows in (a, v.T, a.T):
            one, two = rows[p].copy(), rows[q].copy()
            rows[p], rows[q] = (c * one - s * two) >> BITS, (s * one + c * two) >> BITS
    return made
