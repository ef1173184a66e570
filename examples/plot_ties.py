"""
Ties: when no direction is more principal than another
======================================================

The same 178 wines are measured by two laboratories, which never see each other's bottles: rows of
the first have zeros in the columns of the second. Every variance then comes twice, and any two
directions in the plane of such a pair are as good as any other two. A solver returns some of them,
and another one, with equal right, returns others.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import block_diag
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from primedpca import PrimedPCA, plots
from primedpca._core.outward_rounding import round_up
from primedpca.metrics import angles

wine = StandardScaler().fit_transform(load_wine().data)
X = block_diag(wine, wine)

one = PrimedPCA(6).fit(X)
print(one.certificate_)

# %%
# The certificate knows: it proves the planes, and claims nothing of the single vectors.

for start, stop, angle in one.certificate_.clusters:
    near = f"{round_up(angle):.1e} rad"  # a bound is never rounded down
    print(f"components {start + 1} to {stop}: their span is within {near} of the true one")

# %%
# The same rows in another order round otherwise, which is enough to turn vectors in their planes.

other = PrimedPCA(6).fit(X[np.random.default_rng(1).permutation(len(X))])
apart = np.degrees(angles(one.components_, other.components_))
print("angles between two fits, in degrees:", apart.round(1))

_, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
plots.certificate(one, ax=ax)
