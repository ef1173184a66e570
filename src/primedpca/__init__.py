"""Top-k principal components of data of any kind and size: primed, then refined exactly.

The names below are the whole public surface, beside :mod:`primedpca.priming`,
:mod:`primedpca.metrics`, :mod:`primedpca.monitoring` and :mod:`primedpca.plots`.  Each is
imported when first used, so that ``import primedpca`` is quick and only the estimator asks for
scikit-learn.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primedpca.certify import certify
    from primedpca.estimator import PrimedPCA
    from primedpca.model_file import load
    from primedpca.planning import plan
    from primedpca.prime import prime
    from primedpca.refine import refine
    from primedpca.sources import as_source

__version__ = "0.1.0"

__all__ = ["PrimedPCA", "as_source", "certify", "load", "plan", "prime", "refine"]

_HOMES = {
    "PrimedPCA": "estimator",
    "as_source": "sources",
    "certify": "certify",
    "load": "model_file",
    "plan": "planning",
    "prime": "prime",
    "refine": "refine",
}


def _lazy(name: str) -> property:
    """The public name ``name``, imported when it is read.

    A property, because Python binds the module ``primedpca.refine`` to the same name here as
    soon as anyone imports it; that assignment is let pass.
    """

    def read(package: ModuleType) -> Any:
        return getattr(import_module(f"primedpca.{_HOMES[name]}"), name)

    return property(read, lambda package, module: None)


class _Package(ModuleType):
    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES})


for _name in _HOMES:
    setattr(_Package, _name, _lazy(_name))
sys.modules[__name__].__class__ = _Package
