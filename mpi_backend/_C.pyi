# Written by `make stubs`.
"""torch.distributed over MPI: the compiled part of mpi_backend."""

from __future__ import annotations

import typing

import torch
import torch._C._distributed_c10d
import torch.distributed.distributed_c10d

import mpi_backend.reports

__all__: list[str] = [
    "MpiBackend",
    "Options",
    "allocate_tensor",
    "broadcast_bytes",
    "create_backend",
    "cuda_info",
    "device_group_memory",
    "dump_flight_log",
    "env_problems",
    "env_table",
    "explain_launcher_mismatch",
    "finalize",
    "init_mpi_from_launcher",
    "kernels",
    "load_mpi",
    "mpi4py_handle",
    "mpi_info",
    "node_problems",
    "remembered_choices",
    "selection_rows",
    "selection_table",
    "use_device_library",
]

class Options(torch._C._distributed_c10d.Backend.Options):
    """Options of the mpi-gdr backend, for pg_options=. `_timeout`: a timedelta."""
    def __copy__(self) -> Options: ...
    def __deepcopy__(self, memo: dict[typing.Any, typing.Any]) -> Options: ...
    def __init__(
        self, *, timeout: typing.Any | None = None, selection: typing.Any = "", bits: typing.Any = ""
    ) -> None:
        """`timeout`: a timedelta, for groups that are made without the argument `timeout`."""
    def __repr__(self) -> str: ...
    @property
    def bits(self) -> str:
        """As MPI_GDR_BITS, for this group: "any", "order" or "exact"; empty: as that variable."""
    @bits.setter
    def bits(self, value: typing.Any) -> None: ...
    @property
    def selection(self) -> str:
        """Rows of the selection table for this group, as MPI_GDR_SELECT: "all_reduce:0-4K:flag"."""
    @selection.setter
    def selection(self, value: typing.Any) -> None: ...

class MpiBackend(torch._C._distributed_c10d.Backend):
    """A process group over MPI. Made by c10d."""
    def algorithm(self, collective: str, count: int, dtype: str = "float32", op: str = "sum") -> str:
        """The algorithm for a collective of `count` elements (of one block, if the collective has blocks)."""
    def choices(self) -> list[mpi_backend.reports.MeasuredChoice]:
        """The choices of `adaptive` so far, by collective, size and memory; only the first rank of a node has
        the speedup over the other algorithm."""
    def get_error(self) -> torch._C._distributed_c10d.ErrorType:
        """torch._C._distributed_c10d.ErrorType: SUCCESS until the group fails."""
    def perform_nocolor_split(self, device: torch.device) -> None:
        """Called by torch on ranks that are not in a new group. Does nothing: only members create the
        group."""
    @property
    def message_path(self) -> str:
        """The path of send and recv: shm (shared memory) or mpi."""
    @property
    def options(self) -> Options: ...
    @property
    def reach(self) -> str:
        """How far its ranks reach into each other's memory: none, segments or all."""

def allocate_tensor(count: int, dtype: torch.dtype, device: torch.device = ...) -> torch.Tensor:
    """A one-dimensional tensor in group memory, uninitialised."""

def broadcast_bytes(data: bytes, root: int) -> bytes:
    """Returns root's bytes on all ranks of the job. Requires that MPI is initialised; blocks."""

def create_backend(
    dist_backend_opts: torch._C._distributed_c10d._DistributedBackendOptions,
    options: Options | None = None,
    world_rank: int = -1,
    world_size: int = -1,
    world_store: torch.distributed.distributed_c10d.Store | None = None,
) -> torch._C._distributed_c10d.Backend:
    """The creator for torch.distributed.Backend.register_backend(extended_api=True). Initialises MPI at the
    first call; blocks until all members have called it. `world_*` describe the default group if another
    backend created it."""

def cuda_info() -> mpi_backend.reports.CudaInfo:
    """The CUDA library: `library` (its path), `built` (for what; None: it is not loaded), `devices` (a
    description of each), `problem` (why there is none), `nccl` (the version in this process, or why none is
    used). Loads the library, starts no device."""

def device_group_memory(address: int) -> tuple[int, int, int] | None:
    """For tests: the bytes in use, the bytes reserved and the number of segments of the device group memory
    that contains this address; None if there is none."""

def dump_flight_log(path: str = "") -> str:
    """Writes the flight log; returns the file's name."""

def env_problems() -> list[mpi_backend.reports.EnvProblem]:
    """The MPI_GDR_* variables in the environment that have a bad value or are unknown."""

def env_table() -> list[mpi_backend.reports.EnvVariable]:
    """All MPI_GDR_* variables with the values in force."""

def explain_launcher_mismatch(size: int) -> str:
    """Why `size` ranks cannot start MPI with their launcher alone, and the cure; "" if they can."""

def finalize(failure: str = "") -> None:
    """For atexit. Idempotent; never raises. `failure`: the uncaught exception that ends the program; if
    given, it neither waits for other ranks nor finalises MPI."""

def init_mpi_from_launcher(rank: int, size: int, timeout_seconds: float) -> None:
    """Initialises MPI in a process that an MPI launcher started, without a store."""

def kernels() -> tuple[str, list[str]]:
    """The instruction set of the reduction kernels, and those to choose from with MPI_GDR_SIMD."""

def load_mpi(path: str) -> None:
    """Loads this libmpi and the library for its ABI for the life of the process; does not start MPI. Later
    calls have no effect. Must precede all calls that need MPI."""

def mpi4py_handle(backend: torch._C._distributed_c10d.Backend) -> int:
    """Fortran handle of a communicator over the group's ranks, for MPI.Comm.f2py()."""

def mpi_info() -> mpi_backend.reports.MpiInfo:
    """Facts about the MPI library; never initialises it."""

def node_problems(ranks: int) -> tuple[str, str, str]:
    """The messages of init_process_group about this host with so many ranks: /dev/shm is too small to start,
    /dev/shm may be too small, this rank is bound to one processor; "" for each without a problem."""

def remembered_choices() -> tuple[str, list[mpi_backend.reports.ChoiceFile]]:
    """The folder of the choices that groups of earlier jobs measured, "" if there is none, and its files."""

def selection_rows() -> list[tuple[str, str]]:
    """The table in force: (row as text, origin), in order."""

def selection_table(size: int, nodes: str) -> list[mpi_backend.reports.SelectionRange]:
    """The choices of the table in force for float32 (sum) in a group of `size` ranks, by bytes. `nodes`:
    "one" (its ranks can access each other's memory), "several" (several ranks each) or "one per rank".
    `to_bytes` None: open; `leaders`: if the row names a number; `origin`: built-in, or the variable or line
    of a file."""

def use_device_library(type: str, library: int) -> None:
    """For tests: the mpi_gdr::DeviceLibrary at this address serves devices of this type from now on."""

__version__: str
