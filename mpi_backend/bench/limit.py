"""The memory limit of a collective: how long this node's cores take, all at once, to read and write as many
bytes as the collective must.

It is a property of the memory, not of a method: at most one process per core, each in its own memory, without
communication. docs/bench.md defines it for readers of the figures.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from typing import TypeVar

import torch
import torch.distributed as dist

from .collectives import KINDS
from .options import REWRITE_BYTES

Json = TypeVar("Json")


def gather_json(what: str, mine: Json) -> list[Json]:
    """Gathers `mine` of all ranks through the store; `what` must be unique. all_gather_object needs NumPy."""
    store = dist.distributed_c10d._get_default_store()
    keys = [f"mpi_gdr_bench/{what}/{rank}" for rank in range(dist.get_world_size())]
    store.set(keys[dist.get_rank()], json.dumps(mine))
    return [json.loads(text) for text in store.multi_get(keys)]


class Limit:
    """Collective; all ranks are on one node. Needs torch.distributed's default group."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.active = min(size, len(set().union(*gather_json("cores", sorted(os.sched_getaffinity(0))))))
        self._group = dist.new_group(range(self.active)) if self.active < size else None
        self._store = dist.distributed_c10d._get_default_store()
        self._times: dict[tuple[bool, int], float] = {}

    def time(self, collective: str, total: int, in_place: bool, iterations: int) -> float | None:
        """Microseconds, equal on all ranks; None below REWRITE_BYTES, or if no bytes must move."""
        kind = KINDS[collective]
        moved = int(kind.least(self.size, in_place) * total)
        if total < REWRITE_BYTES or moved == 0:
            return None
        key = (kind.reduces, moved)
        if key not in self._times:
            self._times[key] = self._measure(*key, iterations)
        return self._times[key]

    def _measure(self, adds: bool, moved: int, iterations: int) -> float:
        """Ranks beyond the number of cores wait in the store: in a collective they would poll."""
        done = f"mpi_gdr_bench_limit/{adds}/{moved}"
        time_us = 0.0
        if self.rank < self.active:
            time_us = self._median(adds, moved, iterations)
        if self.rank == 0:
            self._store.set(done, str(time_us))
        return float(self._store.get(done))

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _median(self, adds: bool, moved: int, iterations: int) -> float:
        # a += b reads 2 floats and writes 1, a copy reads 1 and writes 1. Write-allocate reads do not count.
        count = max(1, moved // self.active // (3 if adds else 2) // 4)
        a, b, initial = torch.zeros(count), torch.zeros(count), torch.ones(count)
        samples = torch.empty(iterations, dtype=torch.float64)
        for i in range(-2, iterations):
            b.copy_(initial)
            if adds:
                a.copy_(initial)
            dist.barrier(self._group)
            begin = time.perf_counter_ns()
            if adds:
                a.add_(b)
            else:
                a.copy_(b)
            samples[max(i, 0)] = (time.perf_counter_ns() - begin) * 1e-3
        dist.all_reduce(samples, dist.ReduceOp.MAX, group=self._group)
        return statistics.median(samples.tolist())


class DeviceLimit:
    """The limit of ranks that share one accelerator, at the speed of a copy within its memory. Collective."""

    active = 1

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.size = size
        speed = torch.tensor([copy_bandwidth(device, device) if rank == 0 else 0.0], dtype=torch.float64)
        dist.broadcast(speed, 0)  # the other ranks wait here
        self.bandwidth = speed.item()

    @staticmethod
    def applies(device: torch.device) -> bool:
        """Whether all ranks are on the same device. Collective."""
        properties = torch.get_device_module(device).get_device_properties(device)
        found = gather_json("device", [os.uname().nodename, str(getattr(properties, "uuid", device))])
        return all(each == found[0] for each in found)

    def time(self, collective: str, total: int, in_place: bool, iterations: int) -> float | None:
        """Microseconds; None below REWRITE_BYTES, or if no bytes must move."""
        moved = KINDS[collective].least(self.size, in_place) * total
        return None if total < REWRITE_BYTES or moved == 0 else moved / self.bandwidth * 1e6


def copy_bandwidth(to: torch.device, source: torch.device, size: int = 256 << 20) -> float:
    """Bytes per second of a copy; within one memory both the read and the written bytes count. Host memory is
    pinned if the other side is an accelerator."""
    module = torch.get_device_module(to if to.type != "cpu" else source)
    pinned = to != source

    def allocate(device: torch.device) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8, device=device, pin_memory=pinned and device.type == "cpu")

    a, b = allocate(to), allocate(source)
    samples = []
    for _ in range(12):
        module.synchronize()
        begin = time.perf_counter()
        a.copy_(b, non_blocking=True)
        module.synchronize()
        samples.append(time.perf_counter() - begin)
    return size * (2 if to == source else 1) / statistics.median(samples[2:])
