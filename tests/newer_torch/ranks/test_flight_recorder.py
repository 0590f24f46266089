"""torch 2.15 attaches its flight recorder to groups of every backend."""

import datetime
import json
import time

import pytest
import torch
import torch.distributed as dist
from support.processes import wait_until
from support.works import wait_all

BACKEND = "mpi-gdr"


def states(group):
    entries = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(backend=BACKEND))["entries"]
    return [entry["state"] for entry in entries if entry["process_group"][0] == group.group_name]


def test_it_sees_what_has_ended_and_what_has_not(rank):
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    dist.all_reduce(torch.ones(4), group=group)
    dist.broadcast(torch.ones(4), 0, group=group, async_op=True).wait()
    assert wait_until(lambda: states(group) == ["completed"] * 2, 10)
    if rank == 1:
        time.sleep(3)
    else:
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(4), group=group)
        assert states(group)[2] == "scheduled"
    dist.distributed_c10d._abort_process_group(group)


def test_it_sees_each_operation_of_a_block(rank, size):
    """The operations of a batch share a Work."""
    group = dist.new_group()
    incoming = [torch.zeros(4) for _ in range(3)]
    calls = [dist.P2POp(dist.irecv, tensor, (rank - 1) % size, group) for tensor in incoming]
    calls += [dist.P2POp(dist.isend, torch.ones(4), (rank + 1) % size, group) for _ in range(3)]
    wait_all(*dist.batch_isend_irecv(calls))
    wait_until(lambda: "scheduled" not in states(group), 10)
    assert states(group)
    assert set(states(group)) == {"completed"}, states(group)
    dist.destroy_process_group(group)
