"""NCCL inside a node, by the software NCCL (tests/fakecuda/nccl), which counts its calls."""

import ctypes
import math
import os

import pytest
import torch
import torch.distributed as dist
from support.gpu import DEVICE, check

PRELOADED = "libnccl.so.2" in os.environ.get("LD_PRELOAD", "")
pytestmark = [
    pytest.mark.simulated,
    pytest.mark.skipif(
        not PRELOADED or "MPI_GDR_RANKS_PER_NODE" in os.environ, reason="simulated only, with NCCL"
    ),
]


def calls(name):
    count = ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD).fakenccl_count
    count.restype = ctypes.c_uint64
    return count(name.encode())


def full(value, count=1000, dtype=torch.float32):
    return torch.full((count,), value, dtype=dtype, device=DEVICE)


def every_collective(rank, size):
    """Runs each on 8 B and on 5 MiB; returns the number of calls of NCCL that they make."""
    for count in (2, 5 << 18):
        dist.all_reduce(full(1, count))
        dist.reduce(full(1, count), 0)
        dist.broadcast(full(1, count), size - 1)
        dist.all_gather_into_tensor(full(1, size * count), full(1, count))
        dist.reduce_scatter_tensor(full(1, count), full(1, size * count))
        dist.all_to_all_single(full(1, size * count), full(1, size * count))
        dist.gather(full(1, count), [full(0, count) for _ in range(size)] if rank == 0 else None)
        dist.scatter(full(0, count), [full(1, count)] * size if rank == 0 else None)
    return {
        name: 2
        for name in ("ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclAllGather", "ncclReduceScatter")
    }


def test_each_collective_is_one_call_and_connects_nothing(rank, size):
    group = dist.new_group()
    dist.all_reduce(full(1), group=group)
    dist.all_reduce(full(1))
    before = {name: calls(name) for name in ("ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclAllGather")}
    connects, sent = calls("connects"), calls("ncclSend")
    expected = every_collective(rank, size)
    for name, count in before.items():
        assert calls(name) - count == expected[name], name
    assert calls("connects") == connects
    # all_to_all: to all ranks; gather: one, scatter: of the root to all; with itself
    assert calls("ncclSend") - sent == 2 * (size + 1 + (size if rank == 0 else 0))


def test_what_nccl_does_not_have_is_ours(size):
    dist.all_reduce(full(1))
    before = calls("ncclAllReduce")
    tensor = full(1, dtype=torch.int16)
    dist.all_reduce(tensor)
    check(tensor, torch.full((1000,), size, dtype=torch.int16))
    tensor = full(math.nan)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)  # NCCL's ignores NaN
    assert bool(tensor.cpu().isnan().all())
    assert calls("ncclAllReduce") == before
    dist.all_reduce(tensor := full(1))
    check(tensor, torch.full((1000,), float(size)))
    assert calls("ncclAllReduce") == before + 1


def test_a_type_of_ours_after_calls_of_nccl(size):
    group = dist.new_group()
    dist.all_reduce(full(1), group=group)
    dist.all_reduce(tensor := full(1, dtype=torch.int16), group=group)
    check(tensor, torch.full((1000,), size, dtype=torch.int16))


def test_calls_of_both_in_one_block(size):
    tensors = [full(1), full(1, dtype=torch.int16), full(2)]
    with dist._coalescing_manager(device=DEVICE, async_ops=True) as block:
        for tensor in tensors:
            dist.all_reduce(tensor)
    block.wait()
    for tensor, value in zip(tensors, (size, size, 2 * size), strict=True):
        check(tensor, torch.full((1000,), value, dtype=tensor.dtype))


def test_premultiplied_sums(size):
    dist.all_reduce(tensor := full(3), op=dist._make_nccl_premul_sum(0.5))
    check(tensor, torch.full((1000,), 1.5 * size))
