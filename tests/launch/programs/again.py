"""A process that initialises again, with permuted ranks each time. argv: "env", or a file stores' folder."""

import os
import sys

import torch
import torch.distributed as dist

first, size = 0, 0
for turn in range(3):
    options = {}
    if turn > 0:
        options = {"rank": (first + 1) % size if turn == 1 else size - 1 - first, "world_size": size}
        if sys.argv[1] != "env":
            options["init_method"] = f"file://{sys.argv[1]}/store{turn}"
    dist.init_process_group("mpi-gdr", **options)
    if turn == 0:
        first, size = dist.get_rank(), dist.get_world_size()
    rank = dist.get_rank()
    assert rank == options.get("rank", first)
    everyone = torch.empty(size, 2, dtype=torch.int64)
    dist.all_gather_into_tensor(everyone.view(-1), torch.tensor([rank, os.getpid()]))
    assert everyone[:, 0].tolist() == list(range(size)) and everyone[rank, 1] == os.getpid(), everyone
    total = torch.arange(1000.0) * rank
    dist.all_reduce(total)
    assert (total == torch.arange(1000.0) * (size * (size - 1) / 2)).all()
    for root in range(size):
        data = torch.full((3,), float(rank))
        dist.broadcast(data, root)
        assert (data == root).all()
    received = torch.empty(1)
    send = dist.isend(torch.tensor([float(rank)]), (rank + 1) % size)
    dist.irecv(received, (rank - 1) % size).wait()
    send.wait()
    assert received == (rank - 1) % size
    group = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        data = torch.ones(1)
        dist.all_reduce(data, group=group)
        assert data == 2
    dist.destroy_process_group()
print("is done")
