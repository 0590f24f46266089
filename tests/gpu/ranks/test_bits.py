"""Options(bits=...) of a GPU's tensors."""

import pytest
import torch
import torch.distributed as dist
from support.gpu import DEVICE

from mpi_backend import Options


@pytest.mark.parametrize(("bits", "between"), [("exact", True), ("order", False)])
def test_what_lies_between_large_numbers(rank, size, bits, between):
    """The first and the last rank's cancel, which an exact sum alone survives."""
    if size < 3:
        pytest.skip("a sum of two numbers is exact in any way")
    group = dist.new_group(pg_options=Options(bits=bits))
    value = {0: 1e30, size - 1: -1e30}.get(rank, 1.0)
    expected = torch.full((1000,), size - 2.0 if between else 0.0)
    tensor = torch.full((1000,), value, device=DEVICE)
    dist.all_reduce(tensor, group=group)
    assert torch.equal(tensor.cpu(), expected)
    tensor = torch.full((1000 * size,), value, device=DEVICE)
    part = torch.zeros(1000, device=DEVICE)
    dist.reduce_scatter_tensor(part, tensor, group=group)
    assert torch.equal(part.cpu(), expected)
    dist.destroy_process_group(group)
