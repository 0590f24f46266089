"""Raises the limit on open files for the job's store before ranks connect to it.

The process that hosts the store needs a descriptor per rank. Without a free one it accepts no connection, and
the ranks block without a message.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Mapping

# Spare descriptors for libraries, logs, listeners and shared memory.
OTHERS = 200


def prepare(env: Mapping[str, str]) -> None:
    """Called on every rank before the store of env:// is created or connected to. Raises the limit of the
    process that hosts the store; raises RuntimeError if that process cannot open a file per rank."""
    if (sentence := shortage(env)) is not None:
        raise RuntimeError(f"mpi-gdr: {sentence}")
    host, needed = host_and_files(env)
    if host is None:
        return
    soft, hard = resource.prlimit(host, resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    with contextlib.suppress(OSError):  # another user's process
        resource.prlimit(host, resource.RLIMIT_NOFILE, (needed if hard < 0 else min(needed, hard), hard))


def shortage(env: Mapping[str, str]) -> str | None:
    """A sentence if a process here hosts the store of env:// and may not open a file per rank, else None."""
    host, needed = host_and_files(env)
    if host is None:
        return None
    soft, hard = resource.prlimit(host, resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= needed or hard == resource.RLIM_INFINITY
    if enough or hard >= needed - OTHERS + files_of(host):
        return None
    owner = "this process" if host == os.getpid() else f"torchrun's agent (pid {host})"
    return (
        f"{owner} hosts the store of a job of {needed - OTHERS} ranks and may open {hard} files, expected at "
        f"least {needed}: raise the limit on open files before the job starts (`ulimit -n {needed}`, or "
        "LimitNOFILE= and /etc/security/limits.conf)"
    )


def host_and_files(env: Mapping[str, str]) -> tuple[int | None, int]:
    """(local process that hosts the store or None, number of files that it needs)."""
    rank, size = env.get("RANK", ""), env.get("WORLD_SIZE", "")
    if not rank.isdecimal() or not size.isdecimal():
        return None, 0
    return store_host(env, int(rank)), int(size) + OTHERS


def store_host(env: Mapping[str, str], rank: int) -> int | None:
    """The local process that hosts the store of env://, if this rank must check it; else None."""
    if env.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return os.getpid() if rank == 0 else None
    if env.get("GROUP_RANK") != "0":
        return None
    return agent()


def agent() -> int | None:
    """The torchrun agent that started this process: its first ancestor without agent variables, or None."""
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
    """Number of open files of the process; OTHERS if it cannot be read."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return OTHERS
