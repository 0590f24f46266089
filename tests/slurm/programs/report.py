"""A rank that reports its place and the variables that it read before init_process_group; rank 0 prints all
reports.

Arguments, optional: a folder and a number; starts when that many jobs have a file in the folder.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
before = {name: os.environ.get(name, "") for name in NAMES}
if len(sys.argv) > 1:
    folder = Path(sys.argv[1])
    (folder / os.environ["SLURM_JOB_ID"]).touch()
    deadline = time.monotonic() + 120
    while len(list(folder.iterdir())) < int(sys.argv[2]):
        assert time.monotonic() < deadline, "the other job has not begun"
        time.sleep(0.02)

dist.init_process_group("mpi-gdr")
rank, size = dist.get_rank(), dist.get_world_size()
for count in (1, 1000, 100_000):
    tensor = torch.full((count,), float(rank))
    dist.all_reduce(tensor)
    assert (tensor == size * (size - 1) / 2).all()
    tensor.fill_(rank)
    dist.broadcast(tensor, size - 1)
    assert (tensor == size - 1).all()
after = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
report = {**before, "host": socket.gethostname(), "after": after, "rank": rank}
found: list[dict[str, str] | None] = [None] * size
dist.all_gather_object(found, report)
dist.destroy_process_group()
if rank == 0:
    print("REPORT", json.dumps(found))
