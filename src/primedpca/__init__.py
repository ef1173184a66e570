"""Top-k principal components of data of any kind and size, with a proven bound on each.

The names in ``__all__`` are the public interface, together with the public modules
:mod:`primedpca.priming`, :mod:`primedpca.sources`, :mod:`primedpca.metrics`,
:mod:`primedpca.choosing`, :mod:`primedpca.rotation`, :mod:`primedpca.monitoring`,
:mod:`primedpca.plots`, :mod:`primedpca.report`, :mod:`primedpca.interop`,
:mod:`primedpca.theory`, :mod:`primedpca.protocols` and :mod:`primedpca.result`.  Each name is
imported on first use, so that ``import primedpca`` is quick and only the estimator needs
scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from primedpca import _old_paths

if TYPE_CHECKING:
    from primedpca._planning.plan import plan
    from primedpca._solve.audit import certify
    from primedpca._solve.prime import prime
    from primedpca._solve.refine import refine
    from primedpca._solve.truncated_svd import svd
    from primedpca.choosing import choose_k
    from primedpca.estimator import PrimedPCA, load
    from primedpca.sklearn import patch_sklearn, unpatch_sklearn
    from primedpca.sources import as_source

__version__ = "0.1.0"

__all__ = [
    "PrimedPCA",
    "as_source",
    "certify",
    "choose_k",
    "load",
    "patch_sklearn",
    "plan",
    "prime",
    "refine",
    "svd",
    "unpatch_sklearn",
]

#: Module that defines each public name.
_HOMES = {
    "PrimedPCA": "estimator",
    "as_source": "sources",
    "certify": "_solve.audit",
    "choose_k": "choosing",
    "load": "estimator",
    "patch_sklearn": "sklearn",
    "plan": "_planning.plan",
    "prime": "_solve.prime",
    "refine": "_solve.refine",
    "svd": "_solve.truncated_svd",
    "unpatch_sklearn": "sklearn",
}

_old_paths.install()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'primedpca' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"primedpca.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
