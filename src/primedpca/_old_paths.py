"""Old import paths: each gives the module at its new place, with a DeprecationWarning."""

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

#: Old paths and new ones; modules inside a package move with it unless they have a line.
MOVED = {
    "primedpca.bounds": "primedpca._certify.bounds",
    "primedpca.budget": "primedpca._core.units",
    "primedpca.centred": "primedpca._operator.operator",
    "primedpca.engines.torch_distributed": "primedpca.engines.torch.engine",
    "primedpca.experiments": "primedpca_paper",
    "primedpca.experiments.bench": "primedpca._demo",
    "primedpca.experiments.demo": "primedpca._demo",
    "primedpca.experiments.large_scale.activations": "primedpca.sources.wrappers.activations",
    "primedpca.experiments.large_scale.photographs": "primedpca.sources.wrappers.activations",
    "primedpca.extra": "primedpca.priming.extra_directions",
    "primedpca.orthonormal": "primedpca._core.orthonormal",
    "primedpca.outward": "primedpca._core.outward_rounding",
    "primedpca.probes": "primedpca._certify.probes",
    "primedpca.sources.fields": "primedpca.sources.memory.xarray_fields",
    "primedpca.sources.images": "primedpca.sources.files.images",
    "primedpca.sources.mapped": "primedpca.sources.wrappers.mapped",
    "primedpca.sources.rank_rows": "primedpca.engines.torch.rank_rows",
    "primedpca.sources.video": "primedpca.sources.files.video",
}


def install() -> None:
    """Make Python look up old paths; nothing is imported until one is used."""
    # In front: the finder of files would load a moved package's modules a second time.
    sys.meta_path.insert(0, _OldPaths())


def _new_path(name: str) -> str | None:
    if not name.startswith("primedpca."):
        return None
    package, _, rest = name.rpartition(".")
    return MOVED.get(name) or ((inside := _new_path(package)) and f"{inside}.{rest}")


class _OldPaths:
    """Finder of old paths, for ``sys.meta_path``."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        new = _new_path(name)
        found = _spec(new) if new else None
        if new is None or found is None:
            return None
        warnings.warn(f"{name} has moved to {new}.", DeprecationWarning, stacklevel=2)
        is_package = found.submodule_search_locations is not None
        loader: Any = _SameModule(new)
        return ModuleSpec(name, loader, origin=found.origin, is_package=is_package)


class _SameModule:
    """Loader that gives the module at the new place itself, not a copy."""

    def __init__(self, new: str) -> None:
        self.new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.new)
        self.own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.own  # the import system has just set that of the old path

    def get_code(self, name: str) -> CodeType | None:
        """Return the code that ``python -m`` runs."""
        spec: Any = _spec(self.new)
        code: CodeType | None = spec.loader.get_code(self.new)
        return code


def _spec(name: str) -> ModuleSpec | None:
    from importlib.util import find_spec  # here, to keep `import primedpca` quick

    return find_spec(name)
