"""Ranks of torch.distributed: engine, collectives, rendezvous, heartbeat, and rows on ranks."""
