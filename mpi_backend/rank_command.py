"""For commands that run on ranks (bench, demo, selftest, tune) or start them by `mpi-gdr run`. Imports torch
late, so that the command line answers at once."""

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

# A path, because Python searches the current folder first for a module's name (-m).
MPI_GDR = str(Path(__file__).with_name("__main__.py"))


def is_rank(env: launchers.Environment) -> bool:
    """Whether an MPI launcher, torchrun, or a user who set RANK started this process."""
    return "RANK" in env or launchers.detect(env) is not None


def ranks_to_start(parser: argparse.ArgumentParser, n: int | None) -> int | None:
    """None if this process is a rank; else the number of ranks to start. Exits on a contradiction."""
    if not is_rank(os.environ):
        if n is None:
            parser.error(f"no launcher started this process: use `{parser.prog} -n N ...`, or a launcher")
        return n
    placement = launchers.detect(os.environ)
    size = int(os.environ.get("WORLD_SIZE", placement.size if placement else 1))
    if n is not None and n != size:
        parser.error(f"-n {n}, but this is a rank of a job of {size}: leave -n out under a launcher")
    return None


def command_of_job(n: int, command: str, argv: list[str]) -> list[str]:
    """Arguments of `mpi-gdr run` for our own `command` on n ranks."""
    return ["-n", str(n), MPI_GDR, command, *argv]


def mpi_gdr(*words: str) -> list[str]:
    """`mpi-gdr WORDS` as a command line."""
    return [sys.executable, MPI_GDR, *words]


def without_ranks(argv: list[str]) -> list[str]:
    """argv without `-n N`, which is passed to the launcher."""
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
    """Called before any measurement, because the picture is drawn last."""
    if importlib.util.find_spec("matplotlib") is None:
        parser.error(
            f"{what} draws with matplotlib, which is not installed: pip install matplotlib, or this package "
            "with its extra, `mpi-gdr[bench]`"
        )


def check_device(parser: argparse.ArgumentParser, name: str) -> None:
    """Exits if torch does not know the --device, or this host lacks it and runs the ranks."""
    if name == "cpu":
        return
    import torch

    try:
        kind = torch.device(name).type
    except RuntimeError:
        parser.error(f"--device {name}: expected cpu, cuda or another device type of torch")
    module = getattr(torch, kind, None)
    # In an allocation the ranks may run on other hosts than this command.
    is_here = is_rank(os.environ) or not any(name in os.environ for name in launchers.ALLOCATIONS)
    if is_here and not (module and hasattr(module, "is_available") and module.is_available()):
        parser.error(f"--device {name}: torch sees no such device here")


def check_backend(parser: argparse.ArgumentParser, name: str, *others: str) -> None:
    """Exits if torch lacks the --backend. `others`: further valid names."""
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
    """This process's environment with additions for a job over `backend`."""
    environment = dict(os.environ)
    if backend not in ("mpi-gdr", "mpi"):
        set_local_address(environment)
    return environment


def set_local_address(env: MutableMapping[str, str]) -> None:
    """Sets MASTER_ADDR and MASTER_PORT for ranks on this host. Otherwise the rendezvous starts MPI, and Gloo
    is slower in a process that also holds MPI."""
    if "MASTER_ADDR" in env or "MASTER_PORT" in env:
        return
    while True:  # below ephemeral ports, which the kernel may assign before rank 0 listens
        port = master_address.FIRST_PORT + secrets.randbelow(master_address.PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            env["MASTER_ADDR"], env["MASTER_PORT"] = "127.0.0.1", str(port)
            return


def summary(backend: str) -> JobSummary:
    """The head of a report. Call it after init_process_group."""
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
    """Adds MPI's part to a summary."""
    report["library"] = " ".join(info["library"].splitlines()[0].split())
    report["bootstrap"] = info["bootstrap"]
    report["thread_level"] = info["thread_level"]
    report["nodes"], report["ranks_on_node"] = info["nodes"], info["ranks_on_node"]


def summary_lines(report: JobSummary) -> list[str]:
    """The summary as text: one line, or two with MPI."""
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
