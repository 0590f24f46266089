"""all_reduce of mpi-gdr, Gloo and bare MPI side by side: `python -m mpi_backend.bench.compare -n 2`.

mpi-gdr takes part twice, with ordinary tensors and with tensors in group memory. Each round runs all in turn,
one job each, so that what else the machine does meets all of them; the table shows medians over the rounds,
and in brackets the least and the largest. MPI runs through mpi4py: the same library, the same protocol (see
measure.py), without torch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from array import array
from time import perf_counter_ns

from .. import job, selftest
from . import size, sizes

OURS = ("mpi-gdr", "group memory")
TOUCH_BYTES = 64 * 1024  # as in measure.py, which would load torch


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m mpi_backend.bench.compare", allow_abbrev=False)
    parser.add_argument("-n", type=job.positive, required=True, metavar="RANKS")
    parser.add_argument("-b", type=size, default=8)
    parser.add_argument("-e", type=size, default=64 << 20)
    parser.add_argument("-f", type=int, default=2)
    parser.add_argument("--iters", type=job.positive, default=20)
    parser.add_argument("--warmup", type=job.positive, default=5)
    parser.add_argument("--rounds", type=job.positive, default=3)
    parser.add_argument("--plot", metavar="FILE", help="draw time and bus bandwidth (needs matplotlib)")
    parser.add_argument("--raw", action="store_true", help=argparse.SUPPRESS)  # this process is a rank
    options = parser.parse_args(argv)
    if options.raw:
        return raw_mpi(options)
    times: dict[str, dict[int, list[float]]] = {name: {} for name in (*OURS, "Gloo", "MPI")}
    for _ in range(options.rounds):
        for contestant, results in times.items():
            for row in one_job(contestant, options)["rows"]:
                results.setdefault(row["bytes"], []).append(row["in_place"]["p50_us"])
    print("\n".join(table(times)))
    if options.plot:
        plot(times, options.n, options.plot)
    return 0


def one_job(contestant: str, options: argparse.Namespace) -> dict:
    command = [sys.executable, "-m"]
    common = ["-b", str(options.b), "-e", str(options.e), "-f", str(options.f)]
    if contestant == "MPI":
        program = ["-m", "mpi_backend.bench.compare", "--raw", "-n", str(options.n), *common]
        program += ["--iters", str(options.iters), "--warmup", str(options.warmup)]
        command += ["mpi_backend", "run", "-n", str(options.n), *program]
    else:
        command += ["mpi_backend", "bench", "-n", str(options.n), "all_reduce", *common]
        command += ["-n", str(options.iters), "-w", str(options.warmup), "--json", "-"]
        command += ["--backend", "gloo"] if contestant == "Gloo" else []
        command += ["--memory", "group"] if contestant == "group memory" else []
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    report = selftest.last_json(result.stdout)
    if result.returncode != 0 or report is None:
        raise SystemExit(f"{' '.join(command)} ended with {result.returncode}:\n{result.stderr}")
    return report


def raw_mpi(options: argparse.Namespace) -> int:
    """MPI_Allreduce in place, timed as measure.py times torch's."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rows = []
    for total in sizes(options.b, options.e, options.f, 4):
        fresh, buffer = array("f", [1.0]) * (total // 4), array("f", [1.0]) * (total // 4)
        samples = array("d", [0.0]) * options.iters
        view, source = memoryview(buffer), memoryview(fresh)
        for _ in range(options.warmup):
            comm.Allreduce(MPI.IN_PLACE, buffer)
        comm.Barrier()
        begin = perf_counter_ns()
        for i in range(options.iters):
            if total >= TOUCH_BYTES:
                view[:] = source
                comm.Barrier()
                begin = perf_counter_ns()
            comm.Allreduce(MPI.IN_PLACE, buffer)
            end = perf_counter_ns()
            samples[i] = (end - begin) * 1e-3
            begin = end
        comm.Allreduce(MPI.IN_PLACE, samples, MPI.MAX)
        rows.append({"bytes": total, "in_place": {"p50_us": statistics.median_high(samples)}})
    if comm.rank == 0:
        print(json.dumps({"rows": rows}), flush=True)
    return 0


def table(times: dict[str, dict[int, list[float]]]) -> list[str]:
    """Medians with the least and the largest, then how many times as long Gloo and MPI take."""
    ratios = [(other, ours) for ours in OURS for other in ("Gloo", "MPI")]
    lines = [
        f"| bytes | {' | '.join(f'{name} us' for name in times)} | "
        + " | ".join(f"{other} / {ours}" for other, ours in ratios)
        + " |",
        "|--:" * (1 + len(times) + len(ratios)) + "|",
    ]
    for total in times[OURS[0]]:
        median = {name: statistics.median(rows[total]) for name, rows in times.items()}
        cells = [
            f"{median[name]:.4g} ({min(rows[total]):.4g}..{max(rows[total]):.4g})"
            for name, rows in times.items()
        ]
        cells += [f"{median[other] / median[ours]:.3g}" for other, ours in ratios]
        lines.append(f"| {total} | {' | '.join(cells)} |")
    return lines


def plot(times: dict[str, dict[int, list[float]]], ranks: int, path: str) -> None:
    """Medians as lines, from the least to the largest as bands."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, rows in times.items():
        totals = list(rows)
        medians = [statistics.median(samples) for samples in rows.values()]
        (line,) = left.plot(totals, medians, marker=".", label=name)
        low, high = [min(samples) for samples in rows.values()], [max(samples) for samples in rows.values()]
        left.fill_between(totals, low, high, alpha=0.15, color=line.get_color())
        moved = 2 * (ranks - 1) / ranks  # as in nccl-tests
        bandwidths = [moved * total / median * 1e-3 for total, median in zip(totals, medians, strict=True)]
        right.plot(totals, bandwidths, marker=".", label=name)
    left.set(ylabel="time, us", yscale="log")
    right.set(ylabel="bus bandwidth, GB/s")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("bytes")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle(f"all_reduce, float32, {ranks} ranks of one node")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
