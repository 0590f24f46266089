"""Every collective with every dtype, operation, count, in place or not, synchronous or not: all pairs of
values here, the full product with --full.

Inputs are small whole numbers, so that every result is exact; it is computed in int64 on each rank.
A complex number has its opposite as imaginary part.
"""

import functools

import pytest
import torch
import torch.distributed as dist
from support.data import DTYPES, same
from support.pairwise import covering, rows

REDUCING = ["all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor"]
MOVING = [
    "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter", "all_to_all",
    "all_to_all_single", "send_recv",
]  # fmt: skip
# Collectives with an input and an output that may be the same memory.
IN_PLACE = ["reduce_scatter_tensor", "all_gather", "all_gather_into_tensor"]
BITWISE = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "PREMUL_SUM", *BITWISE]
FACTOR = 2
MORE_DTYPES = [torch.uint64, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64]
OTHER_DTYPES = [  # with --full only
    torch.uint32, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.complex128,
]  # fmt: skip

PARAMETERS = {
    "collective": REDUCING + MOVING,
    "dtype": DTYPES + MORE_DTYPES,
    "op": [*OPS, None],
    "count": [0, 1, 7, 4099, (1 << 20) + 1],  # elements of the input, or of each rank's block
    "in_place": [False, True],
    "asynchronous": [False, True],
}


def allowed(collective, dtype, op, count, in_place, asynchronous):
    if (op is None) != (collective in MOVING) or (in_place and collective not in IN_PLACE):
        return False
    if op is None:
        return True
    if dtype == torch.float8_e8m0fnu:  # powers of two: it has no zero, and no sums of these inputs
        return False
    if dtype.is_complex:
        return op in ("SUM", "AVG", "PREMUL_SUM")
    if op in BITWISE:
        return not dtype.is_floating_point
    if op == "AVG":
        return dtype != torch.bool
    return op != "PREMUL_SUM" or dtype.is_floating_point


def identify(row):
    return "-".join(str(v).removeprefix("torch.") for v in row.values())


class Case:
    """One row of the grid on this rank; `root` and `shift` vary with it."""

    def __init__(self, row, rank, size):
        self.__dict__.update(row)
        self.rank, self.size = rank, size
        self.seed = len(identify(row)) + self.count
        self.root = self.seed % size
        self.shift = 1 + self.seed % size

    @functools.cached_property
    def base(self):
        return torch.arange(self.count, dtype=torch.int64)

    def values(self, rank, block=0):
        """What `rank` contributes (for `block`), in int64: small numbers in an order of its own.
        Sums of 8 ranks are exact in every dtype."""
        low, number = -1, 4
        if self.dtype == torch.bool or (self.dtype.is_floating_point and self.dtype.itemsize == 1):
            low, number = 0, 2
        elif not (self.dtype.is_signed or self.dtype.is_complex):
            low, number = 0, 3
        return (self.base * (2 * rank + 1) + 3 * block + rank + self.seed) % number + low

    def converted(self, values):
        return (torch.complex(values.double(), -values.double()) if self.dtype.is_complex else values).to(
            self.dtype
        )

    def tensor(self, rank, block=0):
        return self.converted(self.values(rank, block))

    def empty(self, blocks=1):
        return torch.ones(blocks * self.count).to(self.dtype)

    def reduced(self, block=0):
        """The reduction of all ranks' values, by arithmetic on whole numbers."""
        every = torch.stack([self.values(rank, block) for rank in range(self.size)])
        if self.op == "SUM":
            total = every.sum(0)
        elif self.op == "PREMUL_SUM":
            total = FACTOR * every.sum(0)
        elif self.op == "PRODUCT":
            total = every.prod(0)
        elif self.op == "MIN":
            total = every.amin(0)
        elif self.op == "MAX":
            total = every.amax(0)
        elif self.op in BITWISE:
            total = functools.reduce(BITWISE[self.op], every)
        elif self.dtype.is_floating_point or self.dtype.is_complex:
            total = every.sum(0).double() / self.size
        else:
            total = every.sum(0).div(self.size, rounding_mode="trunc")  # as C divides
        return self.converted(total != 0 if self.dtype == torch.bool else total)

    @property
    def reduce_op(self):
        if self.op == "PREMUL_SUM":
            return dist._make_nccl_premul_sum(float(FACTOR))
        return getattr(dist.ReduceOp, self.op)


# Each runs its collective and returns [(work, or None), [(result, expected)]].


def all_reduce(c):
    tensor = c.tensor(c.rank)
    work = dist.all_reduce(tensor, c.reduce_op, async_op=c.asynchronous)
    return [work], [(tensor, c.reduced())]


def all_reduce_coalesced(c):
    tensors = [c.tensor(c.rank, block) for block in range(2)]
    with dist._coalescing_manager(async_ops=c.asynchronous) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, c.reduce_op)
    works = [manager] if c.asynchronous else []
    return works, [(tensor, c.reduced(block)) for block, tensor in enumerate(tensors)]


