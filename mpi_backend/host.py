"""Facts about this machine: processor, memory, process limits."""

from __future__ import annotations

import os
import resource
from typing import TypedDict


class SharedMemory(TypedDict):
    """Bytes; "not known" if unavailable."""

    size: int | str
    free: int | str


class HostFacts(TypedDict):
    """Sizes in bytes. None: no limit."""

    cpu: str
    cores: int
    memory: int
    shared_memory: SharedMemory
    limits: dict[str, int | None]


def cpu_model() -> str:
    """The processor's name, else its architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else os.uname().machine


def facts() -> HostFacts:
    """Facts about this process and its machine."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "shared_memory": shared_memory(),
        "limits": {
            "open_files": limit(resource.RLIMIT_NOFILE),
            "locked_memory": limit(resource.RLIMIT_MEMLOCK),
            "core_files": limit(resource.RLIMIT_CORE),
        },
    }


def shared_memory() -> SharedMemory:
    """Size of /dev/shm, where MPI libraries keep shared memory."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return {"size": "not known", "free": "not known"}
    return {"size": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}


def limit(what: int) -> int | None:
    """The soft limit; None: unlimited."""
    soft, _ = resource.getrlimit(what)
    return None if soft == resource.RLIM_INFINITY else soft


def size_text(size: int | str | None) -> str:
    """1073741824 -> "1 GiB"; None -> "unlimited"."""
    if not isinstance(size, int):
        return size or "unlimited"
    for shift, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.4g} {unit}"
    return f"{size} B"
