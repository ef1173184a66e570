"""
Components of images, as images
===============================

A component of images is an image too, with entries of both signs. Above what it adds, below what
it takes away; the angle is how far it is from the true one, at most.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from primedpca import PrimedPCA, plots

X = load_digits().data
pca = PrimedPCA(32).fit(X)

_, axes = plt.subplots(2, 8, figsize=(9, 3), layout="constrained")
plots.component_images(pca, (8, 8), range(8), axes=axes)

# %%
# Eight digits, rebuilt from more and more components.

counts = [2, 8, 32]
_, axes = plt.subplots(len(counts) + 1, 8, figsize=(8, 4.4), layout="constrained")
scores = pca.transform(X[:8])
rebuilt = {"given": X[:8]}
for count in counts:
    rebuilt[f"from {count}"] = pca.inverse_transform(scores * (np.arange(32) < count))
for row, (name, pictures) in zip(axes, rebuilt.items(), strict=True):
    for ax, picture in zip(row, pictures, strict=True):
        ax.imshow(picture.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
