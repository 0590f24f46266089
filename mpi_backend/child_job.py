"""Jobs that a command starts by `mpi-gdr run`; none outlives the command.

Each job has its own session: Ctrl-C reaches only the command, which ends the job. Otherwise the launcher and
each rank would report the signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from .bar import Bar
from .rank_command import mpi_gdr

PROGRESS = re.compile(r"@progress (\d+) (\d+) (.*)$")
SECONDS_TO_END = 5  # a launcher's time to end its ranks
TERMINATING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
_prctl = ctypes.CDLL(None).prctl


def terminate_with_parent(parent: int) -> None:
    """In a child: requests SIGTERM when its parent ends, even by SIGKILL."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent ended before the request
        os._exit(1)


@contextlib.contextmanager
def running_job(arguments: Sequence[str], **popen: Any) -> Iterator[subprocess.Popen[str]]:
    """Runs `mpi-gdr run ARGUMENTS` without standard input. Leaving the block waits for the job; an exception
    in it, such as a signal's, ends the job."""
    with raise_on_signals():
        job = subprocess.Popen(
            mpi_gdr("run", *arguments),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            errors="replace",
            preexec_fn=functools.partial(terminate_with_parent, os.getpid()),
            **popen,
        )
        try:
            yield job
            job.wait()
        except BaseException:
            terminate(job)
            raise
        finally:
            if job.stdout:
                job.stdout.close()


def terminate(job: subprocess.Popen[str]) -> None:
    """Ends the launcher, which ends its ranks on all nodes; then kills the rest on this node."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in TERMINATING_SIGNALS}
    if job.stdout:  # a launcher that blocks in a write would not end its ranks
        threading.Thread(target=job.stdout.read, daemon=True).start()
    try:
        job.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(SECONDS_TO_END)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def raise_on_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP raise SystemExit, as SIGINT raises KeyboardInterrupt."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    changed = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) == signal.SIG_DFL]
    for number in changed:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def status_of(job: subprocess.Popen[str]) -> int:
    """The exit status as a shell shows it: 128 + signal if a signal ended the launcher."""
    return job.returncode if job.returncode >= 0 else 128 - job.returncode


def run(arguments: Sequence[str], env: Mapping[str, str] | None = None, bar: Bar | None = None) -> int:
    """Runs `mpi-gdr run ARGUMENTS` and returns its exit status. Forwards its output, except what a launcher
    prints once terminate() ends it. The ranks' report_progress() moves the bar."""
    errors = subprocess.STDOUT if bar else None  # the bar would overwrite its lines
    with (
        bar or contextlib.nullcontext(),
        running_job(arguments, env=env, stdout=subprocess.PIPE, stderr=errors) as job,
    ):
        for line in job.stdout or ():
            if bar is None:
                sys.stdout.write(line)
                sys.stdout.flush()
            elif not show_if_progress(bar, line):
                bar.print(line.rstrip("\n"), sys.stdout)
    return status_of(job)


def show_if_progress(bar: Bar, line: str) -> bool:
    """Whether the line comes from report_progress(); if so, the bar shows it."""
    if found := PROGRESS.search(line):
        bar.show(int(found[1]), int(found[2]), found[3])
    return found is not None


def report_progress(done: int, total: int, state: str) -> None:
    """Called on one rank, for the command that started the job. A single write: ranks share the pipe."""
    sys.stdout.write(f"@progress {done} {total} {state}\n")
    sys.stdout.flush()
