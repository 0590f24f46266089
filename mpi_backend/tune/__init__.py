"""`mpi-gdr tune`: measures the algorithms on this machine and writes a table for MPI_GDR_TUNING.

See docs/tuning.md. Without a launcher this process starts one job per number of ranks; under one, the ranks
are the only job. The table is made in this process, or on rank 0; only ranks import torch.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from .. import child_job, rank_command
from ..bar import Bar
from ..bench.options import COLLECTIVES as ALL_COLLECTIVES
from ..command_line import Parser, parse_names
from .table import JobResult

# Without all_to_all, of which one algorithm supports uneven splits, and messages, which have no algorithms.
COLLECTIVES = tuple(name for name in ALL_COLLECTIVES if name not in ("all_to_all", "sendrecv"))
DTYPES = ("float32", "bfloat16", "int32")
MAX_LOAD = 0.5  # load average
# Variables that would override the algorithm under measurement.
UNWANTED = re.compile(r"MPI_GDR_(\w+_ALGO|SELECT|TUNING|BITS)$")


def main(argv: list[str]) -> int:
    """Exit status: 0; 1 if a job failed; 2 for a wrong command line."""
    parser = parser_of_command()
    options = parser.parse_args(argv)
    options.load = os.getloadavg()[0]
    if options.minbytes > options.maxbytes:
        parser.error(f"-b {options.minbytes}: expected 1 to -e {options.maxbytes}")
    if options.stepfactor < 2:
        parser.error(f"-f {options.stepfactor} is less than 2")
    if rank_command.is_rank(os.environ):
        if options.ranks is not None:
            parser.error("-n: leave it out under a launcher; its ranks are measured")
        return run_rank(options, argv)
    if options.ranks is None:
        parser.error("no launcher started this process: use `mpi-gdr tune -n RANKS`")
    return run_jobs(options, argv)


def parser_of_command() -> argparse.ArgumentParser:
    """The command line."""
    from ..bench.options import size

    parser = Parser(
        prog="mpi-gdr tune",
        description="Measure the algorithms of each collective on this machine and write a table for "
        "MPI_GDR_TUNING.",
    )
    add = parser.add_argument
    add(
        "-n",
        "--ranks",
        type=rank_counts,
        metavar="RANKS",
        help="group sizes: 8 means 2, 4 and 8; 2,3 means these two",
    )
    add("--out", default="mpi-gdr-tuning.txt", metavar="FILE", help="default: mpi-gdr-tuning.txt; -: stdout")
    add(
        "--time",
        type=positive_seconds,
        default=120.0,
        metavar="S",
        help="seconds of measuring in all (default: 120)",
    )
    add("-b", "--minbytes", type=size, default=64, metavar="SIZE", help="first size (default: 64)")
    add("-e", "--maxbytes", type=size, default=64 << 20, metavar="SIZE", help="last size (default: 64M)")
    add(
        "-f",
        "--stepfactor",
        type=int,
        default=4,
        metavar="K",
        help="next size = K times this one (default: 4)",
    )
    add(
        "--collectives",
        type=names_of(COLLECTIVES),
        default=COLLECTIVES,
        metavar="NAMES",
        help=f"separated by commas (default: {','.join(COLLECTIVES)})",
    )
    add(
        "--dtypes",
        type=names_of(DTYPES),
        default=DTYPES,
        metavar="NAMES",
        help=f"of reductions, separated by commas (default: {','.join(DTYPES)})",
    )
    add(
        "--library-order",
        dest="native_order",
        action="store_true",
        help="let the MPI library reduce floats where it is faster, in an order that may vary",
    )
    add(
        "--extend",
        action="store_true",
        help="rows of a group size apply up to the next measured size, rows of the largest to all above",
    )
    add("--json", metavar="FILE", help="also write all medians as JSON; -: to standard output")
    add("--result", help=argparse.SUPPRESS)  # file for the medians of a job that this command started
    return parser


def positive_seconds(text: str) -> float:
    """Parses seconds above 0; for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def rank_counts(text: str) -> list[int]:
    """ "8": the powers of two from 2, and 8 itself. "2,3": these."""
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = []
    if not counts or counts[0] < 2:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers of ranks from 2 on, such as 4 or 2,3")
    if "," in text:
        return counts
    most = counts[0]
    return [*(1 << k for k in range(1, most.bit_length()) if 1 << k < most), most]


