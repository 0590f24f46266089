"""Strided tensors, memory of both kinds in one group, and wrong use."""

import contextlib
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.gpu import DEVICE, check, check_group
from support.works import wait_all

import mpi_backend


def total(size):
    return float(sum(range(size)))


@pytest.mark.parametrize("is_async", [False, True])
def test_tensors_that_are_not_contiguous(rank, size, is_async):
    base = torch.full((60, 50), float(rank), device=DEVICE)
    views = [base.t(), base[::2], base[:, 3:17], base.view(3, 20, 50)[1].t()[::3]]
    for view in views:
        base.fill_(rank)
        work = dist.all_reduce(view, async_op=is_async)
        wait_all(work)
        check(view, torch.full(view.shape, total(size)))
        assert int((base == total(size)).sum()) >= view.numel()
        outputs = [torch.zeros(view.shape[::-1], device=DEVICE).t() for _ in range(size)]  # all have 2 dims
        dist.all_gather(outputs, view)
        for output in outputs:
            check(output, torch.full(view.shape, total(size)))


def test_what_lies_beside_a_view_stays(rank, size):
    base = torch.full((10, 10), -1.0, device=DEVICE)
    base[2:5, 3:6] = rank
    dist.all_reduce(base[2:5, 3:6])
    expected = torch.full((10, 10), -1.0)
    expected[2:5, 3:6] = total(size)
    check(base, expected)


def test_tensors_at_odd_addresses(rank, size):
    base = torch.zeros(1001, dtype=torch.float16, device=DEVICE)
    base[1:] = rank
    dist.all_reduce(base[1:])
    check(base, torch.tensor([0.0] + 1000 * [total(size)], dtype=torch.float16))


def test_group_memory_beside_tensors_of_the_device(rank, size):
    for _ in range(5):
        shared = mpi_backend.empty(5000).fill_(rank)
        tensors = [torch.full((5000,), rank + i, device=DEVICE).float() for i in range(2)]
        wait_all(*[dist.all_reduce(t, async_op=True) for t in (tensors[0], shared, tensors[1])])
        assert (shared == total(size)).all()
        for i, tensor in enumerate(tensors):
            check(tensor, torch.full((5000,), total(size) + i * size))


def test_sub_groups(rank, size):
    for members in (range(0, size, 2), range((size + 1) // 2)):
        group = dist.new_group(list(members))
        tensor = torch.full((3000,), float(rank), device=DEVICE)
        if rank in members:
            dist.all_reduce(tensor, group=group)
        check(tensor, torch.full((3000,), float(sum(members) if rank in members else rank)))


@pytest.mark.simulated
@pytest.mark.skipif("FAKECUDA_BYTES" not in os.environ, reason="simulated only, on a GPU with little memory")
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("everywhere", [True, False])
def test_a_group_takes_memory_from_the_cache_of_torch(rank, size, everywhere, cached):
    group = dist.new_group()
    tensor = ones(10)
    blocks = []
    if everywhere or rank == 0:
        with contextlib.suppress(torch.OutOfMemoryError):
            while True:
                blocks.append(torch.empty(16 << 20, dtype=torch.uint8, device=DEVICE))
        if cached:
            blocks.clear()
    dist.all_reduce(tensor, group=group)
    check(tensor, torch.full((10,), float(size)))
    log = Path(os.environ["MPI_GDR_DEBUG_FILE"].replace("%p", str(os.getpid()))).read_text()
    reason = "no memory for" if everywhere or rank == 0 else "rank 0 has no device memory"
    expected = "devices share staging memory" if cached else f"devices share no memory: {reason}"
    if "libnccl" in os.environ.get("LD_PRELOAD", ""):
        does = "NCCL 2.27.3 carries collectives"
        expected = does if cached else "collectives do not use NCCL: rank 0: no memory for"
    assert f"group {group.group_name}: {expected}" in log
    del blocks, tensor
    torch.simgpu.empty_cache()
    dist.destroy_process_group(group)


# ---- wrong use: an error on this rank, and nothing else ----------------------------------------------------


def ones(count, dtype=torch.float32, device=DEVICE):
    return torch.ones(count, dtype=dtype, device=device)


WRONG = {
    "dtypes differ": lambda n: dist.all_gather_into_tensor(ones(3 * n, torch.float64), ones(3)),
    "dtypes differ in a list": lambda n: dist.all_gather([ones(3, torch.int32)] * n, ones(3)),
    "too small": lambda n: dist.all_gather_into_tensor(ones(3 * n - 1), ones(3)),
    "not divisible": lambda n: dist.reduce_scatter_tensor(ones(3), ones(3 * n + 1)),
    "too many tensors": lambda n: dist.all_gather([ones(3)] * (n + 1), ones(3)),
    "splits": lambda n: dist.all_to_all_single(ones(3 * n), ones(3 * n), [4] * n, [3] * n),
    "operation": lambda n: dist.all_reduce(ones(3), dist.ReduceOp.BAND),
    "expanded": lambda n: dist.all_reduce(ones(1).expand(5)),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_use(size, what):
    with pytest.raises((ValueError, RuntimeError, TypeError)):
        WRONG[what](size)
    check_group(size)


@pytest.mark.streams
def test_tensors_of_two_devices(size):
    with pytest.raises((ValueError, RuntimeError), match=r"cpu|CPU"):
        dist.all_gather_into_tensor(ones(3 * size), ones(3, device="cpu"))
    check_group(size)
