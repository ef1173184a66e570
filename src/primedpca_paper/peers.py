"""Other PCA solvers with the grids they are tuned over, and ours.

A setting is a ``width`` (number of columns beyond k, or size of the basis) and an ``effort``
(number of iterations, or tolerance).  Widths are tuned separately; efforts are listed from cheap to
expensive, so that the first one that is right is the cheapest that is right for its width.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator, svds

from primedpca import PrimedPCA, certify
from primedpca.engines.local import LocalEngine

TOL = math.pi / 128
#: Beyond this one run takes a minute or more on two cores, and no grid is worth it.
MOST_FLOPS = 3e12
ITERATIONS = tuple(range(1, 17))
TOLERANCES = (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 0.0)


class Setting(NamedTuple):
    """A point of a peer's grid; widths are relative to k, so that it means the same anywhere."""

    width: Any = None
    effort: Any = None


class Found(NamedTuple):
    """Components ``(k, d)``, and whether they are proven within pi/128 (None: not asked)."""

    components: np.ndarray
    proven: bool | None = None


@dataclass
class Work:
    """What was done with the data: products, the columns in them, readings."""

    products: float = 0
    columns: float = 0
    readings: float = 0
    #: Where the contestant keeps count itself; it includes a reading for the mean.
    own_count: float | None = None

    def add(self, columns: float, products: int = 1, readings: int = 1) -> None:
        self.products += products
        self.columns += columns * products
        self.readings += readings

    @property
    def passes(self) -> float:
        """``X^T (X V)`` is one: two products are a pass, however often the data are read."""
        return self.products / 2 if self.own_count is None else self.own_count

    def gflop(self, X: Any) -> float:
        """Multiplications and additions with entries of the data that are stored."""
        return 2 * entries(X) * self.columns / 1e9

    def gbyte(self, X: Any) -> float:
        """The data as often as they were read, at the size they are stored in."""
        size = X.nbytes if isinstance(X, np.ndarray) else X.data.nbytes + X.indices.nbytes
        return size * self.readings / 1e9


def entries(X: Any) -> int:
    """Return the number of stored entries."""
    return int(X.nnz if sp.issparse(X) else X.size)


@dataclass(frozen=True)
class Peer:
    """What every contestant has; the fields are the grid."""

    name: str = ""
    package: str = "sklearn"
    widths: tuple[Any, ...] = (None,)
    efforts: tuple[Any, ...] = (None,)
    #: Whether the answer depends on a seed.
    seeded: bool = True
    #: Not a part of the grid: what a user gets who sets nothing.
    default = Setting()

    def refuses(self, X: Any, k: int, setting: Setting) -> str | None:
        """Why it cannot do this set, in one sentence, or None."""
        return self.missing() or self.cannot(X, k, setting)

    def missing(self) -> str | None:
        if importlib.util.find_spec(self.package) is None:
            return f"The package {self.package} is not installed."
        return None

    def cannot(self, X: Any, k: int, setting: Setting) -> str | None:
        return None

    def label(self, setting: Setting) -> str:
        raise NotImplementedError

    def run(self, X: Any, k: int, setting: Setting, seed: int) -> Found:
        raise NotImplementedError

    def work(self, X: Any, k: int, setting: Setting) -> Work:
        """What a run does with the data, by formula or from a run of its own."""
        raise NotImplementedError

    def price(self, k: int, setting: Setting) -> float:
        """How dear a setting is compared with others of this peer."""
        return self.efforts.index(setting.effort) * 100 + self.widths.index(setting.width)


# -- subspace iteration --------------------------------------------------------------------------


