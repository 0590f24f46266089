"""Options(bits="order"): the left fold over the ranks, computed here by torch, whatever runs and wherever the
ranks are."""

import pytest
import torch
import torch.distributed as dist

from mpi_backend import Options
from mpi_backend.extension import _C

Op = dist.ReduceOp
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64]
COUNTS = [0, 1, 5, 1000, 40_003]
ORDERED = [
    (a["collective"], a["name"])
    for a in _C.schedule.algorithms()
    if a["ordered"] and a["collective"] in REDUCTIONS
]
algorithms = pytest.mark.parametrize(("collective", "algorithm"), [*((c, "") for c in REDUCTIONS), *ORDERED])


def contribution(dtype, count, rank):
    """Of magnitudes so different that another order of summing shows."""
    generator = torch.Generator().manual_seed(100 * count + rank)
    exponents = torch.randint(-6, 7, (count,), generator=generator)
    values = torch.randn(count, generator=generator, dtype=torch.float64) * 2.0**exponents
    return values.to(dtype)


def left_fold(dtype, count, size, op):
    """In the type in which sums are kept, and rounded once."""
    kept = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    total = contribution(dtype, count, 0).to(kept)
    for rank in range(1, size):
        other = contribution(dtype, count, rank).to(kept)
        total = total * other if op == Op.PRODUCT else total + other
    return (total / size if op == Op.AVG else total).to(dtype)


def run(collective, tensor, op, group, rank, size):
    """(the result on this rank, and which part of the whole it is)."""
    if collective == "reduce":
        dist.reduce(tensor, size - 1, op, group=group)
        return (tensor, slice(None)) if rank == size - 1 else (tensor[:0], slice(0, 0))
    if collective == "all_reduce":
        dist.all_reduce(tensor, op, group=group)
        return tensor, slice(None)
    count = tensor.numel() // size
    part = torch.empty(count, dtype=tensor.dtype)
    dist.reduce_scatter(part, list(tensor.chunk(size)) if count else [part] * size, op, group=group)
    return part, slice(rank * count, (rank + 1) * count)


@algorithms
@pytest.mark.smoke
def test_the_result_is_the_left_fold(rank, size, collective, algorithm):
    rows = f"{collective}:{algorithm}" if algorithm else ""
    group = dist.new_group(pg_options=Options(bits="order", selection=rows))
    for dtype in DTYPES:
        # torch hands complex numbers over as pairs of real ones, and divides them in another way.
        for op in (Op.SUM,) if dtype.is_complex else (Op.SUM, Op.AVG, Op.PRODUCT):
            for count in COUNTS:
                whole = count - count % size if collective == "reduce_scatter" else count
                result, part = run(collective, contribution(dtype, whole, rank), op, group, rank, size)
                expected = left_fold(dtype, whole, size, op)[part]
                assert torch.equal(result.view(torch.uint8), expected.view(torch.uint8)), (dtype, op, count)
    dist.destroy_process_group(group)


def test_calls_that_run_together_have_the_same_bits(rank, size):
    """In one block, out of order, as a part of a larger tensor."""
    group = dist.new_group(pg_options=Options(bits="order"))
    count = 3000
    expected = left_fold(torch.float32, count, size, Op.SUM)
    tensors = [contribution(torch.float32, count, rank) for _ in range(3)]
    with dist._coalescing_manager(group, async_ops=True) as block:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    block.wait()
    inside = torch.zeros(2 * count)
    inside[7 : count + 7] = contribution(torch.float32, count, rank)
    dist.all_reduce(inside, group=group)
    for tensor in (*tensors, inside[7 : count + 7]):
        assert torch.equal(tensor, expected)
    dist.destroy_process_group(group)


def test_algorithms_that_fold_otherwise_are_refused(rank, size):
    for algorithm in ("ring", "native:order=library"):
        options = Options(bits="order", selection=f"all_reduce:{algorithm}")
        with pytest.raises(ValueError, match=r"does not fold in the order of ranks.*bruck, pairwise, flag"):
            dist.new_group(pg_options=options)
    dist.new_group(pg_options=Options(bits="order", selection="all_reduce:dtype=integer:ring"))


def test_bad_values_are_named():
    with pytest.raises(ValueError, match=r"Options\.bits=exactly, expected any or order"):
        Options(bits="exactly")
    with pytest.raises(TypeError, match=r"Options: bits=1, expected a str"):
        Options(bits=1)
    assert "bits='order'" in repr(Options(bits="order"))


def test_ranks_with_other_bits_are_told(rank, size):
    sentence = "MPI_GDR_BITS is not set on rank 0 and order on rank"
    if size > 1:
        with pytest.raises(dist.DistBackendError, match=sentence):
            dist.new_group(pg_options=Options(bits="order" if rank else "any"))
