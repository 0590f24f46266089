"""Enough file descriptors for the store of the job, before anybody connects to it.

The process that hosts the store needs one for each rank. Where they run out it can accept no more,
and the ranks wait for it without a word. So the limit is looked at first, and raised as far as it may be.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Mapping

# Libraries, logs, listeners, shared memory: what a rank opens besides, with room.
OTHERS = 200


def prepare(env: Mapping[str, str]) -> None:
    """Called on every rank, before the store of env:// is made or connected to. Raises RuntimeError where the
    process that hosts the store cannot open a file for each rank."""
    if (sentence := shortage(env)) is not None:
        raise RuntimeError(f"mpi-gdr: {sentence}")
    host, needed = host_and_files(env)
    if host is None:
        return
    soft, hard = resource.prlimit(host, resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    with contextlib.suppress(OSError):  # of another user
        resource.prlimit(host, resource.RLIMIT_NOFILE, (needed if hard < 0 else min(needed, hard), hard))


def shortage(env: Mapping[str, str]) -> str | None:
    """A sentence if the store of env:// is hosted here, by a process that may not open a file for each
    rank."""
    host, needed = host_and_files(env)
    if host is None:
        return None
    soft, hard = resource.prlimit(host, resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= needed or hard == resource.RLIM_INFINITY
    if enough or hard >= needed - OTHERS + files_of(host):
        return None
    who = "this process" if host == os.getpid() else f"torchrun's agent (pid {host})"
    return (
        f"{who} hosts the store of a job of {needed - OTHERS} ranks and may open {hard} files, expected at "
        f"least {needed}: raise the limit on open files before the job starts (`ulimit -n {needed}`, or "
        "LimitNOFILE= and /etc/security/limits.conf)"
    )


def host_and_files(env: Mapping[str, str]) -> tuple[int | None, int]:
    """(the process on this host that hosts the store, how many files it should be able to open)."""
    rank, size = env.get("RANK", ""), env.get("WORLD_SIZE", "")
    if not rank.isdecimal() or not size.isdecimal():
        return None, 0
    return store_host(env, int(rank)), int(size) + OTHERS


def store_host(env: Mapping[str, str], rank: int) -> int | None:
    """The process on this host that hosts the store of env://; None: it is elsewhere, or another
    process looks after it."""
    if env.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return os.getpid() if rank == 0 else None
    if env.get("GROUP_RANK") != "0":
        return None
    return agent()


def agent() -> int | None:
    """The torchrun agent that started this process: the first of its ancestors that has not got the agent's
    variables. None: it cannot be seen."""
    pid = os.getpid()
    with contextlib.suppress(OSError, ValueError, IndexError):
        while True:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
            if pid <= 1:
                return None
            with open(f"/proc/{pid}/environ", "rb") as file:
                if b"\0TORCHELASTIC_RUN_ID=" not in b"\0" + file.read():
                    return pid
    return None


def files_of(pid: int) -> int:
    """Files that the process has open; OTHERS where it cannot be seen."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return OTHERS
