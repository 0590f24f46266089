"""Timeouts at the limits of timedelta."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.data import same

import mpi_backend

# 2**63 us are 106751991 days: a longer timedelta wraps in torch, before any backend gets it.
LONG = {
    "100 years": timedelta(days=36500),
    "2**63 ns": timedelta(days=106751, hours=23),
    "2**63 us": timedelta(days=106751991),
    "max": timedelta.max,
}


@pytest.mark.smoke
@pytest.mark.parametrize("timeout", LONG.values(), ids=LONG)
def test_long_timeouts_of_a_group(rank, size, timeout):
    group = dist.new_group(timeout=timeout)
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    dist.all_reduce(tensor, group=group, async_op=True).wait()
    dist.barrier(group)
    child = group.split_group(list(range(size)), timeout=timeout)
    child.allreduce([tensor]).wait()
    same(tensor, torch.full((3,), float(size**3)))
    if size > 1:
        receive = dist.irecv(tensor, (rank - 1) % size, group=group)
        dist.send(torch.full((3,), float(rank)), (rank + 1) % size, group=group)
        receive.wait()
        same(tensor, torch.full((3,), float((rank - 1) % size)))
    child.shutdown()
    dist.destroy_process_group(group)


@pytest.mark.parametrize("timeout", LONG.values(), ids=LONG)
def test_long_timeouts_of_calls(size, backend, timeout):
    tensor = torch.ones(3)
    assert dist.all_reduce(tensor, async_op=True).wait(timeout)
    options = dist.AllreduceOptions()
    options.timeout = timeout
    backend.allreduce([tensor], options).wait()
    same(tensor, torch.full((3,), float(size**2)))


@pytest.mark.parametrize("timeout", LONG.values(), ids=LONG)
def test_set_timeout(size, timeout):
    group = dist.new_group()
    group.set_timeout(timeout)
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group, async_op=True)
    group._wait_for_pending_works()
    same(tensor, torch.full((3,), float(size)))
    dist.destroy_process_group(group)


def test_timeout_of_options():
    """It applies if the caller gives c10d none; the options stay reusable."""
    options = mpi_backend.Options(timeout=timedelta(seconds=90))

    def timeout_of(**given):
        group = dist.new_group(pg_options=options, **given)
        found = group._get_backend(torch.device("cpu")).options._timeout
        dist.destroy_process_group(group)
        return found.total_seconds()

    assert timeout_of() == 90
    assert timeout_of(timeout=timedelta(seconds=80)) == 80
    assert timeout_of() == 90


@pytest.mark.parametrize("timeout", [timedelta(0), timedelta(seconds=-5), timedelta(microseconds=300)])
def test_a_timeout_below_1_ms_is_refused(timeout, backend):
    pattern = rf"a group's timeout={timeout.total_seconds():g} s, expected 1 ms or more"
    with pytest.raises(ValueError, match=pattern):
        dist.new_group(timeout=timeout)
    if timeout.microseconds == 0:  # torch passes whole milliseconds
        before = backend.options._timeout
        with pytest.raises(ValueError, match=pattern):
            dist.group.WORLD.set_timeout(timeout)
        assert backend.options._timeout == before
