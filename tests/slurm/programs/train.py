"""The program of docs/slurm.md: a model that learns a line, on all ranks. Rank 0 prints the result."""

from __future__ import annotations

import argparse
import json
import os
import socket

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--backend", required=True)
dist.init_process_group(parser.parse_args().backend)
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
for _ in range(60):
    x = torch.rand(32, 1)
    loss = torch.nn.functional.mse_loss(model(x), 3 * x + 1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
secret = "MPI_GDR_SECRET" in os.environ
mine = {"host": socket.gethostname(), "threads": os.environ["OMP_NUM_THREADS"], "secret": secret}
found: list[dict[str, object] | None] = [None] * size
dist.all_gather_object(found, {**mine, "loss": loss.item(), "weight": model.module.weight.item()})
dist.destroy_process_group()
if rank == 0:
    print("REPORT", json.dumps(found))
