"""Uneven and large movement, a view, barriers. test_grid.py has dtypes, counts and roots."""

import os
import time

import pytest
import torch
import torch.distributed as dist
from support.data import noise, same
from support.works import wait_all

LARGE = (1 << 20) + 1


@pytest.mark.algorithms
@pytest.mark.parametrize("width", [1, 3])
def test_all_to_all_single_uneven(rank, size, width):
    def rows(source, target):  # some are zero, no two ranks have the same total
        return (source * 3 + target * 5) % 4 * (source + 1)

    sent = [rows(rank, r) for r in range(size)]
    received = [rows(r, rank) for r in range(size)]
    values = torch.arange(sum(sent) * width).view(-1, width) + 1000 * rank
    output = torch.empty(sum(received), width, dtype=values.dtype)
    if size > 1 and os.environ.get("MPI_GDR_ALLTOALL_ALGO") == "bruck":
        with pytest.raises(ValueError, match="algorithm bruck needs even splits on all ranks"):
            dist.all_to_all_single(output, values, received, sent)
        return
    dist.all_to_all_single(output, values, received, sent)
    expected = []
    for r in range(size):
        total = sum(rows(r, t) for t in range(size))
        theirs = torch.arange(total * width).view(-1, width) + 1000 * r
        first = sum(rows(r, t) for t in range(rank))
        expected.append(theirs[first : first + rows(r, rank)])
    same(output, torch.cat(expected))


def test_all_to_all_single_of_nothing(size):
    output = torch.empty(0)
    dist.all_to_all_single(output, torch.empty(0), [0] * size, [0] * size)
    assert output.numel() == 0


@pytest.mark.algorithms
def test_large(rank, size):
    tensor = noise(torch.float32, LARGE, rank)
    dist.broadcast(tensor, size - 1)
    same(tensor, noise(torch.float32, LARGE, size - 1))
    output = torch.empty(size * LARGE)
    dist.all_gather_into_tensor(output, noise(torch.float32, LARGE, rank))
    same(output, torch.cat([noise(torch.float32, LARGE, r) for r in range(size)]))


def test_a_view_leaves_its_neighbours_alone(rank, size):
    base = torch.full((10, 10), -1.0)
    view = base[2:5, 3:7]
    view.fill_(rank + 1)
    dist.all_reduce(view)
    expected = torch.full((10, 10), -1.0)
    expected[2:5, 3:7] = size * (size + 1) / 2
    same(base, expected)


@pytest.mark.algorithms
@pytest.mark.smoke
def test_barrier_waits_for_all_ranks(rank, size):
    """No rank leaves a barrier before the last has arrived, by the host's common clock."""

    def of_all(moment):
        moments = [None] * size
        dist.all_gather_object(moments, moment)
        return moments

    for late in range(size):
        if rank == late:
            time.sleep(0.05)
        came = time.monotonic_ns()
        dist.barrier()
        left = time.monotonic_ns()
        assert max(of_all(came)) <= min(of_all(left))


def test_barrier_async(size):
    works = [dist.barrier(async_op=True) for _ in range(20)]
    wait_all(*reversed(works))
    assert all(work.is_completed() for work in works)
