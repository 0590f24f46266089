"""Random sequences of collectives of all types, on several streams and groups: NCCL's, ours, messages."""

import random

import pytest
import torch
import torch.distributed as dist
from support.gpu import DEVICE, DTYPES, check, inputs, late, reduced, streams, synchronize, use
from support.works import wait_all

Op = dist.ReduceOp


def issue(draw, rank, size, group, seed):
    """Calls a collective that all ranks draw; returns its Work, its output and what the output must be."""
    dtype, count = draw.choice([*DTYPES, torch.int16]), draw.choice([1, 1000, 20_000])
    op, is_async = Op.MAX if draw.random() < 0.2 and not dtype.is_complex else Op.SUM, draw.random() < 0.7
    everyone = inputs(dtype, size * count, size, seed)
    mine, block = everyone[rank].to(DEVICE), slice(rank * count, (rank + 1) * count)
    options, output = {"group": group, "async_op": is_async}, torch.ones_like(mine)
    match draw.randrange(6):
        case 0:
            return dist.all_reduce(mine, op, **options), mine, reduced(everyone, op)
        case 1:
            root = draw.randrange(size)
            return dist.broadcast(mine, root, **options), mine, everyone[root]
        case 2:
            expected = torch.cat([tensor[:count] for tensor in everyone])
            return dist.all_gather_into_tensor(output, mine[:count], **options), output, expected
        case 3:
            output = output[:count]
            work = dist.reduce_scatter_tensor(output, mine, op, **options)
            return work, output, reduced(everyone, op)[block]
        case 4:
            root = draw.randrange(size)
            expected = reduced(everyone, op) if rank == root else None
            return dist.reduce(mine, root, op, **options), mine, expected
        case _:
            expected = torch.cat([tensor[block] for tensor in everyone])
            return dist.all_to_all_single(output, mine, **options), output, expected


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mixed_types(rank, size, seed):
    draw, groups, sides = random.Random(seed), [None, dist.new_group()], streams(3)
    calls = []
    for number in range(12):
        with use(draw.choice(sides)):
            late(1, 0, milliseconds=draw.randrange(3))
            calls.append(issue(draw, rank, size, draw.choice(groups), 100 * seed + number))
    random.Random(seed + rank).shuffle(calls)  # each rank waits in another order
    wait_all(*(work for work, _, _ in calls))
    synchronize()
    for _, output, expected in calls:
        if expected is not None:
            check(output, expected)
    dist.destroy_process_group(groups[1])
