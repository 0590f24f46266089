# Written by `make stubs`.
"""Schedules of collectives: build, inspect, check"""

from __future__ import annotations

import collections.abc

import mpi_backend.reports

__all__: list[str] = [
    "CheckResult",
    "Schedule",
    "algorithms",
    "build",
    "check",
    "default_table",
    "parse_table",
    "selection_ranges",
]

class Schedule:
    def lanes(self) -> list[list[list[str]]]:
        """a list of lanes, each a list of rounds, each a list of steps as text"""

class CheckResult:
    @property
    def elements_reduced(self) -> int: ...
    @property
    def elements_sent(self) -> int: ...
    @property
    def error(self) -> str: ...
    @property
    def messages(self) -> int: ...
    @property
    def ok(self) -> bool: ...
    @property
    def steps(self) -> int: ...

def algorithms() -> list[mpi_backend.reports.AlgorithmInfo]:
    """All algorithms, in the order of the registry."""

def build(
    collective: str,
    algorithm: str,
    rank: int,
    size: int,
    count: int = 0,
    dtype: str = "float32",
    op: str = "sum",
    root: int = 0,
    chunk_bytes: int = 262144,
    max_lanes: int = 4,
    staging_bytes: int = 262144,
    send_counts: collections.abc.Sequence[int] = [],
    recv_counts: collections.abc.Sequence[int] = [],
    counts: collections.abc.Sequence[int] = [],
) -> Schedule:
    """The schedule of one rank. `count`: elements, of a block where the collective has blocks."""

def check(
    schedules: collections.abc.Sequence[Schedule],
    synchronous_sends: bool | None = None,
    device_queue: bool | None = None,
    aliased: bool | None = None,
) -> CheckResult:
    """Checks the schedules of all ranks, in rank order. Without a mode: in every mode."""

def default_table() -> str:
    """The built-in table as text."""

def parse_table(text: str, source: str) -> list[str]:
    """The rows of a table, each in its canonical form."""

def selection_ranges(
    size: int, reach: str = "none", dtype: str = "float32", table: str = ""
) -> list[mpi_backend.reports.SelectionRange]:
    """The choices of the rows of `table`, then of the built-in ones, by bytes; `to_bytes` 2**64-1: open."""
