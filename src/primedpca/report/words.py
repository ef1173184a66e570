"""Sentences about a model that the command line and the report page share.

Components are counted from 1.  Bounds are rounded up, as :mod:`primedpca._core.wording` does.
"""

import math
from typing import Any

import numpy as np

from primedpca._core.wording import angle_words, duration, numbered, passes_words
from primedpca.result import Certificate, certificate_sentences


def bound_words(own: float, counted: float) -> str:
    """Return what is proven about a component, for a table.

    Parameters
    ----------
    own : float
        Bound on the angle of the single vector, in radians.
    counted : float
        The bound of :meth:`~primedpca.result.Certificate.counted_bounds`.

    Examples
    --------
    >>> bound_words(0.00351, 0.00351), bound_words(1.5, 0.1), bound_words(1.5, 0.0)
    ('0.21°', '5.8° (span)', 'no variance')
    >>> bound_words(math.pi / 2, math.pi / 2)
    'not proven'
    """
    if counted == own:
        return "not proven" if counted >= math.pi / 2 else angle_words(counted)
    return "no variance" if counted == 0 else f"{angle_words(counted)} (span)"


def outcome(model: Any) -> list[tuple[str, str]]:
    """Describe what was planned, what the fit did, and how it ended, as names and values."""
    said = [] if model.plan_ is None else [("Planned", str(model.plan_))]
    times, proof = passes_words(model.n_passes_), model.certificate_
    often = {"1": "once", "2": "twice"}.get(times, f"{times} times")
    done = f"the data were read {often}"
    if model.history_:
        done += f" in {duration(model.history_[-1]['seconds'])}"
    if model.status_.name == "EXACT" or (proof is not None and proof.kind == "exact"):
        done += ", and a full decomposition was made"
    where = getattr(model, "where_", "this machine")
    return [*said, ("Done", done), ("Computed on", where), ("Status", str(model.status_))]


def certificate_words(certificate: Certificate | None, tol: float | None = None) -> str:
    """Return all of :func:`certificate_sentences`, which has the same parameters, as one text.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import PrimedPCA
    >>> X = np.diag([5.0, 4.0, 3.0, 3.0, 2.0, 1.0])
    >>> print(certificate_words(PrimedPCA(1, random_state=0).fit(X).certificate_))
    Component 1 is proven to be within 0.000001° of the true one. These bounds come from a full \
decomposition, include rounding, and are certain.
    """
    return " ".join(certificate_sentences(certificate, tol))


def verdict(model: Any) -> tuple[str, str]:
    """Summarise what is proven about a fitted model.

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
        part = "refining with a part of the rows gives no certificate"
        why = "no certificate was requested" if model.certificate == "none" else part
        return "none", f"Nothing is proven: {why}."
    met = int(proof.met(model.tol).sum())
    names = {1: "The component is", 2: "Both components are"}
    who, kind = names.get(k, f"All {k} components are"), "certified"
    if 0 < met < k:
        who, kind = f"{met} of {k} components {'is' if met == 1 else 'are'}", "partly"
    elif not met:
        names = {1: "The component is not", 2: "Neither component is"}
        who, kind = names.get(k, f"None of the {k} components is"), "unproven"
    within = f"proven to be within the requested {angle_words(model.tol)} of the true"
    return kind, f"{who} {within} one{'s' * (met > 1)}{how_proven(proof, model.tol)}."


def how_proven(proof: Certificate, tol: float) -> str:
    """Name the components that meet ``tol`` without a proof for the single vector, in brackets.

    Returns an empty string if there are none.

    Examples
    --------
    >>> from primedpca.result import Cluster
    >>> pair = Certificate(np.array([1.5, 1.5]), np.ones((2, 2)), [Cluster(0, 2, 1e-4)], "exact",
    ...     0.0, np.zeros(2, dtype=bool))
    >>> how_proven(pair, 1e-3)
    ' (components 1 and 2 only as a subspace)'
    """
    spans = proof.met(tol) & ~proof.zero & (proof.angle_bounds > tol)
    zero = proof.zero & (proof.angle_bounds > tol)
    said = []
    if spans.any():
        several = sum(bool(spans[start:stop].any()) for start, stop, _ in proof.clusters) > 1
        space = "as subspaces" if several else "as a subspace"
        space = "as part of a subspace" if spans.sum() == 1 else space
        said.append(f"{numbered(spans).lower()} only {space}")
        said += [
            f"{numbered(np.arange(stop) >= spans.size).lower()} of it "
            f"{'was' if stop == spans.size + 1 else 'were'} not kept"
            for start, stop, _ in proof.clusters
            if stop > spans.size and spans[start:].any()
        ]
    if zero.any():
        has = "have" if zero.sum() > 1 else "has"
        said.append(f"{numbered(zero).lower()} {has} no variance")
    return f" ({'; '.join(said)})" if said else ""
