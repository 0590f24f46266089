"""The part of `mpi-gdr tune` that runs on ranks: times, in turn, every algorithm that supports a call. All
ranks run the same calls.

A group has one algorithm per collective, so there is a group over all ranks for the first algorithm of each
collective, one for the second, and so on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist

from ..bench.options import REWRITE_BYTES
from ..renamed import all_gather_single, reduce_scatter_single
from ..reports import AlgorithmInfo
from .table import JobResult, Point, size_text

if TYPE_CHECKING:
    import argparse

    from torch.distributed import ProcessGroup

    from .._C import MpiBackend

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
BLOCKS = ("all_gather", "reduce_scatter", "gather", "scatter")
MIN_ROUNDS, MAX_ROUNDS = 3, 40
# A candidate this many times slower than the best is dropped.
MAX_SLOWDOWN = 3.0


Groups = list[tuple["ProcessGroup", dict[str, str]]]


class Case(NamedTuple):
    """A collective at one size."""

    collective: str
    dtype: str
    bytes: int  # of the whole buffer, or of one rank's block, as the table has it
    whole: int  # bytes of the whole buffer


class Operation(NamedTuple):
    """A case with its buffers."""

    call: Callable[[ProcessGroup], None]  # on a group
    fill: Callable[[], None]  # rewrites all that the call reads


def measure_job(options: argparse.Namespace) -> JobResult:
    """This job's result, as --json writes it; on all ranks."""
    from .. import child_job, rank_command
    from ..tools import schedule

    rank, ranks = dist.get_rank(), dist.get_world_size()
    listed = [a for a in schedule.algorithms() if a["collective"] in options.collectives]
    groups = make_groups(listed)
    cases = all_cases(options, ranks)
    result: JobResult = {
        "ranks": ranks,
        "reach": backend_of(dist.group.WORLD).reach,
        "about": rank_command.summary("mpi-gdr"),
        "points": [],
    }
    end = time.monotonic() + options.time
    for done, case in enumerate(cases):
        # Time left over by earlier cases goes to later ones, which are larger.
        share = max(end - time.monotonic(), 0.0) / (len(cases) - done)
        result["points"].append(measure_case(case, groups, rank, ranks, share))
        if rank == 0 and options.result:  # for the progress bar of the command that started the job
            state = f"{case.collective} {case.dtype} {size_text(case.bytes)}"
            child_job.report_progress(done + 1, len(cases), state)
    return result


def all_cases(options: argparse.Namespace, ranks: int) -> list[Case]:
    """Small sizes of all collectives first."""
    cases = []
    total = options.minbytes
    while total <= options.maxbytes:
        for collective in options.collectives:
            blocks = collective in BLOCKS
            if collective == "barrier":
                if total == options.minbytes:
                    cases.append(Case(collective, "any", 0, 0))
            elif not blocks or total * ranks <= max(options.maxbytes, options.minbytes * ranks):
                whole = total * ranks if blocks else total
                dtypes = options.dtypes if collective in REDUCTIONS else ("any",)
                cases += [Case(collective, dtype, total, whole) for dtype in dtypes]
        total *= options.stepfactor
    return cases


def make_groups(listed: list[AlgorithmInfo]) -> Groups:
    """(group, {collective: its algorithm})."""
    from .. import Options

    names: dict[str, list[str]] = {}
    for algorithm in listed:
        names.setdefault(algorithm["collective"], []).append(algorithm["name"])
    groups = []
    for k in range(max(len(each) for each in names.values())):
        chosen = {collective: each[k] for collective, each in names.items() if k < len(each)}
        options = Options()
        # Native reductions of floats need order=library.
        options.selection = "#".join(
            f"{collective}:{name}"
            + (":order=library" if name == "native" and collective in REDUCTIONS else "")
            for collective, name in chosen.items()
        )
        groups.append((dist.new_group(backend="mpi-gdr", pg_options=options), chosen))
    return groups


def backend_of(group: ProcessGroup) -> MpiBackend:
    """The backend of the group's CPU tensors."""
    return group._get_backend(torch.device("cpu"))


def measure_case(case: Case, groups: Groups, rank: int, ranks: int, seconds: float) -> Point:
    """Median and lower quartile of each algorithm that supports the case, in microseconds."""
    dtype = torch.uint8 if case.dtype == "any" else getattr(torch, case.dtype)
    count = case.bytes // dtype.itemsize
    type_name = str(dtype).removeprefix("torch.")
    candidates: dict[str, ProcessGroup] = {}
    for group, chosen in groups:
        wanted = chosen.get(case.collective)
        # A group whose algorithm does not support the call uses another.
        if wanted and backend_of(group).algorithm(case.collective, count, type_name) == wanted:
            candidates[wanted] = group
    built_in = backend_of(dist.group.WORLD).algorithm(case.collective, count, type_name)
    operation = OPERATIONS[case.collective](rank, ranks, count, dtype)
    samples = measure_candidates(operation, candidates, built_in, case.whole >= REWRITE_BYTES, seconds)
    return {
        "collective": case.collective,
        "dtype": case.dtype,
        "bytes": case.bytes,
        "whole": case.whole,
        "built_in": built_in,
        "median_us": {name: quantile(times, 0.5) for name, times in samples.items()},
        "quartile_us": {name: quantile(times, 0.25) for name, times in samples.items()},
        "calls": {name: len(times) for name, times in samples.items()},
    }


