"""Every operation as a function that runs its cases: the same ones in the same order on all ranks, whatever
the results, because a rank that skips a case would make the others wait."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist

from ..renamed import all_gather_single, reduce_scatter_single
from .checker import Checker
from .reference import FACTOR, reduced, values

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
REDUCIBLE = (*FLOATS, *INTEGERS, torch.bool)
# For operations that only move data: the item size matters, not the type.
MOVABLE = (*REDUCIBLE, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.uint16, torch.uint32)
BITWISE = ("band", "bor", "bxor")
OPS = ("sum", "avg", "premul_sum", "product", "min", "max", *BITWISE)


class Plan(NamedTuple):
    """Ranks and sizes of all operations."""

    rank: int
    size: int
    counts: tuple[int, ...]  # elements, for every dtype and op
    large: tuple[int, ...]  # elements, for a few
    barrier_key: Callable[[int], int]  # adds to a counter that all ranks share; returns its value

    def roots(self) -> list[int]:
        return sorted({0, self.size // 2, self.size - 1})


def reduce_op(op: str) -> dist.ReduceOp:
    """torch's operator of this name."""
    if op == "premul_sum":
        return dist._make_nccl_premul_sum(FACTOR)
    return {
        "sum": dist.ReduceOp.SUM,
        "avg": dist.ReduceOp.AVG,
        "product": dist.ReduceOp.PRODUCT,
        "min": dist.ReduceOp.MIN,
        "max": dist.ReduceOp.MAX,
        "band": dist.ReduceOp.BAND,
        "bor": dist.ReduceOp.BOR,
        "bxor": dist.ReduceOp.BXOR,
    }[op]


def supports(op: str, dtype: torch.dtype) -> bool:
    """Whether torch.distributed supports the op on this dtype."""
    if op == "premul_sum":
        return dtype.is_floating_point
    if op in BITWISE:
        return not dtype.is_floating_point
    return not (op == "avg" and dtype == torch.bool)


def reductions(plan: Plan, large: bool = True) -> Iterator[tuple[torch.dtype, str, str, int]]:
    """(dtype, op, pattern, count) of every case."""
    for dtype in REDUCIBLE:
        patterns = ("exact", "random") if dtype.is_floating_point else ("exact",)
        for op in OPS:
            if supports(op, dtype):
                yield from ((dtype, op, pattern, count) for pattern in patterns for count in plan.counts)
    if large:
        for count in plan.large:
            yield torch.float32, "sum", "random", count
            yield torch.bfloat16, "avg", "random", count
            yield torch.int64, "sum", "exact", count


def movements(plan: Plan) -> Iterator[tuple[torch.dtype, int]]:
    """(dtype, count) of every case that only moves data."""
    for dtype in MOVABLE:
        yield from ((dtype, count) for count in plan.counts)
    yield from ((torch.float32, count) for count in plan.large)


def data(dtype: torch.dtype, count: int, rank: int, plan: Plan, seed: int = 0) -> torch.Tensor:
    """Values to move."""
    if dtype.itemsize == 1 and dtype.is_floating_point:
        return values(torch.uint8, count, rank, plan.size, seed=seed).view(dtype)
    return values(dtype, count, rank, plan.size, pattern="random", seed=seed)


def all_inputs(dtype: torch.dtype, op: str, pattern: str, count: int, plan: Plan) -> list[torch.Tensor]:
    """Each rank's contribution."""
    return [values(dtype, count, r, plan.size, op=op, pattern=pattern) for r in range(plan.size)]


def all_reduce(check: Checker, plan: Plan) -> None:
    for dtype, op, pattern, count in reductions(plan):
        inputs = all_inputs(dtype, op, pattern, count, plan)
        tensor = check.put(inputs[plan.rank])
        dist.all_reduce(tensor, reduce_op(op))
        what = {"dtype": dtype, "op": op, "count": count, "pattern": pattern}
        check.result(tensor, reduced(inputs, op, pattern), equal_on_all=True, **what)
    strided = torch.arange(24.0).reshape(4, 6).t()  # not contiguous
    tensor = check.put(strided)
    dist.all_reduce(tensor)
    check.result(
        tensor.contiguous(),
        (strided * plan.size).contiguous(),
        dtype=torch.float32,
        op="sum",
        layout="strided",
    )


