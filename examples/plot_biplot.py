"""
A biplot: rows and columns in one picture
=========================================

178 wines as points, their 13 measurements as arrows. With ``scale=1`` the angle between two arrows
shows how two columns correlate, as in R.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from primedpca import PrimedPCA, plots

data = load_wine(as_frame=True)
wine, kinds = data.data, data.target_names[data.target]
pca = PrimedPCA(2, scale="std").fit(wine)
scores = pca.transform(wine)

_, ax = plt.subplots(figsize=(7, 7.4), layout="constrained")
plots.biplot(pca, scores, ax=ax, labels=kinds)

# %%
# What the picture says, in numbers: arrows side by side, and arrows at a right angle.

for one, two in [("flavanoids", "total_phenols"), ("flavanoids", "alcohol")]:
    print(f"{one} and {two}: correlation {np.corrcoef(wine[one], wine[two])[0, 1]:.2f}")
