"""One rank of a healthy job: checked sums at mpi-gdr's defaults, until the argument's folder has a file
"stop"; pauses between rounds while it has "compute". Catches nothing; writes events there as JSON lines."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from event_log import Log, shared_memory

FOLDER, RANK = Path(sys.argv[1]), int(os.environ["RANK"])
log = Log(FOLDER, RANK)
PAUSE, REPORT = 0.02, 0.2  # seconds


dist.init_process_group("mpi-gdr")
size = dist.get_world_size()
number, reported, asked = 0, 0.0, False
while not asked:
    tensor = torch.full((1000,), float(number % 1000 + RANK))
    tensor[-1] = (FOLDER / "stop").exists()  # in the sum, so that all ranks stop in the same round
    dist.all_reduce(tensor)
    asked = tensor[-1] > 0
    if not (tensor[:-1] == size * (number % 1000) + size * (size - 1) / 2).all():
        log("wrong", number=number)
    number += 1
    if time.monotonic() > reported + REPORT:
        reported = time.monotonic()
        log("round", number=number)
    if number == 3:
        log("ready", names=shared_memory())
    time.sleep(PAUSE)
    while (FOLDER / "compute").exists():  # sends nothing
        time.sleep(PAUSE)
dist.destroy_process_group()
log("end")
