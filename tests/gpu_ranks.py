"""Ranks with a GPU: ``python tests/gpu_ranks.py`` starts its own, on as many as there are.

Needs no test tool and no scikit-learn.  With one GPU, NCCL is used by one rank, and two ranks
share the device and send their sums through host memory.
"""

import os
import socket
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from primedpca import prime, refine
from primedpca._core.checksum import mixed
from primedpca.engines.torch.engine import TorchDistributed
from primedpca.metrics import angles
from primedpca.sources import RankRows

N, D, K = 40_000, 300, 6


def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D), dtype=np.float32) * 0.9 ** np.arange(D, dtype=np.float32)
    return (X + 3).astype(np.float32)


def collectives(ranks, device):
    """What sums and stacks go through, with NCCL where every rank has a GPU of its own."""
    size, rank = ranks.size, ranks.rank
    sent = torch.arange(size * 2 * 5, device=device, dtype=torch.float64).reshape(size, 2, 5)
    got = ranks.swap(sent + 1000 * rank, [2] * size)
    wanted = torch.cat([sent[rank] + 1000 * r for r in range(size)])
    assert torch.equal(got, wanted)
    assert mixed(sent.reshape(-1)) == mixed(sent.reshape(-1).cpu())  # the checksum's, made there
    part = torch.full((3,), float(rank), device=device, dtype=torch.float64)
    assert torch.equal(
        ranks.join(part).cpu(), torch.repeat_interleave(torch.arange(size), 3).double()
    )


def work(rank, size, port, found):
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    place |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    os.environ.update(place)
    engine = TorchDistributed(120.0)
    ranks = engine.ranks
    device = f"cuda:{torch.cuda.current_device()}"
    collectives(ranks, device)
    edges = [round(N * (r / size) ** 1.5) for r in range(size + 1)]
    X = data()
    rows = RankRows(torch.tensor(X[edges[rank] : edges[rank + 1]], device=device), engine)
    assert str(rows.read(0).device) == device
    result = {}
    for name in ("block_krylov", "exact", "subspace_iteration", "eigengame"):
        *_, last = prime(rows, name, K + 4, random_state=0, max_passes=30, engine=engine)
        result[name] = refine(rows, last.directions, K, engine=engine)
    truth = np.linalg.svd(X - X.mean(axis=0, dtype="f8"), full_matrices=False)[2][:K]
    for name in ("block_krylov", "exact"):
        off = angles(result[name].components, truth).max()
        assert off < 1e-3, (name, off)
    kind = "NCCL" if ranks.device_group is not None else "host memory"
    found[rank] = {
        name: one.components.double().cpu().numpy().tobytes() for name, one in result.items()
    }
    if rank == 0:
        print(f"{size} rank(s) on {torch.cuda.device_count()} GPU(s), sums by {kind}: right")
    if dist.is_initialized():
        dist.destroy_process_group()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main():
    if not torch.cuda.is_available():
        print("PyTorch finds no CUDA device here")
        return 0
    results = []
    for size in sorted({1, 2, torch.cuda.device_count()}):
        with processes.Manager() as manager:
            found = manager.dict()
            processes.spawn(work, (size, free_port(), found), nprocs=size)
            results += [found[rank] for rank in range(size)]
    assert all(one == results[0] for one in results), "ranks differ in some bits"
    print("all ranks, however many, have the same bits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
