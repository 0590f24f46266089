"""The command `mpi-gdr`. Each subcommand is a module with main(argv), imported on demand."""

from __future__ import annotations

import importlib
import os
import sys
import warnings

from ._version import __version__
from .build_info import build_info
from .command_line import refusal

COMMANDS = {
    "run": ("mpi_backend.run", "start a program on N ranks with the launcher of the MPI this was built for"),
    "info": ("mpi_backend.info", "show versions, MPI, GPU path, variables and algorithms, for a bug report"),
    "doctor": (
        "mpi_backend.doctor",
        "check whether launcher, MPI, network and limits of this site work together",
    ),
    "selftest": ("mpi_backend.selftest", "check every operation against a reference on the ranks given"),
    "demo": ("mpi_backend.demo", "train a small GPT on two ranks, over mpi-gdr and then over Gloo"),
    "diagnose": ("mpi_backend.diagnose", "compare the flight logs of all ranks after a hang"),
    "tune": ("mpi_backend.tune", "measure the algorithms on this machine, write a selection table"),
    "bench": ("mpi_backend.bench", "measure collectives, in the columns of nccl-tests or OSU"),
}


def usage() -> str:
    """The help text."""
    lines = ["usage: mpi-gdr [-V | --version] COMMAND ...", "", "commands:"]
    lines += [f"  {name:<10}{text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join([*lines, "", "`mpi-gdr COMMAND --help` describes a command."])


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status; 2 for a wrong command line, as argparse does."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    if argv[0] in ("-V", "--version"):
        print(f"mpi-gdr {__version__}, commit {build_info().get('commit') or 'unknown'}")
        return 0
    if argv[0] not in COMMANDS:
        kind, known = "command", [*COMMANDS]
        if argv[0].startswith("-"):
            kind, known = "option", ["-h", "--help", "-V", "--version"]
        print(f"mpi-gdr: unknown {kind} {refusal(argv[0], known)}", file=sys.stderr)
        return 2
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch's; no command needs it
    try:
        status: int = importlib.import_module(COMMANDS[argv[0]][0]).main(argv[1:]) or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(f"mpi-gdr {argv[0]}: interrupted", file=sys.stderr)
        return 130  # as a shell shows SIGINT
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
