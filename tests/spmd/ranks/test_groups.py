"""Subgroups: overlapping, in opposite orders, created asymmetrically, destroyed and recreated."""

import copy
import inspect
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.data import same
from support.works import in_threads
from torch.distributed.device_mesh import init_device_mesh

import mpi_backend


def total(group_ranks):
    return float(sum(group_ranks))


def all_reduce(rank, group, **arguments):
    tensor = torch.full((50,), float(rank))
    return tensor, dist.all_reduce(tensor, group=group, **arguments)


@pytest.mark.smoke
def test_subgroups_of_every_size(rank, size):
    for first in range(size):
        members = list(range(first, size))
        group = dist.new_group(members)
        if rank in members:
            tensor, _ = all_reduce(rank, group)
            same(tensor, torch.full((50,), total(members)))
            root = torch.tensor([rank])
            dist.broadcast(root, members[-1], group=group)
            assert root.item() == members[-1]
            dist.barrier(group=group)
            dist.destroy_process_group(group)


def test_group_with_ranks_in_another_order(rank, size):
    members = list(reversed(range(size)))
    has_sort_ranks = "sort_ranks" in inspect.signature(dist.new_group).parameters
    group = dist.new_group(members, **({"sort_ranks": False} if has_sort_ranks else {}))
    gathered = [None] * size
    dist.all_gather_object(gathered, dist.get_rank(group), group=group)
    assert gathered == list(range(size))
    dist.destroy_process_group(group)


@pytest.mark.smoke
def test_async_operations_in_opposite_orders(rank, size):
    """Even ranks issue on group a first, odd ones on b: legal, since groups never wait for each other."""
    a, b = dist.new_group(), dist.new_group()
    for _ in range(10):
        order = [a, b] if rank % 2 == 0 else [b, a]
        results = [all_reduce(rank, group, async_op=True) for group in order]
        for tensor, work in results:
            work.wait()
            same(tensor, torch.full((50,), total(range(size))))
    dist.destroy_process_group(a)
    dist.destroy_process_group(b)


@pytest.mark.smoke
def test_blocking_operations_in_opposite_orders_from_two_threads(rank, size):
    a, b = dist.new_group(), dist.new_group()
    first, second = [a, b] if rank % 2 == 0 else [b, a]
    first_started = threading.Event()

    def work(group):
        first_started.set() if group is first else first_started.wait()
        for _ in range(10):
            tensor, _ = all_reduce(rank, group)
            same(tensor, torch.full((50,), total(range(size))))

    in_threads(work, [first, second])
    dist.destroy_process_group(a)
    dist.destroy_process_group(b)


@pytest.mark.smoke
def test_many_groups_made_and_destroyed(rank, size):
    """MPI has few communicator ids (about 2,000 in MPICH), which must be returned."""
    for _ in range(40):
        group = dist.new_group()
        tensor, _ = all_reduce(rank, group)
        same(tensor, torch.full((50,), total(range(size))))
        dist.destroy_process_group(group)


def test_destroying_a_group_ends_its_outstanding_operations(rank, size):
    group = dist.new_group()
    tensor, _ = all_reduce(rank, group, async_op=True)
    dist.destroy_process_group(group)
    same(tensor, torch.full((50,), total(range(size))))


def test_sequence_numbers(size):
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    before = backend._get_sequence_number_for_group()
    for _ in range(5):
        dist.all_reduce(torch.ones(2), group=group)
    with dist._coalescing_manager(group):
        dist.all_reduce(torch.ones(2), group=group)
        dist.all_reduce(torch.ones(2), group=group)
    assert backend._get_sequence_number_for_group() == before + 7
    dist.destroy_process_group(group)


def test_options_are_copied_and_accepted(size):
    options = mpi_backend.Options()
    options._timeout = timedelta(seconds=12)
    for copied in (copy.copy(options), copy.deepcopy(options)):
        assert type(copied) is type(options)
        assert copied._timeout == timedelta(seconds=12)
    copied._timeout = timedelta(seconds=1)
    assert options._timeout == timedelta(seconds=12)
    group = dist.new_group(pg_options=options, timeout=timedelta(seconds=30))
    assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=30)
    dist.destroy_process_group(group)
    with pytest.raises(TypeError, match=r"pg_options is a builtins\.dict.*mpi_backend\.Options"):
        dist.new_group(pg_options={"timeout": 3})


def test_device_mesh(rank, size):
    if size != 4:
        return
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    for name, members in (("a", [rank % 2, rank % 2 + 2]), ("b", [rank // 2 * 2, rank // 2 * 2 + 1])):
        tensor, _ = all_reduce(rank, mesh.get_group(name))
        same(tensor, torch.full((50,), total(members)))
