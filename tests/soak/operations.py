"""The soak's collectives: each draws its shape from the step's generator, issues the operation and returns
its check.

Inputs are pieces of one table of small whole numbers: every rank has all ranks' inputs, and sums and
products of up to 6 ranks are exact in every dtype and order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

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
class Step:
    """One operation with equal states of `random` on all members. `me`: rank in the group; `size`: of it."""

    group: dist.ProcessGroup
    me: int
    size: int
    random: random.Random
    number: int

    def __post_init__(self) -> None:
        r = self.random
        self.dtype = r.choice(DTYPES)
        self.asynchronous = r.random() < 0.5
        # Zero, or each power of two with equal probability: most are small, as in training.
        self.bytes = 0 if r.random() < 0.05 else int(2 ** r.uniform(0, 20))
        self.offset = r.randrange(OFFSETS)
        self.description = ""

    def count(self, blocks: int = 1) -> int:
        return self.bytes // self.dtype.itemsize // blocks

    def input(self, rank: int, count: int, salt: int = 0) -> torch.Tensor:
        """`rank`'s contribution. A view of the table: clone it before an operation gets it."""
        at = (self.offset + 577 * rank + 91 * salt) % OFFSETS
        return TABLES[self.dtype][at : at + count]

    def inputs(self, count: int, salt: int = 0) -> list[torch.Tensor]:
        return [self.input(rank, count, salt) for rank in range(self.size)]

    def empty(self, count: int) -> torch.Tensor:
        """An output buffer, filled with a value that no input has."""
        return torch.full((count,), 77, dtype=self.dtype)

    def reduction(self) -> dist.ReduceOp:
        ops = [dist.ReduceOp.SUM, dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
        if self.size <= 6:
            ops.append(dist.ReduceOp.PRODUCT)
        if self.dtype.is_floating_point and self.size in (1, 2, 4, 8):  # exact
            ops.append(dist.ReduceOp.AVG)
        return self.random.choice(ops)

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


def all_reduce(s: Step) -> Pending:
    op, count = s.reduction(), s.count()
    tensor = s.input(s.me, count).clone()
    work = dist.all_reduce(tensor, op, group=s.group, async_op=s.asynchronous)
    return [work], lambda: s.expect(tensor, reduced(op, s.inputs(count)), str(op))


def all_reduce_coalesced(s: Step) -> Pending:
    count, parts = s.count(3), s.random.randint(1, 3)
    tensors = [s.input(s.me, count, part).clone() for part in range(parts)]
    with dist._coalescing_manager(s.group, async_ops=s.asynchronous) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, group=s.group)

    def check() -> None:
        for part, tensor in enumerate(tensors):
            s.expect(tensor, reduced(dist.ReduceOp.SUM, s.inputs(count, part)), f"part {part}")

    return [manager if s.asynchronous else None], check


def broadcast(s: Step) -> Pending:
    root, count = s.random.randrange(s.size), s.count()
    tensor = s.input(root, count).clone() if s.me == root else s.empty(count)
    work = dist.broadcast(tensor, group_src=root, group=s.group, async_op=s.asynchronous)
    return [work], lambda: s.expect(tensor, s.input(root, count), f"from {root}")


def reduce(s: Step) -> Pending:
    root, count, op = s.random.randrange(s.size), s.count(), s.reduction()
    tensor = s.input(s.me, count).clone()
    work = dist.reduce(tensor, group_dst=root, op=op, group=s.group, async_op=s.asynchronous)

    def check() -> None:
        if s.me == root:  # unspecified on other ranks
            s.expect(tensor, reduced(op, s.inputs(count)), f"{op} to {root}")

    return [work], check


def all_gather(s: Step) -> Pending:
    count = s.count(s.size)
    outputs = [s.empty(count) for _ in range(s.size)]
    work = dist.all_gather(outputs, s.input(s.me, count).clone(), group=s.group, async_op=s.asynchronous)
    return [work], lambda: s.expect(torch.cat(outputs), torch.cat(s.inputs(count)))


def all_gather_into_tensor(s: Step) -> Pending:
    count, in_place = s.count(s.size), s.random.random() < 0.3
    output = s.empty(count * s.size)
    own = output[s.me * count : (s.me + 1) * count] if in_place else s.empty(count)
    own.copy_(s.input(s.me, count))
    work = dist.all_gather_into_tensor(output, own, group=s.group, async_op=s.asynchronous)
    return [work], lambda: s.expect(output, torch.cat(s.inputs(count)), f"in place: {in_place}")


def reduce_scatter_tensor(s: Step) -> Pending:
    op, count = s.reduction(), s.count(s.size)
    output = s.empty(count)
    data = s.input(s.me, count * s.size).clone()
    work = dist.reduce_scatter_tensor(output, data, op, group=s.group, async_op=s.asynchronous)

    def check() -> None:
        whole = reduced(op, s.inputs(count * s.size))
        s.expect(output, whole[s.me * count : (s.me + 1) * count], str(op))

    return [work], check


