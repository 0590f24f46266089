"""`idle_program.py FOLDER`: rank 0 sends a message, then sleeps outside MPI while the message may still be in
a buffer. Rank 1 prints whether the message arrived during the sleep. Both count their mpigdr-idle threads."""

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

SECONDS = 1.5


def threads():
    return [p.read_text().strip() for p in Path("/proc/self/task").glob("*/comm")].count("mpigdr-idle")


dist.init_process_group("mpi-gdr", timeout=timedelta(seconds=20))
rank, awake = dist.get_rank(), Path(sys.argv[1]) / "awake"
before = threads()
if rank == 0:
    dist.send(torch.ones(1), 1)
    time.sleep(SECONDS)
    awake.touch()
else:
    dist.recv(torch.ones(1), 0)
    print("received", "late" if awake.exists() else "in time", flush=True)
print(f"threads: {before} before, {threads()} after a message\n", end="", flush=True)
dist.destroy_process_group()
