"""Group memory: which tensors are in it, and communication of them beside ordinary ones."""

import os

import numpy
import pytest
import torch
import torch.distributed as dist

import mpi_backend


def is_mapped_by_others(tensor: torch.Tensor) -> bool:
    """Whether the tensor's memory is of the kind that other ranks map."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            first, last = (int(address, 16) for address in line.split(maxsplit=1)[0].split("-"))
            if first <= tensor.data_ptr() < last:
                return "memfd:mpi-gdr" in line
    raise AssertionError("the tensor's memory is not mapped at all")


def test_empty(rank, size):
    tensor = mpi_backend.empty(3, 4, dtype=torch.float64)
    assert tensor.shape == (3, 4) and tensor.dtype == torch.float64
    assert is_mapped_by_others(tensor)
    assert not is_mapped_by_others(torch.empty(3, 4))
    assert mpi_backend.empty((2, 5)).shape == (2, 5)
    assert mpi_backend.empty(7).dtype == torch.get_default_dtype()
    assert mpi_backend.empty(0).numel() == 0
    assert mpi_backend.empty(numpy.int64(3)).shape == (3,)
    with pytest.raises(ValueError, match=r"empty: size=\(-1, -1\), expected none below 0"):
        mpi_backend.empty(-1, -1)


@pytest.mark.parametrize("count", [1, 5000, 2**20 + 1])
@pytest.mark.parametrize("who", ["all", "none", "even"])
def test_tensors_in_it_match_others(rank, size, count, who):
    here = who == "all" or (who == "even" and rank % 2 == 0)
    tensor = (mpi_backend.empty(count) if here else torch.empty(count)).fill_(rank + 1)
    assert is_mapped_by_others(tensor) == here
    dist.all_reduce(tensor)
    assert (tensor == size * (size + 1) / 2).all()
    blocks = (mpi_backend.empty(size * count) if here else torch.empty(size * count)).fill_(-1)
    dist.all_gather_into_tensor(blocks, tensor.fill_(rank))
    assert (blocks.view(size, count) == torch.arange(size).view(size, 1)).all()
    dist.reduce_scatter_tensor(tensor, blocks)
    assert (tensor == size * rank).all()
    dist.broadcast(tensor, size - 1)
    assert (tensor == size * (size - 1)).all()


@pytest.mark.parametrize("disabled", [None, "1", "0"])
def test_ddp_takes_its_buckets_from_it_on_request(rank, size, disabled, monkeypatch):
    """By torch's own variable, which may differ between ranks: rank 0 keeps the default."""
    if disabled and rank > 0:
        monkeypatch.setenv("DDP_DISABLE_COMM_MEM", disabled)
    model = torch.nn.Linear(64, 64)
    wrapped = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    for _ in range(3):  # the buckets are rebuilt after the first step
        model.zero_grad()
        wrapped(torch.full((2, 64), float(rank))).sum().backward()
    assert is_mapped_by_others(model.weight.grad) == (disabled == "0" and rank > 0)
    assert torch.allclose(model.weight.grad, torch.full((64, 64), float(size - 1)))


def test_a_forked_child_writes_to_its_own_copy(rank, size):
    tensor = mpi_backend.empty(1 << 16).fill_(rank)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            seen = bool((tensor == rank).all())
            status = 0 if seen and not tensor.zero_().any() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (tensor == rank).all()
    dist.all_reduce(tensor)
    assert (tensor == size * (size - 1) / 2).all()
