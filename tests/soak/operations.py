"""The soak's collectives: those of support/collectives.py, uneven ones, messages. Each draws its shape from
the step's generator, issues the operation and returns its check.

Inputs are pieces of one table of small whole numbers: every rank can compute all ranks' inputs, and sums
and, for up to 6 ranks, products are exact in every dtype and order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from support.collectives import FUNCTIONS, WHOLE, Call

MAX_BYTES = 1 << 20
OFFSETS = 4096
DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8,
)  # fmt: skip
_values = torch.randint(-2, 3, (MAX_BYTES + OFFSETS,), generator=torch.Generator().manual_seed(1))
TABLES = {dtype: (_values.abs() if dtype == torch.uint8 else _values).to(dtype) for dtype in DTYPES}

Check = Callable[[], None]
Pending = tuple[list, Check]  # (works to wait for, then the check)


class WrongResult(Exception):
    pass


@dataclass
class Step(Call):
    """One operation. `random` has the same state on all members. `rank`, `size`: in the group."""

    group: dist.ProcessGroup
    rank: int
    size: int
    random: random.Random
    number: int
    FILL = 77
    keeps_inputs = False  # on any backend

    def __post_init__(self) -> None:
        r = self.random
        self.dtype = r.choice(DTYPES)
        self.asynchronous, self.in_place = r.random() < 0.5, r.random() < 0.3
        # Zero, or log-uniform: most are small, as in training.
        self.bytes = 0 if r.random() < 0.05 else int(2 ** r.uniform(0, 20))
        self.offset = r.randrange(OFFSETS)
        self.root, self.parts = r.randrange(self.size), r.randint(1, 3)
        ops = [dist.ReduceOp.SUM, dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
        if self.size <= 6:
            ops.append(dist.ReduceOp.PRODUCT)
        if self.dtype.is_floating_point and self.size in (1, 2, 4, 8):  # exact
            ops.append(dist.ReduceOp.AVG)
        self.reduce_op = r.choice(ops)
        self.count = self.elements(self.size)
        self.description = ""

    def elements(self, blocks: int = 1) -> int:
        return self.bytes // self.dtype.itemsize // blocks

    def input(self, rank: int, count: int, salt: int = 0) -> torch.Tensor:
        """`rank`'s contribution. A view of the table: clone it before an operation gets it."""
        at = (self.offset + 577 * rank + 91 * salt) % OFFSETS
        return TABLES[self.dtype][at : at + count]

    def expected(self, rank: int, block: int = 0) -> torch.Tensor:
        return self.input(rank, self.count, block)

    def reduced(self, block: int = 0) -> torch.Tensor:
        return reduced(self.reduce_op, [self.expected(rank, block) for rank in range(self.size)])

    def buffer(self, count: int) -> torch.Tensor:
        return torch.full((count,), self.FILL, dtype=self.dtype)

    def expect(self, actual: torch.Tensor, expected: torch.Tensor, what: str = "") -> None:
        if not torch.equal(actual, expected):
            different = (actual != expected).nonzero().flatten()
            first = int(different[0])
            raise WrongResult(
                f"{self.description} {what}: {len(different)} of {actual.numel()} elements are wrong, "
                f"the first at {first}: {actual[first].item()} instead of {expected[first].item()}"
            )


def reduced(op: dist.ReduceOp, tensors: list[torch.Tensor]) -> torch.Tensor:
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        if op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            total += tensor
        elif op == dist.ReduceOp.PRODUCT:
            total *= tensor
        else:
            total = torch.minimum(total, tensor) if op == dist.ReduceOp.MIN else torch.maximum(total, tensor)
    return total / len(tensors) if op == dist.ReduceOp.AVG else total


def collective(function: Callable) -> Callable[[Step], Pending]:
    """Makes an operation of a function of support/collectives.py."""

    def operation(s: Step) -> Pending:
        if function.__name__ in WHOLE:
            s.count = s.elements()
        works, results = function(s)
        text = f"{s.reduce_op}, root {s.root}, in place: {s.in_place}"

        def check() -> None:
            for actual, expected in results:
                s.expect(actual, expected, text)

        return works, check

    operation.__name__ = function.__name__
    return operation


