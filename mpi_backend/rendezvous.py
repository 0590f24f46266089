"""torch's env:// rendezvous inside init_process_group: the store of ranks that an MPI launcher started.

mpirun gives a process its rank and size but no address, so MPI connects the ranks: rank 0 opens a store, on
the port of master_address.py if that is known and free, and broadcasts its address over MPI. A single rank
needs no MPI. If this MPI cannot start under the launcher, the ranks meet at the address that each
computes by master_address.py. In all other cases torch's own handler runs unchanged.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlparse

from . import launchers, master_address

if TYPE_CHECKING:
    from torch.distributed import Store, TCPStore

RendezvousResult: TypeAlias = "tuple[Store, int, int]"  # store, rank, world size
Handler: TypeAlias = "Callable[..., Iterator[RendezvousResult]]"  # a rendezvous handler of torch

PROBE_SECONDS = 5.0
KEY_SECONDS = 10.0  # rank 0 sets JOB_KEY once it listens
JOB_KEY = "mpi-gdr/job"
_store: TCPStore | None = None  # the job's, if its ranks met at the computed address
_rendezvous_count = 0


def env_handler(
    original: Handler, url: str, timeout: timedelta | None = None, **kwargs: Any
) -> Iterator[RendezvousResult]:
    """Handler of env://. `original` is torch's."""
    if timeout is not None:
        kwargs["timeout"] = timeout
    launchers.fill_environment(os.environ, lone_rank=True)
    given = given_ranks(url, os.environ)
    missing = master_address.address_is_missing(os.environ)
    ranks = ranks_of_launcher(url, os.environ)
    alone = False
    if is_our_backend():
        check_ranks(*given, missing)
        alone = ranks is None and given in ((None, None), ("0", "1"))
        if given == (None, None):
            become_single_rank()
    if not missing or (ranks is None and not alone):
        yield from original(url, **kwargs)
        return
    from torch.distributed.constants import default_pg_timeout

    timeout = default_pg_timeout if timeout is None else timeout
    if ranks is None:
        store, (port, address) = open_store(True, 1, timeout)
        master_address.publish(os.environ, address, port)
        yield (store, 0, 1)
    else:
        yield (create_job_store(*ranks, timeout), *ranks)
    raise RuntimeError("this env:// cannot be used for a second rendezvous of the same process group")


def create_job_store(rank: int, size: int, timeout: timedelta) -> Store:
    """The store of a launcher's ranks: over MPI if it can start, else at the computed address."""
    from ._creator import select_accelerator
    from .extension import _C

    problem = " ".join(_C.explain_launcher_mismatch(size).split())
    endpoint = master_address.current_endpoint(os.environ)
    if problem:
        if endpoint is None:
            raise RuntimeError(f"mpi-gdr: {problem}")
        return create_store_at_endpoint(endpoint, rank, size, timeout)
    select_accelerator(os.environ)
    _C.init_mpi_from_launcher(rank, size, timeout.total_seconds())
    return create_store_over_mpi(rank, size, timeout)


def given_ranks(url: str, env: launchers.Environment) -> tuple[str | None, str | None]:
    """(rank, size) given to torch by argument or variable."""
    query = dict(parse_qsl(urlparse(url).query))
    return query.get("rank", env.get("RANK")), query.get("world_size", env.get("WORLD_SIZE"))


def ranks_of_launcher(url: str, env: launchers.Environment) -> tuple[int, int] | None:
    """(rank, size) that torch requests, if an MPI launcher started exactly that job; else None."""
    placement = launchers.detect(env)
    if placement is None:
        return None
    agrees = given_ranks(url, env) == (str(placement.rank), str(placement.size))
    return (placement.rank, placement.size) if agrees else None


def is_our_backend() -> bool:
    """Whether init_process_group was called for this backend, by its frame: torch does not pass it to
    handlers."""
    from torch.distributed import Backend

    from ._autoload import NAME

    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "init_process_group" and "backend" in frame.f_locals:
            words = re.split("[:,]", str(frame.f_locals["backend"]))
            return NAME in (Backend(word) for word in words)
        frame = frame.f_back
    return False


