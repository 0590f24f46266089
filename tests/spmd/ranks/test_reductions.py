"""Reductions: large ones, rounding, special values. test_grid.py has dtypes, operations, counts and roots."""

import pytest
import torch
import torch.distributed as dist
from support.data import FLOATS, noise, op_name, same, sample, samples

Op = dist.ReduceOp
LARGE = (1 << 20) + 1


@pytest.mark.algorithms
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_large(rank, size, dtype):
    tensor = sample(dtype, LARGE, rank)
    dist.all_reduce(tensor)
    same(tensor, sum(t.double() for t in samples(dtype, LARGE, size)).to(dtype))
    output = torch.empty(LARGE, dtype=dtype)
    dist.reduce_scatter_tensor(output, sample(dtype, LARGE * size, rank))
    part = slice(LARGE * rank, LARGE * (rank + 1))
    same(output, sum(sample(dtype, LARGE * size, r)[part].double() for r in range(size)).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_premul_sum(rank, size, dtype):
    expected = sum(0.25 * t.double() for t in samples(dtype, 4099, size)).to(dtype)
    for factor in (0.25, torch.tensor(0.25)):
        op = dist._make_nccl_premul_sum(factor)
        tensor = sample(dtype, 4099, rank)
        dist.all_reduce(tensor, op)
        same(tensor, expected)
    output = torch.empty(5, dtype=dtype)
    dist.reduce_scatter_tensor(output, sample(dtype, 5 * size, rank), dist._make_nccl_premul_sum(0.25))
    total = sum(0.25 * t.double() for t in samples(dtype, 5 * size, size)).to(dtype)
    same(output, total[5 * rank : 5 * rank + 5])


@pytest.mark.algorithms
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [1, 513, 70001])
def test_rounding_is_close_and_equal_everywhere(rank, size, comm, dtype, count):
    exact = sum(noise(dtype, count, r).double() for r in range(size))
    # Each addition rounds once, relative to the sum so far.
    scale = sum(noise(dtype, count, r).double().abs() for r in range(size))
    results = []
    for _ in range(3):
        tensor = noise(dtype, count, rank)
        dist.all_reduce(tensor)
        assert ((tensor.double() - exact).abs() <= size * torch.finfo(dtype).eps * scale).all()
        results.append(tensor.view(torch.uint8).numpy().tobytes())
    assert len(set(comm.allgather(results[0]))) == 1, "ranks have different bits"
    assert len(set(results)) == 1, "a repetition gave different bits"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", [Op.MIN, Op.MAX, Op.SUM, Op.AVG, Op.PRODUCT], ids=op_name)
def test_nan_of_any_rank_survives(rank, size, dtype, op):
    for holder in range(size):
        tensor = torch.full((33,), float(rank), dtype=dtype)
        if rank == holder:
            tensor[holder] = float("nan")
        dist.all_reduce(tensor, op)
        assert tensor.isnan().nonzero().flatten().tolist() == [holder]


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities(rank, size, dtype):
    tensor = torch.tensor([float("inf"), -float("inf"), 1.0], dtype=dtype)
    dist.all_reduce(tensor)
    same(tensor, torch.tensor([float("inf"), -float("inf"), float(size)], dtype=dtype))


def test_bfloat16_rounds_ties_to_even(rank, size):
    # Between 256 and 512 the step is 2. The fold is in float32, so the total is rounded only once.
    values = [256.0, 258.0] if rank == 0 else [1.0, 1.0] if rank == size - 1 else [0.0, 0.0]
    tensor = torch.tensor(values, dtype=torch.bfloat16)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [256.0, 258.0 if size == 1 else 260.0]


@pytest.fixture
def one_rank_flushes(rank):
    """torch.set_flush_denormal() on rank 0, in the test's thread only."""
    if not torch.set_flush_denormal(rank == 0):
        pytest.skip("torch cannot flush subnormals on this processor")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.smoke
@pytest.mark.parametrize("count", [1, 1000, 100_000])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_subnormals_are_kept_whichever_thread_reduces(rank, size, one_rank_flushes, count, asynchronous):
    tensor = torch.full((count,), 300, dtype=torch.int32).view(torch.float32)
    work = dist.all_reduce(tensor, async_op=asynchronous)
    if asynchronous:
        work.get_future().wait()
    assert bool((tensor.view(torch.int32) == 300 * size).all())
    # The caller's mode is unchanged.
    small = torch.full((1,), 300, dtype=torch.int32).view(torch.float32)
    assert bool((small * 0.5).view(torch.int32) == (0 if rank == 0 else 150))


def test_subnormals_of_sparse_tensors_are_kept(rank, size, one_rank_flushes):
    values = torch.full((2,), 300, dtype=torch.int32).view(torch.float32)
    for asynchronous in (False, True):
        tensor = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), values, (4,))
        work = dist.all_reduce(tensor, async_op=asynchronous)
        if asynchronous:
            work.wait()
        assert tensor.coalesce().values().view(torch.int32).tolist() == [300 * size] * 2


def test_a_subnormal_factor_is_kept(rank, size, one_rank_flushes):
    factor = torch.tensor([1 << 9], dtype=torch.int32).view(torch.float32)[0]  # 2**-140
    tensor = torch.full((3,), 2.0**20)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
    assert tensor.view(torch.int32).tolist() == torch.full((3,), size * 2.0**-120).view(torch.int32).tolist()
