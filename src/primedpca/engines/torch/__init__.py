"""Ranks of torch.distributed: engine, collectives, rendezvous, and rows on ranks."""

try:
    import torch.distributed as _  # noqa: F401
except ImportError as error:
    raise ImportError(
        "`engine`='torch_distributed' needs PyTorch: pip install 'primedpca[torch]'."
    ) from error
