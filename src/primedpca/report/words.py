"""A certificate in words: for the report page, the command line, and anyone who reads aloud.

Components are counted from 1 here, as people count.  What is claimed is never rounded in the
claimant's favour: bounds are rounded up, certainties down.  A group is a run of components that
this certificate does not tell apart; whether their variances are tied, it does not know.
"""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np

from primedpca._core.outward_rounding import degrees_up
from primedpca.result import USEFUL, Certificate, Cluster

__all__ = [
    *("angle_words", "bound_words", "certainty_words", "certificate_sentences"),
    *("certificate_words", "how_proven", "numbered", "verdict"),
]

MOST_NINES = 30  # of a certainty in per cent; who asks for more reads this much
FINEST = 1e-6  # degrees; below, a sentence gains nothing from more zeros
MOST_GROUPS = 5  # with a sentence each
SIZES = ("", "", "pair", "trio", "group of four", "group of five", "group of six")


def certificate_words(certificate: Certificate | None, tol: float | None = None) -> str:
    """All of :func:`certificate_sentences` in one line.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import PrimedPCA
    >>> X = np.diag([5.0, 4.0, 3.0, 3.0, 2.0, 1.0])
    >>> print(certificate_words(PrimedPCA(1, random_state=0).fit(X).certificate_))
    Component 1 is within 0.000001° of the exact one. Everything was decomposed, \
and rounding is counted in: no probability is involved.
    """
    return " ".join(certificate_sentences(certificate, tol))


def certificate_sentences(certificate: Certificate | None, tol: float | None = None) -> list[str]:
    """What is proven and what is not, and how certain that is.

    Parameters
    ----------
    certificate : Certificate or None
    tol : float, optional
        The angle asked for, in radians: what misses it is told apart from what meets it.

    Returns
    -------
    list of str
        Sentences that can stand alone, the most important first.
    """
    if certificate is None:
        return ["Nothing is proven: no certificate was made."]
    if certificate.angle_bounds.size == 0:
        return ["There are no components yet: a single row has no variance."]
    single, bounds = certificate.single, certificate.angle_bounds
    near = single & (bounds < USEFUL)
    met = near & (bounds <= (USEFUL if tol is None else tol))
    said = [_within(part, bounds) for part in (met, near & ~met) if part.any()]
    said += _groups(certificate)
    if certificate.zero.any():
        which = numbered(certificate.zero)
        said.append(f"{which} {_verb(certificate.zero, 'has', 'have')} no variance to speak of.")
    if (single & ~near).any():
        said.append(f"Nothing useful is proven about {numbered(single & ~near).lower()}.")
    return said + ([_how_certain(certificate)] if certificate.claims else [])


def verdict(model: Any) -> tuple[str, str]:
    """A fitted model's state in a word, and what that means in a sentence.

    Returns
    -------
    kind : {"certified", "partly", "unproven", "none"}
    sentence : str
    """
    proof: Certificate | None = model.certificate_
    k = model.n_components_
    if k == 0:
        return "none", "There are no components yet."
    if proof is None:
        share = "a share of the rows gives no certificate"
        why = "no certificate was asked for" if model.certificate == "none" else share
        return "none", f"Nothing is proven: {why}."
    met = int(proof.met(model.tol).sum())
    asked, how = f"within {angle_words(model.tol)}, as asked", how_proven(proof, model.tol)
    if met == k:
        what = {1: "The component is", 2: "Both components are"}.get(k, f"All {k} components are")
        return "certified", f"{what} proven to be right {asked}{how}."
    if met:
        what = (
            f"{met} of {k} components {'is' if met == 1 else 'are'} proven to be right {asked}{how}"
        )
        return "partly", f"{what}; the rest not."
    none = {1: "The component is not", 2: "Neither component is"}
    what = none.get(k, f"None of the {k} components is")
    return "unproven", f"{what} proven to be right within the {angle_words(model.tol)} asked for."


def how_proven(proof: Certificate, tol: float) -> str:
    """What is counted as met without being proven of the single vector: nothing, or a clause.

    >>> pair = Certificate(np.array([1.5, 1.5]), np.ones((2, 2)), [Cluster(0, 2, 1e-4)], "exact",
    ...     0.0, np.zeros(2, dtype=bool))
    >>> how_proven(pair, 1e-3)
    ' (components 1 and 2 only in their common span)'
    """
    spans = proof.met(tol) & ~proof.zero & (proof.angle_bounds > tol)
    zero = proof.zero & (proof.angle_bounds > tol)
    said = []
    if spans.any():
        several = sum(bool(spans[start:stop].any()) for start, stop, _ in proof.clusters) > 1
        k, group = spans.size, f"their common span{'s' * several}"
        group = "the span of its group" if spans.sum() == 1 else group
        said.append(f"{numbered(spans).lower()} only in {group}")
        said += [
            f"the group of {_run(start, stop).lower()} is not kept whole"
            for start, stop, _ in proof.clusters
            if stop > k and spans[start:].any()
        ]
    if zero.any():
        said.append(f"{numbered(zero).lower()} {_verb(zero, 'has', 'have')} no variance")
    return f" ({'; '.join(said)})" if said else ""


