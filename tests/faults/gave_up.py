"""One rank of a job whose rank 1 fails in the group but continues: its program catches the exception.

Arguments: the folder for events, and
waiting     rank 1's wait times out, while the others wait for its message
mismatched  rank 0 broadcasts as root, which returns; rank 1 calls another collective
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


def give_up(mode: str) -> None:
    if mode == "waiting":
        time.sleep(1)  # the others are in their calls by then
        dist.all_reduce(torch.ones(3), async_op=True).wait(datetime.timedelta(seconds=0.5))
    else:
        dist.all_reduce(torch.ones(1000))


def need(mode: str) -> None:
    if mode == "waiting":
        dist.recv(torch.empty(3), 1)
    else:
        dist.broadcast(torch.ones(3), 0)
        log("returned")
        dist.all_reduce(torch.ones(3))


dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=60))
dist.barrier()
log("ready")
try:
    give_up(sys.argv[2]) if RANK == 1 else need(sys.argv[2])
except RuntimeError as error:
    log("error", kind=type(error).__name__, text=str(error))
while RANK == 1 and not (FOLDER / "stop").exists():
    time.sleep(0.1)
dist.destroy_process_group()
log("end")
