"""Times one collective at one size and checks its result. All ranks call this together."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .collectives import KINDS, Case, Run

# From here on every rank rewrites its buffer before each timed call, and all start together: a buffer that
# nobody writes between calls never leaves the cache of its reader, and shared memory looks far too good.
TOUCH_BYTES = 64 * 1024


class Timing(NamedTuple):
    """Microseconds, over all ranks; `wrong` elements, None if they were not checked."""

    time: float  # max over ranks of the mean per call
    mean: float  # mean over ranks of the same
    least: float  # min over ranks of the same
    p50: float  # over calls, of the max over ranks
    p99: float
    iterations: int
    wrong: int | None


class Protocol(NamedTuple):
    iterations: int
    warmup: int
    check: bool


def measure(kind: str, case: Case, bytes_total: int, protocol: Protocol) -> dict[str, Timing]:
    """{"out": ..., "in": ...}, as the collective has them."""
    runs = KINDS[kind].prepare(case)
    return {place: _time(run, case, bytes_total, protocol) for place, run in runs.items()}


def _time(run: Run, case: Case, bytes_total: int, protocol: Protocol) -> Timing:
    synchronize = _synchronizer(case.device)
    touch = bytes_total >= TOUCH_BYTES
    run.fill()
    for _ in range(protocol.warmup):
        run.call()
    synchronize()
    dist.barrier()
    samples = (
        _touched(run, protocol.iterations, synchronize)
        if touch
        else _back_to_back(run, protocol.iterations, synchronize)
    )
    mean = sum(samples) / len(samples)
    means = _over_ranks([mean, -mean], dist.ReduceOp.MAX)
    slowest = sorted(_over_ranks(samples, dist.ReduceOp.MAX))
    average = _over_ranks([mean], dist.ReduceOp.SUM)[0] / case.size
    wrong = _check(run) if protocol.check else None
    return Timing(
        means[0],
        average,
        -means[1],
        _quantile(slowest, 0.5),
        _quantile(slowest, 0.99),
        protocol.iterations,
        wrong,
    )


def _back_to_back(run: Run, iterations: int, synchronize: Callable[[], None]) -> list[float]:
    stamps = [time.perf_counter_ns()]
    for _ in range(iterations):
        run.call()
        synchronize()
        stamps.append(time.perf_counter_ns())
    return [(b - a) * 1e-3 for a, b in itertools.pairwise(stamps)]


def _touched(run: Run, iterations: int, synchronize: Callable[[], None]) -> list[float]:
    samples = []
    for _ in range(iterations):
        run.fill()
        synchronize()
        dist.barrier()
        begin = time.perf_counter_ns()
        run.call()
        synchronize()
        samples.append((time.perf_counter_ns() - begin) * 1e-3)
    return samples


def _check(run: Run) -> int:
    """Elements that are wrong, on all ranks together. Compared bit by bit in the dtype of the result, with a
    fresh input."""
    run.fill()
    dist.barrier()
    run.call()
    got = run.result()
    wrong = 0 if got is None else int((got != run.expected()).sum())
    return int(_over_ranks([float(wrong)], dist.ReduceOp.SUM)[0])


def _over_ranks(numbers: list[float], op: Any) -> list[float]:
    tensor = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(tensor, op)
    return tensor.tolist()


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def _synchronizer(device: torch.device) -> Callable[[], None]:
    """A call on an accelerator returns before it is done; the host must wait for what it times."""
    if device.type == "cpu":
        return lambda: None
    return torch.get_device_module(device).synchronize