@dataclass(frozen=True)
class Randomised(Peer):
    """``extra`` columns beyond k and ``niter`` iterations: 2 niter + 2 products with the data."""

    widths: tuple[Any, ...] = (4, 10, 16)
    efforts: tuple[Any, ...] = ITERATIONS
    words: str = "q=k+{}, niter={}"

    def label(self, setting: Setting) -> str:
        return self.words.format(*setting)

    def work(self, X: Any, k: int, setting: Setting) -> Work:
        work = Work()
        products = 2 * setting.effort + 2
        work.add(k + setting.width, products=products, readings=products)
        return work

    def price(self, k: int, setting: Setting) -> float:
        return float((k + setting.width) * (setting.effort + 1))


@dataclass(frozen=True)
class TorchLowrank(Randomised):
    """Its own default of q=6 is fewer than k; q=k is the least that answers the question."""

    name: str = "torch.pca_lowrank"
    package: str = "torch"
    default = Setting(0, 2)

    def cannot(self, X: Any, k: int, setting: Setting) -> str | None:
        if sp.issparse(X):
            return "It builds the mean of sparse data as a dense n x d matrix."
        return None

    def run(self, X: Any, k: int, setting: Setting, seed: int) -> Found:
        import torch

        torch.manual_seed(seed)
        data = torch.from_numpy(X)
        V = torch.pca_lowrank(data, q=k + setting.width, niter=setting.effort)[2]
        return Found(V[:, :k].T.numpy())


@dataclass(frozen=True)
class SklearnRandomized(Randomised):
    name: str = "sklearn randomized"
    default = Setting(10, "auto")
    words: str = "n_oversamples={}, iterated_power={}"

    def cannot(self, X: Any, k: int, setting: Setting) -> str | None:
        if sp.issparse(X):
            return "scikit-learn's PCA refuses sparse data with this solver."
        return None

    def run(self, X: Any, k: int, setting: Setting, seed: int) -> Found:
        return _sklearn(
            X,
            k,
            svd_solver="randomized",
            n_oversamples=setting.width,
            iterated_power=setting.effort,
            random_state=seed,
        )

    def work(self, X: Any, k: int, setting: Setting) -> Work:
        if setting.effort == "auto":
            setting = Setting(setting.width, 7 if k < 0.1 * min(X.shape) else 4)
        return super().work(X, k, setting)


@dataclass(frozen=True)
class Fbpca(Randomised):
    """It draws in float64, so NumPy copies float32 data to float64 for every product."""

    name: str = "fbpca"
    package: str = "fbpca"
    default = Setting(2, 2)
    words: str = "l=k+{}, n_iter={}"

    def run(self, X: Any, k: int, setting: Setting, seed: int) -> Found:
        import fbpca

        np.random.seed(seed)  # noqa: NPY002 it knows no other
        return Found(fbpca.pca(X, k, n_iter=setting.effort, l=k + setting.width)[2])


# -- Lanczos -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SklearnArpack(Peer):
    name: str = "sklearn arpack"
    efforts: tuple[Any, ...] = TOLERANCES
    default = Setting(None, 0.0)

    def label(self, setting: Setting) -> str:
        return f"tol={setting.effort:g}"

    def run(self, X: Any, k: int, setting: Setting, seed: int) -> Found:
        return _sklearn(X, k, svd_solver="arpack", tol=setting.effort, random_state=seed)

    def work(self, X: Any, k: int, setting: Setting) -> Work:
        work = Work()

        def counted(operator: Any, **options: Any) -> Any:
            return svds(Counted(operator, work), **options)

        with mock.patch("sklearn.decomposition._pca.svds", counted):
            self.run(X, k, setting, 0)
        return work