def reduce(c):
    tensor = c.tensor(c.rank)
    work = dist.reduce(tensor, c.root, c.reduce_op, async_op=c.asynchronous)
    return [work], [(tensor, c.reduced())] if c.rank == c.root else []


def reduce_scatter(c):
    inputs = [c.tensor(c.rank, block) for block in range(c.size)]
    output = c.empty()
    work = dist.reduce_scatter(output, inputs, c.reduce_op, async_op=c.asynchronous)
    return [work], [(output, c.reduced(c.rank))]


def reduce_scatter_tensor(c):
    data = torch.cat([c.tensor(c.rank, block) for block in range(c.size)])
    output = data[c.rank * c.count : (c.rank + 1) * c.count] if c.in_place else c.empty()
    work = dist.reduce_scatter_tensor(output, data, c.reduce_op, async_op=c.asynchronous)
    return [work], [(output, c.reduced(c.rank))]


def broadcast(c):
    tensor = c.tensor(c.root) if c.rank == c.root else c.empty()
    work = dist.broadcast(tensor, c.root, async_op=c.asynchronous)
    return [work], [(tensor, c.tensor(c.root))]


def all_gather(c):
    outputs = [c.empty() for _ in range(c.size)]
    own = outputs[c.rank].copy_(c.tensor(c.rank)) if c.in_place else c.tensor(c.rank)
    work = dist.all_gather(outputs, own, async_op=c.asynchronous)
    return [work], [(output, c.tensor(rank)) for rank, output in enumerate(outputs)]


def all_gather_into_tensor(c):
    output, own = c.empty(c.size), c.tensor(c.rank)
    if c.in_place:
        own = output[c.rank * c.count : (c.rank + 1) * c.count].copy_(own)
    work = dist.all_gather_into_tensor(output, own, async_op=c.asynchronous)
    return [work], [(output, torch.cat([c.tensor(rank) for rank in range(c.size)]))]


def gather(c):
    outputs = [c.empty() for _ in range(c.size)] if c.rank == c.root else None
    work = dist.gather(c.tensor(c.rank), outputs, c.root, async_op=c.asynchronous)
    return [work], [(output, c.tensor(rank)) for rank, output in enumerate(outputs or [])]


def scatter(c):
    inputs = [c.tensor(c.rank, block) for block in range(c.size)] if c.rank == c.root else None
    output = c.empty()
    work = dist.scatter(output, inputs, c.root, async_op=c.asynchronous)
    return [work], [(output, c.tensor(c.root, c.rank))]


def all_to_all(c):
    outputs = [c.empty() for _ in range(c.size)]
    work = dist.all_to_all(outputs, [c.tensor(c.rank, b) for b in range(c.size)], async_op=c.asynchronous)
    return [work], [(output, c.tensor(rank, c.rank)) for rank, output in enumerate(outputs)]


def all_to_all_single(c):
    data = torch.cat([c.tensor(c.rank, block) for block in range(c.size)])
    output = c.empty(c.size)
    work = dist.all_to_all_single(output, data, async_op=c.asynchronous)
    return [work], [(output, torch.cat([c.tensor(rank, c.rank) for rank in range(c.size)]))]


def send_recv(c):
    to, source = (c.rank + c.shift) % c.size, (c.rank - c.shift) % c.size
    if to == c.rank:
        return [], []
    received = c.empty()
    if c.asynchronous:
        works = [dist.irecv(received, source), dist.isend(c.tensor(c.rank), to)]
    else:
        works = [dist.isend(c.tensor(c.rank), to)]
        dist.recv(received, source)
    return works, [(received, c.tensor(source))]


FUNCTIONS = {f.__name__: f for f in (
    all_reduce, all_reduce_coalesced, reduce, reduce_scatter, reduce_scatter_tensor,
    broadcast, all_gather, all_gather_into_tensor, gather, scatter, all_to_all, all_to_all_single, send_recv,
)}  # fmt: skip


def run(row, rank, size):
    works, results = FUNCTIONS[row["collective"]](Case(row, rank, size))
    for work in works:
        if work is not None:
            work.wait()
    for actual, expected in results:
        assert actual.dtype == expected.dtype
        if actual.is_floating_point() and actual.itemsize == 1:  # torch compares no float8
            actual, expected = actual.view(torch.uint8), expected.view(torch.uint8)
        same(actual, expected)


@pytest.mark.parametrize("row", covering(PARAMETERS, allowed), ids=identify)
@pytest.mark.filterwarnings("ignore::FutureWarning")  # newer names of the same collectives
def test_pairs(row, rank, size):
    run(row, rank, size)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES + MORE_DTYPES + OTHER_DTYPES, ids=str)
@pytest.mark.parametrize("collective", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_product(collective, dtype, rank, size):
    for row in rows({**PARAMETERS, "collective": [collective], "dtype": [dtype]}, allowed):
        try:
            run(row, rank, size)
        except AssertionError as error:
            raise AssertionError(f"{identify(row)}: {error}") from None
