"""A network that is listened to: which modules, what they put out, and its weights."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

__all__ = ["choose", "import_torch", "listening", "load_weights", "on_its_device", "residual"]

#: One forward at a time: hooks and flags belong to the module, not to the thread.
_forward = threading.Lock()
_FIRST = 5


def residual(name: str, module: Any) -> bool:
    """Whether a module is a residual block: its class is called Bottleneck... or BasicBlock...."""
    return any(word in type(module).__name__ for word in ("Bottleneck", "BasicBlock"))


def choose(model: Any, blocks: Any) -> dict[str, Any]:
    """The modules of ``model`` that are listened to, by name, in the order of their definition.

    Parameters
    ----------
    model : nn.Module
    blocks : callable (name, module) -> bool, regular expression for whole names, or names
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
            raise ValueError(f"`blocks` names no module: {_some(unknown)}. {_there(modules)}")
        what = repr(names)
    else:
        raise TypeError(
            f"`blocks`={blocks!r} must be a function of name and module, a regular expression or "
            "a list of names."
        )
    if not chosen:
        hint = " (classes called Bottleneck... or BasicBlock...)" if blocks is residual else ""
        raise ValueError(f"`blocks`={what}{hint} matches no module. {_there(modules)}")
    return chosen


def on_its_device(model: Any, device: Any) -> tuple[Any, Any]:
    """The model and its device: itself, or a copy where it is to be elsewhere than it is."""
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
    """Within: the model evaluates, and ``hear(name, output)`` is called as a module returns.

    Afterwards the hooks are gone and every module has the training flag that it had.  PyTorch
    counts its threads for each of ours, and gives other bits with other numbers of them.
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
            # A kernel that is chosen by racing need not be the same at the next reading.
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
    """Put the weights of a checkpoint into a model, or change nothing and say why not.

    Parameters
    ----------
    model : nn.Module
    weights : path or state dict
        Of a file, tensors alone are read (``weights_only=True``): it runs no code.  A
        checkpoint that holds its tensors under ``"state_dict"`` is opened.
    prefix : str
        Taken off the keys of the checkpoint; keys that do not begin with it are left out.
    skip : iterable of str
        Beginnings of names that are left as they are in the model: the classifier, whose
        outputs seldom fit.

    Returns
    -------
    nn.Module
        ``model``.

    Raises
    ------
    ValueError
        Where keys are missing, are not known to the model, or have another shape.
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
        raise ValueError(f"No weight begins with `prefix`={prefix!r}; there are {_some(state)}.")
    given = {key: value for key, value in given.items() if not key.startswith(skip)}
    own = {key: value for key, value in model.state_dict().items() if not key.startswith(skip)}
    # A count that nothing uses in evaluation, and that checkpoints before PyTorch 0.4.1 lack.
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
            f"The weights do not fit {type(model).__name__}: {text}. Look at `prefix`={prefix!r} "
            f"and `skip`={skip!r}, or take the network that they were trained for."
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
            raise ValueError(f"{what} cannot be read as tensors alone: {reason}") from error
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
    """PyTorch, or an error that names the extra."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("Activations need PyTorch: pip install 'primedpca[torch]'.") from error
    return torch
