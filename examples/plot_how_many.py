"""
How many components? By their share of the variance
===================================================

``n_components`` below 1 is a share: the fewest components are kept that *provably* hold so much of
the variance, without a full decomposition where that would be dear.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from primedpca import PrimedPCA, choose_k, plots

X = load_digits().data
shares = [0.5, 0.8, 0.9, 0.95, 0.99]
counts = [PrimedPCA(share).fit(X).n_components_ for share in shares]
for share, count in zip(shares, counts, strict=True):
    print(f"{share:.0%} of the variance: {count} components")

# %%
# The same seen on the running sum of shares.

pca = PrimedPCA(50).fit(X)
_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
plots.scree(pca, ax=ax, log=True)
right = ax.figure.axes[-1]  # the axis of the sum
for share, count in zip(shares, counts, strict=True):
    right.plot([count, count], [0, 100 * share], color="0.5", linewidth=0.8)
    right.annotate(f"{share:.0%}", (count + 0.5, 100 * share - 6))

# %%
# Minka's rule guesses the number of directions that are more than noise, as scikit-learn does.

print("by evidence:", PrimedPCA("mle").fit(X[:, X.std(axis=0) > 0]).n_components_)
print("kept by 29:", np.round(pca.explained_variance_ratio_[:29].sum(), 4))

# %%
# The usual rules side by side, and what each compares the variances with.

found = choose_k(X, random_state=0)
print(found)
_, axes = plt.subplots(2, 1, figsize=(7, 6), layout="constrained", sharex=True)
plots.choose_k(found, axes=axes)