def reduce(check: Checker, plan: Plan) -> None:
    for root in plan.roots():
        for dtype, op, pattern, count in reductions(plan, large=root == 0):
            inputs = all_inputs(dtype, op, pattern, count, plan)
            tensor = check.put(inputs[plan.rank])
            dist.reduce(tensor, root, reduce_op(op))
            if plan.rank == root:
                what = {"dtype": dtype, "op": op, "count": count, "pattern": pattern, "root": root}
                check.result(tensor, reduced(inputs, op, pattern), **what)


def broadcast(check: Checker, plan: Plan) -> None:
    for root in plan.roots():
        for dtype, count in movements(plan):
            tensor = check.put(data(dtype, count, plan.rank, plan))
            dist.broadcast(tensor, root)
            expected = data(dtype, count, root, plan)
            check.result(tensor, expected, equal_on_all=True, dtype=dtype, count=count, root=root)


def all_gather(check: Checker, plan: Plan) -> None:
    for dtype, count in movements(plan):
        inputs = [data(dtype, count, r, plan) for r in range(plan.size)]
        outputs = [check.put(torch.zeros_like(t)) for t in inputs]
        dist.all_gather(outputs, check.put(inputs[plan.rank]))
        for source, (got, expected) in enumerate(zip(outputs, inputs, strict=True)):
            check.result(got, expected, dtype=dtype, count=count, source=source)


def all_gather_in_one_tensor(check: Checker, plan: Plan) -> None:
    for dtype, count in movements(plan):
        inputs = [data(dtype, count, r, plan) for r in range(plan.size)]
        expected = torch.cat([t.view(torch.uint8) for t in inputs]).view(dtype) if count else inputs[0]
        output = check.put(torch.zeros_like(expected))
        all_gather_single(output, check.put(inputs[plan.rank]))
        check.result(output, expected, equal_on_all=True, dtype=dtype, count=count)
        output = check.put(torch.zeros_like(expected))
        mine = output.narrow(0, plan.rank * count, count)
        mine.copy_(inputs[plan.rank])
        all_gather_single(output, mine)
        check.result(output, expected, dtype=dtype, count=count, place="in place")


def reduce_scatter(check: Checker, plan: Plan) -> None:
    for dtype, op, pattern, count in reductions(plan):
        inputs = all_inputs(dtype, op, pattern, count * plan.size, plan)
        pieces = (
            list(check.put(inputs[plan.rank]).split(count)) if count else [check.put(inputs[0])] * plan.size
        )
        pieces = [piece.clone() for piece in pieces]  # separate memory
        output = check.put(torch.zeros(count, dtype=dtype))
        dist.reduce_scatter(output, pieces, reduce_op(op))
        mine = [t.narrow(0, plan.rank * count, count) for t in inputs]
        what = {"dtype": dtype, "op": op, "count": count, "pattern": pattern}
        check.result(output, reduced(mine, op, pattern), **what)


def reduce_scatter_in_one_tensor(check: Checker, plan: Plan) -> None:
    for dtype, op, pattern, count in reductions(plan):
        inputs = all_inputs(dtype, op, pattern, count * plan.size, plan)
        expected = reduced([t.narrow(0, plan.rank * count, count) for t in inputs], op, pattern)
        what = {"dtype": dtype, "op": op, "count": count, "pattern": pattern}
        output = check.put(torch.zeros(count, dtype=dtype))
        reduce_scatter_single(output, check.put(inputs[plan.rank]), reduce_op(op))
        check.result(output, expected, **what)
        whole = check.put(inputs[plan.rank])
        inside = whole.narrow(0, plan.rank * count, count)
        reduce_scatter_single(inside, whole, reduce_op(op))
        check.result(inside, expected, place="in place", **what)


