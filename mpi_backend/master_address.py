"""MASTER_ADDR and MASTER_PORT at `import torch`: where the ranks will meet, known to all without a message.

Scripts read both before init_process_group. The port is a hash of what names the job to its ranks and to no
other's: the process that started them, a number of the launcher's, or the secret of `mpi-gdr run`. The
address is known where the job has one host, where Slurm lists its nodes, and from MPI_GDR_MASTER_ADDR. The
ranks meet there; rendezvous.py says what happens where another program has the port, or the address is wrong.
Elsewhere nothing is set before init_process_group.
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
# Below the ports that kernels hand out by themselves (32768 on by default), and without torch's 29500.
FIRST_PORT, PORTS = 20000, 8192
NAMES = ("MASTER_ADDR", "MASTER_PORT")


class Meeting(NamedTuple):
    """Where the ranks of a job meet."""

    address: str
    port: int
    job: str  # tells the store of this job from another's


_left: tuple[str, str] | None = None  # both variables as this package has left them
_filled: frozenset[str] = frozenset()  # those of them that are not the user's
_offered: Meeting | None = None  # what the program may have read since `import torch`


def offer(env: MutableMapping[str, str]) -> None:
    """Sets what is missing of MASTER_ADDR and MASTER_PORT, where all ranks set the same. Never waits."""
    global _offered
    port = env.get("MASTER_PORT", "")
    if all(_pair(env)) or (port and not port.isdecimal()) or (found := agreed(env)) is None:
        return
    found = found._replace(address=env.get("MASTER_ADDR") or found.address, port=int(port or found.port))
    _set(env, found.address, str(found.port), {name for name in NAMES if not env.get(name)})
    _offered = found


def offered(env: launchers.Environment) -> Meeting | None:
    """What offer() has set, if the program has left it so."""
    return _offered if _pair(env) == _left else None


def publish(env: MutableMapping[str, str], address: str, port: str) -> None:
    """Sets both to where a store was opened. An address that the user gave stays his for the next one."""
    global _offered
    _offered = None
    _set(env, address, port, {"MASTER_PORT", *(name for name in NAMES if not user_value(env, name))})


def _set(env: MutableMapping[str, str], address: str, port: str, filled: set[str]) -> None:
    global _left, _filled
    env["MASTER_ADDR"], env["MASTER_PORT"] = _left = (address, port)
    _filled = frozenset(filled)


def user_value(env: launchers.Environment, name: str) -> str:
    """A variable as the user set it; "" if it is missing or ours."""
    return "" if name in _filled and _pair(env) == _left else env.get(name, "")


def address_is_missing(env: launchers.Environment) -> bool:
    """True where the user gave no full address. One of ours may be stale: the port of the first store is
    closed by the next call, or still open with the keys of a group that is gone."""
    return not all(_pair(env)) or _pair(env) == _left


def _pair(env: launchers.Environment) -> tuple[str, str]:
    return env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")


# ---- what all ranks know ----------------------------------------------------------------------------------


def agreed(env: launchers.Environment) -> Meeting | None:
    """Where the ranks of this job meet; None where they cannot all know it, and for one rank alone."""
    placement = launchers.detect(env)
    if placement is None or placement.size < 2:
        return None
    if (env.get("RANK"), env.get("WORLD_SIZE")) != (str(placement.rank), str(placement.size)):
        return None  # the ranks are not the launcher's
    if placement.local_size == placement.size:
        address, job = LOOPBACK, job_on_this_node(env, placement.launcher)
    else:
        address, job = first_node_of_slurm(env, placement)
    address = env.get("MPI_GDR_MASTER_ADDR") or address
    job = job or env.get("MPI_GDR_SECRET", "")  # of one launch, where `mpi-gdr run` made it
    if not address or not job:
        return None
    # With the secret of the launch, if there is one, no other user can guess the key of the job.
    digest = hashlib.sha256(f"{job} {env.get('MPI_GDR_SECRET', '')}".encode()).hexdigest()
    port = FIRST_PORT + int(digest[:8], 16) % PORTS
    return Meeting(address, port, digest)


def job_on_this_node(env: launchers.Environment, launcher: str) -> str:
    """Text that the ranks of this job have in common, and no other job on this node; "" if unknown."""
    names = next(row.job for row in launchers.LAUNCHERS if row.name == launcher)
    values = [process_behind(env.get(name, "")) if name == "PMI_FD" else env.get(name, "") for name in names]
    return " ".join([launcher, *values]) if values and all(values) else ""


def pid_behind(descriptor: str) -> int:
    """The process that made the socket `descriptor`, one end of which it keeps; 0 if unknown."""
    if not descriptor.isdecimal() or not hasattr(socket, "SO_PEERCRED"):
        return 0
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(descriptor))) as end:
        if end.family == socket.AF_UNIX:
            pid, _, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            return max(0, int(pid))
    return 0


def process_behind(descriptor: str) -> str:
    """pid_behind(), with the start time. Shells and tools between that process and this one change nothing.
    "" if unknown."""
    if pid := pid_behind(descriptor):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            # The name in brackets may hold anything; the start time is the 20th word behind it.
            return f"{pid} {file.read().rpartition(')')[2].split()[19]}"
    return ""


def is_proxy_of_srun(descriptor: str) -> bool:
    """True if Hydra has started its proxies, one of which made this socket, with srun."""
    if pid := pid_behind(descriptor):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"\0--launcher\0slurm\0" in file.read()
    return False


def first_node_of_slurm(env: launchers.Environment, placement: launchers.Placement) -> tuple[str, str]:
    """(name of rank 0's node, text that all ranks of this job step have in common); empty if unknown."""
    row = next(row for row in launchers.LAUNCHERS if row.name == "Slurm srun")
    tasks = row.read(env)
    if tasks is None:
        return "", ""
    # Hydra and Open MPI start their daemons with srun: the step is then not that of the ranks. Hydra's
    # proxies are in the order of Slurm's nodes, whatever its host list says, and rank 0 is the first's.
    if any(name.startswith(("MPI_LOCAL", "OMPI_COMM_WORLD_")) for name in env):
        if not is_proxy_of_srun(env.get("PMI_FD", "")):
            return "", ""
    elif (tasks.rank, tasks.size) != (placement.rank, placement.size):
        return "", ""
    if env.get("SLURM_DISTRIBUTION", "").startswith("arbitrary") or "SLURM_HET_SIZE" in env:
        return "", ""
    values = [env.get(name, "") for name in row.job]
    nodes = env.get("SLURM_STEP_NODELIST", "")
    # "rack[1-2]n[03-07,9],login" begins with rack1n03.
    first = re.match(r"(?:[^\[,]|\[[^\]]*\])*", nodes)
    name = re.sub(r"\[(\w+)[^\]]*\]", r"\1", first[0]) if first else ""
    return (name, " ".join(values)) if name and all(values) else ("", "")
