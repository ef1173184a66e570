"""How often new rows pass the limits of `primedpca.monitoring`: the table of docs/plots.md.

    python benchmarks/alarms.py

Normal rows; 60 fits with 400 new rows each; limits that 5 % should pass.
"""

import numpy as np

from primedpca import PrimedPCA
from primedpca.monitoring import limits, statistics

LEVEL, FITS, NEW = 0.95, 60, 400
CASES = [
    (30, 4, "4, 3, 2, 1", np.arange(4.0, 0, -1)),
    (100, 3, "100, 60, 30, then equal", np.r_[100.0, 60.0, 30.0, np.ones(27)]),
    (60, 3, "100, 60, 30, then equal", np.r_[100.0, 60.0, 30.0, np.ones(197)]),
    (300, 5, "$0.9^i$", 0.9 ** np.arange(40)),
    (100, 5, "$0.9^i$", 0.9 ** np.arange(40)),
    (300, 5, "$i^{-1.5}$", np.arange(1.0, 61) ** -1.5),
    (60, 5, "$i^{-1.5}$", np.arange(1.0, 301) ** -1.5),
]


def shares(n, k, variances, rng):
    """The mean shares of new rows beyond T², calibrated SPE, and SPE by the model alone."""
    found, deviations = [], np.sqrt(variances)
    for _ in range(FITS):
        known, new = (5 + rng.normal(size=(m, variances.size)) * deviations for m in (n, NEW))
        pca = PrimedPCA(k, priming="exact", certificate="none").fit(known)
        seen, alone, calibrated = (
            statistics(pca, new),
            limits(pca, LEVEL),
            limits(pca, LEVEL, known),
        )
        beyond = (seen.t2 > alone.t2, seen.spe > calibrated.spe, seen.spe > alone.spe)
        found.append([part.mean() for part in beyond])
    return np.mean(found, axis=0)


def main():
    rng = np.random.default_rng(0)
    print("| n | d | k | variances | T² | SPE, calibrated | SPE, by the model alone |")
    print("|---|---|---|---|---|---|---|")
    for n, k, name, variances in CASES:
        t2, calibrated, alone = (
            f"{share:.1%}".replace("%", " %") for share in shares(n, k, variances, rng)
        )
        if k == variances.size:
            calibrated = alone = "no rest"
        print(f"| {n} | {variances.size} | {k} | {name} | {t2} | {calibrated} | {alone} |")


if __name__ == "__main__":
    main()
