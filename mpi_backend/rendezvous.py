"""torch's env:// rendezvous, inside init_process_group: the store where the ranks of an MPI launcher meet.

mpirun tells a process its rank and size, but no address. MPI itself is the way out: it connects the ranks
with what its launcher gave it. Rank 0 opens a store, on the port of master_address.py where that is known and
free, and broadcasts over MPI where it is. One rank alone needs none. Where this MPI cannot use the launcher
that was taken, the ranks meet at the settled address instead. In every other case torch's own handler runs,
unchanged.
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

Met: TypeAlias = "tuple[Store, int, int]"  # the store, rank, world size
Handler: TypeAlias = "Callable[..., Iterator[Met]]"  # of a rendezvous, as torch keeps them

PROBE_SECONDS = 5.0
KEY_SECONDS = 10.0  # rank 0 sets it at once when it listens
JOB_KEY = "mpi-gdr/job"
_store: TCPStore | None = None  # of the job, where its ranks met at the settled address
_times_met = 0


def env_handler(
    original: Handler, url: str, timeout: timedelta | None = None, **kwargs: Any
) -> Iterator[Met]:
    """Handler of env://. `original` is torch's."""
    if timeout is not None:
        kwargs["timeout"] = timeout
    launchers.fill_environment(os.environ, lone_rank=True)
    given = given_ranks(url, os.environ)
    missing = master_address.address_is_missing(os.environ)
    ranks = ranks_of_launcher(url, os.environ)
    alone = False
    if is_for_us():
        check_ranks(*given, missing)
        alone = ranks is None and given in ((None, None), ("0", "1"))
        if given == (None, None):
            say_alone()
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
        yield (meet(*ranks, timeout), *ranks)
    raise RuntimeError("this env:// cannot be used for a second rendezvous of the same process group")


def meet(rank: int, size: int, timeout: timedelta) -> Store:
    """The store of the ranks that a launcher started: over MPI if that can start, else as settled."""
    from ._creator import select_accelerator
    from .extension import _C

    problem = " ".join(_C.objection_to_launcher(size).split())
    where = master_address.offered(os.environ)
    if problem:
        if where is None:
            raise RuntimeError(f"mpi-gdr: {problem}")
        return meet_as_settled(where, rank, size, timeout)
    select_accelerator(os.environ)
    _C.init_mpi_from_launcher(rank, size, timeout.total_seconds())
    return create_store(rank, size, timeout)


def given_ranks(url: str, env: launchers.Environment) -> tuple[str | None, str | None]:
    """(rank, size) that torch was given, by argument or variable."""
    query = dict(parse_qsl(urlparse(url).query))
    return query.get("rank", env.get("RANK")), query.get("world_size", env.get("WORLD_SIZE"))


def ranks_of_launcher(url: str, env: launchers.Environment) -> tuple[int, int] | None:
    """(rank, size) of the job that torch asks for, if an MPI launcher started exactly that job; else None."""
    placement = launchers.detect(env)
    if placement is None:
        return None
    agrees = given_ranks(url, env) == (str(placement.rank), str(placement.size))
    return (placement.rank, placement.size) if agrees else None


def is_for_us() -> bool:
    """Whether init_process_group was asked for this backend. torch does not tell its handlers; the frame of
    the caller does."""
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
    """Raises ValueError with the cure where variables of another job, or of none, would mislead torch."""
    problem = launchers.objection(os.environ, rank, size, name_of_script())
    # Ranks of the user's own under a launcher are fine if he says where they meet.
    if problem is not None and (address_is_missing or None in (rank, size)):
        raise ValueError(f"mpi-gdr: {problem}")


def say_alone() -> None:
    """Makes this process, which nothing tells a rank, a world of its own."""
    print(
        "mpi-gdr: no launcher: a world of one rank; start N ranks with "
        f"`mpi-gdr run -n N {name_of_script()}`",
        file=sys.stderr,
    )
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")):
        os.environ.setdefault(name, value)


def name_of_script() -> str:
    """Of the running program, to name in commands."""
    name = Path(sys.argv[0]).name
    return name if name.endswith(".py") else "script.py"


# ---- at the settled address -------------------------------------------------------------------------------


