"""One of two ranks, whose calls are recorded by trace.cpp: python rank.py FOLDER"""

import ctypes
import sys
from pathlib import Path

import torch
import torch.distributed as dist

folder = Path(sys.argv[1])
hooks = ctypes.CDLL(None)
dist.init_process_group("mpi-gdr")
rank = dist.get_rank()
small, blocks = torch.ones(2), [torch.ones(2), torch.ones(2)]


def exchange():
    peer = 1 - rank
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, blocks[0], peer), dist.P2POp(dist.irecv, blocks[1], peer)]
    )
    for work in works:
        work.wait()


calls = {
    "all_reduce": lambda: dist.all_reduce(small),
    "all_to_all": lambda: dist.all_to_all_single(torch.empty(2), small),
    "new_group": lambda: dist.new_group([0, 1]),
    "batch_isend_irecv": exchange,
}
for name, call in calls.items():
    call()  # the first call of a kind also sets up
    dist.barrier()
    hooks.mpi_gdr_calls_begin()
    call()
    hooks.mpi_gdr_calls_end(str(folder / f"{name}.{rank}").encode())
dist.destroy_process_group()
