"""Data-parallel training: each rank has its own part of the data, and DDP averages the gradients.

mpi-gdr run -n 2 ddp.py     mpirun -n 2 python ddp.py     torchrun --nproc-per-node 2 ddp.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("mpi-gdr")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(1)
inputs = torch.randn(1024, 16)
targets = inputs.sin().sum(1, keepdim=True)
mine = slice(rank, None, size)  # every size-th row, starting with this rank's
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(1, 101):
    loss = nn.functional.mse_loss(model(inputs[mine]), targets[mine])
    optimizer.zero_grad()
    loss.backward()  # DDP averages the gradients over the ranks meanwhile
    optimizer.step()
    if step % 25 == 0:
        mean = loss.detach()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        if rank == 0:
            print(f"step {step}: loss {mean:.4f}")

dist.destroy_process_group()
