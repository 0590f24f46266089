"""Runs each contender as its own job, in turns over several rounds, so that other load affects all."""

from __future__ import annotations

import argparse
import ctypes
import datetime
import mmap
import os
import shlex
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

from .. import child_job, host, rank_command, selftest
from ..reports import JobSummary

NAMES = {"mpi-gdr": "mpi-gdr", "group": "group memory", "gloo": "Gloo"}
NAMES |= {"mpi": "MPI", "nccl": "NCCL", "fake": "fake"}


def ranks_of_jobs(parser: argparse.ArgumentParser, ranks: int | None) -> int:
    """The number of ranks to start; exits under a launcher or without a number."""
    if rank_command.is_rank(os.environ):
        parser.error("this benchmark starts its own jobs: use it without a launcher")
    if ranks is None:
        parser.error("the number of ranks is missing: use `mpi-gdr bench -n N ...`")
    return ranks


def run_job(ranks: int, arguments: Sequence[str]) -> dict[str, Any]:
    """The JSON of `mpi-gdr bench -n RANKS ARGUMENTS`. Exits if the job fails."""
    words = [*arguments, "--json", "-"]
    job = rank_command.command_of_job(ranks, "bench", words)
    backend = arguments[arguments.index("--backend") + 1] if "--backend" in arguments else "mpi-gdr"
    environment = rank_command.environment_of_job(backend)
    with child_job.running_job(
        job, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        output, errors = process.communicate()
    report = selftest.last_json(output)
    # When Python exits, a thread of Gloo may abort a process that has reported. Status 1: a wrong result.
    aborted = process.returncode not in (0, 1) and backend == "gloo"
    if report is None or (process.returncode != 0 and not aborted):
        command = shlex.join(["mpi-gdr", "bench", "-n", str(ranks), *words])
        text = (output + errors).strip()
        raise SystemExit(f"`{command}` ended with {process.returncode}:\n{text}")
    return report


def interleave(
    ranks: int, contenders: Mapping[str, Sequence[str]], rounds: int, *, check_first: bool = False
) -> tuple[dict[str, list[dict[str, Any]]], Copies]:
    """Each contender's reports by round, and the copy speed before each round. The contender that starts a
    round rotates. `check_first`: only jobs of the first round compare results."""
    reports: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    copies: Copies = {"one_core": [], "all_cores": []}
    cores = sorted(os.sched_getaffinity(0))
    names = list(contenders)
    begin = time.monotonic()
    for k in range(rounds):
        copies["one_core"].append(copy_speed(cores[:1]))
        copies["all_cores"].append(copy_speed(cores))
        for i in range(len(names)):
            name = names[(i + k) % len(names)]
            extra = ("-c", "0") if check_first and k > 0 else ()
            progress(f"round {k + 1} of {rounds}, {NAMES[name]} ({time.monotonic() - begin:.0f} s)")
            reports[name].append(run_job(ranks, [*contenders[name], *extra]))
    return reports, copies


def progress(text: str) -> None:
    """Prints to standard error: standard output is for the tables."""
    print(f"mpi-gdr bench: {text}", file=sys.stderr, flush=True)


class Copies(TypedDict):
    """Memcpy speed in GB/s (each byte counted once), measured before each round."""

    one_core: list[float]
    all_cores: list[float]  # all at once, in total


def copy_speed(cores: Sequence[int], size: int = 32 << 20, copies: int = 5) -> float:
    """GB/s copied by one thread on each core at once: the median of `copies` copies."""
    start = threading.Barrier(len(cores))

    def work(core: int) -> list[float]:
        os.sched_setaffinity(0, {core})  # this thread's
        to, source = (ctypes.c_char.from_buffer(mmap.mmap(-1, size)) for _ in range(2))
        ctypes.memset(ctypes.addressof(source), 1, size)
        seconds = []
        for _ in range(copies + 1):
            start.wait()
            begin = time.perf_counter()
            ctypes.memmove(ctypes.addressof(to), ctypes.addressof(source), size)  # releases the GIL
            seconds.append(time.perf_counter() - begin)
        return seconds[1:]  # the first one faults in pages

    with ThreadPoolExecutor(len(cores)) as pool:
        slowest = [max(each) for each in zip(*pool.map(work, cores), strict=True)]
    return size * len(cores) / statistics.median(slowest) * 1e-9


class Conditions(TypedDict):
    """This machine's state, for the caption of a table."""

    date: str  # "2026-11-25"
    cores: int
    cpu: str
    load_average: float  # at the end
    torch: str
    library: str | None
    gpu: str | None
    copies: Copies | None  # None: not measured


def conditions(report: JobSummary, copies: Copies | None = None) -> Conditions:
    """The present conditions, and those in a job's report."""
    return {
        "date": datetime.date.today().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": host.cpu_model(),
        "load_average": os.getloadavg()[0],
        "torch": report["torch"],
        "library": report.get("library"),
        "gpu": report.get("gpu"),
        "copies": copies,
    }
