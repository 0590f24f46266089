"""Reads MASTER_ADDR and MASTER_PORT before init_process_group, as many scripts do. --taken: then another
program takes the port."""

import os
import socket
import sys

import torch
import torch.distributed as dist


def addresses():
    return f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"


before = addresses()
if "--taken" in sys.argv and os.environ["RANK"] == "0":
    other = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))

dist.init_process_group("mpi-gdr")
rank, size = dist.get_rank(), dist.get_world_size()
tensor = torch.full((1000,), rank + 1.0)
dist.all_reduce(tensor)
assert (tensor == size * (size + 1) / 2).all()
print(f"rank {rank} of {size}: before {before}, after {addresses()}\n", end="", flush=True)
dist.destroy_process_group()
