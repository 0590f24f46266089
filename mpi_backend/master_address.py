"""MASTER_ADDR and MASTER_PORT at `import torch`: a meeting point that all ranks compute without
communication.

Scripts read both before init_process_group. The port is a hash of an identifier common to the job's ranks
only: the process that started them, the launcher's job number, or the secret of `mpi-gdr run`. The address is
known for a job on one host, from Slurm's list of nodes, or from MPI_GDR_MASTER_ADDR; otherwise nothing is set
before init_process_group. rendezvous.py handles a port that is taken and a wrong address.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import struct
from collections.abc import MutableMapping
from typing import NamedTuple

from . import launchers

LOOPBACK = "127.0.0.1"
# Below the kernel's ephemeral ports (32768 on by default); excludes torch's 29500.
FIRST_PORT, PORTS = 20000, 8192
NAMES = ("MASTER_ADDR", "MASTER_PORT")


class Endpoint(NamedTuple):
    """A job's meeting point."""

    address: str
    port: int
    job: str  # key that identifies the job's store


_last_set: tuple[str, str] | None = None  # MASTER_ADDR and MASTER_PORT as this module last set them
_set_by_us: frozenset[str] = frozenset()  # names of these that the user did not set
_endpoint: Endpoint | None = None  # what the program may have read since `import torch`


def set_endpoint(env: MutableMapping[str, str]) -> None:
    """Sets the missing ones of MASTER_ADDR and MASTER_PORT if all ranks compute the same. Never waits."""
    global _endpoint
    port = env.get("MASTER_PORT", "")
    if all(_pair(env)) or (port and not port.isdecimal()) or (found := compute_endpoint(env)) is None:
        return
    found = found._replace(address=env.get("MASTER_ADDR") or found.address, port=int(port or found.port))
    _set(env, found.address, str(found.port), {name for name in NAMES if not env.get(name)})
    _endpoint = found


def current_endpoint(env: launchers.Environment) -> Endpoint | None:
    """The values that set_endpoint() has set, if the program has not changed them."""
    return _endpoint if _pair(env) == _last_set else None


def publish(env: MutableMapping[str, str], address: str, port: str) -> None:
    """Sets both variables for an opened store. A user's MASTER_ADDR also applies to the next store."""
    global _endpoint
    _endpoint = None
    _set(env, address, port, {"MASTER_PORT", *(name for name in NAMES if not user_value(env, name))})


def _set(env: MutableMapping[str, str], address: str, port: str, set_by_us: set[str]) -> None:
    global _last_set, _set_by_us
    env["MASTER_ADDR"], env["MASTER_PORT"] = _last_set = (address, port)
    _set_by_us = frozenset(set_by_us)


def user_value(env: launchers.Environment, name: str) -> str:
    """A variable's value by the user; "" if it is missing or ours."""
    return "" if name in _set_by_us and _pair(env) == _last_set else env.get(name, "")


def address_is_missing(env: launchers.Environment) -> bool:
    """Whether the user gave no complete address. Ours does not count, because its store may be closed by the
    next call, or still open with the keys of a destroyed group."""
    return not all(_pair(env)) or _pair(env) == _last_set


def _pair(env: launchers.Environment) -> tuple[str, str]:
    return env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")


# ---- common to all ranks ----------------------------------------------------------------------------------


def compute_endpoint(env: launchers.Environment) -> Endpoint | None:
    """The job's meeting point; None if the ranks cannot all compute it, and for a single rank."""
    placement = launchers.detect(env)
    if placement is None or placement.size < 2:
        return None
    if (env.get("RANK"), env.get("WORLD_SIZE")) != (str(placement.rank), str(placement.size)):
        return None  # the launcher did not set the ranks
    if placement.local_size == placement.size:
        address, job = LOOPBACK, job_on_this_node(env, placement.launcher)
    else:
        address, job = first_node_of_slurm(env, placement)
    address = env.get("MPI_GDR_MASTER_ADDR") or address
    job = job or env.get("MPI_GDR_SECRET", "")  # unique to a launch if `mpi-gdr run` made it
    if not address or not job:
        return None
    # The secret keeps other users from guessing the job's key.
    digest = hashlib.sha256(f"{job} {env.get('MPI_GDR_SECRET', '')}".encode()).hexdigest()
    port = FIRST_PORT + int(digest[:8], 16) % PORTS
    return Endpoint(address, port, digest)


def job_on_this_node(env: launchers.Environment, launcher: str) -> str:
    """Text common to this job's ranks and to no other job on this node; "" if unknown."""
    names = next(row.job for row in launchers.LAUNCHERS if row.name == launcher)
    values = [peer_process(env.get(name, "")) if name == "PMI_FD" else env.get(name, "") for name in names]
    return " ".join([launcher, *values]) if values and all(values) else ""


def peer_pid(descriptor: str) -> int:
    """The process that made the socket `descriptor` and keeps its other end; 0 if unknown."""
    if not descriptor.isdecimal() or not hasattr(socket, "SO_PEERCRED"):
        return 0
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(descriptor))) as end:
        if end.family == socket.AF_UNIX:
            pid, _, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            return max(0, int(pid))
    return 0


def peer_process(descriptor: str) -> str:
    """peer_pid() and its start time, regardless of shells and tools in between. "" if unknown."""
    if pid := peer_pid(descriptor):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            # The bracketed name may contain anything; the start time is the 20th word after it.
            return f"{pid} {file.read().rpartition(')')[2].split()[19]}"
    return ""


def is_proxy_of_srun(descriptor: str) -> bool:
    """Whether Hydra started its proxies with srun and one of them made this socket."""
    if pid := peer_pid(descriptor):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"\0--launcher\0slurm\0" in file.read()
    return False


def first_node_of_slurm(env: launchers.Environment, placement: launchers.Placement) -> tuple[str, str]:
    """(name of rank 0's node, text common to all ranks of this job step); empty if unknown."""
    row = next(row for row in launchers.LAUNCHERS if row.name == "Slurm srun")
    tasks = row.read(env)
    if tasks is None:
        return "", ""
    # Hydra and Open MPI start their daemons with srun, whose step is not the ranks'. Hydra's proxies follow
    # Slurm's order of nodes, whatever the host list, and rank 0 is on the first.
    if any(name.startswith(("MPI_LOCAL", "OMPI_COMM_WORLD_")) for name in env):
        if not is_proxy_of_srun(env.get("PMI_FD", "")):
            return "", ""
    elif (tasks.rank, tasks.size) != (placement.rank, placement.size):
        return "", ""
    if env.get("SLURM_DISTRIBUTION", "").startswith("arbitrary") or "SLURM_HET_SIZE" in env:
        return "", ""
    values = [env.get(name, "") for name in row.job]
    nodes = env.get("SLURM_STEP_NODELIST", "")
    # "rack[1-2]n[03-07,9],login" starts with rack1n03.
    first = re.match(r"(?:[^\[,]|\[[^\]]*\])*", nodes)
    name = re.sub(r"\[(\w+)[^\]]*\]", r"\1", first[0]) if first else ""
    return (name, " ".join(values)) if name and all(values) else ("", "")
