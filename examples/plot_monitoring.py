"""
Monitoring: rows that do not look like those before
===================================================

A model of ordinary rows tells two things of a new one: how far out it lies within the span of the
components (Hotelling's T²) and how far from it (SPE). Limits carry over from the ordinary rows to
new ones.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from primedpca import PrimedPCA, plots
from primedpca.monitoring import limits, statistics

data = load_breast_cancer()
benign, malignant = np.log1p(data.data[data.target == 1]), np.log1p(data.data[data.target == 0])
known, new = benign[:250], benign[250:]

pca = PrimedPCA(5, scale="std").fit(known)
bounds = limits(pca, 0.99, known)

# %%
# First 107 benign tumours that the model has not seen, then 212 malignant ones.

_, axes = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
plots.monitor(pca, np.concatenate([new, malignant]), axes=axes, known=bounds)
for ax in axes:
    ax.axvline(len(new) - 0.5, color="0.5", linewidth=0.8)

for name, rows in (("benign, new", new), ("malignant", malignant)):
    found = statistics(pca, rows)
    beyond = (found.t2 > bounds.t2) | (found.spe > bounds.spe)
    print(f"{name}: {beyond.mean():.0%} beyond a limit")
