"""Starts programs for tests: in their own sessions, with a deadline and the output's end on failure."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

BIN = Path(sys.executable).parent
MPI_GDR_RUN = [sys.executable, "-m", "mpi_backend", "run"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
# Variables of a launcher or a rendezvous around the tests.
_FOREIGN = (
    "PMI", "PMIX", "OMPI", "HYD", "SLURM", "MPI_LOCAL", "MPI_GDR_", "TORCHELASTIC", "MASTER_", "SPMD_",
)  # fmt: skip
_FOREIGN_NAMES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"}
_KEPT = {"MPI_GDR_MPI_LIBRARY"}  # selects the MPI under test


Captured = subprocess.CompletedProcess[str]


class Result(NamedTuple):
    status: int | None  # None: exceeded the deadline
    output: str  # stdout and stderr in the order of writing

    def tail(self, characters: int = 6000) -> str:
        return self.output[-characters:]

    def expect(self, status: int = 0) -> str:
        """The output; asserts the exit status."""
        ended = "ran past its deadline" if self.status is None else f"status {self.status}"
        assert self.status == status, f"{ended}, expected status {status}; output:\n{self.tail()}"
        return self.output

    def expect_failure(self) -> str:
        """The output; asserts an exit status other than 0."""
        assert self.status not in (None, 0), self.tail()
        return self.output


_environments = itertools.count()


@functools.cache
def _caches() -> Path:
    """A folder of this process, with a subfolder per environment that a program uses."""
    folder = tempfile.mkdtemp(prefix="mpi-gdr-caches-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def clean_environment(**extra: str) -> dict[str, str]:
    """A login shell's environment with one thread per rank, plus `extra`.

    RES_OPTIONS: a TCPStore looks up each connection's address, which takes one second instead of five without
    a name server. XDG_CACHE_HOME: no job starts with an earlier one's measurements.
    """
    # Copied one by one: pytest changes the environment between tests, while a fixture's threads start jobs.
    names = [k for k in list(os.environ) if k in _KEPT or not (k.startswith(_FOREIGN) or k in _FOREIGN_NAMES)]
    env = {k: value for k in names if (value := os.environ.get(k)) is not None}
    env["RES_OPTIONS"] = "timeout:1 attempts:1"
    env["XDG_CACHE_HOME"] = str(_caches() / str(next(_environments)))
    return {**env, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **extra}


def python() -> str:
    """The interpreter for programs; tests/conftest.py replaces it by one that need not import torch."""
    return sys.executable


# Limits are for an idle machine, but only a hang reaches them, so a busy machine gets more.
TIMEOUT_FACTOR = 4


class Program:
    """A running program with all its children. Context manager: nothing of it outlives the block."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: str | None = None) -> None:
        words = [python() if command[0] == sys.executable else str(command[0]), *map(str, command[1:])]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (not a pipe: nobody reads while it runs)
        streams = {"stdin": subprocess.DEVNULL, "stdout": self._log, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(words, env=dict(env), cwd=cwd, start_new_session=True, **streams)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def finish(self, timeout: float) -> Result:
        """Status None: killed after TIMEOUT_FACTOR * timeout seconds."""
        try:
            status: int | None = self.process.wait(TIMEOUT_FACTOR * timeout)
        except subprocess.TimeoutExpired:
            status = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._log.seek(0)
        return Result(status, self._log.read().decode(errors="replace"))


def run(command: Sequence[str], timeout: float = 120, cwd: str | None = None, **env: str) -> Result:
    with Program(command, clean_environment(**env), cwd) as program:
        return program.finish(timeout)


def run_apart(size: int, script: Path | str, *args: str, timeout: float = 120, **env: str) -> list[Result]:
    """Runs the script once per rank, without a launcher that would end the others with the first."""
    with contextlib.ExitStack() as stack:
        return [program.finish(timeout) for program in start_apart(stack, size, script, *args, **env)]


def start_apart(
    stack: contextlib.ExitStack, size: int, script: Path | str, *args: str, **env: str
) -> list[Program]:
    port = str(free_port())
    programs = []
    for rank in range(size):
        environment = clean_environment(
            RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **env,
        )  # fmt: skip
        programs.append(stack.enter_context(Program([sys.executable, str(script), *args], environment)))
    return programs


def captured(command: Sequence[object], check: bool = True, timeout: float = 120, **options: Any) -> Captured:
    """Runs a command; stdout and stderr are separate. `timeout` is not extended for a busy machine."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=check, **options)


def launched(launcher: str, size: int) -> list[str]:
    """The words before a program's path."""
    if launcher == "mpiexec":
        return [mpiexec(), "-n", str(size), python()]
    return {
        "mpi-gdr run": [*MPI_GDR_RUN, "-n", str(size)],
        "torchrun": [*TORCHRUN, "--standalone", f"--nproc-per-node={size}"],
    }[launcher]


def write_script(path: Path, body: str) -> str:
    """Makes a shell script; returns its path."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def json_lines(path: Path) -> list[Any]:
    """The objects of a file with one per line; [] without the file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until(condition: Callable[[], object], seconds: float = 60) -> bool:
    """Whether the condition has become true within so many seconds."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(condition())


def mpiexec() -> str:
    """The launcher of the MPI that ranks load."""
    from mpi_backend.run import find_mpiexec

    found = find_mpiexec()
    assert found, "no mpiexec beside an MPI library or on PATH"
    return found


def free_port() -> int:
    """A port that stays free until a job listens there: below the ephemeral ones, which MPI libraries'
    listeners get, and reserved by a bound name against other calls, in any process, until this one ends."""
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, below)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0mpi-gdr tests, port {port}")
            with socket.create_server(("127.0.0.1", port)):
                claim.detach()
                return port
        except OSError:
            claim.close()
