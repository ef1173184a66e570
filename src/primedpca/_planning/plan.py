"""Choice of the cheapest algorithm for a shape, storage and number of components."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._core.parameters import DEFAULTS, check_options, is_proven, is_whole
from primedpca._core.process import one_blas_thread
from primedpca._core.units import as_bytes
from primedpca._core.wording import memory_words
from primedpca._operator.operator import Centred, check_own_scale
from primedpca._planning.costs import FALLS_AT, FLAT, REFERENCE_WORKERS, Load, ways
from primedpca._planning.memory_limits import within_budget
from primedpca._planning.rates import CORE
from primedpca.priming import REGISTRY, BlockKrylov, Exact, as_priming
from primedpca.priming.extra_directions import best_extra
from primedpca.priming.user_directions import with_columns_of
from primedpca.result import Plan, Way
from primedpca.sources import as_source
from primedpca.sources.memory.frames import column_labels
from primedpca.sources.wrappers.on_device import on_device

__all__ = ["all_for_mle", "likeliest_dimension", "make_plan", "plan"]

SHARES_EXACT_TO = 2048  # up to this order, a fractional `n_components` uses a full decomposition
SHARES_BLOCK = 32  # columns of a block for a fractional `n_components`
SAMPLED, SAMPLED_ENTRIES = 50, 2**23  # rows of a sample besides 4 k, and its entries
#: Part by which variances of a sample fall from the k-th to the 2k-th: of usual data, and at most
#: where an explicit matrix takes over; how the steps depend on it, and their largest factor, by
#: the sets of benchmarks/panel.py.
USUAL, FALLING, SLOWER, SLOWEST = 0.4, 0.3, 0.6, 1.8
NAMES = {kind: name for name, kind in REGISTRY.items()}


def plan(
    X: Any,  # noqa: N803
    n_components: Any = None,
    *,
    sample_weight: Any = None,
    **options: Any,
) -> Plan:
    """Return the algorithm that :class:`~primedpca.PrimedPCA` would use for these data, and why.

    Parameters
    ----------
    X : data of shape (n, d)
        Anything that :func:`primedpca.as_source` reads.  Nothing is read except one block of data
        on disk, to measure the reading speed, and some rows of data in memory, to see whether
        their spectrum is flat.
    n_components : int, float, "mle" or None, default=None
        Number of components, fraction of the variance, or rule, as in the estimator.
    sample_weight : array of shape (n,) or None, default=None
        Weights of the rows.
    **options
        Parameters of the estimator.  ``priming``, ``extra_components``, ``tol``, ``certificate``
        and ``max_memory`` affect the plan most.

    Returns
    -------
    Plan
        Its ``str`` is a sentence, which for data on disk includes the estimated reading time.
        ``ways`` lists the algorithms that were compared, each with its passes, flops, bytes,
        memory and seconds.  The first is the one that a fit takes, the cheapest on two workers
        for usual spectra: the choice, and so the result, depends neither on the number of workers
        nor on a sample of rows.  The seconds do.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import plan
    >>> plan(np.ones((600, 50)), 2).priming
    Exact()
    >>> plan(np.ones((20000, 3000), dtype="float32"), 5, certificate="none").priming.side
    'right'
    """
    known = DEFAULTS | options
    if unknown := options.keys() - DEFAULTS.keys():
        raise TypeError(f"Unknown option: `{min(unknown)}`. Use parameters of PrimedPCA.")
    check_options(known | {"n_components": n_components})
    preparation = {name: known[name] for name in ("center", "scale", "missing", "engine")}
    limit = as_bytes(known["max_memory"])
    source = on_device(as_source(X), known["device"], limit)
    check_own_scale(source, known["scale"])
    data = Centred(source, sample_weight=sample_weight, **preparation)
    data.check_rows()
    guess = isinstance(n_components, str) and n_components == "mle"
    found = make_plan(
        data,
        all_for_mle(data.shape) if guess else n_components,
        known["priming"],
        known["extra_components"],
        tol=known["tol"],
        proven=is_proven(known),
        max_memory=limit,
        batch_size=known["batch_size"],
    )
    return _with_probe(_with_sample(found, data), data)


def _with_sample(plan: Plan, data: Centred) -> Plan:
    """Return the plan with passes and time of block Krylov as some rows in memory suggest.

    Where variances fall slowly from the k-th on, it takes more steps than usual.  The choice stays
    the same: a fit recognises a flat spectrum on its way.
    """
    best = plan.ways[0] if plan.ways else None
    if best is None or best.priming.traits.certifier == "exact" or best.priming.explicit:
        return plan
    drop = _drop_of_sample(data, int(plan.n_components))
    if drop is None or drop >= USUAL:
        return plan
    part, after = min((USUAL / max(drop, 1e-3)) ** SLOWER, SLOWEST), (0.0, 0.0, 0.0, 0.0)
    words = "the variances of a sample of rows fall slowly"
    if plan.early is not None and drop < FALLING:  # an explicit matrix, one of the ways, takes over
        others = (way for way in plan.ways if way.priming.traits.certifier != "exact")
        matrix = next(way for way in others if way.priming.explicit)
        part, words = (
            min(plan.early, FALLS_AT) / best.steps,
            f"{words}, so the fit may switch to {matrix.name} partway",
        )
        after = (matrix.passes, matrix.flops, matrix.memory, matrix.seconds)
    passes = math.ceil(part * best.passes + after[0])
    slower = replace(
        best,
        steps=math.ceil(part * best.steps),
        passes=passes,
        flops=part * best.flops + after[1],
        bytes=passes * best.bytes / best.passes,
        memory=max(best.memory, after[2]),
        seconds=part * best.seconds + after[3],
    )
    shown = (slower, *plan.ways[1:])
    return replace(plan, ways=shown, reason=f"{_why(list(shown))}; {words}")


def _drop_of_sample(data: Centred, k: int) -> float | None:
    """Part by which the variances of some rows in memory fall from the k-th to the 2k-th.

    None if it is not known without a pass: rows that are scaled, weighted or long.
    """
    from scipy.sparse import vstack

    source, (n, d) = data.source, data.shape
    count = 4 * k + SAMPLED
    plain = not data.standardise and data.missing == "error" and data.root is None
    traits = data.traits
    here = traits.in_memory and source.axis == 0 and source.device in (None, "cpu")
    here &= not (traits.sequential or traits.spread)
    stored = (traits.nnz() or 0) / n if data.sparse else d
    if not (plain and here) or n < 2 * count or count * stored > SAMPLED_ENTRIES:
        return None
    blocks = [block for _, block in source.sample(count / n, 0).scan()]
    rows = vstack(blocks) if data.sparse else np.concatenate([to_numpy(block) for block in blocks])
    rows = rows.astype(np.float64)
    with one_blas_thread, np.errstate(all="ignore"):
        square = (rows @ rows.T).toarray() if data.sparse else rows @ rows.T
        square = square - square.mean(axis=0)
        square = square - square.mean(axis=1)[:, None]
        if not np.isfinite(square).all():  # a fit names such values
            return None
        values = np.linalg.eigvalsh(square)[::-1]
    return float(1 - values[2 * k - 1] / values[k - 1]) if values[k - 1] > 0 else None


def _with_probe(plan: Plan, data: Centred) -> Plan:
    """Return the plan with the reading time in its sentence, measured by reading one block.

    The choice stays the same: a choice that depended on the load of a disk would not be
    reproducible.
    """
    source: Any = data.source
    load = Load.of(data)
    if not plan.ways or load.rate == math.inf or source.traits.read_rate is not None:
        return plan
    start = time.perf_counter()
    source.read(2 * len(source.blocks) // 3)
    rate = load.stored / len(source.blocks) / max(time.perf_counter() - start, 1e-9)
    best = plan.ways[0]
    words = f"; {_size(best.bytes)} are read in all, which takes {_seconds(best.bytes / rate)} at "
    return replace(plan, reason=f"{plan.reason}{words}the {_size(rate)}/s of a short probe")


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else memory_words(count)


def make_plan(
    data: Centred,
    n_components: Any,
    priming: Any,
    extra_components: int | str,
    *,
    tol: float = math.pi / 1024,
    proven: bool = True,
    max_memory: float = math.inf,
    batch_size: int = 1000,
) -> Plan:
    """Choose the priming and the number of directions.

    ``priming="auto"`` is the cheapest of: a full decomposition of the covariance or the Gram
    matrix, whichever is smaller; block Krylov with that matrix, formed in one pass, with blocks of
    8 or 16 columns; and block Krylov with the data, from the right or the left, with blocks of 8,
    16, 32 or as many columns as directions.  :mod:`primedpca._planning.costs` estimates the cost
    of each.  The usual outcome:

    ==========================================  =================================================
    data                                        ``priming="auto"``
    ==========================================  =================================================
    the smaller side is short (to about 300),   exact
    or ``k`` is a large part of it
    dense, the smaller side up to about 1000    block Krylov with an explicit matrix
    dense, both sides long                      block Krylov, blocks of 16 or 32 columns; with an
                                                explicit matrix once the spectrum proves flat
    sparse                                      block Krylov, blocks of 16: flops dominate
    read in columns, no certificate             block Krylov from the left
    a fractional ``n_components``               exact up to order 2048, else block Krylov
    ==========================================  =================================================

    ``extra_components="auto"`` follows ``priming.extra_directions`` with the fixed cost of a
    pass; subspace iteration adapts the number to the spectrum during the fit.

    Parameters
    ----------
    data : Centred
        Data before the first pass.
    n_components, priming, extra_components
        Parameters of the estimator.
    tol : float, default=pi/1024
        Target angle in radians.
    proven : bool, default=True
        Whether a certificate is made.
    max_memory : float, default=inf
        Limit on memory in bytes.
    batch_size : int, default=1000
        Rows of a mini-batch.
    """
    m = min(data.shape)
    k = _check_count(n_components, data.shape)
    asked = not (isinstance(priming, str) and priming == "auto")
    if max_memory < math.inf and isinstance(k, float):
        raise ValueError(
            f"`max_memory` cannot be guaranteed for `n_components`={k}, because the number of "
            "components is not known before the fit. Use an integer, or leave `max_memory` unset."
        )
    if isinstance(k, float):
        return _plan_for_share(data, k, priming)
    load = Load.of(data)
    overhead = load.overhead
    fixed = overhead if isinstance(extra_components, str) else None
    if asked:
        priming = as_priming(with_columns_of(priming, partial(column_labels, data.source)))
        extra = _extra(extra_components, type(priming), k, overhead)
        given = priming.width()
        if given is not None:  # the user's directions: use them all
            extra = max(0, given - k)
        plan = Plan(priming, k, min(k + extra, m), "as requested", overhead=fixed)
        limits: dict[str, Any] = {"tol": tol, "proven": proven, "batch_size": batch_size}
        return within_budget(plan, load.in_float64() if proven else load, max_memory, **limits)
    p = min(k + _extra(extra_components, BlockKrylov, k, overhead), m)
    p_exact = min(k + _extra(extra_components, Exact, k, overhead), m)
    p_explicit = min(k + _extra(extra_components, BlockKrylov, k, 0.0), m)
    learns = data.standardise or data.missing == "mean"
    # Seconds are shown for the engine's workers; the order stays that for two workers.
    workers = data.engine.traits.workers
    own = workers != REFERENCE_WORKERS and load.rates is CORE
    here = Load.of(data, workers) if own else load
    options = (tol, proven, max_memory, p_exact, learns, p_explicit)
    try:
        plan = _cheapest(load, here, k, fixed, p, *options)
    except ValueError:
        if p == k or fixed is None:
            raise
        # Extra directions, which cost nothing where reading takes longest, may not fit in memory.
        plan = _cheapest(load, here, k, fixed, k, tol, proven, max_memory, k, learns, k)
    if count := data.traits.missing_chunks:
        reason = f"{plan.reason}; {count} chunks are absent and read as the fill value"
        plan = replace(plan, reason=reason)
    return plan


@lru_cache(64)  # fits of the same shape follow one another, and planning a small one takes a while
def _cheapest(load: Load, here: Load, k: int, fixed: float | None, p: int, *limits: Any) -> Plan:
    """Return the plan of least cost on two workers, with the seconds on those that are ``here``.

    The ``limits`` are further arguments of :func:`ways`: tol, proven, max_memory, p_exact, learns
    and p_explicit.
    """
    considered = ways(load, p, *limits)
    best, shown = considered[0], considered
    if here is not load:
        seconds = {way.name: way.seconds for way in ways(here, p, *limits)}
        shown = [replace(way, seconds=seconds.get(way.name, way.seconds)) for way in considered]
    patience, room, early = _turns(considered)
    if best.priming.traits.certifier == "exact":
        p = limits[3]
    elif best.priming.explicit:
        p = limits[5]
    reason = _why(shown)
    return Plan(best.priming, k, p, reason, tuple(shown), fixed, patience, room, early=early)


def _turns(considered: list[Way]) -> tuple[int | None, float | None, int | None]:
    """Return the steps at which another way may take over, and the rows that it may hold.

    Returns
    -------
    patience : int or None
        Steps after which a full decomposition takes over: as long as that would take, and at
        least twice the steps that were expected.
    room : float or None
        Bytes of rows that it may hold.
    early : int or None
        Step at which a flat spectrum is recognised, and an explicit matrix takes over.
    """
    patience = room = early = None
    best = considered[0]
    for way in considered:
        whole = way.priming.traits.certifier == "exact"
        if not whole and not way.priming.explicit:
            continue
        room = way.room
        if best.priming.traits.certifier == "exact":
            continue
        if whole:  # of a deterministic proof, if the best has an explicit matrix
            patience = max(math.ceil(way.seconds / (best.seconds / best.steps)), 2 * best.steps)
        elif not best.priming.explicit and way.seconds < FLAT * best.seconds:
            early = max(3, round(0.4 * best.steps))
    return patience, room, early


def _plan_for_share(data: Centred, share: float, priming: Any) -> Plan:
    m, patience = min(data.shape), None
    if isinstance(priming, str) and priming == "auto":
        priming = Exact() if m <= SHARES_EXACT_TO else BlockKrylov()
        # A basis of half the dimensions is as large as the matrix and more expensive to extend.
        patience = None if m <= SHARES_EXACT_TO else -(-m // (2 * SHARES_BLOCK))
    priming = as_priming(priming)
    kind = priming.traits.certifier
    if kind == "probes" and priming.block_size is None:
        priming = replace(priming, block_size=SHARES_BLOCK)
    if kind not in ("exact", "probes"):
        raise ValueError(
            f"`n_components`={share} requires a certificate, which `priming`="
            f"{type(priming).__name__} cannot give. Use 'auto', 'exact' or 'block_krylov'."
        )
    reason = f"the smaller side of the data is {m}"
    return Plan(priming, share, m, reason, (), patience=patience)


def _why(considered: list[Way]) -> str:
    best = considered[0]
    reads = f"{best.passes:.0f} passes" if best.passes > 1 else "one pass"
    words = f"about {reads}, {_seconds(best.seconds)} and {memory_words(best.memory)} of memory"
    for way in considered:
        if type(way.priming) is not type(best.priming):  # the cheapest of another kind
            return f"{words}, against {_seconds(way.seconds)} for {way.name}"
    return words


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1000 * seconds:.0f} ms"


def _extra(extra_components: int | str, kind: type, k: int, overhead: float) -> int:
    if isinstance(extra_components, str):
        if extra_components != "auto":
            raise ValueError(
                f"`extra_components`={extra_components!r} must be 'auto' or an integer."
            )
        return _usual_extra(kind, k, overhead)
    if not is_whole(extra_components) or extra_components < 0:
        raise ValueError(
            f"`extra_components`={extra_components!r} must be 'auto' or an integer of at least 0."
        )
    return int(extra_components)


@lru_cache(64)  # as _cheapest
def _usual_extra(kind: type, k: int, overhead: float) -> int:
    return best_extra(None, k, NAMES.get(kind, ""), overhead=overhead)


def _check_count(n_components: Any, shape: tuple[int, int]) -> int | float:
    m, of = min(shape), "samples" if shape[0] < shape[1] else "features"
    if n_components is None:
        return m
    if isinstance(n_components, (float, np.floating)) and 0 < n_components < 1:
        return float(n_components)
    if not is_whole(n_components):
        raise ValueError(
            f"`n_components`={n_components!r} must be an integer, a fraction of the variance "
            "between 0 and 1, 'mle' or None."
        )
    if not 1 <= n_components <= m:
        raise ValueError(
            f"`n_components`={n_components} must lie between 1 and min(n_samples, n_features)="
            f"{m}. " + (f"Use at most the number of {of}." if n_components > m else "Raise it.")
        )
    return int(n_components)


def all_for_mle(shape: tuple[int, int]) -> int:
    """Return the number of components that ``n_components="mle"`` must compute first: all."""
    n, d = shape
    if n < d or d < 2:
        raise ValueError(
            f"`n_components`='mle' needs at least 2 features and as many samples as features, "
            f"got {n} x {d}. Use an integer."
        )
    return d


def likeliest_dimension(spectrum: np.ndarray, n_samples: float) -> int:
    """Return the number of components of largest evidence, as scikit-learn's ``"mle"``.

    Parameters
    ----------
    spectrum : ndarray of shape (d,)
        All eigenvalues of the covariance matrix, largest first.
    n_samples : float
        Number of samples.

    References
    ----------
    T. Minka, "Automatic choice of dimensionality for PCA", 2000, equation 79.
    """
    return 1 + int(np.argmax([_evidence(spectrum, q, n_samples) for q in range(1, spectrum.size)]))


def _evidence(spectrum: np.ndarray, q: int, n: float) -> float:
    """Return the logarithm of the evidence for ``q`` components; -inf where it is undefined."""
    d = spectrum.size
    # An eigenvalue below this one is rounding, and its logarithm means nothing.  It also stands for
    # a noise of zero: relative to the largest, so that the unit of the data does not matter.
    info = np.finfo(np.float64)
    least = float(max(d * info.eps * spectrum[0], info.tiny))
    if not spectrum[q - 1] > least:
        return -math.inf
    noise = max(float(spectrum[q:].sum()) / (d - q), least)
    halves = (d - np.arange(q)) / 2
    prior = -q * math.log(2) + sum(math.lgamma(h) - h * math.log(math.pi) for h in halves)
    count = d * q - q * (q + 1) / 2
    flat = np.concatenate([spectrum[:q], np.full(d - q, noise)])
    logs, curvature = np.log(flat), 0.0
    for i in range(q):
        gaps, flats = spectrum[i] - spectrum[i + 1 :], flat[i] - flat[i + 1 :]
        if not (gaps > 0).all() or not (flats > 0).all():
            return -math.inf  # equal eigenvalues make Laplace's approximation singular
        # Apart, because a gap divided by two small eigenvalues may overflow.
        parts = np.log(gaps) + np.log(flats) - logs[i] - logs[i + 1 :]
        curvature += float(parts.sum()) + math.log(n) * gaps.size
    found: float = (
        prior
        - n / 2 * float(logs[:q].sum())
        - n * (d - q) / 2 * math.log(noise)
        + (count + q) / 2 * math.log(2 * math.pi)
        - curvature / 2
        - q / 2 * math.log(n)
    )
    return found
