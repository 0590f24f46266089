"""Importing this makes a software accelerator torch's device "simgpu".

It is a software GPU of CUDA (../README.md) with that runtime's streams, events and memory, and mpi-gdr uses
it through the shipped object files of its CUDA library. torch's operators are CPU kernels that run on the
streams: later, in order, on memory as it is then. Freed memory is reused at once by the next tensor of its
stream. Thus the GPU code paths run without a GPU, and wrong stream order or lifetimes of memory show in
results. Calls that a capture forbids raise, and violations of CUDA's rules by the backend end the process.

`torch.simgpu` has what torch.distributed needs of torch.cuda. The functions below are for tests. There is one
device for each rank on this host (LOCAL_WORLD_SIZE), or FAKECUDA_DEVICES.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from typing import NamedTuple

import torch
from support import simgpu_build

os.environ.setdefault("FAKECUDA_DEVICES", os.environ.get("LOCAL_WORLD_SIZE", "1"))
torch.utils.rename_privateuse1_backend("simgpu")
torch.ops.load_library(simgpu_build.compiled())
# Running work must not outlive the interpreter.
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
    "synchronize",
]


class Allocations(NamedTuple):
    """Blocks of one device since the start."""

    allocated: int
    freed: int
    reused: int


def sleep(ms: int) -> None:
    """A slow kernel on the current stream."""
    torch.ops.simgpu.sleep(ms)


def fill_later(tensor: torch.Tensor, value: float, ms: int) -> None:
    """A slow kernel on the current stream that then writes the tensor."""
    torch.ops.simgpu.fill_later(tensor, value, ms)


def malloc_free(size: int = 1) -> None:
    """cudaMalloc and cudaFree: waits for the whole device and blocks other threads' submissions meanwhile."""
    torch.ops.simgpu.malloc_free(size)


def refuse_after(submissions: int) -> None:
    """The devices accept this many more submissions, then refuse one with an error; -1: never."""
    torch.ops.simgpu.refuse_after(submissions)


def device_wide_waits() -> int:
    """How many calls of this process so far wait, or may wait, for the whole device."""
    return torch.ops.simgpu.device_wide_waits()


def allocations(device: int = -1) -> Allocations:
    return Allocations(*torch.ops.simgpu.allocations(device))


class Graph:
    """torch.cuda.CUDAGraph, as far as graph() needs it."""

    def __init__(self) -> None:
        self._id = 0

    def replay(self) -> None:
        """Replays on the current stream."""
        torch.ops.simgpu.replay(self._id)

    def reset(self) -> None:
        if self._id:
            synchronize()
            torch.ops.simgpu.drop_graph(self._id)
            self._id = 0


@contextlib.contextmanager
def graph(graph: Graph, stream: torch.Stream | None = None):
    """torch.cuda.graph: captures the block's work on this stream, or on a new one, instead of running it."""
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
    """The address of these devices' mpi_gdr::DeviceLibrary (csrc/device/library.hpp), which lives as long as
    the process."""
    return torch.ops.simgpu.device_library()


def serve() -> None:
    """From now on mpi-gdr keeps this device's tensors there; before, it copies them to the host and waits."""
    from mpi_backend.extension import _C

    _C.use_device_library("simgpu", device_library())
