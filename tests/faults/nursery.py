"""Starts ranks cheaply: imports torch once, then forks a process per requested program.

Unlike a launcher it ends no rank and notifies none of another's end. Children have the session, environment
and output files of programs started by a shell, and run as __main__ with Python's ordinary end. The extension
is not imported here, so that each child loads and initialises it.

Protocol, one JSON object per line. In: {"argv", "env", "log", "namespaces"}: argv[0] is a Python file,
namespaces are files of /proc/PID/ns to enter first; or {"kill": pid, "signal"}. Out: {"pid"} at a start and
{"pid", "status", "time"} at its end; status is negative for a signal, time is time.monotonic().
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import select
import signal
import sys
import time

import torch.distributed  # noqa: F401  (what takes the time)

CLONE_ALL = 0  # setns: any kind of namespace


def emit(**fields: object) -> None:
    os.write(PIPE, (json.dumps(fields) + "\n").encode())


def become(order: dict) -> str:
    """Turns this child into the ordered program; returns its script's path."""
    os.setsid()
    libc = ctypes.CDLL(None, use_errno=True)
    for path in order["namespaces"]:
        descriptor = os.open(path, os.O_RDONLY)
        if libc.setns(descriptor, CLONE_ALL) != 0:
            raise OSError(ctypes.get_errno(), f"setns {path}")
        os.close(descriptor)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.closerange(3, 64)
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = order["argv"]
    return sys.argv[0]


def serve() -> str | None:
    """Serves until the input ends; returns a script only in a child that must run it."""
    buffer = b""
    running: set[int] = set()
    while True:
        if select.select([0], [], [], 0.02)[0]:
            got = os.read(0, 65536)
            if not got:  # the client is gone, perhaps killed
                for pid in running:
                    os.kill(pid, signal.SIGKILL)
                return None
            buffer += got
        while b"\n" in buffer:
            line, buffer = buffer.split(b"\n", 1)
            order = json.loads(line)
            if "kill" in order:
                if order["kill"] in running:
                    os.kill(order["kill"], order["signal"])
                continue
            pid = os.fork()
            if pid == 0:
                return become(order)
            running.add(pid)
            emit(pid=pid)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            running.discard(pid)
            emit(pid=pid, status=os.waitstatus_to_exitcode(status), time=time.monotonic())


PIPE = os.dup(1)
script = serve()
if script is not None:
    runpy.run_path(script, run_name="__main__")
