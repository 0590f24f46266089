"""Runs tests' processes without an import of torch each: a server has imported it, and forks.

Imports would be most of the tests' cost. `python()` is a program that replaces Python; a server runs its
arguments in a child with the caller's environment, open files, folder and cores, in a new session. Servers
are chosen at random, so that ranks differ in addresses and hash seeds.

Differences: the program is not a child of its starter and has another process ID; modules may be loaded that
it has not imported; inherited files stay open until it has ended (else MPICH's launcher would see PMI's
connection close before the process ends, and kill all ranks). It gets a launcher's signals, and SIGKILL as
its end, but no SIGSTOP; it ends with its starter. Not for tests of launchers, of parents, and of `import
torch`.

`Server` is a server that a test starts, perhaps in namespaces: its programs need not resemble the caller.
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
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from . import processes

SERVERS = 2
OF_TORCH = ("fsdp", "tensor.parallel", "pipelining", "checkpoint", "launcher.api")
IMPORTED = (*(f"torch.distributed.{name}" for name in OF_TORCH), "pytest")
MAX_FILES = 250  # in a message
END = struct.Struct("=id")  # wait status and time.monotonic() of a program's end
# Read at Python's start, or by torch and its libraries at import: program and server must agree on these.
AT_START = ("PYTHON", "TORCH_", "PYTORCH_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_")
AT_START += ("CUDA_", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_", "TZ")
NOT_AT_START = {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_DEVICE_BACKEND_AUTOLOAD"}


@cache
def python() -> str:
    """Path of a program that replaces this Python; its servers run until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sockets = [folder / str(number) for number in range(SERVERS)]
    end, _ours = os.pipe()
    servers = {path: start_server(path, end) for path in sockets}
    os.close(end)
    client = Path(__file__).with_name("warm_client.py")
    command = [sys._base_executable, "-IS", client, sys.executable, *sockets]  # type: ignore[attr-defined]
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} -- "$@"\n')
    program.chmod(0o700)
    wait_for(servers)
    return str(program)


def start_server(path: Path, end: int, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Starts a server at the socket `path`, behind `prefix`. It ends when the pipe with this `end` closes."""
    change = ["sh", "-c", 'cd "$0" && exec "$@"', str(Path(__file__).parents[1])]  # a prefix may change it
    environment = processes.clean_environment(TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    command = [*prefix, *change, sys.executable, "-m", "support.warm", str(path)]
    return subprocess.Popen(command, stdin=end, env=environment, start_new_session=True)


def wait_for(servers: Mapping[Path, subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + processes.TIMEOUT_FACTOR * 60
    while not all(path.exists() for path in servers):
        assert all(server.poll() is None for server in servers.values()), (
            "a server of tests' programs has ended"
        )
        assert time.monotonic() < until, "a server of tests' programs does not start"
        time.sleep(0.05)


class Child:
    """A program in a child of a Server."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._ended: tuple[int, float] | None = None

    def kill(self, number: int) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._client.send(bytes([number]))

    def wait(self, until: float) -> tuple[int, float] | None:
        """(status, negative for a signal; time.monotonic() at its end); None: still running."""
        left = max(0.0, until - time.monotonic())
        if self._ended is None and select.select([self._client], [], [], left)[0]:
            answer = self._client.recv(END.size)
            assert len(answer) == END.size, "the server of tests' programs has ended"
            status, at = END.unpack(answer)
            self._ended = os.waitstatus_to_exitcode(status), at
            self._client.close()
        return self._ended

    def close(self) -> None:
        """Ends it."""
        self._client.close()


class Server:
    """A context manager. Its programs end with the block."""

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        self._path = Path(self._folder.name) / "socket"
        end, self._ours = os.pipe()
        self._process = start_server(self._path, end, prefix)
        os.close(end)
        self._children: list[Child] = []

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Child:
        wait_for({self._path: self._process})
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self._path))
        what = {
            "arguments": list(arguments), "environment": dict(environment), "folder": os.getcwd(),
            "files": [0, 1, 2], "umask": 0o022, "cores": list(os.sched_getaffinity(0)),
            "executable": sys.executable, "anywhere": True,
        }  # fmt: skip
        request = marshal.dumps(what)
        with open(os.devnull) as null, open(log, "a") as output:
            files = [null.fileno(), output.fileno(), output.fileno()]
            socket.send_fds(client, [struct.pack("=I", len(request))], files)
            client.sendall(request)
        assert client.recv(1) == b"y", "the server of tests' programs refuses one"
        self._children.append(Child(client))
        return self._children[-1]

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        for child in self._children:
            child.close()
        os.close(self._ours)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


class Request:
    """A program and all that it inherits."""

    def __init__(self, client: socket.socket) -> None:
        head, self._files, _, _ = socket.recv_fds(client, 4, MAX_FILES)
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
            and ("anywhere" in self._what or self._resembles(pid))
        )

    def _resembles(self, pid: int) -> bool:
        """Whether the program would behave the same if the caller started it."""
        same = at_start(self._what["environment"]) == at_start(dict(os.environ))
        return same and process_attributes(pid) == process_attributes(os.getpid())

    def close(self) -> None:
        for fd in self._files:
            os.close(fd)

    def become(self) -> None:
        """In a child of the server: acts like Python started with these arguments."""
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
                with contextlib.suppress(OSError):  # the listing's own
                    os.close(int(name))
        for fd, number in zip(moved, numbers, strict=True):
            os.dup2(fd, number)
            os.close(fd)
        for number in {0, 1, 2}.difference(numbers):
            assert os.open(os.devnull, os.O_RDWR) == number


def at_start(environment: dict[str, str]) -> dict[str, str]:
    names = [name for name in environment if name.startswith(AT_START) and name not in NOT_AT_START]
    return {name: environment[name] for name in names}


def process_attributes(pid: int) -> tuple[object, ...]:
    """Namespaces, control groups and limits, which a child has from the server."""
    folder = Path(f"/proc/{pid}")
    limits = [resource.prlimit(pid, number) for number in range(resource.RLIMIT_AS + 1)]
    namespaces = [os.readlink(path) for path in sorted(folder.glob("ns/*"))]
    return limits, namespaces, (folder / "cgroup").read_text()


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
    """Forks for each client. Returns only in the forked programs, with the client's request."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + "~")
        listener.listen(128)
        os.rename(path + "~", path)
        while select.select([listener, 0], [], [])[0] == [listener]:
            client = listener.accept()[0]
            with client:
                if os.fork() == 0:
                    listener.close()  # clients must not wait after the server's end
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    return forked(client)
    os._exit(0)


def forked(client: socket.socket) -> Request:
    """In a child of the server, which forks the program and forwards between it and the client."""
    try:
        request = Request(client)
        if not request.fits:
            os._exit(0)
        client.send(b"y")
    except (OSError, EOFError):  # the client was killed
        os._exit(1)
    if (program := os.fork()) == 0:
        return request
    request.close()
    ended = os.pidfd_open(program)
    with contextlib.suppress(OSError):
        while ended not in select.select([client, ended], [], [])[0] and (number := client.recv(1)):
            os.kill(program, number[0])
    # Also after the program's end: what it left in its session must not outlive it.
    os.kill(program, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # no session yet
        os.killpg(program, signal.SIGKILL)
    status = os.waitpid(program, 0)[1]
    with contextlib.suppress(OSError):
        client.send(END.pack(status, time.monotonic()))
    os._exit(0)


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    serve(sys.argv[1]).become()
