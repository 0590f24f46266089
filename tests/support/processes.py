"""Starting programs for tests: a session of their own, a deadline, and the end of the output if they fail."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

BIN = Path(sys.executable).parent
MPI_GDR_RUN = [sys.executable, "-m", "mpi_backend", "run"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
# Variables of a launcher or of a rendezvous: the tests themselves may run inside one.
_FOREIGN = (
    "PMI",
    "PMIX",
    "OMPI",
    "HYD",
    "SLURM",
    "MPI_LOCAL",
    "MPI_GDR_",
    "TORCHELASTIC",
    "MASTER_",
    "SPMD_",
)
_FOREIGN_NAMES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"}
_KEPT = {"MPI_GDR_MPI_LIBRARY"}  # whoever names it tests with that MPI


class Result(NamedTuple):
    status: int | None  # None: ran past the deadline
    output: str  # stdout and stderr in the order of writing

    def tail(self, characters: int = 6000) -> str:
        return self.output[-characters:]

    def expect(self, status: int = 0) -> str:
        """The output of a program that must have ended with this status."""
        ended = "ran past its deadline" if self.status is None else f"status {self.status}"
        assert self.status == status, f"{ended}, expected status {status}; output:\n{self.tail()}"
        return self.output


_environments = itertools.count()


@functools.cache
def _caches() -> Path:
    """A folder of this process, with one in it for each environment that a program makes use of."""
    folder = tempfile.mkdtemp(prefix="mpi-gdr-caches-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def clean_environment(**extra: str) -> dict[str, str]:
    """The environment of a login shell, one thread per rank, plus `extra`.

    Each connection of a TCPStore looks up its address backwards. RES_OPTIONS: where no name server answers,
    that takes one second instead of five. XDG_CACHE_HOME: no job begins with what an
    earlier one has measured.
    """
    # One by one: pytest changes the environment between tests, while threads of a fixture start jobs.
    names = [k for k in list(os.environ) if k in _KEPT or not (k.startswith(_FOREIGN) or k in _FOREIGN_NAMES)]
    env = {k: value for k in names if (value := os.environ.get(k)) is not None}
    env["RES_OPTIONS"] = "timeout:1 attempts:1"
    env["XDG_CACHE_HOME"] = str(_caches() / str(next(_environments)))
    return {**env, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **extra}


def python() -> str:
    """What runs programs of Python. tests/conftest.py puts another one here, which need not import torch."""
    return sys.executable


# Every limit here is for a machine that does nothing else. Only a hang needs it, so a busy machine gets more.
PATIENCE = 4


class Program:
    """A running program with all its children. Use as a context: nothing of it outlives the block."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: str | None = None) -> None:
        words = [python() if command[0] == sys.executable else str(command[0]), *map(str, command[1:])]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (not a pipe: nobody reads while it runs)
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def finish(self, timeout: float) -> Result:
        """Status None: it was killed after PATIENCE times as many seconds."""
        try:
            status: int | None = self.process.wait(PATIENCE * timeout)
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
    """The script once per rank, without any launcher that would end the others when one ends."""
    port = str(free_port())
    with contextlib.ExitStack() as stack:
        programs = []
        for rank in range(size):
            environment = clean_environment(
                RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
                MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **env,
            )  # fmt: skip
            program = Program([sys.executable, str(script), *args], environment)
            programs.append(stack.enter_context(program))
        return [program.finish(timeout) for program in programs]


def mpiexec() -> str:
    """The launcher that belongs to the MPI that ranks load."""
    from mpi_backend.run import find_mpiexec

    found = find_mpiexec()
    assert found, "no mpiexec beside an MPI library or on PATH"
    return found


def free_port() -> int:
    """A port that stays free until a job listens there: below those that the kernel gives to whoever asks for
    any, such as the listeners of MPI libraries, which would answer a store's clients by hanging up; and no
    other call gets it, in any process, until this one ends: a name is bound for it."""
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
