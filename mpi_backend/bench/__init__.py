"""`mpi-gdr bench`: times the collectives and messages of torch.distributed, on this backend or on another.

docs/bench.md says what is timed and how to read the columns.
"""

from __future__ import annotations

import argparse
import importlib
import os

from .. import job
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
            ranks = job.positive(argv[1])
        except argparse.ArgumentTypeError as error:
            parser.error(f"-n {error}")
        argv = argv[2:]
    if argv and argv[0] in OTHERS:
        return importlib.import_module(f"{__name__}.{argv[0]}").main(argv[1:], ranks)
    if argv and argv[0] in MESSAGES:
        from . import messages

        return messages.main(argv[0], argv[1:], ranks)
    options = parser.parse_args(argv)
    check_options(parser, options)
    if options.compare is not None:
        from . import compare
        from .jobs import require_no_launcher

        require_no_launcher(parser, ranks)
        compare.require_nccl(parser, options, ranks)
        return compare.main(options, ranks)
    if not job.require_ranks(parser, ranks):
        return start_ranks(argv, ranks, options.backend)
    from .rank import run_rank

    return run_rank(options)


def start_ranks(argv: list[str], ranks: int, backend: str) -> int:
    """Becomes the launcher of `mpi-gdr bench ARGV` on so many ranks."""
    from .. import run

    if backend not in ("mpi-gdr", "mpi"):
        job.settle_local_address(os.environ)
    return run.main(job.command_of_job(ranks, "bench", argv))
