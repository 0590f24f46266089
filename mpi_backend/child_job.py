"""Jobs that a command starts by `mpi-gdr run` and whose parent it stays: none outlives the command.

A job has a session of its own, so that Ctrl-C at the terminal reaches the command alone, which ends the job:
otherwise the launcher and each rank would report the signal themselves.
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
SECONDS_TO_END = 5  # for a launcher to end its ranks
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>
_prctl = ctypes.CDLL(None).prctl


def end_with(parent: int) -> None:
    """In a child: SIGTERM when the process that started it has ended, even by SIGKILL."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it has ended before that
        os._exit(1)


@contextlib.contextmanager
def started(arguments: Sequence[str], **popen: Any) -> Iterator[subprocess.Popen[str]]:
    """`mpi-gdr run ARGUMENTS`, without standard input. The end of the block waits for the job; an exception
    in the block, such as a signal's, ends it."""
    with signals_raise():
        job = subprocess.Popen(
            mpi_gdr("run", *arguments),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            errors="replace",
            preexec_fn=functools.partial(end_with, os.getpid()),
            **popen,
        )
        try:
            yield job
            job.wait()
        except BaseException:
            end(job)
            raise
        finally:
            if job.stdout:
                job.stdout.close()


def end(job: subprocess.Popen[str]) -> None:
    """Ends the launcher, which ends the ranks, also those on other nodes; then what is left on this one."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    if job.stdout:  # a launcher that cannot write would not end its ranks
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
def signals_raise() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP raise SystemExit, as SIGINT raises KeyboardInterrupt."""

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
    """As a shell shows it: 128 and the signal, where a signal ended the launcher."""
    return job.returncode if job.returncode >= 0 else 128 - job.returncode


def run(arguments: Sequence[str], env: Mapping[str, str] | None = None, bar: Bar | None = None) -> int:
    """The exit status of `mpi-gdr run ARGUMENTS`. Passes its output on, except for what a launcher prints
    when end() ends it. report_progress() of the ranks moves the bar."""
    errors = subprocess.STDOUT if bar else None  # the bar would overwrite its lines
    with (
        bar or contextlib.nullcontext(),
        started(arguments, env=env, stdout=subprocess.PIPE, stderr=errors) as job,
    ):
        for line in job.stdout or ():
            if bar is None:
                sys.stdout.write(line)
                sys.stdout.flush()
            elif not moves(bar, line):
                bar.print(line.rstrip("\n"), sys.stdout)
    return status_of(job)


def moves(bar: Bar, line: str) -> bool:
    """Whether the line is of report_progress(), and shown by the bar."""
    if found := PROGRESS.search(line):
        bar.show(int(found[1]), int(found[2]), found[3])
    return found is not None


def report_progress(done: int, total: int, state: str) -> None:
    """Called by one rank, for the command that started the job. In one write: other ranks write as well."""
    sys.stdout.write(f"@progress {done} {total} {state}\n")
    sys.stdout.flush()
