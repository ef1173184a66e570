"""Connecting to the other ranks: from torchrun's environment, or an existing process group."""

from __future__ import annotations

import atexit
import os
import socket
import uuid
import warnings
from datetime import timedelta
from typing import Any

from primedpca._core.threads import processors
from primedpca.engines.torch.heartbeat import Heartbeat
from primedpca.engines.torch.ranks import RankError, Ranks

__all__ = ["connect"]

_joined: dict[float, Ranks] = {}


def connect(timeout: float) -> Ranks:
    """Return the ranks of this process group, started from torchrun's environment if needed.

    Without such an environment this process is the only rank, and no connection is opened.
    """
    dist = _distributed()
    launched = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))
    if not (dist.is_available() and (dist.is_initialized() or launched)):
        return Ranks(timeout=timeout)
    try:
        if not dist.is_initialized():
            _begin(dist, timeout)
        known = _joined.get(timeout)
        if known is None or known.world is not dist.group.WORLD:  # a later group, in tests say
            if known is not None and known.heartbeat is not None:
                known.heartbeat.end()
            known = _joined[timeout] = _join(dist, timeout)
    except RuntimeError as error:
        if isinstance(error, RankError):
            raise
        raise RankError(
            f"not all of the {os.environ.get('WORLD_SIZE', '')} ranks connected within "
            f"{timeout:g} s (`timeout`): {error}"
        ) from error
    return known


def _begin(dist: Any, timeout: float) -> None:
    import torch

    _stay_on_this_machine()
    backend, devices = "gloo", torch.cuda.device_count()
    if devices:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % devices)
        if dist.is_nccl_available():
            backend = "cpu:gloo,cuda:nccl"
    limit = timedelta(seconds=timeout)
    dist.init_process_group(backend, timeout=limit, **_agents_store(dist, limit))
    atexit.register(_end, dist)


def _agents_store(dist: Any, limit: timedelta) -> dict[str, Any]:
    """Return a fresh part of torchrun's store, if torchrun hosts one for its ranks.

    In a shared part, restarted ranks would find the addresses of the ranks before them.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return {}
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")
    if not _on_one_machine():  # the agents of several machines count restarts separately
        if restarts != "0":
            warnings.warn(
                f"torchrun --max-restarts={restarts} cannot reconnect ranks on several machines "
                "unless it is started with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its "
                "environment.",
                stacklevel=2,
            )
        return {}
    given, again = os.environ, os.environ["TORCHELASTIC_RESTART_COUNT"]
    place = given["MASTER_ADDR"], int(given["MASTER_PORT"])
    store = dist.TCPStore(*place, is_master=False, timeout=limit, wait_for_workers=False)
    part = dist.PrefixStore(f"primedpca/{again}", store)
    return {"store": part, "rank": int(given["RANK"]), "world_size": int(given["WORLD_SIZE"])}


def _end(dist: Any) -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _stay_on_this_machine() -> None:
    """Restrict ranks that are all on this machine to the loopback interface."""
    if not _on_one_machine():
        return
    names = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    for library in ("GLOO", "NCCL"):
        if names:
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", min(names))


def _on_one_machine() -> bool:
    return os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")


def _join(dist: Any, timeout: float) -> Ranks:
    """Connect in a separate group, so that messages never mix with those of the user."""
    rank, size = dist.get_rank(), dist.get_world_size()
    limit = timedelta(seconds=timeout)
    group = dist.new_group(backend="gloo", timeout=limit)
    found = Ranks(rank, size, timeout, group)
    found.world = dist.group.WORLD
    notes = found.meet(
        "the first meeting",
        name=uuid.uuid4().hex,
        place=_place(),
        processors=found.processors,
        gpu=_device(),
    )
    if size > 1:
        # A store may outlive restarted ranks: rank 0 chooses a new name for their part of it.
        found.heartbeat = Heartbeat(_store(dist, notes[0]["name"]), rank, size, timeout)
    # Processors that several ranks may use are divided among them.
    beside = sum(note["place"] == notes[rank]["place"] for note in notes)
    found.threads = max(1, processors() // beside)
    found.processors = notes[0]["processors"]
    devices = [note["gpu"] for note in notes]
    if None not in devices and len(set(devices)) == size and dist.is_nccl_available():
        found.device_group = dist.new_group(backend="nccl", timeout=limit)
    return found


def _store(dist: Any, name: str) -> Any:
    """Return a part of the group's store, over a connection of its own if possible."""
    store = dist.distributed_c10d._get_default_store()
    return dist.PrefixStore(
        f"primedpca/{name}", store.clone() if hasattr(store, "clone") else store
    )


def _place() -> str:
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return f"{socket.gethostname()} {sorted(allowed(0)) if allowed else ''}"[:500]


def _device() -> str | None:
    import torch

    if not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def _distributed() -> Any:
    try:
        import torch.distributed as dist
    except ImportError as error:
        raise ImportError(
            "`engine`='torch_distributed' needs PyTorch: pip install 'primedpca[torch]'."
        ) from error
    return dist
