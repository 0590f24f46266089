# Written by `make stubs`.
"""MPI's own collectives, bare: for the benchmark."""

from __future__ import annotations

import collections.abc

__all__: list[str] = [
    "all_gather",
    "barrier",
    "explain_unsupported",
    "start_all_reduce",
    "test_all_reduce",
    "time",
    "time_messages",
]

def all_gather(mine: collections.abc.Sequence[float]) -> list[float]:
    """The numbers of all ranks, one after another."""

def barrier() -> None:
    """MPI_Barrier over all ranks."""

def explain_unsupported(call: tuple[str, bool, int, int, str, int, str, int]) -> str:
    """Why MPI cannot do it, or "". A call is (collective, in_place, input, output, dtype, count, op,
    root)."""

def start_all_reduce(buffer: int, dtype: str, count: int) -> None:
    """MPI_Iallreduce, sum, in place. One at a time."""

def test_all_reduce() -> bool:
    """MPI_Test: true if it is done, or none was started."""

def time(
    call: tuple[str, bool, int, int, str, int, str, int],
    warmup: int,
    iterations: int,
    rewrite: tuple[int, int, int] | None = None,
    timeout_seconds: float = 300.0,
) -> list[float]:
    """Microseconds of each timed call on this rank. With `rewrite` = (to, from, bytes), these bytes are
    copied before every call, and all ranks start together; neither is timed. Ends the process if it takes
    longer than the timeout."""

def time_messages(
    pattern: str,
    first: bool,
    peer: int,
    outgoing: collections.abc.Sequence[int],
    incoming: collections.abc.Sequence[int],
    bytes: int,
    warmup: int,
    iterations: int,
    timeout_seconds: float = 300.0,
) -> float:
    """Seconds of so many turns of "latency", "bw" or "bibw" behind a barrier. `bytes` of each message.
    peer=-1: only the barrier."""
