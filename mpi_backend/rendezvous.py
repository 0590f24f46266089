"""The env:// rendezvous without MASTER_ADDR and MASTER_PORT, for ranks that an MPI launcher started.

mpirun tells a process its rank and size, but no address that all can reach. MPI itself is the way out: it
connects the ranks with what its launcher gave it. Rank 0 opens a store on a port that the kernel picks and
broadcasts, over MPI, where to find it. In every other case torch's own handler runs, unchanged.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlparse

from . import launch

PROBE_SECONDS = 5.0
_published: tuple[str, str] | None = None  # MASTER_ADDR and MASTER_PORT as this file set them


def env_handler(
    original: Callable[..., Iterator[Any]], url: str, timeout: timedelta | None = None, **kwargs: Any
) -> Iterator[tuple[Any, int, int]]:
    """Handler of env://. `original` is torch's. Yields (store, rank, world size), as torch expects."""
    if timeout is not None:
        kwargs["timeout"] = timeout
    launch.fill_environment(os.environ, lone_rank=True)
    ranks = ranks_of_launcher(url, os.environ)
    if ranks is None or not address_is_missing(os.environ):
        yield from original(url, **kwargs)
        return
    from torch.distributed.constants import default_pg_timeout

    from ._creator import load_extension, select_accelerator

    timeout = default_pg_timeout if timeout is None else timeout
    select_accelerator(os.environ)
    extension = load_extension()
    extension.init_mpi_from_launcher(*ranks, timeout.total_seconds())
    yield (create_store(extension, *ranks, timeout), *ranks)
    raise RuntimeError("env:// over MPI cannot be used for a second rendezvous of the same process group")


def ranks_of_launcher(url: str, env: launch.Environment) -> tuple[int, int] | None:
    """(rank, size) of the job that torch asks for, if an MPI launcher started exactly that job; else None."""
    placement = launch.detect(env)
    if placement is None:
        return None
    query = dict(parse_qsl(urlparse(url).query))
    rank = query.get("rank", env.get("RANK"))
    size = query.get("world_size", env.get("WORLD_SIZE"))
    agrees = (rank, size) == (str(placement.rank), str(placement.size))
    return (placement.rank, placement.size) if agrees else None


def address_is_missing(env: launch.Environment) -> bool:
    """True where the user gave no full address. One that we set ourselves is stale by the next call: the port
    of the first store is closed, or still open with the keys of a group that is gone."""
    return not (user_value(env, "MASTER_ADDR") and user_value(env, "MASTER_PORT"))


def create_store(extension: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """The TCPStore of the job, with MASTER_ADDR and MASTER_PORT set to where this rank reaches it."""
    global _published
    from torch.distributed import TCPStore

    store, message = None, b""
    if rank == 0:
        try:
            store, lines = open_store(extension.is_single_node(), size, timeout)
        except (OSError, RuntimeError) as error:
            lines = ["error", str(error)]  # told to the others, or they would wait for the broadcast for ever
        message = "\n".join(lines).encode()
    port_text, *addresses = extension.broadcast_bytes(message, 0).decode().split("\n")
    if port_text == "error":
        raise RuntimeError(f"rank 0 could not open the store of the job: {' '.join(addresses)}")
    if rank == 0:
        address = addresses[0]
    else:
        address = first_reachable(addresses, int(port_text))
        store = TCPStore(
            address,
            int(port_text),
            size,
            is_master=False,
            timeout=timeout,
            wait_for_workers=False,
        )
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = _published = (address, port_text)
    return store


def open_store(single_node: bool, size: int, timeout: timedelta) -> tuple[Any, list[str]]:
    """Rank 0: the store, already listening, and the lines to broadcast: the port, then the candidate
    addresses.

    Listening comes first: had the others to be told before, another program could take the port in between.
    """
    from torch.distributed import TCPStore

    fixed = user_value(os.environ, "MPI_GDR_MASTER_ADDR") or user_value(os.environ, "MASTER_ADDR")
    port = int(user_value(os.environ, "MASTER_PORT") or 0)
    loopback_only = single_node and not fixed
    listener = open_listener(loopback_only, port)
    port = listener.getsockname()[1]
    store = TCPStore(
        "127.0.0.1",
        port,
        size,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=listener.detach(),  # the store owns the descriptor from here
    )
    addresses = [fixed] if fixed else ["127.0.0.1"] if loopback_only else node_addresses()
    return store, [str(port), *addresses]


def open_listener(loopback_only: bool, port: int) -> socket.socket:
    """A listening socket, on a free port if `port` is 0: of the loopback only, or of all interfaces."""
    if loopback_only:
        return socket.create_server(("127.0.0.1", port), backlog=socket.SOMAXCONN)
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # compiled in, but switched off on this node
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=socket.SOMAXCONN, dualstack_ipv6=True
            )
    return socket.create_server(("", port), backlog=socket.SOMAXCONN)


def user_value(env: launch.Environment, name: str) -> str:
    """A variable as the user set it; "" if it is missing or comes from an earlier rendezvous of ours."""
    value = env.get(name, "")
    return "" if _published is not None and value in _published else value


def node_addresses() -> list[str]:
    """Names and addresses under which other nodes may know this one, best first."""
    name = socket.gethostname()
    candidates = [name, socket.getfqdn(name)]
    with contextlib.suppress(OSError):
        candidates += [info[4][0] for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    # The address of the interface that leads outside; connecting a datagram socket sends nothing.
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            candidates.append(probe.getsockname()[0])
    local = ("127.", "::1", "localhost", "fe80:")
    return list(dict.fromkeys(c for c in candidates if c and not c.startswith(local))) or [name]


def first_reachable(addresses: list[str], port: int) -> str:
    """The first address that accepts a connection. A single one is not probed: the store names it if it
    fails."""
    if len(addresses) == 1:
        return addresses[0]
    for address in addresses:
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), timeout=PROBE_SECONDS).close()
            return address
    raise RuntimeError(
        f"{socket.gethostname()} reaches rank 0 at none of {', '.join(addresses)} on port {port}: "
        "set MPI_GDR_MASTER_ADDR to the name or address of rank 0's node that all nodes can reach"
    )
