"""Works without end. argv: a folder for a file that is written anew in each round."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("mpi-gdr")
while True:
    dist.all_reduce(torch.ones(1))
    (Path(sys.argv[1]) / f"ready{dist.get_rank()}").touch()
    time.sleep(0.02)
