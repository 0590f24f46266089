"""Ranks of one host in containers of their own: without access to each other, or with a /dev/shm each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support import processes
from support.namespaces import hindrance

PLAIN = Path(__file__).parent.parent / "launch" / "programs" / "refused_copies.py"
PIDS = "unshare --pid --fork --mount-proc"
USERS = "unshare --user --map-root-user"
# As runtimes do it: the container's first process comes first, then its /dev/shm.
OWN_MEMORY = f"""{PIDS} --ipc sh -c 'mount -t tmpfs -o size=64m tmpfs /dev/shm; exec "$@"' sh"""
BY_MPI = {"MPI_GDR_SHM": "off", "MPI_GDR_P2P": "mpi"}


@pytest.fixture
def container(tmp_path):
    """What runs Python in a container of its own, made by this command."""
    if reason := hindrance():
        pytest.skip(reason)

    def make(command: str) -> Path:
        path = tmp_path / "container"
        path.write_text(f'#!/bin/sh\nexec {command} {sys.executable} "$@"\n')
        path.chmod(0o755)
        return path

    return make


@pytest.mark.parametrize("command", [PIDS, USERS])
def test_long_messages_between_containers(container, command):
    """With a PID of another namespace the kernel would read another process."""
    words = [processes.mpiexec(), "-n", 2, container(command), PLAIN, "none"]
    assert processes.run(words, 40, **BY_MPI).expect(0).count("is done") == 2


def test_without_shared_memory_mpiexec_says_so(container):
    result = processes.run([processes.mpiexec(), "-n", 2, container(OWN_MEMORY), PLAIN, "none"], 40)
    assert result.status not in (None, 0), result.tail()
    assert "MPI_Init_thread cannot return: this rank is in a container of its own" in result.output
    assert "set MASTER_ADDR and MASTER_PORT for all ranks" in result.output


@pytest.mark.parametrize("launcher", ["mpiexec", "torchrun"])
def test_without_shared_memory_a_container_is_a_host(container, launcher):
    """The cure of the message above, and what torchrun's ranks do anyway."""
    python = container(OWN_MEMORY)
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(processes.free_port())}
    if launcher == "mpiexec":
        result = processes.run([processes.mpiexec(), "-n", 2, python, PLAIN, "none"], 40, **where)
    else:
        words = [*processes.TORCHRUN, "--standalone", "--nproc-per-node=2", "--no-python", python]
        result = processes.run([*words, PLAIN, "none"], 40)
    assert result.expect(0).count("is done") == 2
