"""
Streams: rows that are seen once
================================

``partial_fit`` keeps a sketch of fixed size. What it has lost so far is known, and so are, with no
probability, how far the components may be off.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from primedpca import PrimedPCA
from primedpca.metrics import angles
from primedpca.priming import FrequentDirections

X = np.random.default_rng(0).permutation(load_digits().data)
pca = PrimedPCA(3, priming=FrequentDirections(sketch_size=40))

rows, proven, true = [], [], []
for start in range(0, len(X), 150):
    pca.partial_fit(X[start : start + 150])
    so_far = PrimedPCA(3, priming="exact").fit(X[: start + 150])
    rows.append(pca.n_samples_)
    proven.append(np.degrees(pca.angle_bounds_))
    true.append(np.degrees(angles(pca.components_, so_far.components_)))
print(pca.certificate_)

# %%
# The sketch holds 40 of 64 directions. The components are far better than what one reading can
# prove; where the data can be read again, ``fit`` with ``warm_start=True`` closes the gap.

_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for i, colour in enumerate(["#0072B2", "#D55E00", "#009E73"]):
    ax.plot(rows, np.array(proven)[:, i], "--", color=colour, label=f"component {i + 1}, at most")
    ax.plot(rows, np.array(true)[:, i], color=colour, label=f"component {i + 1}, true")
ax.set(xlabel="rows so far", ylabel="angle to the truth (degrees)", yscale="log")
ax.legend(ncols=3, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)

# %%
# Two streams, on two machines or of two days, merge into one of all rows.

one, two = (PrimedPCA(3).partial_fit(part) for part in (X[:900], X[900:]))
print(one.merge(two).n_samples_)
