"""MPI_GDR_AS=gloo: a program that names Gloo."""

import datetime

import pytest
import torch
import torch.distributed as dist

BACKEND = "gloo"


def backend_of(group=None):
    return (group or dist.group.WORLD)._get_backend(torch.device("cpu"))


def test_names(size):
    assert dist.get_backend() == "gloo"
    assert backend_of().name() == "mpi-gdr"
    total = torch.ones(3)
    dist.all_reduce(total)
    assert total.eq(size).all()


@pytest.mark.parametrize("name", ["gloo", "cpu:gloo", "cpu:gloo,cuda:gloo", None])
def test_groups(name, size):
    group = dist.new_group(backend=name)
    assert backend_of(group).name() == "mpi-gdr"
    objects = [None] * size
    dist.all_gather_object(objects, "x", group=group)
    assert objects == ["x"] * size
    dist.monitored_barrier(group)
    dist.destroy_process_group(group)


def test_options_of_gloo():
    """Its threads and interfaces are ignored; the timeout applies."""
    options = dist.ProcessGroupGloo._Options()
    options._timeout = datetime.timedelta(seconds=7)
    group = dist.new_group(backend="gloo", pg_options=options, timeout=datetime.timedelta(seconds=7))
    assert backend_of(group).options._timeout == datetime.timedelta(seconds=7)
    dist.barrier(group)
    dist.destroy_process_group(group)


def test_gloo_itself_is_still_there(rank, size):
    """By its class, as torch's RPC creates it."""
    store = dist.PrefixStore("own", dist.distributed_c10d._get_default_store())
    own = dist.ProcessGroupGloo(store, rank, size, datetime.timedelta(seconds=30))
    total = torch.ones(1)
    own.allreduce([total]).wait()
    assert total.item() == size
