"""Compare what is claimed with the truth, on problems made from their seeds.

    python tests/extended_fuzz.py --problems 20000 --first-seed 0 --processes 16
    python tests/extended_fuzz.py --seed 123            # one of them, in words

The exit code is 0 if nothing claimed was false and no error was raw.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import re
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from extended import Truth, scaled, truth
from extended_problems import CATEGORIES, Problem, problem
from sklearn.exceptions import ConvergenceWarning

from primedpca import PrimedPCA, certify
from primedpca._core.arrays import is_sparse, work_dtype
from primedpca.result import Certificate, DivergenceError, Status

FINE = 0.01  # of a bound: what the reference may be off by
FLOAT = 1e-12  # of an angle: what it is off by when read as a float64
#: A variance at least so large, beside the first, is not "no variance".
SOME = 1e-6
#: Promised error of variances, in the first of them, and up to which mean/std.
PROMISED = {"float64": (1e-10, 1e8), "float32": (1e-5, 1e3)}


@dataclass
class Findings:
    """What became of one problem."""

    seed: int
    category: str
    claims: int = 0
    coarse: int = 0
    refused: str = ""
    raw: list[str] = field(default_factory=list)
    violated: list[str] = field(default_factory=list)

    def claim(self, false: bool, error: float, bound: float, words: str) -> None:
        """Count a claim: false, beyond what the reference can tell, or true."""
        self.claims += 1
        if false:
            self.violated.append(words)
        elif error > FINE * bound:
            self.coarse += 1


def check(seed: int) -> Findings:
    """Solve the problem of this number and compare."""
    return examine(problem(seed))


def examine(p: Problem) -> Findings:
    """Solve this problem and compare."""
    found = Findings(p.seed, p.category)
    try:
        true = truth(p.X, weights=p.weights, center=p.center, scale=p.scale)
    except ZeroDivisionError:  # every value of a column is missing
        found.refused = "there is no truth"
        return found
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            TASKS[p.task](p, true, found)
        except DivergenceError as error:
            _answer(p, true, found, error)
        except np.linalg.LinAlgError as error:
            found.raw.append(_words(error))
        except (ValueError, TypeError) as error:
            _answer(p, true, found, error)
        except Exception as error:
            found.raw.append(_words(error))
    for warning in caught:
        expected = true.value(0) < 1e-290 and "below the range of float64" in str(warning.message)
        expected |= "deviation of a column became" in str(warning.message)  # of a stream
        if not expected and not issubclass(warning.category, ConvergenceWarning):
            found.raw.append(f"{warning.category.__name__}: {warning.message}")
    return found


def _words(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(last.filename)}:{last.lineno}"
    return f"{type(error).__name__}: {str(error)[:160]} ({place})"


def _answer(p: Problem, true: Truth, found: Findings, error: Exception) -> None:
    """An error in words: an answer where the problem allows it."""
    beyond = not 1e-290 < true.value(0) < 1e290 and "range" in str(error)
    # An outlier beyond the range of the type that it is given in.
    values = p.given.data if is_sparse(p.given) else p.X
    cast = "contains infinity" in str(error) and bool(np.isinf(values.astype(float)).any())
    if beyond or cast or any(word in str(error) for word in p.answers):
        found.refused = str(error)
    else:
        found.raw.append(_words(error))


# -- tasks -----------------------------------------------------------------------------------


def _fit(p: Problem, true: Truth, found: Findings) -> None:
    pca = PrimedPCA(p.k, **p.options, **p.preparation)
    if pca.warm_start:  # from the components of other data, or of these
        other = p.rng.normal(size=p.X.shape) if p.rng.random() < 0.5 else p.given
        pca.fit(other)
    pca.fit(p.given, sample_weight=p.weights)
    _attributes(p, pca, true, found)


def _stream(p: Problem, true: Truth, found: Findings) -> None:
    rng, options = p.rng, p.preparation | p.options
    models = [PrimedPCA(p.k, **options) for _ in range(1 + (rng.random() < 0.4))]
    cuts = np.sort(rng.integers(0, len(p.X) + 1, rng.integers(0, 8)))
    for i, rows in enumerate(np.split(np.arange(len(p.X)), cuts)):
        if rows.size:
            w = None if p.weights is None else p.weights[rows]
            models[i % len(models)].partial_fit(p.X[rows], sample_weight=w)
    started = [model for model in models if hasattr(model, "stream_")]
    for other in started[1:]:
        started[0].merge(other)
    _attributes(p, started[0], true, found)


def _certify(p: Problem, true: Truth, found: Findings) -> None:
    given = _components(p, true)
    options = dict(p.options)
    certificate = certify(p.given, given, sample_weight=p.weights, **options, **p.preparation)
    certificate_claims(certificate, given, true, found, past=False)
    tol = options.get("tol") or math.pi / 8
    _zeros(certificate, given, true, found, bool(certificate.met(tol).all()), tol)


def _components(p: Problem, true: Truth) -> np.ndarray:
    """Components to audit: right ones, or wrong in a way."""
    rng, k, d = p.rng, min(int(p.k), len(true.values)), len(true.values)
    vectors = np.array([[int(x) / 2**256 for x in row] for row in true.vectors.T]).reshape(d, d)
    noise = rng.normal(size=(k, d))
    if p.components == "near":
        vectors = vectors[:k] + noise * 10.0 ** -rng.uniform(1, 12)
    elif p.components == "turned":  # within their span
        vectors = np.linalg.qr(rng.normal(size=(k, k)))[0] @ vectors[:k]
    elif p.components == "others":  # right ones of lesser variance: the first is missed
        vectors = vectors[rng.permutation(d)[:k]] if d > k else vectors[::-1]
    elif p.components == "random":
        vectors = noise
    elif p.components == "swapped":
        order = np.arange(d)
        i = rng.integers(max(1, min(k, d) - 1))
        order[i : i + 2] = order[i : i + 2][::-1]
        vectors = vectors[order]
    elif p.components == "uneven":  # as orthonormal as is asked for, and no more
        return (
            vectors[:k] * (1 + 4e-5 * rng.uniform(-1, 1, (k, 1))) + 1e-5 * np.clip(noise, -1, 1) / d
        )
    q, r = np.linalg.qr(vectors[:k].T)
    return np.ascontiguousarray((q * np.sign(np.diag(r) + (np.diag(r) == 0))).T)


TASKS = {"fit": _fit, "stream": _stream, "certify": _certify}


# -- claims ----------------------------------------------------------------------------------


def certificate_claims(
    certificate: Certificate, components: np.ndarray, true: Truth, found: Findings, past: bool
) -> None:
    """Every angle and every interval."""
    k = len(components)
    angles, intervals = certificate.angle_bounds, certificate.eigenvalue_bounds
    if not (np.isfinite(angles).all() and np.isfinite(intervals).all()):
        found.violated.append(f"not finite: {angles} {intervals.tolist()}")
        return
    for i in range(k):
        if angles[i] < np.pi / 2:
            _angle(i, i + 1, float(angles[i]), components[i : i + 1], true, found)
        _interval(i, *map(float, intervals[i]), true, found)
    for start, stop, bound in certificate.clusters:
        if bound >= np.pi / 2 or (stop > k and not past):
            continue
        if stop <= k:
            _angle(start, stop, bound, components[start:stop], true, found)
        else:  # each of those kept lies in the span
            for i in range(start, k):
                _angle(start, stop, bound, components[i : i + 1], true, found)


def _angle(
    start: int, stop: int, bound: float, vectors: np.ndarray, true: Truth, found: Findings
) -> None:
    name = f"component {start}" if stop == start + 1 else f"span {start}..{stop - 1}"
    if stop > len(true.values) or true.gap(start, stop) <= 0:
        found.claim(True, 0.0, bound, f"angle: {name} is tied, but has the bound {bound:.3g}")
        return
    blur, angle = true.blur(start, stop), true.angle(vectors, start, stop)
    false = angle * (1 - FLOAT) - blur > bound
    found.claim(false, blur, bound, f"angle: {name} is {angle:.3g} off, bound {bound:.3g}")


def _interval(i: int, low: float, high: float, true: Truth, found: Findings) -> None:
    unit = Fraction(2) ** true.exp
    value, slip = true.values[i] * unit, true.slip * unit
    false = Fraction(low) > value + slip or Fraction(high) < value - slip or low > high
    words = f"interval: variance {i} is {true.value(i):.6g}, not in [{low:.6g}, {high:.6g}]"
    wide = scaled(Fraction(high) - Fraction(low), -true.exp)
    found.claim(false, true.slip, wide, words)


def _zeros(
    certificate: Certificate,
    components: np.ndarray,
    true: Truth,
    found: Findings,
    settled: bool,
    tol: float,
) -> None:
    """What is said to have no variance has none to speak of."""
    for i in np.flatnonzero(certificate.zero) if settled else ():
        size = true.values[i] / true.values[0] if true.values[0] else 0.0
        if size <= SOME:
            continue
        angle = true.angle(components[i : i + 1], i, i + 1)
        found.claim(
            angle > tol, 0.0, 1.0, f"zero: variance {i} is {size:.3g} of the first, {angle:.3g} off"
        )


def _attributes(p: Problem, pca: Any, true: Truth, found: Findings) -> None:
    """All that a fitted model says of the data."""
    certificate, k = pca.certificate_, pca.n_components_
    for name, value in vars(pca).items():
        if name.endswith("_") and isinstance(value, (np.ndarray, float)):
            numbers = np.asarray(value)
            if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
                found.violated.append(f"not finite: {name}={value}")
    components, ev = pca.components_, pca.explained_variance_.astype(float)
    if k == 0 or not np.isfinite(components).all():
        return
    kind = work_dtype(p.X.dtype)
    skew = np.abs(components.astype(float) @ components.astype(float).T - np.eye(k)).max()
    if skew > (1e-12 if kind == "float64" else 1e-5):
        found.violated.append(f"orthonormal: rows miss the identity by {skew:.3g}")
    if certificate is not None:
        certificate_claims(certificate, components, true, found, past=True)
        _zeros(certificate, components, true, found, pca.converged_, pca.tol)
        _variances(p, pca, ev, kind, true, found)
    if isinstance(p.k, float) and pca.converged_:
        _count(p.k, k, true, found)
    if pca.status_ is Status.CERTIFIED and not certificate.met(pca.tol).all():
        found.violated.append("status: CERTIFIED, but not every component is")
    _preparation(p, pca, true, found)


def _variances(
    p: Problem, pca: Any, ev: np.ndarray, kind: str, true: Truth, found: Findings
) -> None:
    promise, most = PROMISED[kind]
    if p.missing == "mean":  # what is filled in is a mean, rounded
        most = promise * 2.0**50
    if p.weights is not None and is_sparse(getattr(p.given, "x", p.given)):
        return  # a weight can make the mean of a sparse column as large as it likes
    if float(true.weight) < 1.5 or not true.values[0] or true.ratio > most:
        return
    unit = Fraction(2) ** true.exp
    top = true.values[0] * unit
    low, high = pca.certificate_.eigenvalue_bounds.T
    if not (np.isfinite(low) & np.isfinite(high) & np.isfinite(ev)).all():
        return
    for i, value in enumerate(ev):
        exact, slack = true.values[i] * unit, Fraction(promise) * top + Fraction(5e-324)
        if pca.certificate_.kind == "exact":
            off = abs(Fraction(value) - exact)
            words = f"variance {i} is {value:.17g}, truly {true.value(i):.17g}: "
            words += f"{float(off / top):.3g} of the first off"
            found.claim(off > slack, 0.0, 1.0, words)
        elif not Fraction(low[i]) - slack <= Fraction(value) <= Fraction(high[i]) + slack:
            found.violated.append(f"variance {i} is {value:.6g}, not in its interval")


def _count(share: float, k: int, true: Truth, found: Findings) -> None:
    """The fewest that hold the share; one more where these hold it by the last digits."""
    if not true.trace:
        found.claim(k > 1, 0.0, 1.0, f"count: {k} components of no variance")
        return
    slip = true.share_slip
    words = f"count: {k} kept for {share:g}; hold {float(true.holds(k, share)):.3g} more"
    found.claim(true.holds(k, share) < -slip, float(slip), 1e-9, words)
    spare = true.holds(k - 1, share)
    words = f"count: {k} kept for {share:g}; {k - 1} hold {float(spare):.3g} more"
    found.claim(spare > Fraction(1e-8) and true.ratio < 1e8, float(slip), 1e-9, words)


def _preparation(p: Problem, pca: Any, true: Truth, found: Findings) -> None:
    """The mean and the scale, to nearly all their digits."""
    wide = work_dtype(p.X.dtype) == "float64"
    fine, least = (1e-9, 1e-300) if wide else (1e-5, 2.0**-148)
    for j, (mean, spread) in enumerate(zip(true.means, true.deviations, strict=True)):
        m, s = float(mean), float(spread)
        rows = p.X[:, j] if p.weights is None else p.X[p.weights > 0, j]
        last = 1e-5 * fine * float(np.nanmax(np.abs(rows.astype(float))))
        last += 1e-3 * fine * math.sqrt(max(true.value(0), 0.0)) if p.scale is None else 0.0
        if p.center and abs(float(pca.mean_[j]) - m) > fine * (abs(m) + s) + last + least:
            found.violated.append(f"mean: column {j} has {pca.mean_[j]:.9g}, truly {m:.9g}")
        if isinstance(p.scale, str) and s > 1e-13 * abs(m) and 1e-300 < s < 1e300:
            if work_dtype(p.X.dtype) == "float32" and not 1e-37 < s < 1e37:
                continue
            if abs(float(pca.scale_[j]) - s) > 1e3 * fine * s:
                found.violated.append(f"scale: column {j} has {pca.scale_[j]:.9g}, truly {s:.9g}")


# -- the command -----------------------------------------------------------------------------


def table(results: list[Findings]) -> str:
    """What was found, by category."""
    head = ("category", "problems", "claims", "violated", "too coarse", "refused", "raw errors")
    lines = [head]
    for category in CATEGORIES:
        mine = [r for r in results if r.category == category]
        numbers = (
            len(mine),
            sum(r.claims for r in mine),
            sum(bool(r.violated) for r in mine),
            sum(r.coarse for r in mine),
            sum(bool(r.refused) for r in mine),
            sum(bool(r.raw) for r in mine),
        )
        lines.append((category, *map(str, numbers)))
    totals = [sum(int(line[i]) for line in lines[1:]) for i in range(1, len(head))]
    lines.append(("all", *map(str, totals)))
    return "\n".join(f"{line[0]:10}" + "".join(f"{x:>12}" for x in line[1:]) for line in lines)


def complaints(results: list[Findings], most: int = 12) -> str:
    """The first seeds of every kind of violation and raw error."""
    kinds: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for r in results:
        for word in {w.split(":")[0].split()[0]: w for w in r.violated}.values():
            kinds[r.category, word.split(":")[0].split()[0]].append((r.seed, word))
        for word in r.raw[:1]:
            kinds[r.category, "raw"].append((r.seed, word))
    lines = []
    for (category, kind), cases in sorted(kinds.items()):
        lines.append(f"{category}: {kind}: {len(cases)} problems, such as")
        lines += [f"  --seed {seed}: {words}" for seed, words in cases[:most]]
    return "\n".join(lines)


def run(seeds: range, processes: int, progress: bool = False) -> list[Findings]:
    """The findings of all these problems, in order."""
    if processes == 1:
        return [check(seed) for seed in seeds]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # for the processes that are started
    context = multiprocessing.get_context("spawn")
    results: list[Findings] = []
    with context.Pool(processes) as pool:
        begun = time.perf_counter()
        for result in pool.imap(check, seeds, chunksize=16):
            results.append(result)
            if progress and len(results) % 1000 == 0:
                spent = time.perf_counter() - begun
                print(f"{len(results)} of {len(seeds)} in {spent:.0f} s", file=sys.stderr)
    return results


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=20000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--category", choices=CATEGORIES, help="only problems of this one")
    parser.add_argument("--seed", type=int, help="only this problem, in words")
    parser.add_argument("--most", type=int, default=12, help="seeds shown of each kind")
    asked = parser.parse_args()
    if asked.seed is not None:
        p = problem(asked.seed)
        print(p, p.X.shape, p.X.dtype)
        results = [examine(p)]
        print(results[0])
    else:
        seeds = range(asked.first_seed, asked.first_seed + asked.problems)
        if asked.category:
            place = list(CATEGORIES).index(asked.category)
            first = asked.first_seed + (place - asked.first_seed) % len(CATEGORIES)
            seeds = range(first, first + asked.problems * len(CATEGORIES), len(CATEGORIES))
        results = run(seeds, asked.processes, progress=True)
        print(table(results))
        print(complaints(results, asked.most))
        print(
            Counter(
                re.sub(r"-?[\d.]+(e[-+]?\d+)?", "#", r.refused)[:100] for r in results if r.refused
            )
        )
    return int(any(r.violated or r.raw for r in results))


if __name__ == "__main__":
    sys.exit(main())
