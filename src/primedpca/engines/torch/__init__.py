"""Ranks of torch.distributed: engine, collectives, rendezvous, and rows on ranks."""
