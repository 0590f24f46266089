"""Rank 1 is killed after it destroyed its group; others initialise again. argv: a folder for file stores."""

import datetime
import os
import signal
import sys
import time

import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def begin(turn):
    store = f"file://{sys.argv[1]}/store{turn}"
    minute = datetime.timedelta(seconds=60)
    dist.init_process_group("mpi-gdr", init_method=store, rank=rank, world_size=size, timeout=minute)
    dist.barrier()


begin(0)
dist.destroy_process_group()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
start = time.monotonic()
try:
    begin(1)
except dist.DistError as error:
    print(f"after {time.monotonic() - start:.1f} s: {error}", flush=True)
