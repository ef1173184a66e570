"""
Missing values
==============

A fifth of all pixels is lost. ``missing="mean"`` puts the mean of what is there in the place of
NaN, in ``fit`` and in ``transform``, without a second copy of the data.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from primedpca import PrimedPCA
from primedpca.metrics import angles

X = load_digits().data
holes = np.random.default_rng(0).random(X.shape) < 0.2
damaged = np.where(holes, np.nan, X)

try:
    PrimedPCA(10).fit(damaged)
except ValueError as error:
    print(error)

pca = PrimedPCA(10, missing="mean").fit(damaged)
whole = PrimedPCA(10).fit(X)
print("degrees to the components of whole images:")
print(np.degrees(angles(pca.components_, whole.components_)).round(1))

# %%
# The certificate is about the data with their means filled in. That the lost pixels turn the later
# components is no error of the solver, and no solver can tell. Pixels that were lost, rebuilt:

rebuilt = pca.inverse_transform(pca.transform(damaged))
rows = {"given": X, "damaged": damaged, "rebuilt": np.where(holes, rebuilt, X)}
_, axes = plt.subplots(3, 10, figsize=(9, 3.1), layout="constrained")
for line, (name, pictures) in zip(axes, rows.items(), strict=True):
    for ax, picture in zip(line, pictures, strict=False):
        ax.set_facecolor("#f4b183")
        ax.imshow(picture.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
        ax.set(xticks=[], yticks=[])
    line[0].set_ylabel(name)
means = np.where(holes, np.nanmean(damaged, axis=0), X)
for name, filled in (("means alone", means), ("rebuilt", rows["rebuilt"])):
    print(f"{name}: off by {np.sqrt(np.mean((filled - X)[holes] ** 2)):.2f} grey levels of 16")