def all_to_all_single_uneven(s: Step) -> Pending:
    """Blocks may be empty."""
    counts = [[s.random.randint(0, s.count) for _ in range(s.size)] for _ in range(s.size)]
    sends, receives = counts[s.rank], [counts[rank][s.rank] for rank in range(s.size)]
    output = s.buffer(sum(receives))
    data = torch.cat([s.input(s.rank, n, to) for to, n in enumerate(sends)])
    work = dist.all_to_all_single(output, data, receives, sends, group=s.group, async_op=s.asynchronous)
    expected = torch.cat([s.input(source, n, s.rank) for source, n in enumerate(receives)])
    return [work], lambda: s.expect(output, expected, str(counts))


def all_gather_uneven(s: Step) -> Pending:
    counts = [s.random.randint(0, s.count) for _ in range(s.size)]
    outputs = [s.buffer(n) for n in counts]
    own = s.input(s.rank, counts[s.rank]).clone()
    work = dist.all_gather(outputs, own, group=s.group, async_op=s.asynchronous)
    expected = [s.input(rank, n) for rank, n in enumerate(counts)]
    return [work], lambda: s.expect(torch.cat(outputs), torch.cat(expected), str(counts))


def all_to_all_uneven(s: Step) -> Pending:
    counts = [[s.random.randint(0, s.count) for _ in range(s.size)] for _ in range(s.size)]
    outputs = [s.buffer(counts[source][s.rank]) for source in range(s.size)]
    blocks = [s.input(s.rank, n, to).clone() for to, n in enumerate(counts[s.rank])]
    work = dist.all_to_all(outputs, blocks, group=s.group, async_op=s.asynchronous)
    expected = [s.input(source, counts[source][s.rank], s.rank) for source in range(s.size)]
    return [work], lambda: s.expect(torch.cat(outputs), torch.cat(expected), str(counts))


def barrier(s: Step) -> Pending:
    return [dist.barrier(group=s.group, async_op=s.asynchronous)], lambda: None


def ring(s: Step) -> Pending:
    """Every member sends to one at a fixed distance, by batch_isend_irecv or one by one."""
    distance, count, batched = s.random.randint(1, s.size), s.elements(), s.random.random() < 0.5
    to, source = (s.rank + distance) % s.size, (s.rank - distance) % s.size
    if to == s.rank:
        return [], lambda: None
    received = s.buffer(count)
    sent = s.input(s.rank, count).clone()
    tag = s.number % 30000
    if batched:
        send = dist.P2POp(dist.isend, sent, group=s.group, group_peer=to, tag=tag)
        receive = dist.P2POp(dist.irecv, received, group=s.group, group_peer=source, tag=tag)
        works = dist.batch_isend_irecv([send, receive])
    else:
        receive = dist.irecv(received, group=s.group, group_src=source, tag=tag)
        works = [receive, dist.isend(sent, group=s.group, group_dst=to, tag=tag)]
    return works, lambda: s.expect(received, s.input(source, count), f"from {source}")


def any_source(s: Step) -> Pending:
    """All others send to one, which receives in any order."""
    root, count, tag = s.root, s.count, s.number % 30000
    if s.rank != root:
        sent = s.input(s.rank, count).clone()
        return [dist.isend(sent, group=s.group, group_dst=root, tag=tag)], lambda: None
    received = [s.buffer(count) for _ in range(s.size - 1)]
    works = [s.group.recv_anysource([tensor], tag) for tensor in received]

    def check() -> None:
        sources = [work._source_rank() for work in works]
        if sorted(sources) != [rank for rank in range(s.size) if rank != root]:
            raise WrongResult(f"{s.description}: one message each expected, they came from {sources}")
        for source, tensor in zip(sources, received, strict=True):
            s.expect(tensor, s.input(source, count), f"from {source} by any")

    return works, check


OPERATIONS: list[Callable[[Step], Pending]] = [
    *(collective(function) for name, function in FUNCTIONS.items() if name != "send_recv"),
    all_gather_uneven, all_to_all_uneven, all_to_all_single_uneven, barrier, ring, any_source,
]  # fmt: skip
