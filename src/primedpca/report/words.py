"""The verdict of the report page, and the sentences of a certificate joined to one text.

Components are counted from 1.  Bounds are rounded up, as :mod:`primedpca._core.wording` does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca._core.wording import angle_words, numbered
from primedpca.result import Certificate, certificate_sentences

__all__ = ["certificate_sentences", "certificate_words", "how_proven", "verdict"]


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
    met, tol = int(proof.met(model.tol).sum()), angle_words(model.tol)
    within = f"proven to be within the requested {tol} of the true"
    if met == k:
        what = {1: "The component is", 2: "Both components are"}.get(k, f"All {k} components are")
        return "certified", f"{what} {within} one{'s' * (k > 1)}{how_proven(proof, model.tol)}."
    if met:
        are = "is" if met == 1 else "are"
        how = how_proven(proof, model.tol)
        return "partly", f"{met} of {k} components {are} {within} one{'s' * (met > 1)}{how}."
    none = {1: "The component is not", 2: "Neither component is"}
    return "unproven", f"{none.get(k, f'None of the {k} components is')} {within} one."


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
