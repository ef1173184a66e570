"""
Priming, then refining: the paper's idea
========================================

EigenGame finds components by stochastic gradients, one mini-batch after another. Long before its
vectors are right, their *span* nearly holds the truth, and an exact PCA inside the span gets the
components out of it. A few extra directions make that better still (Máté & Fleuret, 2021).
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from primedpca import PrimedPCA, plots, prime, refine
from primedpca.priming import EigenGame

X = load_digits().data
truth = PrimedPCA(16, priming="exact").fit(X).components_

runs = {"EigenGame alone": {}, "refined": {}, "refined, with 4 extra directions": {}}
for extra in (0, 4):
    game = EigenGame(steps=300)
    for snapshot in prime(X, game, 16 + extra, batch_size=500, random_state=0):
        if snapshot.step % 10:
            continue
        name = "refined, with 4 extra directions" if extra else "refined"
        runs[name][snapshot.step] = refine(X, snapshot.directions, 16).components
        if not extra:
            runs["EigenGame alone"][snapshot.step] = snapshot.directions.T

# %%
# Streaks: how many of the 16 components, counted from the first, are within an angle of the truth.

_, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
for ax, (name, run) in zip(axes, runs.items(), strict=True):
    plots.streaks(run, truth, (np.pi / 8, np.pi / 32), ax=ax)
    ax.set_title(name)

# %%
# The default priming is made to be refined, and needs no steps to be chosen.

pca = PrimedPCA(16, priming="block_krylov", random_state=0).fit(X)
print(f"block Krylov: {pca.n_passes_:.0f} passes. {pca.certificate_}")
