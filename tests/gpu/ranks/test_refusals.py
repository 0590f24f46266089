"""A device that accepts a part of a collective and refuses the rest, as the simulated accelerator can."""

import datetime
import os
import re

import pytest
import torch
import torch.distributed as dist
from support.gpu import DEVICE, ON_SIMGPU, captured, check, check_group, new_graph, streams, synchronize

pytestmark = pytest.mark.simulated
if ON_SIMGPU:
    from fakecuda import simgpu

REFUSED = "unknown error|unhandled cuda error"  # cudaErrorUnknown; as NCCL reports it


def ones(count=1000):
    return torch.ones(count, device=DEVICE)


@pytest.mark.ranks(2)  # too few submissions for a refusal half way
def test_the_completion_hook_is_called_once(size):
    group = dist.new_group(timeout=datetime.timedelta(seconds=10))
    ended = []
    group._register_on_completion_hook(ended.append)
    tensor = ones()
    dist.all_reduce(tensor, group=group)
    check(tensor, torch.full((1000,), float(size)))
    group._wait_for_pending_works()
    assert len(ended) == 1
    dist.barrier()  # all have their first result before the group fails
    simgpu.refuse_after(5)
    with pytest.raises(RuntimeError, match=f"the device refused its part: .*({REFUSED})"):
        dist.all_reduce(tensor, group=group)
    simgpu.refuse_after(-1)
    group._wait_for_pending_works()  # until its timeout if the count is wrong
    assert len(ended) == 2
    with pytest.raises(RuntimeError, match="the group failed earlier"):
        dist.all_reduce(tensor, group=group)
    synchronize()
    check_group(size)  # another one


class Stop(Exception):
    """Leaves a capture that was refused half way and cannot be ended."""


def given_out_again(submissions, stream):
    """Captures an all_reduce of a tensor that needs a contiguous copy; the device refuses after
    `submissions`. Returns whether the next tensor gets the copy's memory; None: not refused."""
    strided = ones(2000)[::2]
    again = None
    try:
        with captured(new_graph(), stream):
            simgpu.refuse_after(submissions)
            try:
                dist.all_reduce(strided)
            except RuntimeError as error:
                assert re.search(REFUSED, str(error))
                simgpu.refuse_after(-1)
                before = simgpu.allocations().reused
                torch.empty(1000, device=DEVICE)
                again = simgpu.allocations().reused > before
            raise Stop
    except Stop:
        return again
    finally:
        simgpu.refuse_after(-1)


def test_what_was_captured_of_it_keeps_its_memory(size):
    if os.environ.get("MPI_GDR_IPC") == "off" or size == 1:
        return  # messages are not captured, a single rank captures a copy only
    dist.all_reduce(ones())
    synchronize()
    early, late = [], []
    for stream in streams(2):
        seen = []
        while (again := given_out_again(len(seen), stream)) is not None:
            seen.append(again)
        assert len(seen) > 5
        early.append(seen[0])
        late.append(any(seen[3:-1]))
    # At first only the copy is captured; at the last submission, torch's second wait, all is joined. One of
    # the streams may be the capture stream of collectives, whose later work is ordered after them.
    assert all(early) and not all(late), (early, late)
    dist.barrier()
