"""The collectives as the benchmark runs them: buffers, the call, what must come out, and the factors of
nccl-tests.

Values have period 28672 along the buffer and differ between ranks such that sums over neighbouring ranks stay
small: exact in every type and any order, for any number of ranks, and cheap to predict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from mpi_backend import empty as group_memory

PERIOD = 7 * 4096
OPS = ("sum", "prod", "min", "max", "avg")


class Run(NamedTuple):
    """One way to run a collective at one size on this rank."""

    call: Callable[[], None]
    fill: Callable[[], None]  # rewrites everything that the call reads
    result: Callable[[], torch.Tensor | None]  # what to compare; None: nothing on this rank
    expected: Callable[[], torch.Tensor]


class Kind(NamedTuple):
    title: str  # of the OSU format
    prepare: Callable[..., dict[str, Run]]  # {"out": Run, "in": Run}, either may be missing
    bus_factor: Callable[[int], float]
    blocks: bool  # the buffer has one block per rank; the count column is that of a block
    reduces: bool
    rooted: bool = False


class Case(NamedTuple):
    rank: int
    size: int
    count: int  # elements, of one block where the kind has blocks
    dtype: torch.dtype
    op: str
    root: int
    device: torch.device
    group_memory: bool = False  # the buffers are in it (mpi_backend.empty)

    def reduce_op(self) -> Any:
        names = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX", "avg": "AVG"}
        return getattr(dist.ReduceOp, names[self.op])

    def empty(self, count: int) -> torch.Tensor:
        if self.group_memory:
            return group_memory(count, dtype=self.dtype)
        return torch.empty(count, dtype=self.dtype, device=self.device)

    def source(self, rank: int, start: int, count: int) -> torch.Tensor:
        """What `rank` holds at [start, start + count) of its buffer."""
        return tiled(self.table(self.one(rank)), start, count)

    def one(self, rank: int) -> torch.Tensor:
        """The seven values of a rank. Over seven neighbouring ranks they add up to 0, or multiply to 1."""
        steps = (torch.arange(7) + 3 * rank) % 7 - 3
        if self.dtype == torch.bool:
            return steps > 0
        if self.op == "prod" and self.dtype.is_floating_point:
            return torch.pow(2.0, steps.double())
        if not self.dtype.is_floating_point and not self.dtype.is_signed:
            return steps + 3
        return steps.double() if self.dtype.is_floating_point else steps

    def table(self, seven: torch.Tensor) -> torch.Tensor:
        """One period. The shift every 4096 elements shows data that lands in the wrong block."""
        index = torch.arange(PERIOD)
        return seven[(index + index // 4096) % 7].to(self.dtype).to(self.device)

    def reduced(self, start: int, count: int) -> torch.Tensor:
        """The reduction over all ranks of [start, start + count)."""
        rows = torch.stack([self.one(rank) for rank in range(self.size)])
        if self.op in ("min", "max"):
            seven = (rows.amin(0) if self.op == "min" else rows.amax(0)) if rows.dtype != torch.bool else None
            if seven is None:
                seven = rows.all(0) if self.op == "min" else rows.any(0)
        elif self.dtype == torch.bool:
            seven = rows.all(0) if self.op == "prod" else rows.any(0)
        elif self.op == "prod":
            seven = rows.prod(0)
        else:
            seven = rows.sum(0)
            if self.op == "avg":
                mode = None if self.dtype.is_floating_point else "trunc"
                seven = seven.to(self.dtype).to(rows.dtype).div(self.size, rounding_mode=mode)
        return tiled(self.table(seven), start, count)


def tiled(table: torch.Tensor, start: int, count: int) -> torch.Tensor:
    """[start, start + count) of the table repeated without end."""
    rolled = table.roll(-(start % PERIOD))
    return rolled.repeat(-(-count // PERIOD))[:count] if count > PERIOD else rolled[:count].clone()


def all_reduce(c: Case) -> dict[str, Run]:
    source, buffer, op = c.source(c.rank, 0, c.count), c.empty(c.count), c.reduce_op()
    return {
        "in": Run(
            lambda: dist.all_reduce(buffer, op),
            lambda: buffer.copy_(source),
            lambda: buffer,
            lambda: c.reduced(0, c.count),
        )
    }


def broadcast(c: Case) -> dict[str, Run]:
    source, buffer = c.source(c.rank, 0, c.count), c.empty(c.count)
    return {
        "in": Run(
            lambda: dist.broadcast(buffer, c.root),
            lambda: buffer.copy_(source),
            lambda: buffer,
            lambda: c.source(c.root, 0, c.count),
        )
    }


def reduce(c: Case) -> dict[str, Run]:
    source, buffer, op = c.source(c.rank, 0, c.count), c.empty(c.count), c.reduce_op()
    return {
        "in": Run(
            lambda: dist.reduce(buffer, c.root, op),
            lambda: buffer.copy_(source),
            lambda: buffer if c.rank == c.root else None,
            lambda: c.reduced(0, c.count),
        )
    }


def all_gather(c: Case) -> dict[str, Run]:
    source, block, whole = c.source(c.rank, 0, c.count), c.empty(c.count), c.empty(c.count * c.size)
    mine = whole.narrow(0, c.rank * c.count, c.count)

    def expected() -> torch.Tensor:
        return torch.cat([c.source(rank, 0, c.count) for rank in range(c.size)])

    return {
        "out": Run(
            lambda: dist.all_gather_into_tensor(whole, block),
            lambda: block.copy_(source),
            lambda: whole,
            expected,
        ),
        "in": Run(
            lambda: dist.all_gather_into_tensor(whole, mine),
            lambda: mine.copy_(source),
            lambda: whole,
            expected,
        ),
    }


def reduce_scatter(c: Case) -> dict[str, Run]:
    source, block, whole = c.source(c.rank, 0, c.count * c.size), c.empty(c.count), c.empty(c.count * c.size)
    mine, op = whole.narrow(0, c.rank * c.count, c.count), c.reduce_op()

    def expected() -> torch.Tensor:
        return c.reduced(c.rank * c.count, c.count)

    return {
        "out": Run(
            lambda: dist.reduce_scatter_tensor(block, whole, op),
            lambda: whole.copy_(source),
            lambda: block,
            expected,
        ),
        "in": Run(
            lambda: dist.reduce_scatter_tensor(mine, whole, op),
            lambda: whole.copy_(source),
            lambda: mine,
            expected,
        ),
    }


def all_to_all(c: Case) -> dict[str, Run]:
    total = c.count * c.size
    source, outgoing, incoming = c.source(c.rank, 0, total), c.empty(total), c.empty(total)
    return {
        "out": Run(
            lambda: dist.all_to_all_single(incoming, outgoing),
            lambda: outgoing.copy_(source),
            lambda: incoming,
            lambda: torch.cat([c.source(rank, c.rank * c.count, c.count) for rank in range(c.size)]),
        )
    }


def sendrecv(c: Case) -> dict[str, Run]:
    to, origin = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    source, outgoing, incoming = c.source(c.rank, 0, c.count), c.empty(c.count), c.empty(c.count)

    def call() -> None:
        sent = dist.isend(outgoing, to)
        dist.recv(incoming, origin)
        sent.wait()

    return {
        "out": Run(
            call, lambda: outgoing.copy_(source), lambda: incoming, lambda: c.source(origin, 0, c.count)
        )
    }


def barrier(c: Case) -> dict[str, Run]:
    return {"out": Run(lambda: dist.barrier(), lambda: None, lambda: None, lambda: c.empty(0))}


KINDS: dict[str, Kind] = {
    "all_reduce": Kind("Allreduce", all_reduce, lambda p: 2 * (p - 1) / p, blocks=False, reduces=True),
    "broadcast": Kind("Broadcast", broadcast, lambda p: 1.0, blocks=False, reduces=False, rooted=True),
    "reduce": Kind("Reduce", reduce, lambda p: 1.0, blocks=False, reduces=True, rooted=True),
    "all_gather": Kind("Allgather", all_gather, lambda p: (p - 1) / p, blocks=True, reduces=False),
    "reduce_scatter": Kind(
        "Reduce_scatter", reduce_scatter, lambda p: (p - 1) / p, blocks=True, reduces=True
    ),
    "all_to_all": Kind("All-to-All", all_to_all, lambda p: (p - 1) / p, blocks=True, reduces=False),
    "sendrecv": Kind("Ring Send-Receive", sendrecv, lambda p: 1.0, blocks=False, reduces=False),
    "barrier": Kind("Barrier", barrier, lambda p: 0.0, blocks=False, reduces=False),
}
