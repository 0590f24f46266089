"""The dicts that the extension returns, named as in `_C.pyi`, and the commands' reports made of them."""

from __future__ import annotations

from typing import TypedDict

from .host import HostFacts


class MpiInfo(TypedDict):
    """The MPI library. Fields that only a started MPI provides are "" or -1 before."""

    library: str
    library_path: str
    abi: str
    mpi_version: str
    device: str
    thread_level: str
    processor: str
    initialized_by: str
    bootstrap: str
    rank: int
    size: int
    node: int
    nodes: int
    rank_on_node: int
    ranks_on_node: int


class CudaInfo(TypedDict):
    """The CUDA library of mpi-gdr. `built`: its targets; None: not loaded, for the reason in `problem`.
    `queues`: why CUDA_DEVICE_MAX_CONNECTIONS is too small. `nccl`: version of the loaded NCCL, or why none is
    used."""

    library: str | None
    built: str | None
    devices: list[str]
    problem: str | None
    queues: str | None
    nccl: str


class EnvVariable(TypedDict):
    """An MPI_GDR_* variable in force. `source`: environment or default. `equal`: must not differ between
    ranks."""

    name: str
    default: str
    allowed: str
    description: str
    value: str
    source: str
    expert: bool
    equal: bool


class EnvProblem(TypedDict):
    """A problem with an environment variable. `bad`: invalid value; otherwise an unknown name."""

    name: str
    message: str
    bad: bool


class _Leaders(TypedDict, total=False):
    leaders: int  # if the row names a number


class SelectionRange(_Leaders):
    """The algorithm for [from_bytes, to_bytes); `to_bytes` None: no upper limit."""

    collective: str
    from_bytes: int
    to_bytes: int | None
    algorithm: str
    origin: str  # "built-in", or the variable or the line of a file


class MeasuredChoice(TypedDict):
    """The algorithm of `adaptive` for [from_bytes, to_bytes), by kind of memory. `speedup`: over the other
    algorithm; None: not measured, or not by this rank."""

    collective: str
    from_bytes: int
    to_bytes: int
    group_memory: bool
    algorithm: str
    speedup: float | None


class ChoiceFile(TypedDict):
    """Measurements by earlier jobs. `key`: processor, MPI, number of ranks and table. `problem`: why groups
    ignore the file, or ""."""

    path: str
    key: str
    problem: str
    choices: list[MeasuredChoice]


class AlgorithmInfo(TypedDict):
    """A registered algorithm. `native`: MPI's own call, without a schedule."""

    collective: str
    name: str
    native: bool
    shared: bool
    two_level: bool
    ordered: bool  # allowed by MPI_GDR_BITS=order
    flat: bool  # allowed by MPI_GDR_BITS=exact
    summary: str
    variable: str


class _JobOptional(TypedDict, total=False):
    gpu: str  # if there is one
    library: str  # MPI's; this and the following only in jobs that start it
    bootstrap: str
    thread_level: str
    nodes: int
    ranks_on_node: int


class JobSummary(_JobOptional):
    """The job: the head of the reports of `selftest`, `bench` and `tune`."""

    mpi_gdr: str
    torch: str
    backend: str
    ranks: int


class TorchInfo(TypedDict):
    """The torch of this environment."""

    version: str
    cuda: str | None
    hip: str | None
    built_for: list[str]  # minor versions that have an extension


class LauncherInfo(TypedDict):
    """The launcher of this process, None without one. `mpiexec`: what `mpi-gdr run` uses."""

    started_by: str | None
    rank: int | None
    size: int | None
    mpiexec: str | None


class ExtensionInfo(TypedDict, total=False):
    """`error`: why it cannot be loaded; `path` is missing then."""

    mpi_abis: list[str] | None
    compiler: str | None
    path: str
    error: str


class AcceleratorInfo(TypedDict):
    """The devices that torch sees; `type` is None without any."""

    type: str | None
    count: int
    path: str | None  # that their tensors take


class KernelInfo(TypedDict, total=False):
    """Instruction sets of the reduction kernels."""

    selected: str
    available: list[str]


class CudaBuild(TypedDict):
    """Our CUDA library."""

    built: str | None
    devices: list[str]
    problem: str | None
    nccl: str | None


class AlgorithmTables(TypedDict):
    """Tables for groups of `size` ranks."""

    size: int
    table_on_one_node: list[SelectionRange]
    table_two_level: list[SelectionRange]
    table: list[SelectionRange]


class InfoReport(TypedDict):
    """The object of `mpi-gdr info --json`. Fields from the extension are empty without it."""

    mpi_gdr: str
    commit: str | None
    errors: list[str]
    warnings: list[str]
    python: str
    platform: str
    host: HostFacts
    torch: TorchInfo
    launcher: LauncherInfo
    extension: ExtensionInfo
    accelerator: AcceleratorInfo
    kernels: KernelInfo
    cuda: CudaBuild
    mpi: MpiInfo
    mpi_library_is: str | None  # how it was found
    network: str | None
    messages: dict[str, str]
    variables: list[EnvVariable]
    environment: dict[str, str]
    algorithms: AlgorithmTables
