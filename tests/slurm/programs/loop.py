"""A rank that works until its job ends. The argument: rank 1's action after some rounds, or "none".

In a job's first run; a run that Slurm has requeued works for a while and ends. A working rank creates a file
with its number in its home's folder ready0, in the second run in ready1.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

FAULT = sys.argv[1]
RUN = os.environ.get("SLURM_RESTART_COUNT", "0")
SECONDS = 200  # for the job to be ended


def strike() -> None:
    if FAULT == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "raise":
        raise ArithmeticError("loss is not finite")


dist.init_process_group("mpi-gdr")
rank, size = dist.get_rank(), dist.get_world_size()
folder = Path(os.environ["HOME"]) / f"ready{RUN}"
until = time.monotonic() + (SECONDS if RUN == "0" else 1)
number, going = 0, torch.ones(1)
try:
    while going:
        going = torch.tensor([float(time.monotonic() < until)])
        dist.all_reduce(going, dist.ReduceOp.MIN)
        if number == 3:
            folder.mkdir(exist_ok=True)
            (folder / str(rank)).touch()
        if number == 10 and rank == 1:
            strike()
        number += 1
        time.sleep(0.05)
except Exception as error:
    print(f"rank {rank} on {socket.gethostname()}: {type(error).__name__}: {error}", flush=True)
    raise
dist.destroy_process_group()
print(f"rank {rank} has ended well")