@dataclass(frozen=True)
class Svds(Peer):
    """SciPy on the data with the mean taken off implicitly, as an expert would write it."""

    package: str = "scipy"
    efforts: tuple[Any, ...] = TOLERANCES
    default = Setting(None, 0.0)
    solver: str = "arpack"

    def label(self, setting: Setting) -> str:
        basis = "" if setting.width is None else f", ncv={setting.width}k"
        return f"tol={setting.effort:g}{basis}"

    def cannot(self, X: Any, k: int, setting: Setting) -> str | None:
        if setting.width is not None and setting.width * k >= min(X.shape):
            return f"A basis of {setting.width}k columns is wider than the data."
        return None

    def run(self, X: Any, k: int, setting: Setting, seed: int) -> Found:
        return self._run(centred(X), k, setting, seed)

    def work(self, X: Any, k: int, setting: Setting) -> Work:
        work = Work()
        self._run(Counted(centred(X), work), k, setting, 0)
        return work

    def _run(self, operator: Any, k: int, setting: Setting, seed: int) -> Found:
        _, s, vt = svds(
            operator,
            k,
            ncv=None if setting.width is None else setting.width * k,
            tol=setting.effort,
            solver=self.solver,
            return_singular_vectors="vh" if self.solver == "propack" else True,
            rng=np.random.default_rng(seed),
        )
        return Found(vt[np.argsort(-s)])


def centred(X: Any) -> LinearOperator:
    """``X - 1 mean^T`` as an operator; X itself stays as it is."""
    mean = np.asarray(X.mean(axis=0)).ravel()
    XT = X.T

    def forward(V: np.ndarray) -> Any:
        return X @ V - mean @ V

    def adjoint(U: np.ndarray) -> Any:
        return XT @ U - (mean * U.sum() if U.ndim == 1 else np.outer(mean, U.sum(axis=0)))

    return LinearOperator(
        X.shape,
        matvec=lambda v: forward(v.ravel()),
        rmatvec=lambda u: adjoint(u.ravel()),
        matmat=forward,
        rmatmat=adjoint,
        dtype=X.dtype,
    )


class Counted(LinearOperator):  # type: ignore[misc]
    """Another operator that keeps the books."""

    def __init__(self, operator: Any, work: Work) -> None:
        self.inside, self.books = aslinearoperator(operator), work
        super().__init__(self.inside.dtype, self.inside.shape)

    def _matvec(self, v: np.ndarray) -> Any:
        self.books.add(1)
        return self.inside.matvec(v)

    def _rmatvec(self, u: np.ndarray) -> Any:
        self.books.add(1)
        return self.inside.rmatvec(u)

    def _matmat(self, V: np.ndarray) -> Any:
        self.books.add(V.shape[1])
        return self.inside.matmat(V)

    def _rmatmat(self, U: np.ndarray) -> Any:
        self.books.add(U.shape[1])
        return self.inside.rmatmat(U)


# -- one reading of the data ---------------------------------------------------------------------


@dataclass(frozen=True)
class CovarianceEigh(Peer):
    name: str = "sklearn covariance_eigh"
    seeded: bool = False

    def cannot(self, X: Any, k: int, setting: Setting) -> str | None:
        d = X.shape[1]
        flops = 9.0 * d**3
        if flops > MOST_FLOPS:
            return f"All vectors of a matrix of order {d:,} take about {flops:.0e} flops."
        return None

    def label(self, setting: Setting) -> str:
        return "no settings"

    def run(self, X: Any, k: int, setting: Setting, seed: int) -> Found:
        return _sklearn(X, k, svd_solver="covariance_eigh")

    def work(self, X: Any, k: int, setting: Setting) -> Work:
        return Work(products=2, columns=X.shape[1], readings=2)


@dataclass(frozen=True)
class Incremental(Peer):
    """It makes sparse batches dense; the default batch is five times d."""

    name: str = "sklearn IncrementalPCA"
    efforts: tuple[Any, ...] = (500, 2_000, "5d")
    default = Setting(None, "5d")
    seeded: bool = False

    def cannot(self, X: Any, k: int, setting: Setting) -> str | None:
        n, d = X.shape
        batch = min(n, self._batch(X, setting))
        small, large = sorted((batch + k, d))
        flops = n / batch * (6.0 * large * small**2 + 20.0 * small**3)
        if flops > MOST_FLOPS:
            return f"The SVDs of batches of {batch:,} rows take about {flops:.0e} flops."
        return None

    def label(self, setting: Setting) -> str:
        return f"batch_size={setting.effort}"

    def run(self, X: Any, k: int, setting: Setting, seed: int) -> Found:
        from sklearn.decomposition import IncrementalPCA

        pca = IncrementalPCA(k, batch_size=self._batch(X, setting)).fit(X)
        return Found(pca.components_)

    def work(self, X: Any, k: int, setting: Setting) -> Work:
        # An SVD of what was read: columns are those of the batch, as in its Gram matrix.
        return Work(products=2, columns=min(X.shape[0], self._batch(X, setting)), readings=1)

    @staticmethod
    def _batch(X: Any, setting: Setting) -> int:
        return 5 * X.shape[1] if setting.effort == "5d" else int(setting.effort)


