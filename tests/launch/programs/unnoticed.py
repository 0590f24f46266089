"""Three ranks, of which rank 1 diverges; all catch their errors and end as if they had succeeded.

argv: rank 1's action while the others are in an all_reduce. called: another collective; left: nothing."""

import datetime
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("mpi-gdr")
group = dist.new_group(timeout=datetime.timedelta(seconds=3))
dist.all_reduce(torch.ones(5), group=group)
try:
    if dist.get_rank() != 1:
        dist.all_reduce(torch.ones(1000), group=group)
    elif sys.argv[1] == "called":
        dist.broadcast(torch.ones(10), 1, group=group)
        dist.barrier(group=group)
    else:
        time.sleep(8)
except RuntimeError as error:
    print(f"rank {dist.get_rank()} caught: {error}", flush=True)
