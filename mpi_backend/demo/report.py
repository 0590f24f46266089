"""Reports the demo's results. Does not import torch, because the process that starts the jobs imports it."""

from __future__ import annotations

from typing import TypedDict

from ..bench.jobs import NAMES
from ..columns import columns


class Result(TypedDict):
    """Rank 0's report of a job."""

    backend: str
    step_s: float  # median
    sum_s: float  # median of an all_reduce as large as all gradients
    loss: float  # nats per character, mean over the last steps
    val_loss: float  # on held-out text
    digests: list[str]  # SHA-256 of the parameters, by rank


def equal_bits(result: Result) -> bool:
    """Whether all ranks hold the same parameters."""
    return len(set(result["digests"])) == 1


def bits(result: Result) -> str:
    """A sentence on equal_bits()."""
    name, digests = name_of(result), [digest[:12] for digest in result["digests"]]
    if equal_bits(result):
        return f"{name}: all {len(digests)} ranks hold the same bits, SHA-256 of the parameters {digests[0]}"
    return f"{name}: the parameters of the ranks DIFFER, SHA-256 {', '.join(digests)}"


def name_of(result: Result) -> str:
    """The backend's display name."""
    return NAMES.get(result["backend"], result["backend"])


def table(results: list[Result]) -> list[str]:
    """A line per backend."""
    heads = ["", "ms a step", "ms an all_reduce", "loss", "validation loss"]
    rows = [
        [
            name_of(result),
            f"{1e3 * result['step_s']:.1f}",
            f"{1e3 * result['sum_s']:.2f}",
            f"{result['loss']:.4f}",
            f"{result['val_loss']:.4f}",
        ]
        for result in results
    ]
    return columns(heads, rows, numbers=(1, 2, 3, 4))


def comparison(ours: Result, other: Result) -> list[str]:
    """Compares our times with another backend's."""

    def relation(time: float, others: float) -> str:
        return f"{others / time:.2f}x faster" if others >= time else f"{time / others:.2f}x slower"

    return [
        f"Over mpi-gdr a step is {relation(ours['step_s'], other['step_s'])} than over {name_of(other)},",
        f"an all_reduce of the gradients alone {relation(ours['sum_s'], other['sum_s'])}.",
        f"One run each: `mpi-gdr bench -n {len(ours['digests'])} ddp` takes several.",
    ]
