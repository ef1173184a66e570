"""
Quickstart: components that come with a proof
=============================================

The first 16 components of 1,797 images of handwritten digits, and how far each of them is from
the truth, at most.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from primedpca import PrimedPCA, plots

X = load_digits().data
pca = PrimedPCA(n_components=16).fit(X)
print(pca.certificate_)
print(pca.status_)

# %%
# The variances, with the intervals that are proven to hold the true ones, and below them the
# angles. All lie far under the dashed line, which is ``tol``: what was asked for.

_, (above, below) = plt.subplots(2, 1, figsize=(7, 6.5), layout="constrained")
plots.scree(pca, ax=above)
plots.certificate(pca, ax=below)

# %%
# From here on it is scikit-learn's PCA.

scores = pca.transform(X)
back = pca.inverse_transform(scores)
kept = 1 - ((X - back) ** 2).sum() / ((X - X.mean(axis=0)) ** 2).sum()
print(f"{scores.shape[1]} numbers a row keep {kept:.1%} of the variance")
