"""Times one collective at one size and checks its result. All ranks must call this together."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist

from .. import rank_command
from .._creator import select_accelerator
from ..renamed import all_gather_single
from ..reports import JobSummary
from .collectives import KINDS, Case, Run
from .options import Calls
from .side_by_side import device_of, initialize, synchronizer


class Timing(NamedTuple):
    """Microseconds over all ranks; `wrong` in elements, None: not checked."""

    time: float  # max over ranks of the mean per call
    mean: float  # mean over ranks of that mean
    least: float  # min over ranks of that mean
    p50: float  # over calls, of the max over ranks
    p99: float
    iterations: int
    wrong: int | None


class Ranks(Protocol):
    """A contender's ranks: a backend of torch.distributed, or bare MPI (raw_mpi.py)."""

    backend: str
    rank: int
    size: int
    device: torch.device

    def summary(self) -> JobSummary:
        """The head of the report."""

    def runs(self, collective: str, case: Case) -> dict[str, Run]:
        """{"out": ..., "in": ...}, as far as this contender supports them."""

    def samples(self, run: Run, calls: Calls) -> list[float]:
        """Microseconds of each timed call on this rank."""

    def all_gather(self, numbers: list[float]) -> list[list[float]]:
        """The numbers of all ranks; each must pass the same count."""

    def barrier(self) -> None: ...

    def close(self) -> None: ...


def measure(ranks: Ranks, collective: str, case: Case, calls: Calls) -> dict[str, Timing]:
    """{"out": ..., "in": ...}, as far as the contender supports them."""
    timings = {}
    for key, run in ranks.runs(collective, case).items():
        run.fill()
        samples = ranks.all_gather(ranks.samples(run, calls))
        timings[key] = summarise(samples, _wrong(ranks, run) if calls.check else None)
    return timings


def summarise(samples: list[list[float]], wrong: int | None) -> Timing:
    """Combines the samples of each rank."""
    means = [statistics.fmean(of_rank) for of_rank in samples]
    slowest = sorted(max(of_call) for of_call in zip(*samples, strict=True))
    return Timing(
        max(means),
        statistics.fmean(means),
        min(means),
        _quantile(slowest, 0.5),
        _quantile(slowest, 0.99),
        len(slowest),
        wrong,
    )


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def _wrong(ranks: Ranks, run: Run) -> int:
    """Wrong elements on all ranks together, compared bit by bit after a call on a fresh input."""
    run.fill()
    ranks.barrier()
    run.call()
    wrong = 0 if run.output is None else int((_comparable(run.output) != _comparable(run.expected())).sum())
    return int(sum(numbers[0] for numbers in ranks.all_gather([float(wrong)])))


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """torch does not compare 8-bit floats; float32 holds all their values."""
    return tensor.float() if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1 else tensor


class TorchRanks:
    """torch.distributed with one of its backends. Creates the default group."""

    def __init__(self, backend: str, device: str, timeout_seconds: int) -> None:
        if backend == "nccl":  # selects no device by itself; all_gather() needs Gloo for CPU tensors
            select_accelerator(os.environ)
        self.backend = backend
        self.rank, self.size = initialize(
            "cpu:gloo,cuda:nccl" if backend == "nccl" else backend, timeout_seconds
        )
        self.device = device_of(device)
        self._synchronize = synchronizer(self.device)

    def summary(self) -> JobSummary:
        return rank_command.summary(self.backend)

    def runs(self, collective: str, case: Case) -> dict[str, Run]:
        return KINDS[collective].prepare(case)

    def samples(self, run: Run, calls: Calls) -> list[float]:
        time_calls = self._rewritten if calls.rewrite else self._back_to_back
        time_calls(run, calls.warmup)
        self._synchronize()
        dist.barrier()
        return time_calls(run, calls.iterations)

    def _back_to_back(self, run: Run, iterations: int) -> list[float]:
        stamps = [time.perf_counter_ns()]
        for _ in range(iterations):
            run.call()
            self._synchronize()
            stamps.append(time.perf_counter_ns())
        return [(b - a) * 1e-3 for a, b in itertools.pairwise(stamps)]

    def _rewritten(self, run: Run, iterations: int) -> list[float]:
        samples = []
        for _ in range(iterations):
            run.fill()
            self._synchronize()
            dist.barrier()
            begin = time.perf_counter_ns()
            run.call()
            self._synchronize()
            samples.append((time.perf_counter_ns() - begin) * 1e-3)
        return samples

    def all_gather(self, numbers: list[float]) -> list[list[float]]:
        mine = torch.tensor(numbers, dtype=torch.float64)
        every = torch.empty(self.size * len(numbers), dtype=torch.float64)
        all_gather_single(every, mine)
        return every.view(self.size, -1).tolist()

    def barrier(self) -> None:
        dist.barrier()

    def close(self) -> None:
        dist.barrier()
        dist.destroy_process_group()
