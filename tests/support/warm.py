"""Jobs of tests whose processes need not import torch each: a server has done so, and forks.

Most of what the tests cost would be imports. `python()` is a program to start in place of Python, which a
server runs then in a child of its own: with the arguments, environment, open files, folder and cores of the
one that was started, in a session of its own. Several servers take turns by chance, so that ranks differ in
their addresses and hash seeds.

What is different: the program is no child of the one that started it, its process ID is not the one that was
started, modules may be there that it has not imported itself, and what it inherits is open until it has ended
(else MPICH's launcher would see PMI's connection close before the process ends, and kill all ranks). It gets
the signals that a launcher sends, and SIGKILL as its end, but no SIGSTOP; it ends with the process that
started it. Not for tests of launchers, of parents, and of what happens at `import torch`.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import itertools
import marshal
import multiprocessing
import os
import resource
import runpy
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import types
from functools import cache
from pathlib import Path
from typing import Any

from . import processes

SERVERS = 2
IMPORTED = (
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining",
    "torch.distributed.checkpoint",
    "torch.distributed.launcher.api",
    "pytest",
)
MOST_FILES = 250  # that a message carries
# What is read when Python starts, or by torch and its libraries when they are imported: a program for which
# one of these is not as it is for the server is not taken.
AT_START = (
    "PYTHON",
    "TORCH_",
    "PYTORCH_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "CUDA_",
    "LD_",
    "MALLOC_",
    "GLIBC_",
    "LANG",
    "LC_",
    "TZ",
)
NOT_AT_START = {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_DEVICE_BACKEND_AUTOLOAD"}


@cache
def python() -> str:
    """The path of a program that stands for this Python, with servers behind it until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sockets = [folder / str(number) for number in range(SERVERS)]
    end, _ours = os.pipe()  # a server ends when nobody holds the other end
    servers = [
        subprocess.Popen(
            [sys.executable, "-m", "support.warm", str(path)],
            stdin=end,
            cwd=Path(__file__).parents[1],
            env=processes.clean_environment(TORCH_DEVICE_BACKEND_AUTOLOAD="0"),
            start_new_session=True,
        )
        for path in sockets
    ]
    os.close(end)
    client = Path(__file__).with_name("warm_client.py")
    command = [sys._base_executable, "-IS", client, sys.executable, *sockets]  # type: ignore[attr-defined]
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} -- "$@"\n')
    program.chmod(0o700)
    until = time.monotonic() + processes.PATIENCE * 60
    while not all(path.exists() for path in sockets):
        assert all(server.poll() is None for server in servers), "a server of tests/support/warm.py has ended"
        assert time.monotonic() < until, "a server of tests/support/warm.py does not start"
        time.sleep(0.05)
    return str(program)


class Request:
    """A program, and all that it inherits."""

    def __init__(self, client: socket.socket) -> None:
        head, self._files, _, _ = socket.recv_fds(client, 4, MOST_FILES)
        if len(head) < 4:
            raise EOFError
        data = b""
        while len(data) < struct.unpack("=I", head)[0]:
            if not (more := client.recv(1 << 20)):
                raise EOFError
            data += more
        self._what: dict[str, Any] = marshal.loads(data)
        pid = struct.unpack("=3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self._arguments = list(itertools.dropwhile(("-u", "-B").__contains__, self._what["arguments"]))
        first = self._arguments[0] if self._arguments else "-"
        self.fits = (
            len(self._files) == len(self._what["files"])
            and (first in ("-c", "-m") or not first.startswith("-"))
            and at_start(self._what["environment"]) == at_start(dict(os.environ))
            and surroundings(pid) == surroundings(os.getpid())
        )

    def close(self) -> None:
        for fd in self._files:
            os.close(fd)

    def become(self) -> None:
        """In a child of the server: as Python started with these arguments."""
        os.setsid()
        self._take_files()
        os.environ.clear()
        os.environ.update(self._what["environment"])
        os.chdir(self._what["folder"])
        os.umask(self._what["umask"])
        os.sched_setaffinity(0, self._what["cores"])
        sys.executable = self._what["executable"]
        multiprocessing.set_executable(sys.executable)
        multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
        tempfile.tempdir = None
        sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc] # noqa: SIM115
        sys.stdout = sys.__stdout__ = writer(1, "strict")  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = writer(2, "backslashreplace")  # type: ignore[misc]
        import numpy
        import torch

        numpy.random.seed()
        if torch._is_device_backend_autoload_enabled():
            torch._import_device_backends()
        run(*self._arguments)

    def _take_files(self) -> None:
        numbers = self._what["files"]
        free = max([2, *numbers]) + 1
        moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, free) for fd in self._files]
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in moved:
                with contextlib.suppress(OSError):  # that of the listing
                    os.close(int(name))
        for fd, number in zip(moved, numbers, strict=True):
            os.dup2(fd, number)
            os.close(fd)
        for number in {0, 1, 2}.difference(numbers):
            assert os.open(os.devnull, os.O_RDWR) == number


