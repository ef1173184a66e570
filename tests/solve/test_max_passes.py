"""`max_passes` is a maximum of readings of the data, whatever the side that is iterated on."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from primedpca import PrimedPCA
from primedpca.priming import BlockKrylov

RNG = np.random.default_rng(0)
#: Spectra so flat that every fit would go on.
TALL = RNG.normal(size=(900, 200)) * np.arange(1, 201) ** -0.1
WIDE = RNG.normal(size=(200, 1200)) * np.arange(1, 1201) ** -0.1
KINDS = {
    "tall": TALL,
    "tall float32": TALL.astype("f4"),
    "wide": WIDE,
    "wide float32": WIDE.astype("f4"),
    "sparse rows": sp.random_array((900, 400), density=0.05, format="csr", rng=RNG),
    "sparse columns": sp.random_array((300, 900), density=0.05, format="csc", rng=RNG),
}


def fitted(X, k, **options):
    model = PrimedPCA(k, tol=1e-5, random_state=0, **options)
    with pytest.warns(ConvergenceWarning):
        return model.fit(X)


@pytest.mark.parametrize("max_passes", [8, 13])
@pytest.mark.parametrize("certificate", ["auto", "none"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_reads_the_data_at_most_so_often(kind, side, certificate, max_passes):
    priming = BlockKrylov(6, side=side)
    options = {"priming": priming, "certificate": certificate, "max_passes": max_passes}
    model = fitted(KINDS[kind], 5, **options)
    assert max_passes / 2 < model.n_passes_ <= max_passes
    assert not model.converged_
    if certificate == "auto":
        assert fitted(KINDS[kind], 0.5, **options).n_passes_ <= max_passes


@pytest.mark.parametrize("kind", KINDS)
def test_a_first_step_is_always_made(kind):
    model = fitted(KINDS[kind], 5, priming=BlockKrylov(6, side="left"), max_passes=1)
    assert model.n_passes_ <= 8
    assert model.components_.shape[0] == 5


@pytest.mark.parametrize("certificate", ["auto", "none"])
def test_so_does_subspace_iteration(certificate):
    options = {"priming": "subspace_iteration", "certificate": certificate}
    assert fitted(TALL, 3, max_passes=10, **options).n_passes_ <= 10
