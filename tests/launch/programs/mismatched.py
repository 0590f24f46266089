"""Three ranks that call different collectives; each pair of calls fails its own group."""

import datetime
import os
import sys

import torch
import torch.distributed as dist
from calls import error_of

dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
ten = torch.ones(10)


def uneven(group):
    send = [1, 1, 1] if rank else [1, 1, 2]
    dist.all_to_all_single(torch.empty(3), torch.ones(sum(send)), [1, 1, 1], send, group=group)


def coalesced(group):
    with dist._coalescing_manager(group=group, async_ops=True) as block:
        for i in range(3):
            dist.all_reduce(torch.ones(4 if (rank, i) == (1, 1) else 3), group=group)
    block.wait()


CASES = {
    "operation": lambda g: dist.all_reduce(ten, group=g) if rank < 2 else dist.broadcast(ten, 0, group=g),
    "count": lambda g: dist.all_reduce(torch.ones(10 + (rank == 1)), group=g),
    "dtype": lambda g: dist.all_reduce(ten if rank else ten.int(), group=g),
    "moved": lambda g: dist.broadcast(ten if rank else ten.int(), 0, group=g),
    "root": lambda g: dist.broadcast(ten, 1 if rank == 2 else 0, group=g),
    "op": lambda g: dist.all_reduce(ten, dist.ReduceOp.MAX if rank == 2 else dist.ReduceOp.SUM, group=g),
    "async": lambda g: dist.all_reduce(torch.ones(10 + rank), group=g, async_op=True).wait(),
    "splits": uneven,
    "coalesced": coalesced,
}

for name, call in CASES.items():
    group = dist.new_group(timeout=datetime.timedelta(seconds=30))
    dist.all_reduce(torch.ones(2), group=group)  # matching calls succeed
    print(f"{name}: {error_of(lambda: call(group))}")  # noqa: B023
    print(f"{name} then: {error_of(lambda: dist.all_reduce(torch.ones(2), group=group))}")  # noqa: B023

group = dist.new_group(timeout=datetime.timedelta(seconds=2))
if rank != 1:
    print("nothing:", error_of(lambda: dist.all_reduce(ten, group=group)))
tensor = torch.ones(3)
dist.all_reduce(tensor)
print("others:", tensor.tolist())
sys.stdout.flush()
dist.barrier()
os._exit(0)
