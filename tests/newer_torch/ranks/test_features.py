"""Virtual functions of c10d::Backend missing in torch 2.11."""

import datetime
import time

import pytest
import torch
import torch.distributed as dist
from support.processes import wait_until

BACKEND = "mpi-gdr"
TWO_SECONDS = datetime.timedelta(seconds=2)


def test_gather_single(rank, size):
    for root in range(size):
        gathered = torch.zeros(size, 3) if rank == root else None
        dist.gather_single(torch.full((3,), float(rank)), gathered, dst=root)
        if rank == root:
            assert torch.equal(gathered, torch.arange(float(size)).repeat_interleave(3).view(size, 3))


def test_gather_single_in_place(rank, size):
    gathered = torch.full((size * 2,), -1.0)
    own = gathered[rank * 2 : rank * 2 + 2].fill_(float(rank))
    dist.gather_single(own, gathered if rank == 0 else None, dst=0)
    if rank == 0:
        assert torch.equal(gathered, torch.arange(float(size)).repeat_interleave(2))


def test_gather_single_explains_its_errors(rank, size):
    """On the erring rank, before anything is sent."""
    group = dist.new_group()
    sentence = r"gather_single: gather_tensor is float32\[5\] with 5 elements, expected"
    if rank == 0:
        with pytest.raises(ValueError, match=sentence):
            dist.gather_single(torch.ones(4), torch.ones(5), dst=0, group=group)
    dist.gather_single(torch.ones(1), torch.ones(size) if rank == 0 else None, dst=0, group=group)
    dist.destroy_process_group(group)


def test_singles(rank, size):
    """torch's new names, to which the older ones forward."""
    ones = torch.ones(size)
    gathered, part, exchanged = torch.zeros(size), torch.zeros(1), torch.zeros(size)
    dist.all_gather_single(gathered, torch.full((1,), float(rank)))
    dist.reduce_scatter_single(part, ones)
    dist.all_to_all_single(exchanged, torch.full((size,), float(rank)))
    assert torch.equal(gathered, torch.arange(float(size)))
    assert part.item() == size
    assert torch.equal(exchanged, torch.arange(float(size)))


def test_an_ephemeral_timeout_ends_with_the_first_operation(rank, size):
    group = dist.new_group(timeout=TWO_SECONDS)
    group._add_ephemeral_timeout(datetime.timedelta(seconds=20))
    if rank == 1:
        time.sleep(3)
    dist.all_reduce(torch.ones(1), group=group)
    if rank == 1:
        time.sleep(3)
    else:
        with pytest.raises(dist.DistBackendError, match=r"its timeout is 2 s|failed"):
            dist.all_reduce(torch.ones(1), group=group)
    dist.distributed_c10d._abort_process_group(group)


def test_an_abort_hook_is_called_on_a_failure(rank, size):
    group, calls, taken_back = dist.new_group(timeout=TWO_SECONDS), [], []
    group.register_abort_hook(7, lambda: calls.append(rank))
    group.register_abort_hook(8, lambda: taken_back.append(rank))
    group.unregister_abort_hook(8)
    dist.all_reduce(torch.ones(1), group=group)
    assert not calls
    if rank != 1:
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(1), group=group)
        assert wait_until(lambda: calls, 10)
    else:
        time.sleep(3)
    assert not taken_back
    dist.distributed_c10d._abort_process_group(group)


def test_an_abort_hook_is_called_on_an_abort(rank):
    group, calls = dist.new_group(), []
    group.register_abort_hook(1, lambda: calls.append(rank))
    group.abort()
    dist.distributed_c10d._abort_process_group(group)
    time.sleep(0.5)  # the failure that follows calls hooks on another thread
    assert calls == [rank]


def test_a_monitored_barrier_names_who_is_missing(rank, size):
    dist.monitored_barrier()
    group = dist.new_group()
    dist.monitored_barrier(group)
    missing = size - 1
    if rank == missing:
        time.sleep(3)
    else:
        with pytest.raises(dist.DistBackendError, match=f"waiting for rank {missing}|failed"):
            dist.monitored_barrier(group, timeout=TWO_SECONDS, wait_all_ranks=True)
    dist.distributed_c10d._abort_process_group(group)
