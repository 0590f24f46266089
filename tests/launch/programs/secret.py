"""Prints whether the launch's secret is equal on all ranks, and on no command line of this machine."""

import hashlib
import os
from pathlib import Path

import torch.distributed as dist

secret = os.environ["MPI_GDR_SECRET"]
dist.init_process_group("mpi-gdr")
seen = False
for file in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        seen = seen or secret.encode() in file.read_bytes()
    except OSError:
        continue  # it has ended
digests = [None] * dist.get_world_size()
dist.all_gather_object(digests, hashlib.sha256(secret.encode()).hexdigest())
print(f"{len(secret)} digits, {len(set(digests))} secret(s), on a command line: {seen}\n", end="")
dist.destroy_process_group()