def check_ranks(rank: str | None, size: str | None, address_is_missing: bool) -> None:
    """Raises ValueError with the remedy if `rank` and `size` are incomplete or contradict the launcher."""
    problem = launchers.explain_mismatch(os.environ, rank, size, name_of_script())
    # A user's own ranks under a launcher are valid with an address.
    if problem is not None and (address_is_missing or None in (rank, size)):
        raise ValueError(f"mpi-gdr: {problem}")


def become_single_rank() -> None:
    """Makes this process, which has no rank, a world of one."""
    print(
        "mpi-gdr: no launcher: a world of one rank; start N ranks with "
        f"`mpi-gdr run -n N {name_of_script()}`",
        file=sys.stderr,
    )
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")):
        os.environ.setdefault(name, value)


def name_of_script() -> str:
    """The running program's name, for commands in messages."""
    name = Path(sys.argv[0]).name
    return name if name.endswith(".py") else "script.py"


# ---- at the computed address ------------------------------------------------------------------------------


def create_store_at_endpoint(
    endpoint: master_address.Endpoint, rank: int, size: int, timeout: timedelta
) -> Store:
    """The store at an address that each rank has computed. Its key must be the job's, because another program
    may own the port. One store serves all init_process_group calls of the job."""
    global _store, _rendezvous_count
    from torch.distributed import PrefixStore

    if _store is None:
        _store = serve_store(endpoint, size, timeout) if rank == 0 else join_store(endpoint, size, timeout)
    _rendezvous_count += 1
    return PrefixStore(f"mpi-gdr/{_rendezvous_count}", _store)


def serve_store(endpoint: master_address.Endpoint, size: int, timeout: timedelta) -> TCPStore:
    """Rank 0: opens the store at the computed address."""
    try:
        listener = open_listener(endpoint.address == master_address.LOOPBACK, endpoint.port)
    except OSError as error:
        raise RuntimeError(
            f"mpi-gdr: rank 0 cannot listen on port {endpoint.port}, which the ranks of this job have "
            f"agreed on ({error.strerror}): set MASTER_ADDR and MASTER_PORT for all ranks"
        ) from error
    store = store_on(listener, size, timeout)
    store.set(JOB_KEY, endpoint.job)
    return store


def join_store(endpoint: master_address.Endpoint, size: int, timeout: timedelta) -> TCPStore:
    """Other ranks: connect, and verify that the store is this job's."""
    store = client_store(endpoint.address, endpoint.port, size, timeout)
    deadline = time.monotonic() + KEY_SECONDS
    while not store.check([JOB_KEY]) and time.monotonic() < deadline:
        time.sleep(0.02)
    if not store.check([JOB_KEY]) or store.get(JOB_KEY) != endpoint.job.encode():
        raise RuntimeError(
            f"mpi-gdr: the store at {endpoint.address}, port {endpoint.port}, is another job's: set "
            "MASTER_ADDR and MASTER_PORT for all ranks of this one"
        )
    return store


# ---- over MPI ---------------------------------------------------------------------------------------------


def create_store_over_mpi(rank: int, size: int, timeout: timedelta) -> TCPStore:
    """The job's store. Sets MASTER_ADDR and MASTER_PORT to where this rank reaches it."""
    from .extension import _C

    store, message = None, b""
    if rank == 0:
        try:
            store, lines = open_store(_C.mpi_info()["nodes"] == 1, size, timeout)
        except (OSError, RuntimeError) as error:
            lines = ["error", str(error)]  # broadcast, because the others wait for it
        message = "\n".join(lines).encode()
    port_text, *addresses = _C.broadcast_bytes(message, 0).decode().split("\n")
    if port_text == "error":
        raise RuntimeError(f"rank 0 could not open the store of the job: {' '.join(addresses)}")
    if rank == 0:
        address = addresses[0]
    else:
        address = first_reachable(addresses, int(port_text))
        store = client_store(address, int(port_text), size, timeout)
    master_address.publish(os.environ, address, port_text)
    return store


