"""
Text: sparse counts, centred without being made dense
=====================================================

The documents are the docstrings of scikit-learn's estimators, as every installation has them.
Counts of words are a sparse matrix; centring it would fill it. Here the mean is subtracted within
the products, and the matrix stays as it is.
"""

import inspect

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils.discovery import all_estimators

from primedpca import PrimedPCA, plots

topics = ["cluster", "ensemble", "feature_selection", "linear_model", "preprocessing"]
found = [kind for _, kind in all_estimators() if kind.__module__.split(".")[1] in topics]
labels = np.array([kind.__module__.split(".")[1] for kind in found])
words = TfidfVectorizer(stop_words="english", token_pattern=r"[a-z]{3,}", min_df=3)
X = words.fit_transform([inspect.getdoc(kind) for kind in found])
print(f"{X.shape[0]} documents, {X.shape[1]} words, {X.nnz / np.prod(X.shape):.1%} stored")

pca = PrimedPCA(8, random_state=0).fit(X)
print(pca.certificate_)

# %%
# Documents by the module that they belong to.

_, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
plots.scores(pca.transform(X), labels=labels, ax=ax, model=pca)

# %%
# What the first two components are about.

_, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
for i, ax in enumerate(axes):
    plots.loadings(pca, i, n_largest=14, ax=ax, names=words.get_feature_names_out())
    ax.set_title(f"component {i + 1}")
