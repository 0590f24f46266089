"""Ends of the default group. Sorted last, because it destroys the group of all other tests."""

import datetime

import pytest
import torch
import torch.distributed as dist
from support.data import check_sum, same

pytestmark = [pytest.mark.smoke, pytest.mark.algorithms]


def test_destroy_and_initialise_again(size):
    """As in the fixture: same launch and environment, another group."""
    for _ in range(3):
        pending = torch.ones(10)
        dist.all_reduce(pending, async_op=True)
        dist.barrier()
        dist.destroy_process_group()
        assert not dist.is_initialized()
        dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=45))
        assert dist.get_world_size() == size
        check_sum(size)


def test_other_spellings(size):
    for spelling in ("MPI-GDR", "cpu:mpi-gdr", "cpu:mpi-gdr,cuda:mpi-gdr"):
        dist.destroy_process_group()
        dist.init_process_group(spelling)
        check_sum(size)
        if spelling != "cpu:mpi-gdr":
            assert dist.group.WORLD.name() == "custom"


def test_gloo_as_default_group_beside_ours(size):
    dist.destroy_process_group()
    dist.init_process_group("gloo")
    ours = dist.new_group(backend="mpi-gdr")
    tensor = torch.ones(10)
    dist.all_reduce(tensor, group=ours)
    dist.all_reduce(tensor)
    same(tensor, torch.full((10,), float(size) ** 2))
