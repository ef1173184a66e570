"""Networks for :class:`Activations`: choice of modules, hooks on their outputs, weights."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

__all__ = ["choose", "import_torch", "listening", "load_weights", "on_its_device", "residual"]

#: Lock for one forward pass at a time, because hooks and flags belong to the module.
_forward = threading.Lock()
_FIRST = 5


def residual(name: str, module: Any) -> bool:
    """Return whether a module's class name contains ``Bottleneck`` or ``BasicBlock``."""
    return any(word in type(module).__name__ for word in ("Bottleneck", "BasicBlock"))


def choose(model: Any, blocks: Any) -> dict[str, Any]:
    """Return the chosen modules of ``model`` by name, in the order of their definition.

    Parameters
    ----------
    model : nn.Module
        The network.
    blocks : callable, regular expression or list of str
        A function ``(name, module) -> bool``, a pattern for the whole name, or names.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    if callable(blocks):
        chosen = {name: module for name, module in modules.items() if blocks(name, module)}
        what = getattr(blocks, "__name__", repr(blocks))
    elif isinstance(blocks, (str, re.Pattern)):
        pattern = re.compile(blocks)
        chosen = {name: modules[name] for name in modules if pattern.fullmatch(name)}
        what = repr(pattern.pattern)
    elif isinstance(blocks, Iterable):
        names = list(blocks)
        chosen = {name: modules[name] for name in modules if name in names}
        unknown = [name for name in names if name not in modules]
        if unknown:
            raise ValueError(
                f"`blocks` has names that are not modules: {_some(unknown)}. {_there(modules)}"
            )
        what = repr(names)
    else:
        raise TypeError(
            f"`blocks`={blocks!r} must be a function of name and module, a regular expression or a "
            "list of names."
        )
    if not chosen:
        hint = " (classes called Bottleneck... or BasicBlock...)" if blocks is residual else ""
        raise ValueError(f"`blocks`={what}{hint} does not match any module. {_there(modules)}")
    return chosen


def on_its_device(model: Any, device: Any) -> tuple[Any, Any]:
    """Return the model, copied if it is on another device, and its device."""
    torch = import_torch()
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"`model` is a {type(model).__name__}, not a torch.nn.Module.")
    first = next(iter([*model.parameters(), *model.buffers()]), None)
    home = torch.device("cpu") if first is None else first.device
    if device is None:
        return model, home
    try:
        wanted = torch.empty(0, device=device).device
        return (model if wanted == home else deepcopy(model).to(wanted)), wanted
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"`device`={device!r} cannot be used here: {error}") from error


@contextmanager
def listening(
    model: Any, modules: Mapping[str, Any], hear: Callable[[str, Any], None], threads: int
) -> Iterator[None]:
    """Put the model into evaluation mode and call ``hear(name, output)`` for chosen modules.

    Afterwards the hooks are removed and the training flags restored.  ``threads`` is set because
    PyTorch has a number of threads for each of ours, and other numbers give other bits.
    """
    torch = import_torch()

    def hook(name: str) -> Callable[..., None]:
        return lambda module, inputs, output: hear(name, output)

    cudnn = torch.backends.cudnn
    with _forward:
        flags = [(module, module.training) for module in model.modules()]
        chosen, had = (cudnn.deterministic, cudnn.benchmark), torch.get_num_threads()
        handles = []
        try:
            # A kernel that is chosen by a benchmark may differ at the next reading.
            cudnn.deterministic, cudnn.benchmark = True, False
            torch.set_num_threads(threads)
            for name, module in modules.items():
                handles.append(module.register_forward_hook(hook(name)))
            model.eval()
            with torch.inference_mode():
                yield
        finally:
            for handle in handles:
                handle.remove()
            for module, flag in flags:
                module.training = flag
            torch.set_num_threads(had)
            cudnn.deterministic, cudnn.benchmark = chosen


def load_weights(
    model: Any, weights: Any, *, prefix: str = "", skip: Iterable[str] = ("fc.",)
) -> Any:
    """Load the weights of a checkpoint into a model, or raise an error and change nothing.

    Parameters
    ----------
    model : nn.Module
        The network.
    weights : path or state dict
        Only tensors are read from a file (``weights_only=True``), which runs no code.  A
        checkpoint may hold its tensors under ``"state_dict"``.
    prefix : str, default=""
        Prefix that is removed from the keys; keys without it are ignored.
    skip : iterable of str, default=("fc.",)
        Prefixes of names that are not loaded, such as the classifier, which seldom fits.

    Returns
    -------
    nn.Module
        The network, ``model``.

    Raises
    ------
    ValueError
        Keys are missing, unknown to the model, or of another shape.
    """
    torch = import_torch()
    skip = tuple(skip)
    state = _state_dict(weights)
    given = {
        key.removeprefix(prefix): value
        for key, value in state.items()
        if key[: len(prefix)] == prefix
    }
    if not given:
        raise ValueError(f"No weight begins with `prefix`={prefix!r}. There are {_some(state)}.")
    given = {key: value for key, value in given.items() if not key.startswith(skip)}
    own = {key: value for key, value in model.state_dict().items() if not key.startswith(skip)}
    # Checkpoints before PyTorch 0.4.1 lack this count, which evaluation does not use.
    missing = [key for key in own if key not in given and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in given if key not in own]
    shaped = [
        f"{key} ({_shape(given[key])} instead of {_shape(own[key])})"
        for key in own
        if key in given and _shape(given[key]) != _shape(own[key])
    ]
    found = {"missing": missing, "unexpected": unexpected, "of another shape": shaped}
    if any(found.values()):
        text = "; ".join(
            f"{len(keys)} {what}: {_some(keys)}" for what, keys in found.items() if keys
        )
        raise ValueError(
            f"The weights do not fit {type(model).__name__}: {text}. Check `prefix`={prefix!r} and "
            f"`skip`={skip!r}, or use the network that they were trained for."
        )
    with torch.no_grad():
        model.load_state_dict(given, strict=False)
    return model


def _state_dict(weights: Any) -> Mapping[str, Any]:
    what = "`weights`"
    if isinstance(weights, (str, os.PathLike)):
        import pickle

        what = f"`weights`={os.fspath(weights)!r}"
        try:
            weights = import_torch().load(weights, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise ValueError(f"{what} cannot be read as a file of tensors: {reason}") from error
    if isinstance(weights, Mapping) and isinstance(weights.get("state_dict"), Mapping):
        weights = weights["state_dict"]
    if not isinstance(weights, Mapping) or not all(isinstance(key, str) for key in weights):
        raise ValueError(f"{what} holds a {type(weights).__name__}, not a dictionary of weights.")
    return weights


def _shape(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else " x ".join(map(str, shape)) or "scalar"


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:_FIRST]) + (", ..." if len(names) > _FIRST else "")


def _there(modules: Mapping[str, Any]) -> str:
    return f"There are {_some(f'{name} ({type(m).__name__})' for name, m in modules.items())}."


def import_torch() -> Any:
    """Import PyTorch, or raise an error that names the extra."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("Activations need PyTorch: pip install 'primedpca[torch]'.") from error
    return torch
