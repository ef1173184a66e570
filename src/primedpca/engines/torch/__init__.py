"""Ranks of torch.distributed: the engine, its collectives, rendezvous and heartbeat."""
