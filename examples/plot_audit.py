"""
Audit another PCA: how right is scikit-learn's?
===============================================

scikit-learn's randomized solver stops after a fixed number of iterations. Where the spectrum falls
slowly that is too early, and nothing says so. ``certify`` does, for components from anywhere.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from primedpca import PrimedPCA, certify
from primedpca.metrics import angles

rng = np.random.default_rng(0)
k = 50
X = (
    rng.standard_normal((4_000, 2_000)) * np.arange(1, 2_001) ** -0.5
)  # a spectrum that falls slowly

theirs = PCA(k, svd_solver="randomized", random_state=0).fit(X)
audit = certify(X, theirs.components_, random_state=0)
print("scikit-learn, randomized:", audit.streak(np.radians(1)), "of 50 proven within a degree")

ours = PrimedPCA(k, random_state=0).fit(X)
print("primedpca:", ours.certificate_.streak(np.radians(1)), "of 50 proven within a degree")

# %%
# Ours are proven to lie so near the truth that the angle between theirs and ours is how far theirs
# are off.

off = np.degrees(angles(theirs.components_, ours.components_))
print(f"the last of scikit-learn's is {off[-1]:.0f} degrees off; {(off > 1).sum()} more than one")

figure, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
number, look = np.arange(1, k + 1), {"markersize": 3.5, "linewidth": 1.2}
theirs_label = "scikit-learn, randomized: its error, which it does not report"
ax.semilogy(number, off, "o-", color="#D55E00", label=theirs_label, **look)
ours_label = "primedpca: proven upper bound on the error"
ax.semilogy(number, np.degrees(ours.angle_bounds_), "o-", color="#0072B2", label=ours_label, **look)
ax.axhline(np.degrees(ours.tol), color="0.4", linestyle="--", label="asked for: π/1024", lw=1)
ax.set(xlabel="component", ylabel="angle to the truth (degrees)", xlim=(0, k + 1))
ax.legend(loc="upper left", frameon=False, fontsize="small")
ax.set_ylim(1e-8, 2e3)
ax.spines[["top", "right"]].set_visible(False)

if len(sys.argv) > 1:  # python examples/plot_audit.py docs/figures/audit.png
    figure.savefig(sys.argv[1], dpi=150)
