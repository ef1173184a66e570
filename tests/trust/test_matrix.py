"""Every case of the bad-input matrix is right within the promises, or refused by name."""

import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from trust.matrix import CUTS, DOCUMENTED, Case, cases

from primedpca import PrimedPCA, as_source
from primedpca.engines import limit_threads
from primedpca.metrics import angles

CASES = cases()
#: Error of variances that is promised, relative to the first one.
PROMISED = {"float64": 1e-10, "float32": 1e-5}
LEARNT = (
    *("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_"),
    *("mean_", "angle_bounds_"),
)


class Blocks:
    def __init__(self, *blocks):
        self.blocks = blocks

    def __iter__(self):
        return iter(self.blocks)


def given(source, X, folder):
    """The same numbers in another form."""
    if source in CUTS:
        return X
    if source == "fortran":
        return np.asfortranarray(X)
    if source == "memmap":
        np.save(folder / "x.npy", X)
        return str(folder / "x.npy")
    if source == "blocks":
        return as_source(Blocks(X[: len(X) // 3], X[len(X) // 3 :]))
    if source == "torch":
        return pytest.importorskip("torch").from_numpy(np.ascontiguousarray(X))
    if source == "frame":
        return pytest.importorskip("pandas").DataFrame(X)
    return sp.csr_array(X) if source == "csr" else sp.csc_array(X)


def reference(case):
    """Variances and components by LAPACK in float64, in units near one."""
    X = case.X if case.truth is None else case.truth
    X = np.asarray(X.toarray() if sp.issparse(X) else X)
    if X.dtype.kind in "iu" and X.dtype.itemsize == 8:  # differences are exact in 64 bits
        X = X.astype(object) - X[0].astype(object)
    X = X.astype(np.longdouble)
    if case.options.get("center", True):
        X = X - X.mean(axis=0)
    size = float(np.abs(X).max())
    power = 0 if size == 0 else int(np.frexp(size)[1])
    X = np.ldexp(X, -power).astype(np.float64)
    _, s, vt = np.linalg.svd(X, full_matrices=False)
    return s**2 / max(1, len(X) - 1), vt, power


PARAMETERS = [
    pytest.param(
        case,
        source,
        id=f"{case.name} [{source}]",
        marks=() if source in ("array", "csr") else pytest.mark.integration,
    )
    for case, source in CASES
]


@pytest.mark.parametrize(("case", "source"), PARAMETERS)
def test_right_or_refused(case, source, tmp_path, request, record_property):
    if source == "small blocks":
        request.getfixturevalue("small_blocks")
    threads = {"one thread": 1, "seven threads": 7}.get(source)
    with warnings.catch_warnings(), limit_threads(threads):
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The variances of `X` are below the range")
        options = {"random_state": 0} | case.options
        try:
            X = given(source, case.X, tmp_path)
            model = PrimedPCA(case.k, **options).fit(X, sample_weight=case.weight)
        except DOCUMENTED as error:
            words = case.refused or ("unit|range|float32" if "unit" in case.name else "^$")
            if isinstance(error, np.linalg.LinAlgError) or not re.search(words, str(error), re.I):
                raise
            return
    assert case.refused is None, "was to be refused"
    for name in LEARNT:
        value = getattr(model, name)
        assert value is None or np.isfinite(value).all(), name
    if case.truth is not False:
        record_property("error", compare(model, *reference(case)))


def compare(model, true, vt, power):
    """Compare a model with the truth; return the error of its variances in that promised."""
    k, kind = model.n_components_, np.dtype(model.components_.dtype).name
    true = np.pad(true, (0, max(0, k + 1 - len(true))))
    found = np.ldexp(model.explained_variance_.astype(np.longdouble), -2 * power).astype(float)
    top = true[0] if true[0] > 0 else 1.0
    error = float(np.abs(found - true[:k]).max() / (PROMISED[kind] * top))
    assert error <= 1
    assert abs(model.explained_variance_ratio_.sum()) <= 1 + 1e-5
    proof = model.certificate_
    if proof is None:
        return error
    low, high = np.ldexp(proof.eigenvalue_bounds.astype(np.longdouble), -2 * power).T.astype(float)
    # The reference is centred in 64 bits of mantissa and decomposed in 53.
    assert (low <= true[:k] + 1e-13 * top).all()
    assert (high >= true[:k] - 1e-13 * top).all()
    gaps = np.append(np.inf, -np.diff(true))[:k], -np.diff(np.append(true, 0.0))[:k]
    clear = (np.minimum(*gaps) > 1e-8 * top) & (model.angle_bounds_ < np.pi / 2)
    m = min(k, len(vt))
    worst = angles(model.components_[:m], vt[:m])
    slack = 1e-7 + 1e-14 * top / np.maximum(np.minimum(*gaps)[:m], 1e-300)
    assert (worst <= model.angle_bounds_[:m] * (1 + 1e-9) + slack)[clear[:m]].all()
    return error


def test_more_than_2_to_the_31_cells():
    rows, columns = [0, 1, 69_999, 35_000], [0, 39_999, 39_998, 7]
    X = sp.csr_array((np.r_[3.0, 4.0, 5.0, 2.0], (rows, columns)), shape=(70_000, 40_000))
    model = PrimedPCA(2, random_state=0).fit(X)
    model.components_ = model.components_[:, columns]  # the others are constant
    compare(model, *reference(Case("the columns that vary", X[:, columns].toarray())))


@pytest.mark.slow
def test_more_than_2_to_the_31_dense_numbers():
    """Columns of a window that moves over one line of bytes: 2^31 numbers in 16 MB."""
    line = np.random.default_rng(0).integers(0, 200, 2**24 + 128, dtype="u1")
    X = np.lib.stride_tricks.sliding_window_view(line, 129)
    assert X.size > 2**31
    model = PrimedPCA(1, random_state=0).fit(X)
    truth = np.var(line[: len(X)].astype(float)) * np.ones(1)
    assert np.abs(model.explained_variance_ / truth - 1).max() < 0.05
    assert model.certificate_.eigenvalue_bounds[0, 0] <= model.explained_variance_[0]
