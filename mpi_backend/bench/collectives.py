"""The benchmark's collectives: buffers, calls, expected results, and the factors of nccl-tests.

Values have period 28672 along the buffer and differ between ranks such that sums over neighbouring ranks stay
small: exact in every type and order, for any number of ranks, and cheap to predict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist

from mpi_backend import empty as group_memory

from ..renamed import all_gather_single, reduce_scatter_single

PERIOD = 7 * 4096
OPS = ("sum", "prod", "min", "max", "avg")


class Run(NamedTuple):
    """A collective at one size on this rank."""

    call: Callable[[], None]
    input: torch.Tensor  # all that the call reads here; may be empty
    initial: torch.Tensor  # its value before the call
    output: torch.Tensor | None  # to compare; None: no result on this rank
    expected: Callable[[], torch.Tensor]

    def fill(self) -> None:
        self.input.copy_(self.initial)


class Kind(NamedTuple):
    """A collective's properties."""

    title: str  # of the OSU format
    prepare: Callable[..., dict[str, Run]]  # {"out": Run, "in": Run}, either may be missing
    bus_factor: Callable[[int], float]
    # (ranks, in place) -> least bytes that all ranks together read and write, divided by the whole buffer's.
    least: Callable[[int, bool], float]
    blocks: bool = False  # one block per rank; the count column is that of a block
    reduces: bool = False
    rooted: bool = False


