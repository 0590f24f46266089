"""`mpi-gdr bench`: times the collectives and messages of torch.distributed, on this backend or on another.

docs/bench.md says what is timed and how to read the columns.
"""

from __future__ import annotations

import argparse
import importlib
import os

from .. import rank_command
from ..run import positive
from .options import check_options, parser_of_command

# Benchmarks of more than one collective at a time; each is a module with main(argv, ranks).
OTHERS = ("ddp", "device", "overhead", "overlap", "suite")
MESSAGES = ("latency", "bw", "bibw", "multi_bw")  # between two ranks


def main(argv: list[str]) -> int:
    """0; 1 if a result was wrong, on all ranks; 2 for a wrong command line."""
    parser = parser_of_command()
    # nccl-tests and the launchers both call it -n. What stands before the collective is the launcher's.
    ranks = None
    if argv[:1] == ["-n"] and len(argv) > 1:
        try:
            ranks = positive(argv[1])
        except argparse.ArgumentTypeError as error:
            parser.error(f"-n {error}")
        argv = argv[2:]
    if argv and argv[0] in OTHERS:
        status: int = importlib.import_module(f"{__name__}.{argv[0]}").main(argv[1:], ranks)
        return status
    if argv and argv[0] in MESSAGES:
        from . import messages

        return messages.main(argv[0], argv[1:], ranks)
    options = parser.parse_args(argv)
    check_options(parser, options)
    if options.compare is not None:
        from . import compare
        from .jobs import ranks_of_jobs

        jobs = ranks_of_jobs(parser, ranks)
        compare.require_nccl(parser, options, jobs)
        return compare.main(options, jobs)
    if (started := rank_command.ranks_to_start(parser, ranks)) is not None:
        return start_ranks(argv, started, options.backend)
    from .rank import run_rank

    return run_rank(options)


def start_ranks(argv: list[str], ranks: int, backend: str) -> int:
    """Becomes the launcher of `mpi-gdr bench ARGV` on so many ranks."""
    from .. import run

    if backend not in ("mpi-gdr", "mpi"):
        rank_command.settle_local_address(os.environ)
    return run.main(rank_command.command_of_job(ranks, "bench", argv))