def all_to_all_single(check: Checker, plan: Plan) -> None:
    for dtype, count in movements(plan):
        inputs = [data(dtype, count * plan.size, r, plan) for r in range(plan.size)]
        output = check.put(torch.zeros_like(inputs[0]))
        dist.all_to_all_single(output, check.put(inputs[plan.rank]))
        mine = [
            t.view(torch.uint8)[plan.rank * count * dtype.itemsize :][: count * dtype.itemsize]
            for t in inputs
        ]
        expected = torch.cat(mine).view(dtype) if count else inputs[0]
        check.result(output, expected, dtype=dtype, count=count, splits="even")


def all_to_all_uneven(check: Checker, plan: Plan) -> None:
    if os.environ.get("MPI_GDR_ALLTOALL_ALGO") == "bruck":
        return  # supports even splits only
    for dtype, count in movements(plan):
        # rows[s][d]: elements from rank s to rank d; some are 0.
        rows = [[(s * 3 + d * 5) % 4 * count // 3 for d in range(plan.size)] for s in range(plan.size)]
        inputs = [data(dtype, sum(rows[s]), s, plan) for s in range(plan.size)]
        mine = []
        for source in range(plan.size):
            before = sum(rows[source][: plan.rank])
            mine.append(inputs[source].narrow(0, before, rows[source][plan.rank]).view(torch.uint8))
        expected = torch.cat(mine).view(dtype)
        output = check.put(torch.zeros_like(expected))
        arrive = [rows[source][plan.rank] for source in range(plan.size)]
        dist.all_to_all_single(output, check.put(inputs[plan.rank]), arrive, rows[plan.rank])
        check.result(output, expected, dtype=dtype, count=count, splits="uneven")


def send_recv(check: Checker, plan: Plan) -> None:
    to, source = (plan.rank + 1) % plan.size, (plan.rank - 1) % plan.size
    if plan.size == 1:
        return  # torch refuses a message to oneself
    for dtype, count in movements(plan):
        outgoing = [check.put(data(dtype, count, plan.rank, plan, seed)) for seed in (1, 2)]
        incoming = [check.put(torch.zeros_like(t)) for t in outgoing]
        sends = [dist.isend(outgoing[tag], to, tag=tag) for tag in (0, 1)]
        for tag in (1, 0):  # reverse order of the sends: tags must match
            dist.recv(incoming[tag], source, tag=tag)
        for work in sends:
            work.wait()
        for tag in (0, 1):
            expected = data(dtype, count, source, plan, tag + 1)
            check.result(incoming[tag], expected, dtype=dtype, count=count, source=source, tag=tag)


def recv_any_source(check: Checker, plan: Plan) -> None:
    for receiver in plan.roots():
        for tag, count in enumerate(plan.counts):  # one tag per count: any source matches any of its messages
            if plan.rank != receiver:
                dist.send(check.put(data(torch.float32, count, plan.rank, plan)), receiver, tag=tag)
                continue
            sources = []
            for _ in range(plan.size - 1):
                tensor = check.put(torch.zeros(count))
                source = dist.recv(tensor, None, tag=tag)
                sources.append(source)
                expected = data(torch.float32, count, source, plan)
                check.result(tensor, expected, dtype=torch.float32, count=count, source=source)
            others = [r for r in range(plan.size) if r != receiver]
            check.condition(sorted(sources) == others, sorted(sources), others, count=count)
        dist.barrier()  # keeps messages for the next receiver apart


def barrier(check: Checker, plan: Plan) -> None:
    for repeat in range(1, 6):
        plan.barrier_key(1)
        dist.barrier()
        entered = plan.barrier_key(0)
        check.condition(
            entered >= repeat * plan.size,
            f"{entered} entries",
            f"{repeat * plan.size} at least",
            repeat=repeat,
        )


def coalesced(check: Checker, plan: Plan) -> None:
    counts = [c for c in plan.counts if c]
    inputs = [all_inputs(torch.float32, "sum", "exact", count, plan) for count in counts]
    tensors = [check.put(each[plan.rank]) for each in inputs]
    with dist._coalescing_manager(device=check.device, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for tensor, each in zip(tensors, inputs, strict=True):
        check.result(
            tensor, reduced(each, "sum", "exact"), equal_on_all=True, form="all_reduce", count=tensor.numel()
        )
    outputs = [check.put(torch.zeros(count * plan.size)) for count in counts]
    with dist._coalescing_manager(device=check.device, async_ops=True) as manager:
        for output, each in zip(outputs, inputs, strict=True):
            all_gather_single(output, check.put(each[plan.rank]))
    manager.wait()
    for output, each in zip(outputs, inputs, strict=True):
        check.result(output, torch.cat(each), equal_on_all=True, form="all_gather", count=output.numel())
    if plan.size > 1:
        to, source = (plan.rank + 1) % plan.size, (plan.rank - 1) % plan.size
        incoming = [check.put(torch.zeros(count)) for count in counts]
        batch = []
        for got, each in zip(incoming, inputs, strict=True):
            batch.append(dist.P2POp(dist.irecv, got, source))
            batch.append(dist.P2POp(dist.isend, check.put(each[plan.rank]), to))
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        for got, each in zip(incoming, inputs, strict=True):
            check.result(got, each[source], form="batch_isend_irecv", count=got.numel())


def asynchronous(check: Checker, plan: Plan) -> None:
    counts = [*plan.counts, *plan.large[:1]] * 4
    inputs = [all_inputs(torch.float32, "sum", "exact", count, plan) for count in counts]
    tensors = [check.put(each[plan.rank]) for each in inputs]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = works[0].get_future()
    for work in reversed(works):
        work.wait()
    futures.wait()
    for tensor, each, work in zip(tensors, inputs, works, strict=True):
        check.result(
            tensor, reduced(each, "sum", "exact"), equal_on_all=True, form="wait()", count=tensor.numel()
        )
        check.condition(work.is_completed(), "not completed", "completed", form="is_completed()")
    tensors = [check.put(each[plan.rank]) for each in inputs]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for future in [work.get_future() for work in works]:
        future.wait()
    for tensor, each in zip(tensors, inputs, strict=True):
        check.result(
            tensor, reduced(each, "sum", "exact"), equal_on_all=True, form="Future", count=tensor.numel()
        )


def new_group(check: Checker, plan: Plan) -> None:
    members = {
        "even": list(range(0, plan.size, 2)),
        "odd": list(range(1, plan.size, 2)),
        "last two": list(range(max(0, plan.size - 2), plan.size)),
        "all": list(range(plan.size)),
    }
    groups = {name: dist.new_group(ranks) for name, ranks in members.items() if ranks}
    mine = {name: group for name, group in groups.items() if plan.rank in members[name]}
    # One after the other, then all at once: a rank may be in several groups.
    for form in ("in turn", "together"):
        running = []
        for name, group in mine.items():
            for count in plan.counts:
                inputs = [values(torch.float32, count, r, plan.size) for r in members[name]]
                tensor = check.put(values(torch.float32, count, plan.rank, plan.size))
                work = dist.all_reduce(tensor, group=group, async_op=True)
                if form == "in turn":
                    work.wait()
                running.append((work, tensor, inputs, name))
        for work, tensor, inputs, name in running:
            work.wait()
            check.result(tensor, reduced(inputs, "sum", "exact"), group=name, form=form, count=tensor.numel())
    for group in mine.values():
        dist.destroy_process_group(group)


OPERATIONS: dict[str, Callable[[Checker, Plan], None]] = {
    "all_reduce": all_reduce,
    "reduce": reduce,
    "broadcast": broadcast,
    "all_gather": all_gather,
    all_gather_single.__name__: all_gather_in_one_tensor,
    "reduce_scatter": reduce_scatter,
    reduce_scatter_single.__name__: reduce_scatter_in_one_tensor,
    "all_to_all_single": all_to_all_single,
    "all_to_all_single uneven": all_to_all_uneven,
    "send, recv": send_recv,
    "recv from any": recv_any_source,
    "barrier": barrier,
    "coalesced": coalesced,
    "async": asynchronous,
    "new_group": new_group,
}


def run(name: str, check: Checker, plan: Plan) -> bool:
    """Runs one operation. False if it raised: later ones need not match between the ranks."""
    try:
        OPERATIONS[name](check, plan)
        return True
    except Exception as error:
        check.fail(got=f"{type(error).__name__}: {error}", expected="no error")
        return False
