"""The dicts that the extension hands to Python, by the names that `_C.pyi` gives them; and what commands make
of them."""

from __future__ import annotations

from typing import TypedDict

from .host import HostFacts


class MpiInfo(TypedDict):
    """Of the MPI library; what only a started one tells is "" or -1 before."""

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
    """Of the CUDA library. `built`: for what; None: it is not loaded, and `problem` says why. `queues`: why
    CUDA_DEVICE_MAX_CONNECTIONS is too small."""

    library: str | None
    built: str | None
    devices: list[str]
    problem: str | None
    queues: str | None


class EnvVariable(TypedDict):
    """One MPI_GDR_* variable with what is in force. `source`: environment or default. `equal`: ranks that
    differ in it are refused."""

    name: str
    default: str
    allowed: str
    description: str
    value: str
    source: str
    expert: bool
    equal: bool


class EnvProblem(TypedDict):
    """What is wrong with a variable of the environment. Not `bad`: only unknown."""

    name: str
    message: str
    bad: bool


class _Leaders(TypedDict, total=False):
    leaders: int  # where the row names a number


class SelectionRange(_Leaders):
    """The algorithm for the bytes [from_bytes, to_bytes). `to_bytes` None: open."""

    collective: str
    from_bytes: int
    to_bytes: int | None
    algorithm: str
    origin: str  # "built-in", or the variable or the line of a file


class MeasuredChoice(TypedDict):
    """What `adaptive` runs for the bytes [from_bytes, to_bytes), with tensors in group memory or others.
    `speedup`: over the other algorithm; None: not measured, or not by this rank."""

    collective: str
    from_bytes: int
    to_bytes: int
    group_memory: bool
    algorithm: str
    speedup: float | None


class ChoiceFile(TypedDict):
    """What groups of earlier jobs have measured: `key` names processor, MPI, number of ranks and table.
    `problem`: why groups ignore the file; "": they do not."""

    path: str
    key: str
    problem: str
    choices: list[MeasuredChoice]


class AlgorithmInfo(TypedDict):
    """One row of the registry. `native`: MPI's own call, without a schedule."""

    collective: str
    name: str
    native: bool
    shared: bool
    two_level: bool
    ordered: bool  # the same bits whatever runs: MPI_GDR_BITS=order
    flat: bool  # may be an exact sum: MPI_GDR_BITS=exact
    summary: str
    variable: str


class _JobOptional(TypedDict, total=False):
    gpu: str  # where there is one
    library: str  # of MPI; this and the following only in jobs that start it
    bootstrap: str
    thread_level: str
    nodes: int
    ranks_on_node: int


class JobSummary(_JobOptional):
    """What runs: the head of the reports of `selftest` and `bench`."""

    mpi_gdr: str
    torch: str
    backend: str
    ranks: int


class TorchInfo(TypedDict):
    """The torch of this environment."""

    version: str
    cuda: str | None
    hip: str | None
    built_for: list[str]  # the minor versions that there are extensions for


class LauncherInfo(TypedDict):
    """What has started this process; None: no launcher. `mpiexec`: what `mpi-gdr run` takes."""

    started_by: str | None
    rank: int | None
    size: int | None
    mpiexec: str | None


class ExtensionInfo(TypedDict, total=False):
    """`error`: it cannot be loaded; then without `path`."""

    mpi_abis: list[str] | None
    compiler: str | None
    path: str
    error: str


class AcceleratorInfo(TypedDict):
    """The devices that torch sees; without any, the type is None."""

    type: str | None
    count: int
    path: str | None  # of their tensors


class KernelInfo(TypedDict, total=False):
    """The instruction set of the reduction kernels."""

    selected: str
    available: list[str]


class CudaBuild(TypedDict):
    """Of our CUDA library."""

    built: str | None
    devices: list[str]
    problem: str | None


class AlgorithmTables(TypedDict):
    """Of groups of `size` ranks."""

    size: int
    table_on_one_node: list[SelectionRange]
    table_two_level: list[SelectionRange]
    table: list[SelectionRange]


class InfoReport(TypedDict):
    """What `mpi-gdr info --json` prints. What only the extension knows is empty without it."""

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
