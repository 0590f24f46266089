"""`mpi-gdr diagnose DIR`: reads the flight logs of all ranks and reports the first divergence."""

from __future__ import annotations

import sys

from ..command_line import Parser
from .compare import Job, findings
from .dumps import PREFIX, BadDump, describe_foreign_writers, read_folder
from .report import print_report


def main(argv: list[str]) -> int:
    """Exit status: 0: no finding; 1: a divergence; 2: no readable log, or a wrong command line."""
    parser = Parser(
        prog="mpi-gdr diagnose",
        description="Compare the flight logs of all ranks and name the first operation that diverged.",
    )
    parser.add_argument("directory", metavar="DIR", help="the folder named in the message of a timeout")
    parser.add_argument("--prefix", default=PREFIX, help="of the files' names, before the rank (%(default)s)")
    parser.add_argument(
        "--patience",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="treat an operation as stuck if it had waited this long when the log was written (%(default)s)",
    )
    options = parser.parse_args(argv)
    try:
        dumps = read_folder(options.directory, options.prefix)
    except (BadDump, OSError) as error:
        print(f"mpi-gdr diagnose: {error}", file=sys.stderr)
        return 2
    for sentence in describe_foreign_writers(options.directory):
        print(f"mpi-gdr diagnose: {sentence}: the logs may have been altered", file=sys.stderr)
    try:
        job = Job(dumps, options.patience)
        found = findings(job)
        print_report(job, found)
    # The logs hold plain containers, but may lack any field.
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        print(f"mpi-gdr diagnose: a file is not a flight log: {error!r}", file=sys.stderr)
        return 2
    return 1 if found else 0
