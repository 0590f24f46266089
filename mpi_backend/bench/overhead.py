"""`mpi-gdr bench -n 2 overhead`: host time of a small call, beside torch's `fake` backend and bare MPI.

`fake` does nothing below torch.distributed: its time is what Python and c10d take of any backend's.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

from .compare import number, spread
from .side_by_side import Command, initialize

COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "gather",
    "scatter",
    "barrier",
)


def command() -> Command:
    made = Command(
        "overhead",
        "Host time of a call on a few bytes: mpi-gdr's, that of torch's fake backend, and MPI's own.",
        {"mpi-gdr": "mpi-gdr", "fake": "fake", "mpi": "mpi"},
    )
    from .. import job
    from .options import size

    made.parser.add_argument("--bytes", type=size, default=8, metavar="SIZE", help="of a block (default: 8)")
    made.parser.add_argument(
        "--iters", type=job.positive, default=1000, metavar="N", help="timed calls (default: 1000)"
    )
    return made


def main(argv: list[str], ranks: int | None) -> int:
    return command().main(argv, ranks, run_rank, markdown)


def run_rank(options: argparse.Namespace) -> dict[str, Any] | None:
    """{"collectives": {name: {"sync_us": median, "issue_us": ...}}}; the largest of all ranks."""
    import torch

    from .. import job

    times: dict[str, dict[str, float]] = {}
    if options.backend == "mpi":
        from .raw_mpi import MpiRanks

        ranks = MpiRanks(float(options.timeout))
        info = ranks.summary()
        for name, run in runs_of(ranks.rank, ranks.size, options.bytes, ranks).items():
            samples = ranks._mpi.time(*run.call, warmup=50, iterations=options.iters)
            mine = [statistics.median(samples)]
            times[name] = {"sync_us": max(numbers[0] for numbers in ranks.all_gather(mine))}
        ranks.close()
        return {"info": info, "collectives": times} if ranks.rank == 0 else None

    import torch.distributed as dist

    rank, size = initialize(options.backend, options.timeout)
    info = job.summary(options.backend)
    for name, (issue, call) in calls_of(rank, size, options.bytes).items():
        mine = torch.tensor([sync_time(call, options.iters), *issue_times(issue, options.iters)])
        dist.all_reduce(mine, dist.ReduceOp.MAX)
        times[name] = dict(zip(("sync_us", "issue_us", "issue_and_wait_us"), mine.tolist(), strict=True))
    dist.barrier()
    dist.destroy_process_group()
    return {"info": info, "collectives": times} if rank == 0 else None


def sync_time(call: Callable[[], object], iterations: int) -> float:
    """Median microseconds, back to back."""
    for _ in range(50):
        call()
    stamps = [time.perf_counter_ns()]
    for _ in range(iterations):
        call()
        stamps.append(time.perf_counter_ns())
    return statistics.median((b - a) * 1e-3 for a, b in itertools.pairwise(stamps))


def issue_times(issue: Callable[[], Any], iterations: int) -> tuple[float, float]:
    """Median microseconds until async_op=True returns, and until wait() has returned too."""
    issued, waited = [], []
    for _ in range(iterations):
        begin = time.perf_counter_ns()
        work = issue()
        middle = time.perf_counter_ns()
        work.wait()
        issued.append((middle - begin) * 1e-3)
        waited.append((time.perf_counter_ns() - begin) * 1e-3)
    return statistics.median(issued), statistics.median(waited)


def runs_of(rank: int, size: int, block_bytes: int, ranks: Any) -> dict[str, Any]:
    """Bare MPI: in place where torch is."""
    import torch

    from .collectives import Case

    runs = {}
    for name in COLLECTIVES:
        count = max(1, block_bytes // 4)
        found = ranks.runs(name, Case(rank, size, count, torch.float32, "sum", 0, torch.device("cpu")))
        runs[name] = found["in" if name in ("all_reduce", "broadcast", "reduce") else "out"]
    return runs


def calls_of(
    rank: int, size: int, block_bytes: int
) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """(asynchronous, synchronous) of each collective on float32 blocks of so many bytes."""
    import functools

    import torch
    import torch.distributed as dist

    block = torch.zeros(max(1, block_bytes // 4))
    whole, other = torch.zeros(block.numel() * size), torch.zeros(block.numel() * size)
    parts = list(whole.chunk(size)) if rank == 0 else None
    calls: dict[str, tuple[Any, ...]] = {
        "all_reduce": (dist.all_reduce, block),
        "broadcast": (dist.broadcast, block, 0),
        "reduce": (dist.reduce, block, 0),
        "all_gather": (dist.all_gather_into_tensor, whole, block),
        "reduce_scatter": (dist.reduce_scatter_tensor, block, whole),
        "all_to_all": (dist.all_to_all_single, other, whole),
        "gather": (dist.gather, block, parts, 0),
        "scatter": (dist.scatter, block, parts, 0),
        "barrier": (dist.barrier,),
    }
    return {
        name: (functools.partial(*call, async_op=True), functools.partial(*call))
        for name, call in calls.items()
    }


def markdown(found: dict[str, Any]) -> list[str]:
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
    for name in COLLECTIVES:
        ours = {
            key: of(reports, "mpi-gdr", name, key) for key in ("issue_us", "issue_and_wait_us", "sync_us")
        }
        cells = [name, *(spread(values) for values in ours.values())]
        others = [of(reports, other, name, "sync_us") for other in ("fake", "mpi") if other in reports]
        cells += [spread(values) for values in others]
        beyond = statistics.median(ours["sync_us"])
        for values in others if "fake" in reports else []:
            beyond -= statistics.median(values)
            cells.append(number(beyond))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def of(reports: Any, contender: str, collective: str, key: str) -> list[float]:
    return [report["collectives"][collective][key] for report in reports[contender]]
