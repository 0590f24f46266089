"""Ranks of one host in separate containers: without access to each other, or with separate /dev/shm."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
from support import processes
from support.namespaces import Namespaces, why_unavailable

PLAIN = Path(__file__).parent.parent / "launch" / "programs" / "refused_copies.py"
PIDS = "unshare --pid --fork --mount-proc"
USERS = "unshare --user --map-root-user"
# As runtimes do: first the container's first process, then its /dev/shm.
OWN_MEMORY = f"""{PIDS} --ipc sh -c 'mount -t tmpfs -o size=64m tmpfs /dev/shm; exec "$@"' sh"""
BY_MPI = {"MPI_GDR_SHM": "off", "MPI_GDR_P2P": "mpi"}


@pytest.fixture
def container(tmp_path):
    """Creates an interpreter that runs in a container made by a command."""
    if reason := why_unavailable():
        pytest.skip(reason)

    def make(command: str) -> str:
        return processes.write_script(tmp_path / "container", f'exec {command} {sys.executable} "$@"')

    return make


@pytest.mark.parametrize("command", [PIDS, USERS])
def test_long_messages_between_containers(container, command):
    """A PID of another namespace would make the kernel read another process."""
    words = [processes.mpiexec(), "-n", 2, container(command), PLAIN, "none"]
    assert processes.run(words, 40, **BY_MPI).expect(0).count("is done") == 2


def test_without_shared_memory_mpiexec_reports_it(container):
    result = processes.run([processes.mpiexec(), "-n", 2, container(OWN_MEMORY), PLAIN, "none"], 40)
    assert result.status not in (None, 0), result.tail()
    assert "MPI_Init_thread cannot return: this rank is in a container with its own /dev/shm" in result.output
    assert "set MASTER_ADDR and MASTER_PORT for all ranks" in result.output


@pytest.mark.parametrize("launcher", ["mpiexec", "torchrun"])
def test_without_shared_memory_a_container_is_a_host(container, launcher):
    """The remedy of the message above; torchrun's ranks behave like this anyway."""
    python = container(OWN_MEMORY)
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(processes.free_port())}
    if launcher == "mpiexec":
        result = processes.run([processes.mpiexec(), "-n", 2, python, PLAIN, "none"], 40, **where)
    else:
        words = [*processes.TORCHRUN, "--standalone", "--nproc-per-node=2", "--no-python", python]
        result = processes.run([*words, PLAIN, "none"], 40)
    assert result.expect(0).count("is done") == 2


OWN_NETWORK = "mount -t sysfs sysfs /sys && ip link set lo up"  # UCX finds its interfaces in /sys
NETWORKS = {"ucx": {}, "ofi": {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "MPIR_CVAR_NOLOCAL": "1"}}


@pytest.mark.parametrize("network", NETWORKS)
def test_containers_with_a_network_each_share_dev_shm(network):
    """One host by name and /dev/shm, but ranks are not reachable over the loopback."""
    if reason := why_unavailable():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(Namespaces("box", OWN_NETWORK)) for _ in range(2))
        first.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", second.pid)
        programs = []
        for rank, container in enumerate((first, second)):
            container.ip("addr", "add", f"10.231.78.{rank + 1}/24", "dev", "eth0")
            container.ip("link", "set", "eth0", "up")
        for rank, container in enumerate((first, second)):
            env = processes.clean_environment(
                RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="10.231.78.1", MASTER_PORT="29411",
                **BY_MPI, **NETWORKS[network],
            )  # fmt: skip
            words = [*container.enter(), sys.executable, str(PLAIN), "none"]
            programs.append(stack.enter_context(processes.Program(words, env)))
        for program in programs:
            assert "is done" in program.finish(60).expect(0)
