"""`mpi-gdr bench -n 2 overhead`: host time of a small call, beside torch's `fake` backend and bare MPI.

`fake` does nothing below torch.distributed: its time is that of Python and c10d in any backend.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import rank_command
from ..run import positive
from .compare import number, spread
from .options import COLLECTIVES as ALL_COLLECTIVES
from .options import Calls, size_list
from .side_by_side import Command, JobResults, initialize

if TYPE_CHECKING:
    import torch.distributed as dist

    from .collectives import Run
    from .raw_mpi import MpiRanks

# sendrecv needs two ranks and a pair of calls.
COLLECTIVES = tuple(name for name in ALL_COLLECTIVES if name != "sendrecv")


def command() -> Command:
    """Returns this benchmark's command."""
    benchmark = Command(
        "overhead",
        "Host time of a call on a few bytes: mpi-gdr's, that of torch's fake backend, and MPI's own.",
        {"mpi-gdr": "mpi-gdr", "fake": "fake", "mpi": "mpi"},
    )

    benchmark.parser.add_argument(
        "--sizes",
        type=size_list,
        default=[8, 1024, 8192],
        metavar="LIST",
        help="bytes of all_reduce; the first is the block of the others too (default: 8,1K,8K)",
    )
    benchmark.parser.add_argument(
        "--iters", type=positive, default=1000, metavar="N", help="timed calls (default: 1000)"
    )
    return benchmark


def main(argv: list[str], ranks: int | None) -> int:
    """Returns 0; exits on a wrong command line."""
    return command().main(argv, ranks, run_rank, markdown)


def run_rank(options: argparse.Namespace) -> dict[str, Any] | None:
    """{"info": ..., "collectives": {row: {"sync_us": median, ...}}}, maxima over ranks; None if rank > 0."""
    import torch

    times: dict[str, dict[str, float]] = {}
    if options.backend == "mpi":
        from .raw_mpi import MpiRanks

        ranks = MpiRanks(float(options.timeout))
        info = ranks.summary()
        for row, name, block_bytes in cases(options.sizes):
            run = run_of(name, ranks, block_bytes)
            run.fill()
            calls = Calls(options.iters, 50, rewrite=False, check=False)
            samples = ranks.samples(run, calls)
            mine = [statistics.median(samples)]
            times[row] = {"sync_us": max(numbers[0] for numbers in ranks.all_gather(mine))}
        ranks.close()
        return {"info": info, "collectives": times} if ranks.rank == 0 else None

    import torch.distributed as dist

    rank, size = initialize(options.backend, options.timeout)
    info = rank_command.summary(options.backend)
    for row, name, block_bytes in cases(options.sizes):
        issue, call = calls_of(name, rank, size, block_bytes)
        mine = torch.tensor([sync_time(call, options.iters), *issue_times(issue, options.iters)])
        dist.all_reduce(mine, dist.ReduceOp.MAX)
        times[row] = dict(zip(("sync_us", "issue_us", "issue_and_wait_us"), mine.tolist(), strict=True))
    dist.barrier()
    dist.destroy_process_group()
    return {"info": info, "collectives": times} if rank == 0 else None


def sync_time(call: Callable[[], object], iterations: int) -> float:
    """Median microseconds of back-to-back calls."""
    for _ in range(50):
        call()
    stamps = [time.perf_counter_ns()]
    for _ in range(iterations):
        call()
        stamps.append(time.perf_counter_ns())
    return statistics.median((b - a) * 1e-3 for a, b in itertools.pairwise(stamps))


def issue_times(issue: Callable[[], dist.Work], iterations: int) -> tuple[float, float]:
    """Median microseconds until async_op=True returns, and until wait() returns."""
    issued, waited = [], []
    for _ in range(iterations):
        begin = time.perf_counter_ns()
        work = issue()
        middle = time.perf_counter_ns()
        work.wait()
        issued.append((middle - begin) * 1e-3)
        waited.append((time.perf_counter_ns() - begin) * 1e-3)
    return statistics.median(issued), statistics.median(waited)


def cases(sizes: list[int]) -> list[tuple[str, str, int]]:
    """(table row, collective, bytes of a block)."""
    found = [(f"all_reduce, {size} B", "all_reduce", size) for size in sizes]
    return found + [(name, name, sizes[0]) for name in COLLECTIVES if name != "all_reduce"]


def run_of(name: str, ranks: MpiRanks, block_bytes: int) -> Run:
    """Bare MPI's call, in place if torch's is."""
    import torch

    from .collectives import Case

    count = max(1, block_bytes // 4)
    case = Case(ranks.rank, ranks.size, count, torch.float32, "sum", 0, torch.device("cpu"))
    return ranks.runs(name, case)["in" if name in ("all_reduce", "broadcast", "reduce") else "out"]


def calls_of(
    name: str, rank: int, size: int, block_bytes: int
) -> tuple[Callable[[], dist.Work], Callable[[], object]]:
    """(asynchronous, synchronous) call on float32 blocks of `block_bytes`."""
    import functools

    import torch
    import torch.distributed as dist

    from ..renamed import all_gather_single, reduce_scatter_single

    block = torch.zeros(max(1, block_bytes // 4))
    whole, other = torch.zeros(block.numel() * size), torch.zeros(block.numel() * size)
    parts = list(whole.chunk(size)) if rank == 0 else None
    call = {
        "all_reduce": functools.partial(dist.all_reduce, block),
        "broadcast": functools.partial(dist.broadcast, block, 0),
        "reduce": functools.partial(dist.reduce, block, 0),
        "all_gather": functools.partial(all_gather_single, whole, block),
        "reduce_scatter": functools.partial(reduce_scatter_single, block, whole),
        "all_to_all": functools.partial(dist.all_to_all_single, other, whole),
        "gather": functools.partial(dist.gather, block, parts, 0),
        "scatter": functools.partial(dist.scatter, block, parts, 0),
        "barrier": functools.partial(dist.barrier),
    }[name]
    return functools.partial(call, async_op=True), call


def markdown(found: JobResults) -> list[str]:
    """Lines of a table with a row per collective."""
    reports = found["contenders"]
    heads = ["collective", "issue us", "issue and wait us", "blocking us"]
    heads += [f"{name}, blocking us" for name in ("fake", "mpi") if name in reports]
    heads += ["mpi-gdr - fake"] * ("fake" in reports)
    heads += ["mpi-gdr - fake - MPI"] * ("fake" in reports and "mpi" in reports)
    heads = [head.replace("mpi, ", "MPI, ") for head in heads]
    lines = [
        f"Host time of a call, {found['ranks']} ranks, medians over the calls, the slowest rank, "
        f"{found['rounds']} rounds:",
        "",
        f"| {' | '.join(heads)} |",
        "|---|" + "--:|" * (len(heads) - 1),
    ]
    for row in reports["mpi-gdr"][0]["collectives"]:
        keys = ("issue_us", "issue_and_wait_us", "sync_us")
        ours = {key: by_round(reports, "mpi-gdr", row, key) for key in keys}
        cells = [row, *(spread(values) for values in ours.values())]
        others = [by_round(reports, other, row, "sync_us") for other in ("fake", "mpi") if other in reports]
        cells += [spread(values) for values in others]
        beyond = statistics.median(ours["sync_us"])
        for values in others if "fake" in reports else []:
            beyond -= statistics.median(values)
            cells.append(number(beyond))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def by_round(
    reports: Mapping[str, Sequence[Mapping[str, Any]]], contender: str, row: str, key: str
) -> list[float]:
    """`key` of a contender's row, by round."""
    return [report["collectives"][row][key] for report in reports[contender]]
