"""A user's program, without an import of mpi_backend."""

import os
import sys

import torch
import torch.distributed as dist

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
if "--no-destroy" not in sys.argv:
    dist.destroy_process_group()
print(f"rank {rank} of {size} is done\n", end="")
