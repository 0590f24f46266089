"""`mpi-gdr bench -n 2 overlap`: slowdown of a compute loop by communication in flight on the same cores.

Every rank starts an all_reduce, computes a fixed number of chunks, and waits. mpi-gdr progresses by itself;
with MPI_Iallreduce the loop calls MPI_Test after each chunk, because MPI progresses only inside its calls.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import rank_command
from ..run import positive
from .compare import spread
from .options import size_list
from .side_by_side import Command, JobResults, initialize

if TYPE_CHECKING:
    import torch

# Seconds of computation before the timed loops: Linux takes a while to share cores evenly between threads
# with different earlier processor use.
WARM_UP = 0.4
MATRIX_SIZE = 96  # of the matrices: a chunk takes tens of microseconds and stays in the cache


def command() -> Command:
    """Returns this benchmark's command."""
    benchmark = Command(
        "overlap",
        "Speed of a compute loop beside an all_reduce in flight: mpi-gdr, and MPI_Iallreduce tested by hand.",
        {"mpi-gdr": "mpi-gdr", "mpi": "mpi"},
    )
    add = benchmark.parser.add_argument
    add("--sizes", type=size_list, default=[65536, 1 << 20, 16 << 20], help="bytes (default: 64K,1M,16M)")
    add("--iters", type=positive, default=20, metavar="N", help="loops of each kind (default: 20)")
    return benchmark


def main(argv: list[str], ranks: int | None) -> int:
    """Returns 0; exits on a wrong command line."""
    return command().main(argv, ranks, run_rank, markdown)


class Ours:
    """all_reduce of torch.distributed, which needs no calls while it runs."""

    progress = None

    def __init__(self, options: argparse.Namespace) -> None:
        self.rank, self.size = initialize(options.backend, options.timeout)
        self.info = rank_command.summary(options.backend)

    def start(self, buffer: torch.Tensor) -> None:
        import torch.distributed as dist

        self._work = dist.all_reduce(buffer, async_op=True)

    def wait(self) -> None:
        self._work.wait()

    def barrier(self) -> None:
        import torch.distributed as dist

        dist.barrier()

    def max_over_ranks(self, numbers: list[float]) -> list[float]:
        import torch
        import torch.distributed as dist

        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.tolist()

    def close(self) -> None:
        import torch.distributed as dist

        dist.barrier()
        dist.destroy_process_group()


class Mpi:
    """MPI_Iallreduce with MPI_Test after each chunk."""

    def __init__(self, options: argparse.Namespace) -> None:
        from ..tools import raw_mpi
        from .raw_mpi import MpiRanks, start_all_reduce

        self._ranks = MpiRanks(float(options.timeout))
        self.rank, self.size, self.info = self._ranks.rank, self._ranks.size, self._ranks.summary()
        self.start = start_all_reduce
        self.progress: Callable[[], bool] = raw_mpi.test_all_reduce
        self.barrier, self.close = self._ranks.barrier, self._ranks.close

    def wait(self) -> None:
        while not self.progress():
            pass

    def max_over_ranks(self, numbers: list[float]) -> list[float]:
        return [max(column) for column in zip(*self._ranks.all_gather(numbers), strict=True)]


def run_rank(options: argparse.Namespace) -> dict[str, Any] | None:
    """Rank 0's report: seconds, medians over the loops, of the slowest rank."""
    import torch

    side = Mpi(options) if options.backend == "mpi" else Ours(options)
    loop = Loop()
    rows = []
    for total in options.sizes:
        buffer = torch.zeros(total // 4)
        chunks = chunks_beside(total)
        samples: dict[str, list[float]] = {"alone": [], "loop": [], "rest": []}
        untimed = 1 + math.ceil(side.max_over_ranks([WARM_UP / loop.run(chunks, None)])[0])
        for i in range(-untimed, options.iters):
            alone = loop.run(chunks, None)
            buffer.fill_(1.0)
            side.barrier()
            begin = time.perf_counter()
            side.start(buffer)
            loop.run(chunks, side.progress)
            middle = time.perf_counter()
            side.wait()
            end = time.perf_counter()
            side.barrier()
            if i >= 0:
                for key, value in (("alone", alone), ("loop", middle - begin), ("rest", end - middle)):
                    samples[key].append(value)
        medians = side.max_over_ranks([statistics.median(values) for values in samples.values()])
        rows.append({"bytes": total, "chunks": chunks, **dict(zip(samples, medians, strict=True))})
    side.close()
    return {"info": side.info, "rows": rows} if side.rank == 0 else None


def chunks_beside(total: int) -> int:
    """Chunks of a loop that takes about as long as MPI's all_reduce. Equal for all contenders."""
    return 20 + total // (64 << 10)


class Loop:
    """Computation in the cache, on one thread."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self._a, self._b = torch.rand(MATRIX_SIZE, MATRIX_SIZE), torch.rand(MATRIX_SIZE, MATRIX_SIZE)
        self._c = torch.empty(MATRIX_SIZE, MATRIX_SIZE)
        self._multiply = torch.mm

    def run(self, chunks: int, progress: Callable[[], object] | None) -> float:
        """Seconds of `chunks` chunks, with a call of `progress` after each."""
        a, b, c, multiply = self._a, self._b, self._c, self._multiply
        begin = time.perf_counter()
        if progress is None:
            for _ in range(chunks):
                multiply(a, b, out=c)
        else:
            for _ in range(chunks):
                multiply(a, b, out=c)
                progress()
        return time.perf_counter() - begin


def markdown(found: JobResults) -> list[str]:
    """Returns a line per size."""
    reports = found["contenders"]
    names = [name for name in ("mpi-gdr", "mpi") if name in reports]
    labels = {"mpi-gdr": "mpi-gdr", "mpi": "MPI_Test by hand"}
    heads = ["bytes"]
    heads += [f"{labels[name]}, speed %" for name in names] + [
        f"{labels[name]}, time in wait() ms" for name in names
    ]
    heads += ["speed, mpi-gdr / MPI"] * ("mpi" in reports) + ["whole, MPI / mpi-gdr"] * ("mpi" in reports)
    lines = [
        f"Compute loop beside an all_reduce, {found['ranks']} ranks, {found['rounds']} rounds; speed in "
        "percent of the loop alone:",
        "",
        f"| {' | '.join(heads)} |",
        "|--:" * len(heads) + "|",
    ]
    for i, row in enumerate(reports["mpi-gdr"][0]["rows"]):
        of = {name: [report["rows"][i] for report in reports[name]] for name in names}
        cells = [str(row["bytes"])]
        cells += [spread([100 * r["alone"] / r["loop"] for r in of[name]]) for name in names]
        cells += [spread([1e3 * r["rest"] for r in of[name]]) for name in names]
        if "mpi" in of:
            pairs = list(zip(of["mpi-gdr"], of["mpi"], strict=True))
            cells.append(spread([theirs["loop"] / ours["loop"] for ours, theirs in pairs]))
            whole = [(t["loop"] + t["rest"]) / (o["loop"] + o["rest"]) for o, t in pairs]
            cells.append(spread(whole))
        lines.append(f"| {' | '.join(cells)} |")
    return lines
