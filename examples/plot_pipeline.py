"""
In a pipeline, before a classifier
==================================

``PrimedPCA`` is a scikit-learn estimator: it can be cloned, searched over, put into pipelines and
column transformers, and its outputs may be frames with names.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from primedpca import PrimedPCA

X, y = load_digits(return_X_y=True)
model = Pipeline(
    [
        ("pca", PrimedPCA(whiten=True, random_state=0)),
        ("classify", LogisticRegression(max_iter=300)),
    ]
)
counts = [2, 4, 8, 16, 32]
search = GridSearchCV(model, {"pca__n_components": counts}, cv=3).fit(X, y)
print(search.best_params_, f"{search.best_score_:.1%} right")
print(search.best_estimator_["pca"].certificate_)

# %%

found = search.cv_results_
_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.errorbar(counts, found["mean_test_score"], found["std_test_score"], fmt="o-", capsize=3)
ax.set_xscale("log", base=2)
ax.set_xticks(counts, counts)
ax.set(xlabel="components", ylabel="share of digits told right")
ax.spines[["top", "right"]].set_visible(False)

# %%
# Names come out as well.

table = PrimedPCA(3).set_output(transform="pandas").fit_transform(X)
print(table.head(3).round(2))
print(np.allclose(table, PrimedPCA(3).fit_transform(X)))