def at_start(environment: dict[str, str]) -> dict[str, str]:
    names = [name for name in environment if name.startswith(AT_START) and name not in NOT_AT_START]
    return {name: environment[name] for name in names}


def surroundings(pid: int) -> tuple[object, ...]:
    """Namespaces, control groups and limits: a child of the server has those of the server."""
    folder = Path(f"/proc/{pid}")
    limits = [resource.prlimit(pid, number) for number in range(resource.RLIMIT_AS + 1)]
    return (
        limits,
        [os.readlink(path) for path in sorted(folder.glob("ns/*"))],
        (folder / "cgroup").read_text(),
    )


def writer(fd: int, errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(fd, "w", closefd=False), errors=errors, write_through=True)


def run(program: str, *arguments: str) -> None:
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __annotations__={})
    if program == "-m":
        sys.argv = ["-m", *arguments[1:]]
        sys.path[0] = os.getcwd()
        runpy._run_module_as_main(arguments[0])  # type: ignore[attr-defined]
    elif program == "-c":
        sys.argv = ["-c", *arguments[1:]]
        sys.path[0] = ""
        exec(compile(arguments[0], "<string>", "exec", dont_inherit=True), main.__dict__)
    else:
        sys.argv = [program, *arguments]
        sys.path[0] = os.path.dirname(os.path.realpath(program))
        main.__dict__["__file__"] = program
        exec(compile(Path(program).read_bytes(), program, "exec", dont_inherit=True), main.__dict__)


def serve(path: str) -> Request:
    """Forks for each client. Returns in their programs only, each with its request."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what is forked here
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + "~")
        listener.listen(128)
        os.rename(path + "~", path)
        while select.select([listener, 0], [], [])[0] == [listener]:
            client = listener.accept()[0]
            with client:
                if os.fork() == 0:
                    listener.close()  # whoever connects after the server's end shall not wait
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    return forked(client)
    os._exit(0)


def forked(client: socket.socket) -> Request:
    """In a child of the server. Its own child is the program; itself it tells either side of the other."""
    try:
        request = Request(client)
        if not request.fits:
            os._exit(0)
        client.send(b"y")
    except (OSError, EOFError):  # the client has been killed
        os._exit(1)
    if (program := os.fork()) == 0:
        return request
    request.close()
    ended = os.pidfd_open(program)
    with contextlib.suppress(OSError):
        while ended not in select.select([client, ended], [], [])[0] and (number := client.recv(1)):
            os.kill(program, number[0])
    # Also where the program has ended: nothing that it has left in its session shall outlive it.
    os.kill(program, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # it has no session yet
        os.killpg(program, signal.SIGKILL)
    status = os.waitpid(program, 0)[1]
    with contextlib.suppress(OSError):
        client.send(struct.pack("=i", status))
    os._exit(0)


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    serve(sys.argv[1]).become()