class Case(NamedTuple):
    """A call at one size on one rank."""

    rank: int
    size: int
    count: int  # type: ignore[assignment]  # hides tuple.count; elements, per block if kind.blocks
    dtype: torch.dtype
    op: str
    root: int
    device: torch.device
    group_memory: bool = False  # buffers from mpi_backend.empty

    def reduce_op(self) -> dist.ReduceOp:
        names = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX", "avg": "AVG"}
        return getattr(dist.ReduceOp, names[self.op])

    def empty(self, count: int) -> torch.Tensor:
        if self.group_memory:
            return group_memory(count, dtype=self.dtype)
        return torch.empty(count, dtype=self.dtype, device=self.device)

    def source(self, rank: int, start: int, count: int) -> torch.Tensor:
        """Elements [start, start + count) of `rank`'s buffer."""
        return self.values(self.one(rank), start, count)

    def block(self, whole: torch.Tensor, rank: int) -> torch.Tensor:
        return whole.narrow(0, rank * self.count, self.count)

    def gathered(self) -> torch.Tensor:
        return torch.cat([self.source(rank, 0, self.count) for rank in range(self.size)])

    def one(self, rank: int) -> torch.Tensor:
        """The seven values of a rank; over seven neighbouring ranks they add up to 0 or multiply to 1."""
        steps = (torch.arange(7) + 3 * rank) % 7 - 3
        if self.dtype == torch.bool:
            return steps > 0
        if self.op == "prod" and self.rounds():
            return torch.pow(2.0, steps.double())
        if not self.dtype.is_signed:
            return steps + 3
        return steps.double() if self.rounds() else steps

    def rounds(self) -> bool:
        return self.dtype.is_floating_point or self.dtype.is_complex

    def values(self, seven: torch.Tensor, start: int, count: int) -> torch.Tensor:
        """Elements [start, start + count) made of `seven`, shifted every 4096 to expose data in a wrong
        block."""
        index = torch.arange(start, start + count) % PERIOD if count < PERIOD else torch.arange(PERIOD)
        values = seven[(index + index // 4096) % 7].to(self.dtype).to(self.device)
        return values if count < PERIOD else tiled(values, start, count)

    def reduced(self, start: int, count: int) -> torch.Tensor:
        """Elements [start, start + count) of the reduction over all ranks."""
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
                mode = None if self.rounds() else "trunc"
                exact = seven if self.rounds() else seven.to(self.dtype).to(rows.dtype)
                seven = exact.div(self.size, rounding_mode=mode)
        return self.values(seven, start, count)


def tiled(table: torch.Tensor, start: int, count: int) -> torch.Tensor:
    """Elements [start, start + count) of the endlessly repeated table."""
    rolled = table.roll(-(start % PERIOD))
    return rolled.repeat(-(-count // PERIOD))[:count] if count > PERIOD else rolled[:count].clone()


def all_reduce(c: Case) -> dict[str, Run]:
    buffer, op = c.empty(c.count), c.reduce_op()
    return {
        "in": Run(
            lambda: dist.all_reduce(buffer, op),
            buffer,
            c.source(c.rank, 0, c.count),
            buffer,
            lambda: c.reduced(0, c.count),
        )
    }


def broadcast(c: Case) -> dict[str, Run]:
    buffer = c.empty(c.count)
    return {
        "in": Run(
            lambda: dist.broadcast(buffer, c.root),
            buffer,
            c.source(c.rank, 0, c.count),
            buffer,
            lambda: c.source(c.root, 0, c.count),
        )
    }


def reduce(c: Case) -> dict[str, Run]:
    buffer, op = c.empty(c.count), c.reduce_op()
    return {
        "in": Run(
            lambda: dist.reduce(buffer, c.root, op),
            buffer,
            c.source(c.rank, 0, c.count),
            buffer if c.rank == c.root else None,
            lambda: c.reduced(0, c.count),
        )
    }


def all_gather(c: Case) -> dict[str, Run]:
    source, block, whole = c.source(c.rank, 0, c.count), c.empty(c.count), c.empty(c.count * c.size)
    mine = c.block(whole, c.rank)

    def run(own: torch.Tensor) -> Run:
        return Run(lambda: all_gather_single(whole, own), own, source, whole, c.gathered)

    return {"out": run(block), "in": run(mine)}


def reduce_scatter(c: Case) -> dict[str, Run]:
    source, block, whole = c.source(c.rank, 0, c.count * c.size), c.empty(c.count), c.empty(c.count * c.size)
    mine, op = c.block(whole, c.rank), c.reduce_op()

    def run(own: torch.Tensor) -> Run:
        return Run(
            lambda: reduce_scatter_single(own, whole, op),
            whole,
            source,
            own,
            lambda: c.reduced(c.rank * c.count, c.count),
        )

    return {"out": run(block), "in": run(mine)}


def all_to_all(c: Case) -> dict[str, Run]:
    total = c.count * c.size
    outgoing, incoming = c.empty(total), c.empty(total)
    return {
        "out": Run(
            lambda: dist.all_to_all_single(incoming, outgoing),
            outgoing,
            c.source(c.rank, 0, total),
            incoming,
            lambda: torch.cat([c.source(rank, c.rank * c.count, c.count) for rank in range(c.size)]),
        )
    }


def gather(c: Case) -> dict[str, Run]:
    source, block, at_root = c.source(c.rank, 0, c.count), c.empty(c.count), c.rank == c.root
    whole = c.empty(c.count * c.size if at_root else 0)
    parts = list(whole.chunk(c.size)) if at_root else None

    def run(own: torch.Tensor) -> Run:
        return Run(
            lambda: dist.gather(own, parts, c.root), own, source, whole if at_root else None, c.gathered
        )

    return {"out": run(block), "in": run(parts[c.rank] if parts else block)}


def scatter(c: Case) -> dict[str, Run]:
    total, at_root = c.count * c.size, c.rank == c.root
    block, whole = c.empty(c.count), c.empty(total if at_root else 0)
    source = c.source(c.rank, 0, total if at_root else 0)
    parts = list(whole.chunk(c.size)) if at_root else None

    def run(own: torch.Tensor) -> Run:
        return Run(
            lambda: dist.scatter(own, parts, c.root),
            whole,
            source,
            own,
            lambda: c.source(c.root, c.rank * c.count, c.count),
        )

    return {"out": run(block), "in": run(parts[c.rank] if parts else block)}


def sendrecv(c: Case) -> dict[str, Run]:
    to, origin = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    outgoing, incoming = c.empty(c.count), c.empty(c.count)

    def call() -> None:
        sent = dist.isend(outgoing, to)
        dist.recv(incoming, origin)
        sent.wait()

    return {
        "out": Run(
            call,
            outgoing,
            c.source(c.rank, 0, c.count),
            incoming,
            lambda: c.source(origin, 0, c.count),
        )
    }


def barrier(c: Case) -> dict[str, Run]:
    nothing = c.empty(0)
    return {"out": Run(lambda: dist.barrier(), nothing, nothing, None, lambda: nothing)}


def _share(p: int) -> float:
    return (p - 1) / p


def _one(p: int) -> float:
    return 1.0


KINDS: dict[str, Kind] = {
    "all_reduce": Kind(
        "Allreduce", all_reduce, lambda p: 2 * _share(p), lambda p, in_place: 2 * p, reduces=True
    ),
    "broadcast": Kind("Broadcast", broadcast, _one, lambda p, in_place: 2 * (p - 1), rooted=True),
    "reduce": Kind("Reduce", reduce, _one, lambda p, in_place: p + 1, reduces=True, rooted=True),
    "all_gather": Kind("Allgather", all_gather, _share, lambda p, in_place: 2 * (p - in_place), blocks=True),
    "reduce_scatter": Kind(
        "Reduce_scatter", reduce_scatter, _share, lambda p, in_place: p + 1, blocks=True, reduces=True
    ),
    "all_to_all": Kind("All-to-All", all_to_all, _share, lambda p, in_place: 2 * p, blocks=True),
    "gather": Kind(
        "Gather", gather, _share, lambda p, in_place: 2 - 2 * in_place / p, blocks=True, rooted=True
    ),
    "scatter": Kind(
        "Scatter", scatter, _share, lambda p, in_place: 2 - 2 * in_place / p, blocks=True, rooted=True
    ),
    "sendrecv": Kind("Ring Send-Receive", sendrecv, _one, lambda p, in_place: 2 * p),
    "barrier": Kind("Barrier", barrier, lambda p: 0.0, lambda p, in_place: 0),
}
