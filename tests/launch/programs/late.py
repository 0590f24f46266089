"""A rank that never arrives. Run apart: no launcher ends the ranks that wait for it."""

import datetime
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from calls import error_of

notified = Path(sys.argv[1])  # folder in which ranks record their error
dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
group = dist.new_group(timeout=datetime.timedelta(seconds=3))
dist.all_reduce(torch.ones(2), group=group)

if rank == size - 1:
    deadline = time.monotonic() + 60
    while len(list(notified.iterdir())) < size - 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    os._exit(0)

tensor = torch.ones(3, 5, dtype=torch.float64)
try:
    if sys.argv[2] == "all_reduce":
        dist.all_reduce(tensor, group=group)
    elif sys.argv[2] == "future":
        dist.all_reduce(tensor, group=group, async_op=True).get_future().wait()
    elif sys.argv[2] == "recv":
        dist.recv(tensor, size - 1, group=group, tag=77)
    print("no error")
except RuntimeError as error:
    print(f"{type(error).__name__}: {error}")
print("then:", error_of(lambda: dist.all_reduce(tensor, group=group)))
sys.stdout.flush()
(notified / str(rank)).touch()
os._exit(0)
