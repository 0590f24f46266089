"""Tests each collective with each dtype, operation and count, in place and not, synchronous and asynchronous.
test_pairs covers all pairs of these values, test_all_operations_counts_and_roots the product of the common
ones and all roots, test_product (with --full) the full product.

Inputs are pieces of one table of small whole numbers: results are exact, and each rank computes them in
int64. A complex number's imaginary part is the opposite of its real part.
"""

import functools

import pytest
import torch
import torch.distributed as dist
from support.collectives import FUNCTIONS, WHOLE, Call
from support.data import COUNTS, DTYPES, same
from support.pairwise import covering, rows
from support.works import wait_all

REDUCING = ["all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor"]
MOVING = [
    "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter", "all_to_all",
    "all_to_all_single", "send_recv",
]  # fmt: skip
ROOTED = ["broadcast", "reduce", "gather", "scatter"]
# Collectives whose input and output may share memory.
IN_PLACE = ["reduce_scatter_tensor", "all_gather", "all_gather_into_tensor"]
BITWISE = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
ARITHMETIC = {
    "SUM": torch.add, "AVG": torch.add, "PREMUL_SUM": torch.add, "PRODUCT": torch.mul,
    "MIN": torch.minimum, "MAX": torch.maximum, **BITWISE,
}  # fmt: skip
OPS = list(ARITHMETIC)
FACTOR = 2
MORE_DTYPES = [torch.uint64, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64]
OTHER_DTYPES = [  # with --full only
    torch.uint32, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.complex128,
]  # fmt: skip

PARAMETERS = {
    "collective": REDUCING + MOVING,
    "dtype": DTYPES + MORE_DTYPES,
    "op": [*OPS, None],
    "count": [0, 1, 7, 4099, (1 << 20) + 1],  # elements of a tensor; see also block_count()
    "in_place": [False, True],
    "asynchronous": [False, True],
}


def allowed(collective, dtype, op, count, in_place, asynchronous):
    if (op is None) != (collective in MOVING) or (in_place and collective not in IN_PLACE):
        return False
    if op is None:
        return True
    if dtype == torch.float8_e8m0fnu:  # has neither zero nor the sums of these inputs
        return False
    if dtype.is_complex:
        return op in ("SUM", "AVG", "PREMUL_SUM")
    if op in BITWISE:
        return not dtype.is_floating_point
    if op == "AVG":
        return dtype != torch.bool
    return op != "PREMUL_SUM" or dtype.is_floating_point


def identify(row):
    return "-".join(str(row[name]).removeprefix("torch.") for name in PARAMETERS)


# ---- inputs and expected results --------------------------------------------------------------------------

BLOCKS = 8  # maximum number of ranks
STRIDE = 61  # elements between the begins of successive blocks, which may overlap


@functools.cache
def whole_numbers():
    """Random int64 numbers in 0..11, the same on all ranks. cut() takes each block from another offset."""
    count = max(PARAMETERS["count"]) + STRIDE * BLOCKS**2
    return torch.randint(0, 12, (count,), generator=torch.Generator().manual_seed(1))


@functools.lru_cache(maxsize=1)
def table(dtype):
    """The values of a dtype's tensors, in int64, small enough that sums of 8 ranks are exact."""
    low, number = -1, 4
    if dtype == torch.float8_e8m0fnu:  # powers of two only
        low, number = 1, 2
    elif dtype == torch.bool or (dtype.is_floating_point and dtype.itemsize == 1):
        low, number = 0, 2
    elif not (dtype.is_signed or dtype.is_complex):
        low, number = 0, 3
    return whole_numbers() % number + low


def converted(values, dtype):
    return (torch.complex(values.double(), -values.double()) if dtype.is_complex else values).to(dtype)


@functools.lru_cache(maxsize=1)
def converted_table(dtype):
    return converted(table(dtype), dtype)


def block_count(row, size):
    """Elements of one rank's block, or of a tensor without blocks. The largest count is divided among the
    blocks; otherwise the cost would be quadratic in the number of ranks."""
    whole = row["collective"] in WHOLE or row["count"] < max(PARAMETERS["count"])
    return row["count"] if whole else row["count"] // size + 1


def cut(whole, count, rank, block):
    begin = STRIDE * (BLOCKS * rank + block)
    return whole[begin : begin + count]


@functools.lru_cache(maxsize=4)  # consecutive rows share a result in test_product
def reduced(dtype, op, count, size, block):
    """The reduction of all ranks' values in whole-number arithmetic."""
    every = [cut(table(dtype), count, rank, block) for rank in range(size)]
    total = functools.reduce(ARITHMETIC[op], every)
    if op == "PREMUL_SUM":
        total = FACTOR * total
    elif op == "AVG" and (dtype.is_floating_point or dtype.is_complex):
        total = total.double() / size
    elif op == "AVG":
        total = total.div(size, rounding_mode="trunc")  # as C divides
    return converted(total != 0 if dtype == torch.bool else total, dtype)


class Case(Call):
    """One row of the grid on this rank; `root` and `shift` vary with it."""

    group = None  # the default one

    def __init__(self, row, rank, size, root=None):
        self.__dict__.update(row)
        self.rank, self.size, self.count = rank, size, block_count(row, size)
        seed = len(identify(row)) + row["count"]
        self.root = seed % size if root is None else root
        self.shift = 1 + seed % size

    def expected(self, rank, block=0):
        return cut(converted_table(self.dtype), self.count, rank, block)

    def reduced(self, block=0):
        return reduced(self.dtype, self.op, self.count, self.size, block)

    @property
    def reduce_op(self):
        if self.op == "PREMUL_SUM":
            return dist._make_nccl_premul_sum(float(FACTOR))
        return getattr(dist.ReduceOp, self.op)


def run(row, rank, size, root=None):
    works, results = FUNCTIONS[row["collective"]](Case(row, rank, size, root))
    for work in works:
        wait_all(work)
    for actual, expected in results:
        assert actual.dtype == expected.dtype
        if actual.is_floating_point() and actual.itemsize == 1:  # torch does not compare float8
            actual, expected = actual.view(torch.uint8), expected.view(torch.uint8)
        if not torch.equal(actual, expected):  # many times as fast as same()
            same(actual, expected)


@pytest.mark.parametrize("row", covering(PARAMETERS, allowed), ids=identify)
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch recommends newer names
def test_pairs(row, rank, size):
    run(row, rank, size)


@pytest.mark.algorithms
@pytest.mark.smoke
@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.uint16], ids=str)
@pytest.mark.parametrize("collective", REDUCING + MOVING)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_all_operations_counts_and_roots(collective, dtype, rank, size):
    given = {"collective": [collective], "dtype": [dtype], "count": COUNTS, "in_place": [False]}
    for row in rows(PARAMETERS | given, allowed):
        for root in range(size if collective in ROOTED else 1):
            run(row, rank, size, root)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES + MORE_DTYPES + OTHER_DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_product(dtype, rank, size):
    cells = rows({**PARAMETERS, "dtype": [dtype]}, allowed)
    # Few results are computed twice in this order.
    cells.sort(key=lambda row: (str(row["op"]), row["count"], row["collective"] in WHOLE))
    wrong = []
    for row in cells:
        try:
            run(row, rank, size)
        except AssertionError as error:
            wrong.append(f"{identify(row)}: {error}")
        except Exception as error:  # other ranks may wait for this one: skip the rest of this dtype
            raise RuntimeError(f"{identify(row)}: {error}") from error
    assert not wrong, f"{len(wrong)} of {len(cells)} cells are wrong:\n" + "\n".join(wrong[:20])
