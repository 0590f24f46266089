"""Jobs side by side: each contender alone in its own processes, all in turn, round after round, so that what
else the machine does meets all of them."""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from .. import child_job, host, rank_command, selftest
from ..reports import JobSummary

NAMES = {"mpi-gdr": "mpi-gdr", "group": "group memory", "gloo": "Gloo"}
NAMES |= {"mpi": "MPI", "nccl": "NCCL", "fake": "fake"}


def ranks_of_jobs(parser: argparse.ArgumentParser, ranks: int | None) -> int:
    """Ends the program under a launcher, and without a number."""
    if rank_command.is_rank(os.environ):
        parser.error("this starts jobs of its own: use it without a launcher")
    if ranks is None:
        parser.error("say how many ranks: `mpi-gdr bench -n N ...`")
    return ranks


def run_job(ranks: int, arguments: Sequence[str]) -> dict[str, Any]:
    """The JSON of `mpi-gdr bench -n RANKS ARGUMENTS`. Ends this program if the job fails."""
    words = [*arguments, "--json", "-"]
    job = rank_command.command_of_job(ranks, "bench", words)
    backend = arguments[arguments.index("--backend") + 1] if "--backend" in arguments else "mpi-gdr"
    environment = rank_command.environment_of_job(backend)
    with child_job.started(job, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        output, errors = process.communicate()
    report = selftest.last_json(output)
    if process.returncode != 0 or report is None:
        command = shlex.join(["mpi-gdr", "bench", "-n", str(ranks), *words])
        text = (output + errors).strip()
        raise SystemExit(f"`{command}` ended with {process.returncode}:\n{text}")
    return report


def interleave(
    ranks: int, contenders: Mapping[str, Sequence[str]], rounds: int, *, check_first: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """The reports of each contender, one a round. Every round begins with another one. `check_first`: only
    the jobs of the first round compare results."""
    reports: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    names = list(contenders)
    begin = time.monotonic()
    for k in range(rounds):
        for i in range(len(names)):
            name = names[(i + k) % len(names)]
            extra = ("-c", "0") if check_first and k > 0 else ()
            progress(f"round {k + 1} of {rounds}, {NAMES[name]} ({time.monotonic() - begin:.0f} s)")
            reports[name].append(run_job(ranks, [*contenders[name], *extra]))
    return reports


def progress(text: str) -> None:
    """On standard error: standard output belongs to the tables."""
    print(f"mpi-gdr bench: {text}", file=sys.stderr, flush=True)


class Conditions(TypedDict):
    """Of this machine, for the head of a table."""

    date: str  # "2026-11-25"
    cores: int
    cpu: str
    load_average: float  # at the end
    torch: str
    library: str | None
    gpu: str | None


def conditions(report: JobSummary) -> Conditions:
    """Now, and what a job has reported."""
    return {
        "date": datetime.date.today().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": host.cpu_model(),
        "load_average": os.getloadavg()[0],
        "torch": report["torch"],
        "library": report.get("library"),
        "gpu": report.get("gpu"),
    }
