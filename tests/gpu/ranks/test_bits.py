"""Options(bits=...) for GPU tensors."""

import math
from functools import reduce

import pytest
import torch
import torch.distributed as dist
from support.gpu import DEVICE

from mpi_backend import Options


@pytest.mark.parametrize("bits", ["exact", "order"])
def test_what_lies_between_large_numbers(rank, size, bits):
    """The first and last rank's values cancel: with three or more ranks only an exact sum keeps the rest."""
    group = dist.new_group(pg_options=Options(bits=bits))
    values = [1e30, *[1.0] * (size - 2), -1e30][:size]
    total = math.fsum(values) if bits == "exact" else reduce(torch.add, map(torch.tensor, values))
    expected = torch.full((1000,), float(total))
    tensor = torch.full((1000,), values[rank], device=DEVICE)
    dist.all_reduce(tensor, group=group)
    assert torch.equal(tensor.cpu(), expected)
    tensor = torch.full((1000 * size,), values[rank], device=DEVICE)
    part = torch.zeros(1000, device=DEVICE)
    dist.reduce_scatter_tensor(part, tensor, group=group)
    assert torch.equal(part.cpu(), expected)
    dist.destroy_process_group(group)
