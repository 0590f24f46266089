"""`mpi-gdr demo`: two ranks train a small GPT over mpi-gdr, then over Gloo; a table compares the times.

This process starts a job per backend and draws the bar, because a rank's output is a pipe to its launcher.
Under a launcher the ranks train over --backend alone. `mpi-gdr bench ddp` and the examples use the model and
its text too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time

from .. import child_job, rank_command
from ..bar import Bar
from ..bench.jobs import NAMES
from ..command_line import Parser
from ..run import positive
from .report import Result, bits, comparison, equal_bits, table

STEP = re.compile(r"step (\d+) of (\d+): (.*)$")


def main(argv: list[str]) -> int:
    """Exit status: 0; 1 if a job failed or its ranks differ; 2 for a wrong command line."""
    parser = parser_of_command()
    options = parser.parse_args(argv)
    if rank_command.is_rank(os.environ):
        from .train import run_rank

        rank_command.ranks_to_start(parser, options.ranks)  # refuses another number
        rank_command.check_backend(parser, options.backend or "mpi-gdr")
        return run_rank(options)
    if options.backend:
        parser.error("--backend needs a launcher: without one the demo compares mpi-gdr with Gloo")
    return run_jobs(options.ranks or 2, options.steps)


def parser_of_command() -> argparse.ArgumentParser:
    """The command line."""
    parser = Parser(
        prog="mpi-gdr demo",
        description="Train a small GPT on CPUs, over mpi-gdr and then over Gloo; a minute.",
    )
    add = parser.add_argument
    add("-n", "--ranks", type=positive, metavar="N", help="(default: 2)")
    add("--steps", type=positive, default=300, metavar="K", help="(default: 300)")
    add("--backend", help="under a launcher: backend of the ranks (default: mpi-gdr)")
    add("--json", action="store_true", help=argparse.SUPPRESS)  # a job of run_jobs()
    return parser


def run_jobs(ranks: int, steps: int) -> int:
    """Runs a job per backend, then prints the table."""
    text = f"A small GPT learns Python: {ranks} ranks, {steps} steps over mpi-gdr, then over Gloo."
    print(text, flush=True)
    results = []
    for backend in ("mpi-gdr", "gloo"):
        begin = time.monotonic()
        result, status = run_job(backend, ranks, steps)
        if result is None or (status != 0 and equal_bits(result)):
            text = f"the job over {NAMES[backend]} ended with status {status}: its message is above"
            print(f"mpi-gdr demo: {text}; `mpi-gdr doctor` looks for causes", file=sys.stderr)
            return 1
        results.append(result)
        print(f"{NAMES[backend]}: {time.monotonic() - begin:.0f} s", flush=True)
    print("", *table(results), "", *map(bits, results), "", *comparison(*results), sep="\n")
    return 0 if all(map(equal_bits, results)) else 1


def run_job(backend: str, ranks: int, steps: int) -> tuple[Result | None, int]:
    """Rank 0's result, None if it reported none, and the job's exit status."""
    words = ["--steps", str(steps), "--backend", backend, "--json"]
    started = child_job.running_job(
        rank_command.command_of_job(ranks, "demo", words),
        env=rank_command.environment_of_job(backend),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # the bar would overwrite its lines
    )
    result: Result | None = None
    with Bar(NAMES[backend]) as bar, started as job:
        for line in job.stdout or ():
            if step := STEP.match(line):
                bar.show(int(step[1]), int(step[2]), step[3])
            elif line.startswith('{"backend"'):
                result = json.loads(line)
            else:
                bar.print(line.rstrip("\n"))
    return result, job.returncode
