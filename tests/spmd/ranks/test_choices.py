"""`adaptive` measures its choices: equal on all ranks, without effect on the bits of results."""

import os

import pytest
import torch
import torch.distributed as dist
from support.works import wait_all

CALLS = 60
COUNTS = [20_000, 100_000, 600_000]


def gather_from_all(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


@pytest.mark.parametrize("at_once", [1, 5])
def test_choices(at_once):
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    rank = dist.get_rank()
    exponents = {count: torch.arange(count) % 37 - 18 for count in COUNTS}
    inputs = {
        count: torch.sin(torch.arange(count) * (rank + 1.0)) * 2.0 ** exponents[count] for count in COUNTS
    }
    first = {}
    for _ in range(CALLS // at_once):
        for count in COUNTS:
            results = [inputs[count].clone() for _ in range(at_once)]
            wait_all(*[dist.all_reduce(result, group=group, async_op=True) for result in results])
            expected = first.setdefault(count, results[0].clone())
            assert all(torch.equal(result, expected) for result in results)
    choices = backend.choices()
    measures = os.environ.get("MPI_GDR_ADAPT") != "off" and dist.get_world_size() > 1
    if measures and backend.algorithm("all_reduce", COUNTS[-1]) == "adaptive":
        assert len(choices) == len(COUNTS)
        assert {choice["algorithm"] for choice in choices} <= {"zero_copy", "staged"}
        known = [choice.pop("speedup") for choice in choices]
        assert all(known) == (rank == 0), known
        assert all(others == choices for others in gather_from_all(choices))
    else:
        assert choices == []
    dist.destroy_process_group(group)
