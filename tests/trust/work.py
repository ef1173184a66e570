"""Passes, products and reads of standard fits: a slow-down shows here without a clock.

python tests/trust/work.py            # compare with work.json
python tests/trust/work.py --write    # record anew, and say why in the commit
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from primedpca import PrimedPCA, certify
from primedpca_paper.peers import CountingEngine, Work

RECORD = Path(__file__).with_suffix(".json")


def data():
    """Small sets of different shapes and spectra, by name."""
    rng = np.random.default_rng(0)

    def spectrum(n, d, power):
        return (rng.standard_normal((n, d)) * np.arange(1, d + 1.0) ** -power).astype("f4")

    sparse = sp.random_array((900, 700), density=0.02, rng=rng, dtype=np.float32).tocsr()
    return {
        "tiny": spectrum(150, 4, 0.5).astype("f8"),
        "small": spectrum(2000, 60, 0.5),
        "middle": spectrum(3000, 400, 0.8),
        "flat": spectrum(1200, 500, 0.2),
        "steep": spectrum(1500, 600, 1.5),
        "wide": np.ascontiguousarray(spectrum(3000, 120, 0.7).T),
        "float64": spectrum(1500, 300, 0.8).astype("f8"),
        "sparse": sparse,
        "sparse wide": sparse.T.tocsr()[:400],
        "bytes": (40 * np.abs(spectrum(2000, 200, 0.5)) + 3).astype("u1"),
    }


def fits():
    """Thirty fits: every set unproven and proven, and one more question of each."""
    for name, X in data().items():
        k = 2 if name == "tiny" else 8
        yield f"{name}, unproven", X, k, {"certificate": "none"}
        yield f"{name}, proven", X, k, {}
        if name in ("tiny", "small", "float64"):
            yield f"{name}, 90 %", X, 0.9, {}
        elif name in ("middle", "steep", "bytes"):
            yield f"{name}, scaled", X, k, {"scale": "std"}
        else:
            yield f"{name}, audited", X, k, None


def counted(X, k, options):
    """Return the number of passes, columns multiplied and readings of one fit or audit."""
    work = Work()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options is None:
            found = PrimedPCA(k, random_state=1, certificate="none").fit(X).components_
            certify(X, found, random_state=0, engine=CountingEngine(work))
            passes = work.readings
        else:
            pca = PrimedPCA(k, random_state=0, engine=CountingEngine(work), **options).fit(X)
            passes = pca.n_passes_
    return {"passes": round(passes, 3), "columns": work.columns, "readings": work.readings}


def measured():
    """Return the counts of all fits."""
    return {name: counted(X, k, options) for name, X, k, options in fits()}


def grown(found, known):
    """Return the fits that take more than a tenth more of something than the record says."""
    return {
        name: (known.get(name), counts)
        for name, counts in found.items()
        if any(counts[key] > 1.1 * known.get(name, {}).get(key, -1) for key in counts)
    }


if __name__ == "__main__":
    now = measured()
    if "--write" in sys.argv:
        RECORD.write_text(json.dumps(now, indent=1) + "\n")
    for name, pair in grown(now, json.loads(RECORD.read_text())).items():
        print(name, *pair)
