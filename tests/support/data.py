"""The SPMD tests' inputs, which every rank computes for all ranks, and expected results."""

import torch
import torch.distributed as dist

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
DTYPES = [*FLOATS, *INTEGERS, torch.bool]
COUNTS = [0, 1, 7, 4099]


def sample(dtype, count, rank, seed=0):
    """Small whole numbers: sums and products of a few ranks are exact in every dtype and order."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    low = 0 if dtype in (torch.uint8, torch.bool) else -2
    values = torch.randint(low, 2 if dtype == torch.bool else 3, (count,), generator=generator)
    return values.to(dtype)


def noise(dtype, count, rank, seed=0):
    """Normal floats: sums round."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)


def samples(dtype, count, size, seed=0):
    return [sample(dtype, count, rank, seed) for rank in range(size)]


def op_name(op):
    return next(n for n in ("SUM", "AVG", "PRODUCT", "MIN", "MAX") if op == getattr(dist.ReduceOp, n))


def same(actual, expected):
    """Equal in shape, dtype and value (NaN equals NaN, zeros of either sign are equal)."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def check_sum(size, group=None):
    """Checks that the group of `size` ranks works."""
    tensor = torch.ones(10)
    dist.all_reduce(tensor, group=group)
    same(tensor, torch.full((10,), float(size)))
