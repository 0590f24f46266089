"""Two nodes with a network, on one machine.

A node is a set of namespaces (network, host name, processes, /dev/shm), which MPI and mpi-gdr treat as a
host; switches are bridges in a separate network namespace. The machine's own namespaces do not change; all is
gone with the processes that hold the namespaces.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import jobs
from support import processes
from support.namespaces import Namespaces
from support.warm import Child, Server

# UCX searches /sys for its network devices.
NODE = "mount -t tmpfs -o size=1g tmpfs /dev/shm && mount -t sysfs sysfs /sys && ip link set lo up"


def over_tcp(library: str) -> tuple[tuple[str, str], ...]:
    """Variables for TCP over this network library. With MPI_GDR_MPI_LIBRARY they do not name the library,
    because that MPI may have only one. The environment of the tests takes precedence."""
    variables = {"UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}
    if "MPI_GDR_MPI_LIBRARY" not in os.environ:
        variables["MPIR_CVAR_CH4_NETMOD"] = library
    return tuple((name, os.environ.get(name, value)) for name, value in variables.items())


UCX, OFI = over_tcp("ucx"), over_tcp("ofi")


def address(node: int, link: int = 0) -> str:
    return f"10.231.{9 + link}.{node + 1}"


class Testbed:
    """Two nodes and a switch. Each of the `links` is a separate network."""

    __test__ = False  # not a test class, despite its name

    def __init__(self, stack: contextlib.ExitStack, links: int = 1) -> None:
        self.switch = stack.enter_context(Namespaces("switch", "true"))
        self.nodes = [stack.enter_context(Namespaces(f"node{k}", NODE)) for k in range(2)]
        for link in range(links):
            # A bridge each: on a common one a node answers for an address at any of its devices.
            self.switch.ip("link", "add", f"br{link}", "up", "type", "bridge")
            for k, node in enumerate(self.nodes):
                port = ("link", "add", f"p{k}.{link}", "type", "veth", "peer", "name", f"eth{link}")
                self.switch.ip(*port, "netns", node.pid)
                self.switch.ip("link", "set", f"p{k}.{link}", "master", f"br{link}", "up")
                node.ip("addr", "add", f"{address(k, link)}/24", "dev", f"eth{link}")
                node.ip("link", "set", f"eth{link}", "up")
        self.servers = [stack.enter_context(Server(node.enter())) for node in self.nodes]

    def cut(self, how: str, link: int = 0) -> None:
        if how == "link cut":  # as a pulled cable: node 1 sees no carrier
            self.switch.ip("link", "set", f"p1.{link}", "down")
        else:  # the link stays up, but the switch forwards nothing
            self.switch.ip("link", "set", f"p1.{link}", "nomaster")

    def mend(self, link: int = 0) -> None:
        self.switch.ip("link", "set", f"p1.{link}", "master", f"br{link}", "up")

    def start(
        self,
        script: str,
        arguments: Sequence[str],
        hosts: str,
        events: Path,
        network: Sequence[tuple[str, str]] = UCX,
        link: int = 0,
        **variables: str,
    ) -> list[Child]:
        """Starts a rank on each of the `hosts` ("011": three ranks), whose messages use the link."""
        variables_of_devices = ("UCX_NET_DEVICES", "FI_TCP_IFACE", "FI_SOCKETS_IFACE")
        apart = dict(network) | dict.fromkeys(variables_of_devices, f"eth{link}")
        several = len(set(hosts)) > 1
        where = {"MASTER_ADDR": address(0, link) if several else "127.0.0.1", **(apart if several else {})}
        where |= {"MASTER_PORT": str(processes.free_port()), "WORLD_SIZE": str(len(hosts))}
        environment = processes.clean_environment(MPI_GDR_FLIGHT_LOG="0", **where, **variables)
        argv = [str(jobs.FOLDER / script), *arguments]
        return [
            self.servers[int(host)].start(argv, environment | {"RANK": str(rank)}, events / f"log{rank}")
            for rank, host in enumerate(hosts)
        ]

    def left(self, hosts: str, ranks: Sequence[jobs.Ended]) -> list[str]:
        """Remaining files of the shared memory that the ranks reported."""
        found = set()
        for rank in ranks:
            node = self.nodes[int(hosts[rank.rank])]
            names = [name for event in rank.events for name in event.get("names", ())]
            found |= {name for name in names if os.path.exists(node.inside(name))}
        return sorted(found)

    def left_in_shared_memory(self) -> list[str]:
        return [name for node in self.nodes for name in os.listdir(node.inside("/dev/shm"))]
