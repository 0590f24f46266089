"""One rank without a launcher, with several names of the backend."""

import os

import torch.distributed as dist

try:
    dist.init_process_group("gloo")
except ValueError as error:
    print("gloo:", str(error).partition("rendezvous: ")[2])

for name in ("mpi_gdr", "MPI_GDR", "mpigdr", "cpu:mpi_gdr"):
    dist.init_process_group(name, rank=0, world_size=1)
    print(f"{name}: {dist.get_backend()}")
    dist.destroy_process_group()

# As in tutorials.
os.environ["MASTER_ADDR"] = "localhost"
os.environ["MASTER_PORT"] = os.environ["RANK_0_PORT"]
dist.init_process_group("mpi-gdr")
print("address given:", dist.get_world_size())
dist.destroy_process_group()