def reduce_scatter(s: Step) -> Pending:
    op, count = s.reduction(), s.count(s.size)
    output = s.empty(count)
    data = [s.input(s.me, count, to).clone() for to in range(s.size)]
    work = dist.reduce_scatter(output, data, op, group=s.group, async_op=s.asynchronous)
    return [work], lambda: s.expect(output, reduced(op, s.inputs(count, s.me)), str(op))


def all_to_all_single(s: Step) -> Pending:
    """Even or uneven; blocks may be empty."""
    most = s.count(s.size)
    if s.random.random() < 0.5:
        counts = [[most] * s.size for _ in range(s.size)]
    else:
        counts = [[s.random.randint(0, most) for _ in range(s.size)] for _ in range(s.size)]
    sends, receives = counts[s.me], [counts[rank][s.me] for rank in range(s.size)]
    output = s.empty(sum(receives))
    data = torch.cat([s.input(s.me, n, to) for to, n in enumerate(sends)])
    work = dist.all_to_all_single(output, data, receives, sends, group=s.group, async_op=s.asynchronous)
    expected = torch.cat([s.input(source, n, s.me) for source, n in enumerate(receives)])
    return [work], lambda: s.expect(output, expected, str(counts))


def counts_of(s: Step) -> list[int]:
    most = s.count(s.size)
    if s.random.random() < 0.5:
        return [most] * s.size
    return [s.random.randint(0, most) for _ in range(s.size)]


def all_gather_uneven(s: Step) -> Pending:
    counts = counts_of(s)
    outputs = [s.empty(n) for n in counts]
    own = s.input(s.me, counts[s.me]).clone()
    work = dist.all_gather(outputs, own, group=s.group, async_op=s.asynchronous)
    expected = [s.input(rank, n) for rank, n in enumerate(counts)]
    return [work], lambda: s.expect(torch.cat(outputs), torch.cat(expected), str(counts))


def gather(s: Step) -> Pending:
    root, count = s.random.randrange(s.size), s.count(s.size)
    outputs = [s.empty(count) for _ in range(s.size)] if s.me == root else None
    own = s.input(s.me, count).clone()
    work = dist.gather(own, outputs, group_dst=root, group=s.group, async_op=s.asynchronous)

    def check() -> None:
        if outputs is not None:
            s.expect(torch.cat(outputs), torch.cat(s.inputs(count)), f"to {root}")

    return [work], check


def scatter(s: Step) -> Pending:
    root, count = s.random.randrange(s.size), s.count(s.size)
    blocks = [s.input(root, count, to).clone() for to in range(s.size)] if s.me == root else None
    output = s.empty(count)
    work = dist.scatter(output, blocks, group_src=root, group=s.group, async_op=s.asynchronous)
    return [work], lambda: s.expect(output, s.input(root, count, s.me), f"from {root}")


def all_to_all(s: Step) -> Pending:
    most = s.count(s.size)
    counts = [[s.random.randint(0, most) for _ in range(s.size)] for _ in range(s.size)]
    outputs = [s.empty(counts[source][s.me]) for source in range(s.size)]
    blocks = [s.input(s.me, n, to).clone() for to, n in enumerate(counts[s.me])]
    work = dist.all_to_all(outputs, blocks, group=s.group, async_op=s.asynchronous)
    expected = [s.input(source, counts[source][s.me], s.me) for source in range(s.size)]
    return [work], lambda: s.expect(torch.cat(outputs), torch.cat(expected), str(counts))


def barrier(s: Step) -> Pending:
    return [dist.barrier(group=s.group, async_op=s.asynchronous)], lambda: None


def ring(s: Step) -> Pending:
    """Every member sends to one at a fixed distance, by batch_isend_irecv or one by one."""
    distance, count, batched = s.random.randint(1, s.size), s.count(), s.random.random() < 0.5
    to, source = (s.me + distance) % s.size, (s.me - distance) % s.size
    if to == s.me:
        return [], lambda: None
    received = s.empty(count)
    sent = s.input(s.me, count).clone()
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
    root, count, tag = s.random.randrange(s.size), s.count(s.size), s.number % 30000
    if s.me != root:
        sent = s.input(s.me, count).clone()
        return [dist.isend(sent, group=s.group, group_dst=root, tag=tag)], lambda: None
    received = [s.empty(count) for _ in range(s.size - 1)]
    works = [s.group.recv_anysource([tensor], tag) for tensor in received]

    def check() -> None:
        sources = [work._source_rank() for work in works]
        if sorted(sources) != [rank for rank in range(s.size) if rank != root]:
            raise WrongResult(f"{s.description}: one message each expected, they came from {sources}")
        for source, tensor in zip(sources, received, strict=True):
            s.expect(tensor, s.input(source, count), f"from {source} by any")

    return works, check


OPERATIONS: list[Callable[[Step], Pending]] = [
    all_reduce, all_reduce_coalesced, broadcast, reduce, all_gather, all_gather_into_tensor,
    reduce_scatter_tensor, reduce_scatter, all_gather_uneven, gather, scatter, all_to_all, all_to_all_single,
    barrier, ring, any_source,
]  # fmt: skip
