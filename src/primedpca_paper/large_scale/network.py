"""Weights of trained networks, whose activations are decomposed."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

from primedpca.sources.base import Later
from primedpca.sources.wrappers.activations import some

__all__ = ["load_weights"]

torch: Any = Later("torch", "`load_weights`", "torch")


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
    skip = tuple(skip)
    state, length = _state_dict(weights), len(prefix)
    given = {key[length:]: value for key, value in state.items() if key.startswith(prefix)}
    if not given:
        raise ValueError(f"No weight begins with `prefix`={prefix!r}. There are {some(state)}.")
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
    words = [f"{len(keys)} {what}: {some(keys)}" for what, keys in found.items() if keys]
    if words:
        raise ValueError(
            f"The weights do not fit {type(model).__name__}: {'; '.join(words)}. Check `prefix`="
            f"{prefix!r} and `skip`={skip!r}, or use the network that they were trained for."
        )
    with torch.no_grad():
        model.load_state_dict(given, strict=False)
    return model


def _state_dict(weights: Any) -> Mapping[str, Any]:
    what = "`weights`"
    if isinstance(weights, (str, os.PathLike)):
        what = f"`weights`={os.fspath(weights)!r}"
        try:
            weights = torch.load(weights, map_location="cpu", weights_only=True)
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
