"""The smallest program: the sum of a tensor over all ranks.

mpi-gdr run -n 2 hello.py     mpirun -n 2 python hello.py     torchrun --nproc-per-node 2 hello.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("mpi-gdr")  # needs no import: torch finds the backend
rank, size = dist.get_rank(), dist.get_world_size()

x = torch.full((3,), float(rank + 1))
dist.all_reduce(x)  # in place, the same on all ranks
if rank == 0:
    print(f"the sum over {size} ranks: {x.tolist()}")

dist.destroy_process_group()
