"""One rank of a job whose rank 0, the store's host, ends some seconds before the others.

Arguments: the folder for events, and
group  the others work in a group without rank 0 until long after
end    the others are idle
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from event_log import Log

FOLDER, RANK = Path(sys.argv[1]), int(os.environ["RANK"])
log = Log(FOLDER, RANK)
TIMEOUT = datetime.timedelta(seconds=10)  # rank 0's for the last meeting, and all ranks' for the start


dist.init_process_group("mpi-gdr", timeout=TIMEOUT)
size = dist.get_world_size()
group = dist.new_group(list(range(1, size)), timeout=datetime.timedelta(minutes=5))
dist.barrier()
log("ready", pid=os.getpid())
asked = RANK == 0
while not asked:
    asked = (FOLDER / "stop").exists()
    if sys.argv[2] == "group":
        tensor = torch.full((1000,), float(RANK))
        tensor[-1] = asked  # in the sum, so that all ranks stop in the same round
        dist.all_reduce(tensor, group=group)
        if not (tensor[:-1] == size * (size - 1) / 2).all():
            log("wrong")
        asked = tensor[-1] > 0
    time.sleep(0.05)
dist.destroy_process_group()
log("end")
