"""Rank 0 catches an error of its own and ends long before rank 1, with the status in argv."""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("mpi-gdr")
rank = dist.get_rank()
group = dist.new_group()
if rank == 0:
    work = group.recv([torch.empty(3)], 1, 0)  # no rank sends
    group._get_backend(torch.device("cpu")).abort()
    try:
        work.wait()
    except dist.DistBackendError:
        print("caught", flush=True)
dist.destroy_process_group()
status = int(sys.argv[1])
if rank == 1:
    time.sleep(60 if status else 3)
    print("rank 1 has saved its results", flush=True)
else:
    sys.exit(status)
