"""For the commands that run on ranks (selftest, bench, tune): is this process one, or must it start them by
`mpi-gdr run`?

torch is imported late, so that the command line answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import secrets
import socket
import sys
from collections.abc import MutableMapping
from pathlib import Path

from . import launchers, master_address
from .command_line import refusal
from .reports import JobSummary, MpiInfo

# A path, since Python looks for a module's name (-m) in the current folder first.
MPI_GDR = str(Path(__file__).with_name("__main__.py"))


def is_rank(env: launchers.Environment) -> bool:
    """True where a launcher started this process: an MPI launcher, torchrun, or a user who set RANK."""
    return "RANK" in env or launchers.detect(env) is not None


def ranks_to_start(parser: argparse.ArgumentParser, n: int | None) -> int | None:
    """None if this process is a rank; else how many it must start. Ends the program if it can do neither."""
    if not is_rank(os.environ):
        if n is None:
            parser.error(
                f"no launcher started this process: say `{parser.prog} -n N ...`, or put a launcher in front"
            )
        return n
    placement = launchers.detect(os.environ)
    size = int(os.environ.get("WORLD_SIZE", placement.size if placement else 1))
    if n is not None and n != size:
        parser.error(f"-n {n}, but this is a rank of a job of {size}: leave -n out under a launcher")
    return None


def command_of_job(n: int, command: str, argv: list[str]) -> list[str]:
    """Arguments of `mpi-gdr run` that run our own `command` on n ranks."""
    return ["-n", str(n), MPI_GDR, command, *argv]


def mpi_gdr(*words: str) -> list[str]:
    """`mpi-gdr WORDS`, for a process of its own."""
    return [sys.executable, MPI_GDR, *words]


def without_ranks(argv: list[str]) -> list[str]:
    """argv less `-n N`, which the launcher gets instead."""
    kept, skip = [], False
    for word in argv:
        if skip:
            skip = False
        elif word in ("-n", "--ranks"):
            skip = True
        elif not (word.startswith("--ranks=") or (word.startswith("-n") and word[2:].isdecimal())):
            kept.append(word)
    return kept


def require_matplotlib(parser: argparse.ArgumentParser, what: str) -> None:
    """Before anything is measured: a picture is drawn last."""
    if importlib.util.find_spec("matplotlib") is None:
        parser.error(
            f"{what} draws with matplotlib, which is not installed: pip install matplotlib, or this package "
            "with its extra, `mpi-gdr[bench]`"
        )


def check_device(parser: argparse.ArgumentParser, name: str) -> None:
    """Ends the program for a --device that torch does not know, or that is missing where the ranks run."""
    if name == "cpu":
        return
    import torch

    try:
        kind = torch.device(name).type
    except RuntimeError:
        parser.error(f"--device {name}: expected cpu, cuda or another device type of torch")
    module = getattr(torch, kind, None)
    # In an allocation the ranks may run on other hosts than the command that starts them.
    is_here = is_rank(os.environ) or not any(name in os.environ for name in launchers.ALLOCATIONS)
    if is_here and not (module and hasattr(module, "is_available") and module.is_available()):
        parser.error(f"--device {name}: torch sees no such device here")


def check_backend(parser: argparse.ArgumentParser, name: str, *others: str) -> None:
    """Ends the program for a --backend that torch does not have. `others`: what it may be besides."""
    known = ("mpi-gdr", "gloo", "fake", *others)
    if name in known:
        return
    import torch.distributed as dist

    for part in name.lower().split(","):  # "gloo", or "cpu:gloo,cuda:nccl"
        if (backend := part.rpartition(":")[2]) not in known and not dist.is_backend_available(backend):
            available = [b for b in (*known, *dist.Backend.backend_list) if b != "undefined"]
            usable = [b for b in dict.fromkeys(available) if b in known or dist.is_backend_available(b)]
            parser.error(f"--backend {refusal(backend, usable)}")


def environment_of_job(backend: str) -> dict[str, str]:
    """Of this process, with what the ranks of a job over this backend need."""
    environment = dict(os.environ)
    if backend not in ("mpi-gdr", "mpi"):
        settle_local_address(environment)
    return environment


def settle_local_address(env: MutableMapping[str, str]) -> None:
    """MASTER_ADDR and MASTER_PORT for ranks on this host. Without them the rendezvous starts MPI, and Gloo is
    slower in a process that also holds MPI."""
    if "MASTER_ADDR" in env or "MASTER_PORT" in env:
        return
    while True:  # below the ports that the kernel gives to others until rank 0 listens
        port = master_address.FIRST_PORT + secrets.randbelow(master_address.PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            env["MASTER_ADDR"], env["MASTER_PORT"] = "127.0.0.1", str(port)
            return


def summary(backend: str) -> JobSummary:
    """What runs here, after init_process_group: the head of both reports."""
    import torch
    import torch.distributed as dist

    from ._version import __version__

    report: JobSummary = {
        "mpi_gdr": __version__,
        "torch": str(torch.__version__),
        "backend": backend,
        "ranks": dist.get_world_size(),
    }
    if torch.cuda.is_initialized():
        report["gpu"] = torch.cuda.get_device_name()
    if backend == "mpi-gdr":
        from .extension import _C

        add_library(report, _C.mpi_info())
    return report


def add_library(report: JobSummary, info: MpiInfo) -> None:
    """What a summary tells of MPI."""
    report["library"] = " ".join(info["library"].splitlines()[0].split())
    report["bootstrap"] = info["bootstrap"]
    report["thread_level"] = info["thread_level"]
    report["nodes"], report["ranks_on_node"] = info["nodes"], info["ranks_on_node"]


def summary_lines(report: JobSummary) -> list[str]:
    """The summary for people: one line, or two where MPI is known."""
    lines = [
        f"mpi-gdr {report['mpi_gdr']}, torch {report['torch']}, backend {report['backend']}, "
        f"{report['ranks']} ranks"
    ]
    if "library" in report:
        nodes = report["nodes"]
        lines.append(
            f"{report['library']}; bootstrap {report['bootstrap']}, {report['thread_level']}; "
            f"{nodes} node{'s' if nodes != 1 else ''}, {report['ranks_on_node']} ranks on the first"
        )
    return lines
