"""`mpi-gdr bench`: times collectives and messages of torch.distributed. See docs/bench.md."""

from __future__ import annotations

import argparse
import importlib

from .. import child_job, rank_command
from ..command_line import canonical_name
from ..run import positive
from .options import MESSAGES, OTHERS, check_options, parser_of_command


def main(argv: list[str]) -> int:
    """Exit status: 0; 1 on all ranks if a result was wrong; 2 for a wrong command line."""
    parser = parser_of_command()
    # -n means iterations to nccl-tests and ranks to launchers: before the collective it means ranks.
    ranks = None
    if argv[:1] == ["-n"] and len(argv) > 1:
        try:
            ranks = positive(argv[1])
        except argparse.ArgumentTypeError as error:
            parser.error(f"-n {error}")
        argv = argv[2:]
    name = canonical_name(argv[0], (*MESSAGES, *OTHERS)) if argv else ""
    if name in OTHERS:
        status: int = importlib.import_module(f"{__name__}.{name}").main(argv[1:], ranks)
        return status
    if name in MESSAGES:
        from . import messages

        return messages.main(name, argv[1:], ranks)
    options = parser.parse_args(argv)
    check_options(parser, options)
    rank_command.check_backend(parser, options.backend, "mpi")
    if options.compare is not None:
        from . import compare
        from .jobs import ranks_of_jobs

        jobs = ranks_of_jobs(parser, ranks)
        compare.require_nccl(parser, options, jobs)
        rank_command.check_device(parser, options.device)
        return compare.main(options, jobs)
    started = rank_command.ranks_to_start(parser, ranks)
    rank_command.check_device(parser, options.device)
    if started is not None:
        return start_ranks(argv, started, options.backend)
    from .rank import run_rank

    return run_rank(options)


def start_ranks(argv: list[str], ranks: int, backend: str) -> int:
    """Runs `mpi-gdr bench ARGV` on `ranks` ranks and returns its exit status."""
    job = rank_command.command_of_job(ranks, "bench", argv)
    return child_job.run(job, rank_command.environment_of_job(backend))
