# Written by `make stubs`.
"""MPI's own collectives, bare: for the benchmark."""

from __future__ import annotations

import collections.abc

import torch

__all__: list[str] = [
    "all_gather",
    "barrier",
    "objection",
    "start_all_reduce",
    "test_all_reduce",
    "time",
    "time_messages",
]

def all_gather(mine: collections.abc.Sequence[float]) -> list[float]:
    """The numbers of all ranks, one after another."""

def barrier() -> None:
    """MPI_Barrier over all ranks."""

def objection(
    collective: str, in_place: bool, input: torch.Tensor, output: torch.Tensor, count: int, op: str, root: int
) -> str:
    """Why MPI cannot do it, or ""."""

def start_all_reduce(tensor: torch.Tensor) -> None:
    """MPI_Iallreduce, sum, in place. One at a time."""

def test_all_reduce() -> bool:
    """MPI_Test: true if it is done, or none was started."""

def time(
    collective: str,
    in_place: bool,
    input: torch.Tensor,
    output: torch.Tensor,
    count: int,
    op: str,
    root: int,
    warmup: int,
    iterations: int,
    fresh: torch.Tensor | None = None,
    to: torch.Tensor | None = None,
    timeout_seconds: float = 300.0,
) -> list[float]:
    """Microseconds of each timed call on this rank. With `fresh`, it is copied to `to` before every call, and
    all ranks start together; neither is timed. Ends the process if it takes longer than the timeout."""

def time_messages(
    pattern: str,
    first: bool,
    peer: int,
    outgoing: collections.abc.Sequence[torch.Tensor],
    incoming: collections.abc.Sequence[torch.Tensor],
    warmup: int,
    iterations: int,
    timeout_seconds: float = 300.0,
) -> float:
    """Seconds of so many turns of "latency", "bw" or "bibw" behind a barrier. peer=-1: only the barrier."""