def meet_as_settled(where: master_address.Meeting, rank: int, size: int, timeout: timedelta) -> Store:
    """The store at an address that each rank has worked out by itself. It is asked for the key of the job:
    another program's store may have the port. One store serves all process groups of the job."""
    global _store, _times_met
    from torch.distributed import PrefixStore

    if _store is None:
        _store = serve_job(where, size, timeout) if rank == 0 else join_job(where, size, timeout)
    _times_met += 1
    return PrefixStore(f"mpi-gdr/{_times_met}", _store)


def serve_job(where: master_address.Meeting, size: int, timeout: timedelta) -> TCPStore:
    """Rank 0: opens the store at the settled address."""
    try:
        listener = open_listener(where.address == master_address.LOOPBACK, where.port)
    except OSError as error:
        raise RuntimeError(
            f"mpi-gdr: rank 0 cannot listen on port {where.port}, on which the ranks of this job have "
            f"settled ({error.strerror}): set MASTER_ADDR and MASTER_PORT for all ranks"
        ) from error
    store = store_on(listener, size, timeout)
    store.set(JOB_KEY, where.job)
    return store


def join_job(where: master_address.Meeting, size: int, timeout: timedelta) -> TCPStore:
    """The others: connect to it, and make sure that it is this job's."""
    store = client_store(where.address, where.port, size, timeout)
    deadline = time.monotonic() + KEY_SECONDS
    while not store.check([JOB_KEY]) and time.monotonic() < deadline:
        time.sleep(0.02)
    if not store.check([JOB_KEY]) or store.get(JOB_KEY) != where.job.encode():
        raise RuntimeError(
            f"mpi-gdr: the store at {where.address}, port {where.port}, is another job's: set MASTER_ADDR "
            "and MASTER_PORT for all ranks of this one"
        )
    return store


# ---- over MPI ---------------------------------------------------------------------------------------------


def create_store(rank: int, size: int, timeout: timedelta) -> TCPStore:
    """The store of the job, with MASTER_ADDR and MASTER_PORT set to where this rank reaches it."""
    from .extension import _C

    store, message = None, b""
    if rank == 0:
        try:
            store, lines = open_store(_C.mpi_info()["nodes"] == 1, size, timeout)
        except (OSError, RuntimeError) as error:
            lines = ["error", str(error)]  # sent to the others, or they would wait for the broadcast for ever
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
    """Rank 0: the store, already listening, and the lines to broadcast: the port, then the candidate
    addresses.

    Listening comes first: had the others to know it before, another program could take the port in between.
    """
    settled = master_address.offered(os.environ)
    own = [os.environ.get("MPI_GDR_MASTER_ADDR", ""), master_address.user_value(os.environ, "MASTER_ADDR")]
    fixed = next((address for address in own if address), "")
    port = int(master_address.user_value(os.environ, "MASTER_PORT") or 0)
    first = fixed or (settled.address if settled else master_address.LOOPBACK if single_node else "")
    loopback_only = not fixed and first == master_address.LOOPBACK
    try:
        listener = open_listener(loopback_only, port or (settled.port if settled else 0))
    except OSError:
        if port or settled is None:
            raise
        listener = open_listener(loopback_only, 0)
        print(
            f"mpi-gdr: port {settled.port}, the MASTER_PORT of this job so far, is taken by another program; "
            f"MASTER_PORT is now {listener.getsockname()[1]}",
            file=sys.stderr,
        )
    store = store_on(listener, size, timeout)
    others = [] if single_node or loopback_only else node_addresses()
    return store, [str(store.port), *dict.fromkeys([first, *others] if first else others)]


def store_on(listener: socket.socket, size: int, timeout: timedelta) -> TCPStore:
    """The store behind a socket that listens."""
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
    """The store at an address."""
    from torch.distributed import TCPStore

    return TCPStore(address, port, size, is_master=False, timeout=timeout, wait_for_workers=False)


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


def node_addresses() -> list[str]:
    """Names and addresses under which other nodes may know this one, best first."""
    name = socket.gethostname()
    candidates = [name, socket.getfqdn(name)]
    with contextlib.suppress(OSError):
        candidates += [str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
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
