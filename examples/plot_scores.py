"""
Scores, coloured by what is known of the rows
=============================================

569 tumours with 30 measurements each. Columns are divided by their standard deviations first, as
areas and fractions have no common unit. Any pair of components can be drawn.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

from primedpca import PrimedPCA, plots

data = load_breast_cancer(as_frame=True)
kinds = data.target.map(dict(enumerate(data.target_names))).rename("diagnosis")

pca = PrimedPCA(4, scale="std").fit(data.data)
scores = pca.transform(data.data)
print(pca.certificate_)

_, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
plots.scores(scores, labels=kinds, ax=left, model=pca)
plots.scores(scores, components=(0, 2), labels=data.data["mean smoothness"], ax=right, model=pca)

# %%
# Which measurements make up the first component? Nearly all of them, with one sign: size.

_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
plots.loadings(pca, 0, n_largest=12, ax=ax)
