"""Groups lost by an error or by abort(); the others continue. Run apart."""

import os
import sys

import torch
import torch.distributed as dist
from calls import error_of

dist.init_process_group("mpi-gdr")
rank = dist.get_rank()


group = dist.new_group()
if rank == 0:
    dist.send(torch.ones(4), 1, group=group)
else:
    print("length:", error_of(lambda: dist.recv(torch.ones(10), 0, group=group)))
    print("after length:", error_of(lambda: dist.all_reduce(torch.ones(1), group=group)))

group = dist.new_group()
group._get_backend(torch.device("cpu")).abort()
print("aborted:", error_of(lambda: dist.all_reduce(torch.ones(1), group=group)))

tensor = torch.ones(3)
dist.all_reduce(tensor)
print("others:", tensor.tolist())
sys.stdout.flush()
dist.barrier()
os._exit(0)
