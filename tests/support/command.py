"""`mpi-gdr` and its modules as in a user's shell, for tests of their output."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

from . import processes


def run_module(module: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = processes.clean_environment(**variables)
    command = [processes.python(), "-m", module, *arguments]
    return processes.captured(command, check=False, timeout=300, env=environment)


def mpi_gdr(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_module("mpi_backend", *arguments, **variables)


def mpi_gdr_output(*arguments: str, **variables: str) -> str:
    """stdout of `mpi-gdr ARGUMENTS`, which must succeed."""
    result = mpi_gdr(*arguments, **variables)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def copy_package(folder: Path) -> dict[str, str]:
    """Copies the package into the folder; returns variables of a Python that imports the copy."""
    source = Path(__file__).parents[2] / "mpi_backend"
    shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    return {"PYTHONPATH": str(folder)}


def on_a_terminal(*arguments: str, **variables: str) -> tuple[int, str]:
    """(status, output) of `mpi-gdr ARGUMENTS` on a terminal of 80 columns."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "mpi_backend", *arguments]
    environment = processes.clean_environment(TERM="xterm", **variables)
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment) as process:
        os.close(its)
        output = b""
        with contextlib.suppress(OSError):  # the terminal's end on Linux
            while read := os.read(ours, 1 << 16):
                output += read
        status = process.wait(300)
    os.close(ours)
    return status, output.decode()
