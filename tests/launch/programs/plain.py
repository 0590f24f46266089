"""A user's program, without an import of mpi_backend. --addresses: reads MASTER_ADDR and MASTER_PORT before
init_process_group, as many scripts do. --taken: then another program takes the port."""

import os
import socket
import sys

import torch
import torch.distributed as dist


def address():
    return f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"


before = address()
if "--taken" in sys.argv and os.environ["RANK"] == "0":
    other = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
if "--variables" in sys.argv:  # before init_process_group
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    print(" ".join(["variables", *(f"{name}={os.environ.get(name)}" for name in names)]) + "\n", end="")

dist.init_process_group(backend="mpi-gdr")
rank, size = dist.get_rank(), dist.get_world_size()
assert os.environ["MASTER_ADDR"] and int(os.environ["MASTER_PORT"]) > 0
tensor = torch.full((1000,), rank + 1.0)
dist.all_reduce(tensor)
assert (tensor == size * (size + 1) / 2).all()

if "--fail" in sys.argv and rank == size - 1:
    raise ArithmeticError("this rank fails")
if "--exit" in sys.argv:
    sys.exit(int(sys.argv[sys.argv.index("--exit") + 1]))
if "--fail" in sys.argv:
    dist.barrier()  # the failed rank never comes
if "--addresses" in sys.argv:
    print(f"rank {rank} of {size}: before {before}, after {address()}\n", end="", flush=True)
if "--no-destroy" not in sys.argv:
    dist.destroy_process_group()
print(f"rank {rank} of {size} is done\n", end="")
