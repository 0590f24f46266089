"""The dicts that the extension hands to Python, by the names that `_C.pyi` gives them; and what commands make
of them."""

from __future__ import annotations

from typing import TypedDict


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
    """Of the CUDA library. `built`: for what; None: it is not loaded, and `problem` says why."""

    library: str | None
    built: str | None
    devices: list[str]
    problem: str | None


class EnvVariable(TypedDict):
    """One MPI_GDR_* variable with what is in force. `source`: environment or default."""

    name: str
    default: str
    allowed: str
    description: str
    value: str
    source: str


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


class AlgorithmInfo(TypedDict):
    """One row of the registry. `native`: MPI's own call, without a schedule."""

    collective: str
    name: str
    native: bool
    shared: bool
    two_level: bool
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