def angle_words(radians: float) -> str:
    """An angle that is claimed, in degrees, rounded up.

    >>> angle_words(0.00035), angle_words(1e-12), angle_words(0.2)
    ('0.021°', '0.000001°', '12°')
    """
    degrees = Decimal(repr(max(degrees_up(radians), FINEST)))
    return f"{degrees.normalize():f}°"


def bound_words(radians: float) -> str:
    """The same for a table, where small ones are told apart.

    >>> bound_words(0.00035), bound_words(1e-12), bound_words(2.0)
    ('0.021', '5.8 × 10⁻¹¹', '–')
    """
    if radians >= math.pi / 2:
        return "–"
    if radians == 0:
        return "0"
    degrees = Decimal(f"{degrees_up(radians):.1e}")
    if degrees >= Decimal("0.0001"):
        return f"{degrees:f}"
    power = degrees.adjusted()
    return f"{degrees.scaleb(-power):f} × 10{str(power).translate(RAISED)}"


RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def certainty_words(failure_probability: float) -> str:
    """The probability that all claims hold, rounded down.

    >>> certainty_words(1e-6), certainty_words(0.05), certainty_words(9e-7)
    ('99.9999 %', '95 %', '99.9999 %')
    """
    # The small addition keeps log10 of a power of ten from falling below it.
    nines = max(0, math.floor(-math.log10(failure_probability) + 1e-9) - 2)
    nines = min(nines, MOST_NINES)
    down = Context(prec=2 * MOST_NINES, rounding=ROUND_FLOOR)
    held = down.multiply(100, down.subtract(1, Decimal(repr(float(failure_probability)))))
    return f"{down.quantize(held, Decimal(1).scaleb(-nines)):f} %"


def numbered(which: np.ndarray) -> str:
    """Name the components of a mask ``(k,)``, counted from 1.

    >>> numbered(np.array([True, True, True, False, True]))
    'Components 1 to 3 and 5'
    """
    numbers = np.flatnonzero(which) + 1
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if run.size > 2 else [str(i) for i in run]
    listed = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
    return f"Component{'s' if numbers.size > 1 else ''} {listed}"


def _within(which: np.ndarray, bounds: np.ndarray) -> str:
    worst = angle_words(float(bounds[which].max()))
    exact = _verb(which, "is within {} of the exact one", "are each within {} of the exact ones")
    return f"{numbered(which)} {exact.format(worst)}."


def _groups(certificate: Certificate) -> list[str]:
    """A sentence for each group, or for all that are alike where there would be many."""
    k, said = certificate.angle_bounds.size, []
    for proven in (True, False):
        runs = [run for run in certificate.clusters if run.is_proven is proven]
        whole = [run for run in runs if run.stop <= k]
        if len(whole) > MOST_GROUPS:
            runs = [run for run in runs if run.stop > k]
            said.append(_alike(whole, k))
        said += [_together(run, k) for run in runs]
    return said


def _alike(runs: list[Cluster], k: int) -> str:
    """What is known about many groups, all proven or none."""
    which = np.zeros(k, dtype=bool)
    for start, stop, _ in runs:
        which[start:stop] = True
    spaces = "whose common spaces are not proven"
    if runs[0].is_proven:
        worst = angle_words(max(run.angle_bound for run in runs))
        spaces = f"whose common spaces are each certified, within {worst} of the exact ones"
    apart = "this certificate does not tell the components of a group apart"
    return f"{numbered(which)} form {len(runs)} groups {spaces}: {apart}."


def _run(start: int, stop: int) -> str:
    return numbered(np.arange(stop) >= start)


def _together(run: Cluster, k: int) -> str:
    """What is known about components that are not told apart, one of which may be beyond k."""
    count = run.stop - run.start
    named = _run(run.start, run.stop)
    group = SIZES[count] if count < len(SIZES) else f"group of {count}"
    space = "plane" if count == 2 else "common space"
    proven = f"whose {space} is certified, within {angle_words(run.angle_bound)} of the exact one"
    if not run.is_proven:
        proven = f"whose {space} is not proven"
    said = f"{named} form a {group} {proven}: this certificate does not tell them apart."
    if run.stop > k:
        said += (
            f" As {_run(k, run.stop).lower()} {'was' if run.stop == k + 1 else 'were'} not kept, "
        )
        said += f"ask for {run.stop} components to have all of it."
    return said


def _how_certain(certificate: Certificate) -> str:
    if certificate.kind == "exact":
        return "Everything was decomposed, and rounding is counted in: no probability is involved."
    if certificate.kind == "deterministic":
        return "This holds for certain: no probability is involved."
    certainty = certainty_words(certificate.failure_probability)
    return (
        f"All of this holds together with certainty {certainty}, whatever the data: the chance "
        "lies in random vectors that were drawn to look for what might have been missed."
    )


def _verb(which: np.ndarray, one: str, many: str) -> str:
    return many if which.sum() > 1 else one
