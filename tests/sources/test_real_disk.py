"""Real data, large and sparse, on disk: the same answer as in memory, within a budget.

Slow: run with ``make test-slow`` and ``PRIMEDPCA_DATA`` set.
"""

import os
import sys
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from growth import grown

from primedpca import PrimedPCA
from primedpca.metrics import angles

FOLDER = os.environ.get("PRIMEDPCA_DATA")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="PRIMEDPCA_DATA names no folder of real data"),
    pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc"),
]

FIT = """
import json, sys
import numpy as np
from primedpca import PrimedPCA, as_source
path, budget, out = json.loads(sys.argv[1])
options = {"tol": np.pi / 128, "random_state": 0}
PrimedPCA(2, **options).fit(np.random.default_rng(0).normal(size=(300, 50)))
as_source(path).read(0)  # imports
model = PrimedPCA(16, max_memory=budget, **options)
print("ready", flush=True)
sys.stdin.readline()
model.fit(path)
np.savez(out, components=model.components_, variances=model.explained_variance_)
print(json.dumps({"status": model.status_.name, "bound": model.angle_bounds_.max(),
                  "plan": str(model.plan_)}), flush=True)
sys.stdin.readline()
"""


def test_20_newsgroups_as_a_gigabyte_of_h5ad(tmp_path):
    X = sp.load_npz(Path(FOLDER) / "newsgroups20_bow.npz").tocsr().astype(np.float32)
    copies = int(-(-1e9 // (8 * X.nnz)))
    n = copies * X.shape[0]
    many = anndata.AnnData(sp.vstack([X] * copies, format="csr"))
    many.obs_names = pd.Index([f"row {i}" for i in range(n)])
    path = tmp_path / "many.h5ad"
    many.write_h5ad(path)
    assert path.stat().st_size > 0.95e9
    del many
    growth, said = grown(FIT, str(path), "500MB", str(tmp_path / "found.npz"))
    print(said, f"{growth / 1e6:.0f} MB")
    assert said["status"] == "CERTIFIED"
    assert said["bound"] <= np.pi / 128
    assert growth <= 500e6
    # Copies of all rows change nothing but the divisor of the variances.
    model = PrimedPCA(16, tol=np.pi / 1024, random_state=1).fit(X)
    unit = (n / (n - 1)) / (X.shape[0] / (X.shape[0] - 1))
    with np.load(tmp_path / "found.npz") as found:
        assert angles(found["components"], model.components_).max() <= np.pi / 128
        wanted = model.explained_variance_ * unit
        assert np.abs(found["variances"] - wanted).max() <= 1e-4 * wanted[0]