def open_store(single_node: bool, size: int, timeout: timedelta) -> tuple[TCPStore, list[str]]:
    """Rank 0: the listening store, and the lines to broadcast: its port, then candidate addresses.

    It listens first: otherwise another program could take the port before the others connect.
    """
    endpoint = master_address.current_endpoint(os.environ)
    own = [os.environ.get("MPI_GDR_MASTER_ADDR", ""), master_address.user_value(os.environ, "MASTER_ADDR")]
    fixed = next((address for address in own if address), "")
    port = int(master_address.user_value(os.environ, "MASTER_PORT") or 0)
    first = fixed or (endpoint.address if endpoint else master_address.LOOPBACK if single_node else "")
    loopback_only = not fixed and first == master_address.LOOPBACK
    try:
        listener = open_listener(loopback_only, port or (endpoint.port if endpoint else 0))
    except OSError:
        if port or endpoint is None:
            raise
        listener = open_listener(loopback_only, 0)
        print(
            f"mpi-gdr: port {endpoint.port}, the MASTER_PORT of this job so far, is taken by another "
            f"program; MASTER_PORT is now {listener.getsockname()[1]}",
            file=sys.stderr,
        )
    store = store_on(listener, size, timeout)
    others = [] if single_node or loopback_only else node_addresses()
    return store, [str(store.port), *dict.fromkeys([first, *others] if first else others)]


def store_on(listener: socket.socket, size: int, timeout: timedelta) -> TCPStore:
    """The store behind a listening socket."""
    from torch.distributed import TCPStore

    return TCPStore(
        "127.0.0.1",
        listener.getsockname()[1],
        size,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=listener.detach(),  # the store owns the descriptor from here
    )


def client_store(address: str, port: int, size: int, timeout: timedelta) -> TCPStore:
    """Connects to the store at an address."""
    from torch.distributed import TCPStore

    return TCPStore(address, port, size, is_master=False, timeout=timeout, wait_for_workers=False)


def open_listener(loopback_only: bool, port: int) -> socket.socket:
    """A listening socket on the loopback only or on all interfaces; `port` 0: any free port."""
    if loopback_only:
        return socket.create_server(("127.0.0.1", port), backlog=socket.SOMAXCONN)
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # compiled in, but disabled on this node
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=socket.SOMAXCONN, dualstack_ipv6=True
            )
    return socket.create_server(("", port), backlog=socket.SOMAXCONN)


def node_addresses() -> list[str]:
    """Names and addresses by which other nodes may reach this one, best first."""
    name = socket.gethostname()
    candidates = [name, socket.getfqdn(name)]
    with contextlib.suppress(OSError):
        candidates += [str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    # The outward interface's address; connecting a datagram socket sends nothing.
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            candidates.append(probe.getsockname()[0])
    local = ("127.", "::1", "localhost", "fe80:")
    return list(dict.fromkeys(c for c in candidates if c and not c.startswith(local))) or [name]


def first_reachable(addresses: list[str], port: int) -> str:
    """The first address that accepts a connection. A single one is not probed: the store's error names it."""
    if len(addresses) == 1:
        return addresses[0]
    for address in addresses:
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), timeout=PROBE_SECONDS).close()
            if address != addresses[0] and addresses[0] == os.environ.get("MASTER_ADDR"):
                print(
                    f"mpi-gdr: {socket.gethostname()} does not reach rank 0 at {addresses[0]}, the "
                    f"MASTER_ADDR of this job so far; MASTER_ADDR is now {address}",
                    file=sys.stderr,
                )
            return address
    raise RuntimeError(
        f"{socket.gethostname()} reaches rank 0 at none of {', '.join(addresses)} on port {port}: "
        "set MPI_GDR_MASTER_ADDR to the name or address of rank 0's node that all nodes can reach"
    )