def measure_candidates(
    operation: Operation, candidates: dict[str, ProcessGroup], keep: str, rewrite: bool, seconds: float
) -> dict[str, list[float]]:
    """Runs rounds, each with a turn for every candidate, until a rank's time is up. Returns the time of each
    call on its slowest rank. Never drops `keep`."""
    calls = 2 if rewrite else 10
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    running = list(candidates)
    operation.fill()
    for group in candidates.values():
        for _ in range(2):
            operation.call(group)
    end = time.monotonic() + seconds
    for turn in range(MAX_ROUNDS):
        start = turn % len(running)
        order = running[start:] + running[:start]
        times: list[float] = []
        for name in order:
            times += timed(operation, candidates[name], calls, rewrite)
        slowest = reduce_over_ranks(times, dist.ReduceOp.MAX)
        for i, name in enumerate(order):
            samples[name] += slowest[i * calls : (i + 1) * calls]
        best = min(quantile(samples[name], 0.5) for name in running)
        # `samples` are equal on all ranks, so all ranks drop the same candidates.
        running = [
            name for name in running if name == keep or quantile(samples[name], 0.5) <= MAX_SLOWDOWN * best
        ]
        if turn + 1 < MIN_ROUNDS:
            continue
        if reduce_over_ranks([float(time.monotonic() < end)], dist.ReduceOp.MIN)[0] == 0:
            break
    return samples


def timed(operation: Operation, group: ProcessGroup, calls: int, rewrite: bool) -> list[float]:
    """Microseconds of each call on this rank by bench's protocol: small calls back to back, large ones with
    rewritten buffers and a common start."""
    times = []
    if not rewrite:
        operation.call(group)  # not timed: the call before it was another candidate's
        dist.barrier()
    for _ in range(calls):
        if rewrite:
            operation.fill()
            dist.barrier()
        begin = time.perf_counter_ns()
        operation.call(group)
        times.append((time.perf_counter_ns() - begin) * 1e-3)
    return times


def reduce_over_ranks(numbers: list[float], op: dist.ReduceOp) -> list[float]:
    """Each number reduced over the ranks. Collective."""
    tensor = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(tensor, op)
    return tensor.tolist()


def quantile(numbers: list[float], q: float) -> float:
    """The q-quantile, interpolated linearly."""
    ordered = sorted(numbers)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


# ---- calls ------------------------------------------------------------------------------------------------
# `count`: elements of the buffer, or of one block if the collective has blocks.


def source(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Values whose sums over the ranks stay small."""
    return torch.full((count,), rank % 3, dtype=dtype)


def in_place_call(call: Callable[[torch.Tensor, ProcessGroup], None]) -> Callable[..., Operation]:
    """For a collective on one buffer."""

    def prepare(rank: int, ranks: int, count: int, dtype: torch.dtype) -> Operation:
        values = source(rank, count, dtype)
        buffer = values.clone()
        return Operation(lambda group: call(buffer, group), lambda: buffer.copy_(values))

    return prepare


def all_gather(rank: int, ranks: int, count: int, dtype: torch.dtype) -> Operation:
    values = source(rank, count, dtype)
    block, whole = values.clone(), torch.zeros(count * ranks, dtype=dtype)
    return Operation(lambda group: all_gather_single(whole, block, group), lambda: block.copy_(values))


def reduce_scatter(rank: int, ranks: int, count: int, dtype: torch.dtype) -> Operation:
    values = source(rank, count * ranks, dtype)
    whole, block = values.clone(), torch.zeros(count, dtype=dtype)
    return Operation(
        lambda group: reduce_scatter_single(block, whole, group=group), lambda: whole.copy_(values)
    )


def gather(rank: int, ranks: int, count: int, dtype: torch.dtype) -> Operation:
    values = source(rank, count, dtype)
    block = values.clone()
    blocks = list(torch.zeros(count * ranks, dtype=dtype).chunk(ranks)) if rank == 0 else None
    return Operation(lambda group: dist.gather(block, blocks, 0, group), lambda: block.copy_(values))


def scatter(rank: int, ranks: int, count: int, dtype: torch.dtype) -> Operation:
    values = source(rank, count * ranks, dtype) if rank == 0 else torch.zeros(0)
    whole, block = values.clone(), torch.zeros(count, dtype=dtype)
    blocks = list(whole.chunk(ranks)) if rank == 0 else None
    return Operation(lambda group: dist.scatter(block, blocks, 0, group), lambda: whole.copy_(values))


def barrier(rank: int, ranks: int, count: int, dtype: torch.dtype) -> Operation:
    return Operation(lambda group: dist.barrier(group), lambda: None)


OPERATIONS: dict[str, Callable[..., Operation]] = {
    "all_reduce": in_place_call(lambda buffer, group: dist.all_reduce(buffer, group=group)),
    "broadcast": in_place_call(lambda buffer, group: dist.broadcast(buffer, 0, group)),
    "reduce": in_place_call(lambda buffer, group: dist.reduce(buffer, 0, group=group)),
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "gather": gather,
    "scatter": scatter,
    "barrier": barrier,
}
