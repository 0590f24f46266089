"""Results of checks and the facts that they query; tests replace the facts by those of another machine."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from ..reports import AcceleratorInfo, MpiInfo

Level = Literal["good", "remark", "bad", "not known"]
Value = TypeVar("Value")
TORCHRUN = "torchrun"
DNS_SECONDS = 4.0


class Finding(NamedTuple):
    """`advice`: what to set or run; `cost`: of ignoring that; `page`: documentation. `of_job`: alike on all
    ranks, so that only rank 0 reports it."""

    level: Level
    what: str
    cost: str = ""
    advice: str = ""
    page: str = ""
    of_job: bool = False


class Job(NamedTuple):
    """This process's job; without a launcher, an assumed one or the allocation's."""

    launcher: str | None
    rank: int
    size: int
    local_rank: int | None
    ranks_here: int
    nodes: int | None


class Endpoint(NamedTuple):
    """MASTER_ADDR and MASTER_PORT. `computed`: by mpi-gdr, at `import torch`."""

    address: str
    port: str
    computed: bool


class GpuFacts(NamedTuple):
    """`shortage`: why this rank has no GPU; `problem`: why our CUDA library cannot be used; `queues`: why
    CUDA_DEVICE_MAX_CONNECTIONS is too small."""

    accelerator: AcceleratorInfo
    shortage: str | None
    problem: str | None
    queues: str | None = None


def _return_none(*_: Any) -> None:
    return None


@dataclass(frozen=True)
class Site:
    """Facts that several checks use, and slow queries. `extension` and `mpi` are None if the extension cannot
    be loaded, for the reason in `import_problem`."""

    env: Mapping[str, str]
    job: Job
    host: str
    torch: str
    cpus: frozenset[int]  # allowed to this process
    cpus_of_host: int
    threads: int  # of torch's operators
    mpi: MpiInfo | None = None
    extension: Any = None
    import_problem: str = ""
    bad_values: tuple[str, ...] = ()
    unknown_names: tuple[str, ...] = ()
    network: str | None = None  # MPI's module, such as "ucx" or "ofi (tcp)"; None: unknown
    endpoint: Endpoint | None = None
    root: Path = Path("/")  # of /proc and /sys
    # Addresses of a name, () if it does not resolve. Raises TimeoutError.
    resolve: Callable[[str], tuple[str, ...]] = field(default=lambda name: ())
    outward_addresses: Callable[[], tuple[str, ...]] = field(default=lambda: ())
    explain_listen_error: Callable[[int], str] = field(default=lambda port: "")
    # (path, whether it is Open MPI's or None if unknown)
    mpiexec: Callable[[], tuple[str, bool | None] | None] = _return_none
    srun_plugins: Callable[[], tuple[str, ...] | None] = _return_none  # None: no srun; (): no answer
    supports_pmix: Callable[[], bool] = field(default=lambda: False)
    launcher_in_other_namespace: Callable[[], bool] = field(default=lambda: False)  # in another PID namespace
    refused_calls: Callable[[], Mapping[str, str]] = field(default=dict)  # system call -> error
    locked_memory: int | None = None  # bytes; None: no limit
    shared_memory: str | None = None  # such as "1 GiB free of 2 GiB"
    gpus: Callable[[], GpuFacts | None] = _return_none

    def read(self, path: str) -> str | None:
        """A file's stripped text; None if it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def names(self, folder: str) -> list[str]:
        """Sorted names in a folder; empty if it cannot be read."""
        try:
            return sorted(entry.name for entry in (self.root / folder).iterdir())
        except OSError:
            return []

    def link(self, path: str) -> str | None:
        """A link's target; None if it cannot be read."""
        try:
            return str((self.root / path).readlink())
        except OSError:
            return None


def call_with_timeout(seconds: float, query: Callable[[], Value]) -> Value:
    """Returns `query`'s value or raises its error; TimeoutError after `seconds`. Then a daemon thread keeps
    waiting, which the process's exit does not wait for."""
    results: list[Value] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(query())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return results[0]


def call_all_with_timeout(
    seconds: float, query: Callable[[str], Value], arguments: Iterable[str]
) -> dict[str, Value | None]:
    """{argument: result of `query`}, queried in parallel. None: it raised or did not return in time."""
    results: dict[str, Value | None] = dict.fromkeys(arguments)

    def run(argument: str) -> None:
        try:
            results[argument] = query(argument)
        except Exception:
            results[argument] = None

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in results]
    for thread in threads:
        thread.start()

    def join() -> None:
        for thread in threads:
            thread.join()

    with contextlib.suppress(TimeoutError):
        call_with_timeout(seconds, join)
    return dict(results)
