"""
Data on disk, with a limit to memory
====================================

A file is given by its name and read in blocks, once a pass. ``plan`` tells beforehand what will be
done, and ``max_memory`` is by how much the process may grow.
"""

import os
import tempfile

import matplotlib.pyplot as plt
import numpy as np

from primedpca import PrimedPCA, plan, plots

folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "sensors.npy")
n, d = 20_000, 1_200
rng = np.random.default_rng(0)
file = np.lib.format.open_memmap(path, "w+", dtype="float32", shape=(n, d))
patterns = rng.normal(size=(12, d)) / np.arange(1, 13)[:, None]
for start in range(0, n, 2_000):  # written, too, a piece at a time
    file[start : start + 2_000] = rng.normal(size=(2_000, 12)) @ patterns
    file[start : start + 2_000] += 0.1 * rng.normal(size=(2_000, d))
file.flush()
print(f"{os.path.getsize(path) / 1e6:.0f} MB")

# %%
# What would be done, and the other ways that were priced.

proposal = plan(path, 6, max_memory="100MB", random_state=0)
print(proposal)
_, ax = plt.subplots(figsize=(8, 4), layout="constrained")
plots.plans(proposal, ax=ax)

# %%
# Do it, and write the scores to a file as well.

pca = PrimedPCA(6, max_memory="100MB", random_state=0).fit(path)
print(pca.certificate_)
print(f"{pca.n_passes_:.0f} readings of the file")
scores = pca.transform(path, out=os.path.join(folder.name, "scores.npy"))
print(type(scores).__name__, scores.shape)

_, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
plots.certificate(pca, ax=ax)
del scores, file
folder.cleanup()
