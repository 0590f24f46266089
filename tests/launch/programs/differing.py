"""Ranks that call different collectives concurrently, each pair on its own group. argv "last": only the last
call of the program differs."""

import datetime
import functools
import sys

import torch
import torch.distributed as dist
from calls import error_of

CALLS_BEFORE = 20  # after these many calls a group must find the difference


def uneven(group):
    """The same call on all ranks, though no two send the same counts."""
    send = [(rank + other) % 3 for other in range(size)]
    given, taken = torch.ones(sum(send)), torch.empty(sum(send))
    return dist.all_to_all_single(taken, given, send, send, group=group, async_op=True)


def scatter(group, root):
    parts = [torch.full((6,), float(rank))] * size if rank == root else None
    return dist.scatter(torch.empty(6), parts, root, group=group, async_op=True)


def differing(odd):
    """{name: call}; one rank passes `odd`."""
    ones, six, op = torch.ones(10), torch.arange(6.0), dist.ReduceOp.MAX if odd else dist.ReduceOp.SUM
    call = dist.all_reduce if odd else functools.partial(dist.broadcast, src=0)
    moved = {
        "broadcast, roots": lambda g: dist.broadcast(six, int(odd), group=g, async_op=True),
        "broadcast, int64": lambda g: dist.broadcast(six.long() if odd else six, 0, group=g, async_op=True),
        "broadcast, int32": lambda g: dist.broadcast(six.int() if odd else six, 0, group=g, async_op=True),
        "scatter, roots": lambda g: scatter(g, int(odd)),
    }
    if sys.argv[1:] == ["last"]:
        return {"broadcast, roots": moved["broadcast, roots"]}
    return moved | {
        "reduce, roots": lambda g: dist.reduce(six, int(odd), group=g, async_op=True),
        "sum, max": lambda g: dist.all_reduce(ones, op, group=g, async_op=True),
        "sizes": lambda g: dist.all_reduce(torch.ones(1000 + odd), group=g, async_op=True),
        "collectives": lambda g: call(ones, group=g, async_op=True),
    }


dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
cases = {"equal": uneven, **differing(rank == 1)}
groups = {name: dist.new_group() for name in cases}
for name, group in groups.items():
    if name not in ("sizes", "sum, max"):  # the others are in use already
        for work in [dist.all_reduce(torch.ones(3), group=group, async_op=True) for _ in range(3)]:
            work.wait()
if sys.argv[1:] == ["last"]:
    cases["broadcast, roots"](groups["broadcast, roots"]).wait()
    dist.destroy_process_group()
    sys.exit()

errors = {}
works = {name: call(groups[name]) for name, call in cases.items()}
for calls in range(1, CALLS_BEFORE + 1):
    for name, work in works.items():
        if (error := error_of(work.wait)) != "no error":
            errors[name] = f"{calls} calls: {error}"
    works = {}
    for name in cases.keys() - errors.keys():
        try:
            works[name] = dist.all_reduce(torch.ones(3), group=groups[name], async_op=True)
        except dist.DistBackendError as error:
            errors[name] = f"{calls} calls: {error}"
for name in cases:
    print(f"{name}: {errors.get(name, 'no error')}")
sys.stdout.flush()
dist.barrier()
dist.destroy_process_group()
