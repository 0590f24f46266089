"""Options(bits=...) for any algorithm and placement: "order" must give torch's left fold over the ranks,
"exact" the exact sum, computed with Fractions."""

import functools
import math
from fractions import Fraction

import pytest
import torch
import torch.distributed as dist

from mpi_backend import Options
from mpi_backend._tools import schedule

Op = dist.ReduceOp
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64]
COUNTS = [0, 1, 5, 1000, 40_003]
ALGORITHMS = [a for a in schedule.algorithms() if a["collective"] in REDUCTIONS]
ORDERED = [(a["collective"], a["name"]) for a in ALGORITHMS if a["ordered"]]
algorithms = pytest.mark.parametrize(("collective", "algorithm"), [*((c, "") for c in REDUCTIONS), *ORDERED])


def contribution(dtype, count, rank):
    """Magnitudes differ so much that another order of summing changes the result."""
    generator = torch.Generator().manual_seed(100 * count + rank)
    exponents = torch.randint(-6, 7, (count,), generator=generator)
    values = torch.randn(count, generator=generator, dtype=torch.float64) * 2.0**exponents
    return values.to(dtype)


@functools.cache  # each collective and algorithm has the same
def left_fold(dtype, count, size, op):
    """The left fold in the type of intermediate sums, rounded once at the end."""
    kept = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    total = contribution(dtype, count, 0).to(kept)
    for rank in range(1, size):
        other = contribution(dtype, count, rank).to(kept)
        total = total * other if op == Op.PRODUCT else total + other
    return (total / size if op == Op.AVG else total).to(dtype)


def run(collective, tensor, op, group, rank, size):
    """(this rank's result, its slice of the whole)."""
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
        # torch passes complex numbers as pairs of real ones, and divides them differently.
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


FLAT = [(a["collective"], a["name"]) for a in ALGORITHMS if a["flat"]]


def rounded(value, dtype):
    """A Fraction as the nearest number of the dtype, ties to even."""
    info = torch.finfo(dtype)
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    step = Fraction(info.eps) * Fraction(2) ** max(exponent, round(math.log2(info.tiny)))
    nearest = round(magnitude / step) * step  # Python rounds ties to even
    result = math.inf if nearest > Fraction(info.max) else float(nearest)
    return -result if value < 0 else result


def exact(rows, divisor=1):
    """The sum of each column."""
    dtype, results = rows.dtype, []
    for values in rows.double().T.tolist():
        special = {v for v in values if not math.isfinite(v)}
        if special:
            results.append(sum(special))
            continue
        total = sum(map(Fraction, values)) / divisor
        minus = all(v == 0 and math.copysign(1, v) < 0 for v in values)
        results.append(rounded(total, dtype) if total else -0.0 if minus else 0.0)
    return torch.tensor(results, dtype=torch.float64).to(dtype)


def adversarial(dtype, count, size):
    """(size, count): values that cancel, tie, overflow partially, are subnormal or special."""
    generator = torch.Generator().manual_seed(count + size)
    info = torch.finfo(dtype)
    exponents = torch.randint(-60, 60, (size, count), generator=generator)
    values = torch.randn(size, count, generator=generator, dtype=torch.float64) * 2.0**exponents
    corners = [info.max, -info.max, info.smallest_normal, info.smallest_normal * info.eps, info.eps / 2]
    corners += [1.0, -1.0, 1 + info.eps, 1e4, -1e4, 0.0, -0.0, math.inf, -math.inf, math.nan]
    weights = torch.tensor([*[4.0] * 12, 1.0, 1.0, 1.0], dtype=torch.float64)
    chosen = torch.multinomial(weights, size * count, True, generator=generator).view(size, count)
    at = torch.arange(count) % 3
    values = torch.where(at == 1, torch.tensor(corners, dtype=torch.float64)[chosen], values)
    if size > 2:  # the first and the last rank's values cancel
        values[-1] = torch.where(at == 2, -values[0], values[-1])
    return values.to(dtype)


@functools.cache
def exact_case(dtype, count, size, op):
    """(what the ranks contribute, the result) of "SUM", "AVG" or "PREMUL_SUM"."""
    given = adversarial(dtype, count, size)
    return given, exact(given * 0.375 if op == "PREMUL_SUM" else given, size if op == "AVG" else 1)


@pytest.mark.parametrize(("collective", "algorithm"), [*((c, "") for c in REDUCTIONS), *FLAT])
def test_the_result_is_the_exact_sum(rank, size, collective, algorithm):
    rows = f"{collective}:{algorithm}" if algorithm else ""
    group = dist.new_group(pg_options=Options(bits="exact", selection=rows))
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for op in ("SUM", "AVG", "PREMUL_SUM"):
            asked = dist._make_nccl_premul_sum(0.375) if op == "PREMUL_SUM" else getattr(Op, op)
            for count in (size, 300 * size):
                whole = count - count % size if collective == "reduce_scatter" else count
                given, sums = exact_case(dtype, whole, size, op)
                # The bits do not depend on which rank contributes which values.
                for shift in (0, 1):
                    mine = given[(rank + shift) % size].clone()
                    result, part = run(collective, mine, asked, group, rank, size)
                    expected = sums[part]
                    same = (result == expected) & (result.signbit() == expected.signbit())
                    wrong = ~(same | (result.isnan() & expected.isnan()))
                    assert not wrong.any(), (dtype, op, count, result[wrong], expected[wrong])
    dist.destroy_process_group(group)


def test_other_operations_of_an_exact_group_keep_the_order(rank, size):
    group = dist.new_group(pg_options=Options(bits="exact"))
    tensor = contribution(torch.float32, 1000, rank)
    dist.all_reduce(tensor, Op.PRODUCT, group=group)
    assert torch.equal(tensor, left_fold(torch.float32, 1000, size, Op.PRODUCT))
    parts = contribution(torch.complex64, 1000, rank)
    dist.all_reduce(parts, group=group)
    every = [contribution(torch.complex64, 1000, r) for r in range(size)]
    expected = exact(torch.stack([torch.view_as_real(t).flatten() for t in every]))
    assert torch.equal(torch.view_as_real(parts).flatten(), expected)
    dist.destroy_process_group(group)


def test_algorithms_that_fold_otherwise_are_refused(rank, size):
    for algorithm in ("ring", "chain"):
        options = Options(bits="exact", selection=f"all_reduce:{algorithm}")
        sentence = r"does not sum the contributions of all ranks at once.*BITS=exact.*bruck, pairwise, flag"
        with pytest.raises(ValueError, match=sentence):
            dist.new_group(pg_options=options)
    for algorithm in ("ring", "native:order=library"):
        options = Options(bits="order", selection=f"all_reduce:{algorithm}")
        with pytest.raises(ValueError, match=r"does not fold in the order of ranks.*bruck, pairwise, flag"):
            dist.new_group(pg_options=options)
    dist.new_group(pg_options=Options(bits="order", selection="all_reduce:dtype=integer:ring"))


def test_bad_values_are_named():
    with pytest.raises(ValueError, match=r"Options\.bits=exactly, expected any, order or exact"):
        Options(bits="exactly")
    with pytest.raises(TypeError, match=r"Options: bits=1, expected a str"):
        Options(bits=1)
    assert "bits='order'" in repr(Options(bits="order"))


def test_ranks_with_other_bits_get_an_error(rank, size):
    sentence = "MPI_GDR_BITS is not set on rank 0 and order on rank"
    if size > 1:
        with pytest.raises(dist.DistBackendError, match=sentence):
            dist.new_group(pg_options=Options(bits="order" if rank else "any"))