def _sklearn(X: Any, k: int, **options: Any) -> Found:
    from sklearn.decomposition import PCA

    return Found(PCA(k, **options).fit(X).components_)


# -- ourselves -----------------------------------------------------------------------------------


class CountingEngine(LocalEngine):
    """Engine of this machine that counts products, columns and readings."""

    books: Work

    def __init__(self, work: Work) -> None:
        super().__init__()
        object.__setattr__(self, "books", work)

    def sweep(self, source: Any, kernel: Any, whole: Any, mine: Any) -> Any:
        operand = {**whole, **mine}.get("vectors", {**whole, **mine}.get("left"))
        work, name = self.books, kernel.__name__
        if name == "covariance":
            work.add(source.shape[1 - source.axis], products=2, readings=1)
        elif operand is not None:
            products = 2 if name in ("product", "gram_product") else 1
            work.add(operand.shape[1], products=products, readings=1)
        else:
            work.readings += 1
        return super().sweep(source, kernel, whole, mine)


@dataclass(frozen=True)
class Ours(Peer):
    name: str = "primedpca"
    package: str = "primedpca"
    certificate: str = "none"

    def label(self, setting: Setting) -> str:
        over = round(math.pi / (setting.effort or TOL))
        return f'tol=pi/{over}, certificate="{self.certificate}"'

    def run(self, X: Any, k: int, setting: Setting, seed: int) -> Found:
        pca = self._fit(X, k, setting, seed)
        proof, tol = pca.certificate_, setting.effort or TOL
        return Found(pca.components_, None if proof is None else bool(proof.met(tol).all()))

    def work(self, X: Any, k: int, setting: Setting) -> Work:
        work = Work()
        work.own_count = self._fit(X, k, setting, 0, engine=CountingEngine(work)).n_passes_
        return work

    def _fit(self, X: Any, k: int, setting: Setting, seed: int, **more: Any) -> PrimedPCA:
        tol = setting.effort or TOL  # pi/128 where no grid of tolerances is walked
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a proof that falls short; the table says so
            pca = PrimedPCA(k, tol=tol, certificate=self.certificate, random_state=seed, **more)
            fitted: PrimedPCA = pca.fit(X)
            return fitted


def audit(X: Any, components: np.ndarray, seed: int = 0, **more: Any) -> bool:
    """Have a peer's answer certified; whether all of it is proven within pi/128."""
    return bool(certify(X, components, tol=TOL, random_state=seed, **more).met(TOL).all())


def orthonormal(components: np.ndarray) -> np.ndarray:
    """The same rows without the float32 rounding that `certify` would refuse."""
    q, r = np.linalg.qr(components.astype(np.float64).T)
    return (q * np.sign(np.diag(r))).T


OURS = Ours()
CERTIFIED = Ours(name="primedpca, certified", certificate="auto")
#: The likely winners first: they spare the others the settings that cannot win any more.
PEERS: tuple[Peer, ...] = (
    TorchLowrank(),
    CovarianceEigh(),
    SklearnRandomized(),
    SklearnArpack(),
    Svds(name="scipy svds arpack", widths=(None, 3, 4)),
    Svds(name="scipy svds propack", solver="propack"),
    Fbpca(),
    Incremental(),
)
