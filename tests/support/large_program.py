"""More than 2^31 one-byte elements on two ranks: checks every received element and prints the passed checks.
Needs about 6 GiB of memory."""

import torch
import torch.distributed as dist

COUNT = 2**31 + 5
STEP = 2**24  # elements compared at once
PERIOD = 251  # a prime: exposes shifts by any power of two
ROW = (torch.arange(STEP + PERIOD) % PERIOD).to(torch.uint8)


def pattern(start, stop, rank):
    return ROW[start % PERIOD :][: stop - start] + rank


def fill(tensor, rank):
    for start in range(0, tensor.numel(), STEP):
        stop = min(start + STEP, tensor.numel())
        tensor[start:stop] = pattern(start, stop, rank)


def check(name, tensor, expected):
    for start in range(0, tensor.numel(), STEP):
        stop = min(start + STEP, tensor.numel())
        assert torch.equal(tensor[start:stop], expected(start, stop)), (name, start)
    print(f"{name} passed", flush=True)


dist.init_process_group("mpi-gdr")
rank, size = dist.get_rank(), dist.get_world_size()
tensor = torch.empty(COUNT, dtype=torch.uint8)
fill(tensor, rank)
dist.all_reduce(tensor)
check("all_reduce", tensor, lambda a, b: sum(pattern(a, b, r) for r in range(size)))
fill(tensor, rank)
dist.broadcast(tensor, size - 1)
check("broadcast", tensor, lambda a, b: pattern(a, b, size - 1))
fill(tensor, rank)
if rank == 0:
    dist.send(tensor, 1)
elif rank == 1:
    dist.recv(tensor, 0)
    check("recv", tensor, lambda a, b: pattern(a, b, 0))
dist.barrier()
dist.destroy_process_group()
