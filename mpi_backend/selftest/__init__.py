"""`mpi-gdr selftest`: checks every operation against a float64 reference. See docs/selftest.md."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from .. import child_job, rank_command
from ..bar import Bar
from ..command_line import Parser
from ..reports import JobSummary
from ..run import positive

if TYPE_CHECKING:
    from .checker import Result

EPILOG = """\
Under a launcher (mpi-gdr run, mpirun, srun, torchrun) leave -n out:
  mpi-gdr run -n 4 -m mpi_backend selftest
The algorithms are read from the environment once per process, so that --algorithms starts one job for each
set of forced algorithms; it needs -n.
"""


class Report(TypedDict):
    """The object of --json."""

    info: JobSummary
    device: str
    forced: dict[str, str]
    operations: list[Result]
    ok: bool


def main(argv: list[str]) -> int:
    """Exit status, the same on all ranks: 0; 1 if a check failed; 2 for a wrong command line."""
    parser = parser_of_command()
    options = parser.parse_args(argv)
    n = rank_command.ranks_to_start(parser, options.n)
    rank_command.check_device(parser, options.device)
    if n is not None:
        if options.algorithms:
            return run_all_algorithms(n, rank_command.without_ranks(argv), options.json)
        return run_job(n, rank_command.without_ranks(argv))
    if options.algorithms:
        parser.error("--algorithms starts its own jobs: use it with -n, not under a launcher")
    return run_rank(options)


def parser_of_command() -> argparse.ArgumentParser:
    """The command line."""
    parser = Parser(
        prog="mpi-gdr selftest",
        description="Check every operation against a float64 reference on the ranks given.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-n", "--ranks", dest="n", type=positive, metavar="N", help="start N ranks first")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--device", default="cpu", help="device type of the tensors (default: cpu)")
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--algorithms", action="store_true", help="repeat with every other algorithm")
    parser.add_argument("--progress", action="store_true", help=argparse.SUPPRESS)  # set by run_job()
    parser.add_argument(
        "--timeout",
        type=positive,
        default=120,
        metavar="S",
        help="deadline of each operation (default: 120)",
    )
    return parser


def run_job(n: int, argv: list[str], env: Mapping[str, str] | None = None) -> int:
    """Exit status of a job of n ranks, with a bar on a terminal."""
    bar = Bar("selftest") if sys.stdout.isatty() else None
    words = [*argv, "--progress"] if bar else argv
    return child_job.run(rank_command.command_of_job(n, "selftest", words), env, bar)


def run_rank(options: argparse.Namespace) -> int:
    """Runs all operations on this rank; returns the exit status."""
    import torch
    import torch.distributed as dist

    from . import operations
    from .checker import Checker, exchange
    from .report import head, row_line_of, tail

    device = torch.device(options.device)
    patience = timedelta(seconds=options.timeout)
    dist.init_process_group("mpi-gdr", timeout=patience)
    if device.type != "cpu":  # the one that the backend selected for this rank
        device = torch.device(device.type, torch.get_device_module(device).current_device())
    rank, size = dist.get_rank(), dist.get_world_size()
    # Through the store, because the backend is under test.
    store = dist.distributed_c10d._get_default_store()
    plan = operations.Plan(
        rank,
        size,
        counts=(0, 1, 1001) if options.quick else (0, 1, 7, 1000, 40001),
        large=() if options.quick else (2**20 + 1,),
        barrier_key=lambda amount: store.add("mpi-gdr-selftest/entered", amount),
    )
    results: list[Result] = []
    report: Report = {
        "info": rank_command.summary("mpi-gdr"),
        "device": str(device),
        "forced": forcing_variables(os.environ),
        "operations": results,
        "ok": False,
    }

    def show(*lines: str) -> None:
        if rank == 0 and not options.json:
            print(*lines, sep="\n", flush=True)

    show(*head(report))
    sound = True
    for done, name in enumerate(operations.OPERATIONS):
        if rank == 0 and options.progress:
            child_job.report_progress(done, len(operations.OPERATIONS), name)
        merged: Result = {"operation": name, "cases": 0, "ok": False, "not_run": True, "failures": []}
        if sound:
            check = Checker(name, rank, device)
            operations.run(name, check, plan)
            merged = exchange(store, rank, size, check.report(), patience + timedelta(seconds=30))
            # An error on any rank makes the group unusable on all.
            sound = not any(
                failure["expected"] == "no error" or failure["got"] == "no report"
                for failure in merged["failures"]
            )
        results.append(merged)
        show(row_line_of(merged))
    report["ok"] = all(result["ok"] for result in results)
    show(*tail(report))
    if rank == 0 and options.json:
        print(json.dumps(report), flush=True)
    # Rank 0 hosts the store: it must leave last.
    if sound:
        dist.barrier()
        dist.destroy_process_group()
    return 0 if report["ok"] else 1


def forcing_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Variables that override the table's choices."""
    return {
        name: value
        for name, value in sorted(env.items())
        if name == "MPI_GDR_RANKS_PER_NODE" or (name.startswith("MPI_GDR_") and name.endswith("_ALGO"))
    }


# ---- every algorithm --------------------------------------------------------------------------------------


def algorithm_sets(n: int) -> list[dict[str, str]]:
    """Variables of jobs of n ranks that together run every algorithm: the k-th job forces the k-th one of
    each collective. Sets for several nodes come last, if the ranks can form two."""
    from ..tools import schedule

    required = {"order": "ordered", "exact": "flat"}.get(os.environ.get("MPI_GDR_BITS", "").lower())
    anywhere: dict[str, list[str]] = {}
    between_nodes: dict[str, list[str]] = {}
    for algorithm in schedule.algorithms():
        if required and "reduce" in algorithm["collective"] and not algorithm.get(required):
            continue  # the variable excludes it
        names = between_nodes if algorithm["two_level"] else anywhere
        names.setdefault(algorithm["variable"], []).append(algorithm["name"])

    def sets(names: dict[str, list[str]]) -> list[dict[str, str]]:
        rounds = range(max(map(len, names.values())))
        return [{variable: each[k] for variable, each in names.items() if k < len(each)} for k in rounds]

    nodes = {"MPI_GDR_RANKS_PER_NODE": str((n + 1) // 2)}
    return [*sets(anywhere), *({**nodes, **each} for each in sets(between_nodes) if n > 2)]


def run_all_algorithms(n: int, argv: list[str], as_json: bool) -> int:
    """Runs the default table, then each set. Returns the worst status."""
    argv = [word for word in argv if word != "--algorithms"]
    status, reports = 0, []
    for variables in ({}, *algorithm_sets(n)):
        if not as_json:
            shown = ", ".join(f"{name}={value}" for name, value in variables.items())
            print(f"\n== {shown or 'algorithms of the table'}", flush=True)
        environment = {**os.environ, **variables}
        if not as_json:
            status = max(status, run_job(n, argv, environment))
            continue
        job = rank_command.command_of_job(n, "selftest", argv)
        with child_job.running_job(job, env=environment, stdout=subprocess.PIPE) as process:
            output, _ = process.communicate()
        status = max(status, child_job.status_of(process))
        reports.append(last_json(output) or {"ok": False, "forced": variables, "error": "no report"})
    if as_json:
        print(json.dumps({"ok": status == 0, "runs": reports}))
    else:
        print(f"\nmpi-gdr selftest --algorithms: {'all jobs passed' if status == 0 else 'FAILED'}")
    return status


def last_json(text: str) -> dict[str, Any] | None:
    """The report among a launcher's other output."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            report: dict[str, Any] = json.loads(line)
            return report
    return None
