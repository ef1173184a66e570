"""Ranks of torch.distributed: engine, collectives, rendezvous, and rows on ranks."""

from primedpca.sources.base import needed

needed("torch.distributed", "`engine`='torch_distributed'", "torch")
