"""Importing this makes a simulated accelerator torch's device "simgpu".

It is a software CUDA GPU (../README.md): its streams, events and memory are that runtime's, and mpi-gdr
serves it by the shipped object files of its CUDA library. torch's operators are CPU kernels in the streams:
they run later, in order, on memory as it is then. Freed memory is reused at once by the same stream. So jobs
without a GPU run the code for GPUs, and errors in stream order or memory lifetime change results. Calls that
are invalid during capture raise; calls that CUDA forbids the backend end the process.

`torch.simgpu` has the part of torch.cuda that torch.distributed uses; the functions below are for tests.
There is a device per rank on this host (LOCAL_WORLD_SIZE), or FAKECUDA_DEVICES.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
from typing import NamedTuple

import torch
from support import simgpu_build

os.environ.setdefault("FAKECUDA_DEVICES", os.environ.get("LOCAL_WORLD_SIZE", "1"))
torch.utils.rename_privateuse1_backend("simgpu")
torch.ops.load_library(simgpu_build.compiled())
# Running work must end before the interpreter shuts down.
atexit.register(torch.ops.simgpu.wind_up)

from . import device_module  # noqa: E402  (its operators are in the library)
from .device_module import (  # noqa: E402
    current_stream,
    default_stream,
    device_count,
    set_device,
    set_stream,
    stream,
    synchronize,
)

torch._register_device_module("simgpu", device_module)
torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)

__all__ = [
    "Allocations",
    "Graph",
    "allocations",
    "calls",
    "current_stream",
    "default_stream",
    "device_count",
    "device_library",
    "device_wide_waits",
    "fill_later",
    "graph",
    "malloc_free",
    "refuse_after",
    "serve",
    "set_device",
    "set_stream",
    "sleep",
    "stream",
    "stream_count",
    "synchronize",
]


class Allocations(NamedTuple):
    """Counts of one device's blocks since the start."""

    allocated: int
    freed: int
    reused: int


def sleep(ms: int) -> None:
    """Runs a slow kernel on the current stream."""
    torch.ops.simgpu.sleep(ms)


def fill_later(tensor: torch.Tensor, value: float, ms: int) -> None:
    """Runs a slow kernel on the current stream that finally writes the tensor."""
    torch.ops.simgpu.fill_later(tensor, value, ms)


def malloc_free(size: int = 1) -> None:
    """cudaMalloc and cudaFree: waits for the whole device; other threads cannot submit meanwhile."""
    torch.ops.simgpu.malloc_free(size)


def refuse_after(submissions: int) -> None:
    """The devices accept `submissions` pieces of work, fail on one, then continue; -1: accept all."""
    torch.ops.simgpu.refuse_after(submissions)


def device_wide_waits() -> int:
    """Number of calls by this process that wait, or may wait, for the whole device."""
    return torch.ops.simgpu.device_wide_waits()


def calls() -> collections.Counter[str]:
    """Calls of this process by the function of CUDA; "launch_steps": a kernel of NCCL."""
    return collections.Counter(torch.ops.simgpu.calls())


def stream_count() -> int:
    """Number of streams that this process has created, less those that it has destroyed."""
    count = calls()
    return count["cudaStreamCreateWithPriority"] - count["cudaStreamDestroy"]


def allocations(device: int = -1) -> Allocations:
    return Allocations(*torch.ops.simgpu.allocations(device))


class Graph:
    """The part of torch.cuda.CUDAGraph that graph() fills."""

    def __init__(self) -> None:
        self._id = 0

    def replay(self) -> None:
        """On the current stream."""
        torch.ops.simgpu.replay(self._id)

    def reset(self) -> None:
        if self._id:
            synchronize()
            torch.ops.simgpu.drop_graph(self._id)
            self._id = 0


@contextlib.contextmanager
def graph(graph: Graph, stream: torch.Stream | None = None):
    """torch.cuda.graph: records the block's work on this or a new stream without running it."""
    synchronize()
    with stream or torch.Stream(device="simgpu"):
        made = torch.ops.simgpu.begin_capture()
        try:
            yield
        except BaseException:
            with contextlib.suppress(RuntimeError):
                torch.ops.simgpu.end_capture()
            raise
        torch.ops.simgpu.end_capture()
    graph._id = made


def device_library() -> int:
    """Address of CUDA's mpi_gdr::DeviceLibrary (csrc/device/library.hpp) for these devices; never freed."""
    return torch.ops.simgpu.device_library()


def serve() -> None:
    """From now on mpi-gdr uses tensors on the device; otherwise it copies them to the host and waits."""
    from mpi_backend.extension import _C

    _C.use_device_library("simgpu", device_library())
