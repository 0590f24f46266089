"""torch.multiprocessing.spawn: no launcher, no variables; rank and size are arguments."""

import datetime
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, size, address, missing):
    if rank == missing:
        return
    seconds = 5 if missing >= 0 else 60
    where = {"init_method": address, "rank": rank, "world_size": size}
    dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=seconds), **where)
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    assert (tensor == size).all()
    dist.destroy_process_group()
    print(f"rank {rank} of {size} is done\n", end="", flush=True)


if __name__ == "__main__":
    mp.spawn(worker, (int(sys.argv[1]), sys.argv[2], int(sys.argv[3])), int(sys.argv[1]))
