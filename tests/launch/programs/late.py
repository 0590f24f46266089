"""A rank that never arrives in three groups. Run apart: no launcher ends the ranks that wait for it."""

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
tensor = torch.ones(3, 5, dtype=torch.float64)
CALLS = {
    "all_reduce": lambda group: dist.all_reduce(tensor, group=group),
    "future": lambda group: dist.all_reduce(tensor, group=group, async_op=True).get_future().wait(),
    "recv": lambda group: dist.recv(tensor, size - 1, group=group, tag=77),
}
groups = {name: dist.new_group(timeout=datetime.timedelta(seconds=3)) for name in CALLS}
waiting = dist.new_group([0, 1])
for group in groups.values():
    dist.all_reduce(torch.ones(2), group=group)

if rank == size - 1:
    deadline = time.monotonic() + 60
    while len(list(notified.iterdir())) < size - 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    os._exit(0)

for name, call in CALLS.items():
    dist.barrier(waiting)  # so that their deadlines are the same
    print(f"{name}: {error_of(lambda: call(groups[name]), RuntimeError)}")  # noqa: B023
    print(f"{name}, then: {error_of(lambda: dist.all_reduce(tensor, group=groups[name]))}")  # noqa: B023
sys.stdout.flush()
(notified / str(rank)).touch()
os._exit(0)