def names_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Parser of some of `known`, separated by commas."""
    return lambda text: tuple(parse_names(text, known))


# ---- jobs -------------------------------------------------------------------------------------------------


def run_jobs(options: argparse.Namespace, argv: list[str]) -> int:
    """Runs a job per number of ranks and writes the table; returns the exit status."""
    if is_loaded(options):
        print(
            f"mpi-gdr tune: the load average is {options.load:.2g}: other programs distort medians",
            file=sys.stderr,
        )
    environment = {name: value for name, value in os.environ.items() if not UNWANTED.match(name)}
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for number, ranks in enumerate(options.ranks, start=1):
            out = Path(folder, f"{ranks}.json")
            print(
                f"mpi-gdr tune: job {number} of {len(options.ranks)}, {ranks} ranks",
                file=sys.stderr,
                flush=True,
            )
            status, output = run_job(options, ranks, out, environment)
            if status != 0 or not out.exists():
                print(output[-6000:], file=sys.stderr)
                print(f"mpi-gdr tune: the job of {ranks} ranks failed with status {status}", file=sys.stderr)
                return 1
            results.append(json.loads(out.read_text()))
    return finish(options, argv, results)


def run_job(
    options: argparse.Namespace, ranks: int, out: Path, environment: dict[str, str]
) -> tuple[int, str]:
    """(status, output) of a job, whose rank 0 writes the result to `out`."""
    words = ["--time", str(options.time / len(options.ranks)), "--result", str(out)]
    words += ["-b", str(options.minbytes), "-e", str(options.maxbytes), "-f", str(options.stepfactor)]
    words += ["--collectives", ",".join(options.collectives), "--dtypes", ",".join(options.dtypes)]
    started = child_job.running_job(
        rank_command.command_of_job(ranks, "tune", words),
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = ""
    with Bar(f"{ranks} ranks") as bar, started as job:
        for line in job.stdout or ():
            if not child_job.show_if_progress(bar, line):
                output += line
    return child_job.status_of(job), output


def run_rank(options: argparse.Namespace, argv: list[str]) -> int:
    """Measures on this job's ranks; rank 0 writes. Returns the exit status."""
    import torch.distributed as dist

    from .measure import measure_job

    chosen = [name for name in os.environ if UNWANTED.match(name)]
    if chosen:
        print(f"mpi-gdr tune: {', '.join(chosen)}: unset these while measuring", file=sys.stderr)
        return 2
    dist.init_process_group("mpi-gdr")
    result = measure_job(options)
    first = dist.get_rank() == 0
    dist.barrier()
    dist.destroy_process_group()
    return finish(options, argv, [result]) if first else 0


def finish(options: argparse.Namespace, argv: list[str], results: list[JobResult]) -> int:
    """Writes the measurements as a table and as JSON, and prints a summary; returns the exit status."""
    from ..tools import schedule
    from .report import summary
    from .table import choose, table_text

    if options.result:
        Path(options.result).write_text(json.dumps(results[0]))
        return 0
    if options.json:
        written = json.dumps(results)
        print(written) if options.json == "-" else Path(options.json).write_text(written + "\n")
    choices = choose(results, options.native_order)
    text = table_text(results, choices, shlex.join(["mpi-gdr", "tune", *argv]), options.extend, options.load)
    schedule.parse_table(text, options.out)  # the file must be loadable
    if options.out == "-":
        print(text, end="")
        return 0
    path = Path(options.out)
    partial = path.with_name(path.name + ".new")
    partial.write_text(text)
    os.replace(partial, path)
    if options.json != "-":
        for line in summary(results, choices, options.native_order):
            print(line)
        print(f"written: {path}")
        if is_loaded(options):
            print(
                f"do not use it: other programs ran (load average {options.load:.2g}); run "
                "`mpi-gdr tune` again on an idle machine"
            )
        else:
            print(f"use it with MPI_GDR_TUNING={path.resolve()} on all ranks")
    return 0


def is_loaded(options: argparse.Namespace) -> bool:
    """Whether other programs ran when the command began, which distorts the choices."""
    return options.load > MAX_LOAD
