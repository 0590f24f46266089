"""all_reduce in jobs that share cores, over mpi-gdr and over bare MPI.

    python tools/crowded.py [--jobs 2] [--ranks 2] [--rounds 3] [--seconds 2] [--sizes 8,1024,65536]

Prints per size the us of a call, median and mean, of each contender and as a ratio, over alternating rounds.
Only the mean includes the time that a rank waits for its core. Every job assumes that it has the cores for
itself. --jobs 1 is the comparison without neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def rank(backend: str, begin: float, seconds: float, sizes: list[int]) -> None:
    """One rank: median and mean of each size in us. All jobs measure the same size at the same time."""
    import torch

    if backend == "mpi":
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        first = world.rank == 0

        def call_of(count: int):
            values = torch.ones(count).numpy()
            return lambda: world.Allreduce(MPI.IN_PLACE, values)

        def latest(value: float) -> float:
            return world.allreduce(value, op=MPI.MAX)
    else:
        import torch.distributed as dist

        dist.init_process_group("mpi-gdr")
        first = dist.get_rank() == 0

        def call_of(count: int):
            values = torch.ones(count)
            return lambda: dist.all_reduce(values)

        def latest(value: float) -> float:
            values = torch.tensor([value], dtype=torch.float64)
            dist.all_reduce(values, op=dist.ReduceOp.MAX)
            return values.item()

    found: dict[str, dict[int, float]] = {"median": {}, "mean": {}}
    for place, size in enumerate(sizes):
        at = begin + place * (seconds + 0.5)
        call = call_of(max(1, size // 4))
        while time.time() < at:
            time.sleep(0.005)
        times: list[float] = []
        while latest(time.time() - at) < seconds:
            for _ in range(20):
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
        found["median"][size] = statistics.median(times) * 1e6
        found["mean"][size] = statistics.fmean(times) * 1e6
    if first:
        print(json.dumps(found), flush=True)
    if backend != "mpi":
        dist.destroy_process_group()


def run(options: argparse.Namespace, backend: str) -> list[dict[str, dict[str, float]]]:
    """The results of each job's rank 0."""
    begin = time.time() + options.start
    mine = [sys.executable, __file__, "--backend", backend, "--begin", str(begin)]
    mine += ["--seconds", str(options.seconds), "--sizes", options.sizes]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [os.path.join(os.path.dirname(sys.executable), "mpiexec"), "-n", str(options.ranks), *mine]
    jobs = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE) for _ in range(options.jobs)]
    outputs = [job.communicate(timeout=600)[0].decode() for job in jobs]
    return [json.loads(line) for text in outputs for line in text.splitlines() if line.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--sizes", default="8,1024,65536")
    parser.add_argument("--start", type=float, default=6, help="seconds that a job takes to begin")
    parser.add_argument("--backend", help=argparse.SUPPRESS)
    parser.add_argument("--begin", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    if options.backend:
        return rank(options.backend, options.begin, options.seconds, sizes)
    found: dict[str, list[dict[str, dict[str, float]]]] = {"ours": [], "mpi": []}
    for _ in range(options.rounds):
        for backend, all_of in found.items():
            all_of += run(options, backend)
    cores = len(os.sched_getaffinity(0))
    print(f"{options.jobs} jobs of {options.ranks} ranks on {cores} cores, us (least..most)")
    for size in map(str, sizes):
        for kind in ("median", "mean"):
            of = {backend: [job[kind][size] for job in all_of] for backend, all_of in found.items()}
            columns = [
                f"{backend} {statistics.median(times):9.1f} ({min(times):.1f}..{max(times):.1f})"
                for backend, times in of.items()
            ]
            ratio = statistics.median(of["ours"]) / statistics.median(of["mpi"])
            print(f"{size:>8} B  {kind:>6}  {'  '.join(columns)}  ours / mpi {ratio:.2f}")


if __name__ == "__main__":
    main()
