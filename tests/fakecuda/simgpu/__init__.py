"""An accelerator for torch without hardware: importing this makes it torch's device "simgpu".

It is a GPU of CUDA, made of software (../README.md): its streams, events and memory are those of that
runtime, and mpi-gdr serves it by the object files of its CUDA library that ship. torch's own operators are
kernels of the CPU, put on the streams: they run later, in order, and see memory as it is then. Freed memory
goes at once to the next tensor of the same stream. So jobs on a machine without a GPU run what serves GPUs,
and mistakes in the order of streams, or in how long memory is used, show in results. What the program may
not ask while a stream is captured is an error, and what CUDA forbids the backend ends the process.

`torch.simgpu` has what torch.cuda would have, as far as torch.distributed asks for it. The functions below
are for tests. There is a device for each rank on this host (LOCAL_WORLD_SIZE), or FAKECUDA_DEVICES.
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
# What still runs must not meet a process in dissolution.
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
    """cudaMalloc and cudaFree: waits for the whole device, and lets no other thread submit meanwhile."""
    torch.ops.simgpu.malloc_free(size)


def refuse_after(submissions: int) -> None:
    """The devices take so many more pieces of work, refuse one with an error, and go on as before; -1: they
    take all."""
    torch.ops.simgpu.refuse_after(submissions)


def device_wide_waits() -> int:
    """How often this process has called a function of CUDA that waits for the whole device, or may."""
    return torch.ops.simgpu.device_wide_waits()


def allocations(device: int = -1) -> Allocations:
    return Allocations(*torch.ops.simgpu.allocations(device))


class Graph:
    """torch.cuda.CUDAGraph, as far as graph() fills it."""

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
    """torch.cuda.graph: what the block gives to this stream, or to one of its own, is recorded, not run."""
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
    """Address of the mpi_gdr::DeviceLibrary of these devices (csrc/device/library.hpp), that of CUDA. Lives
    as long as the process."""
    return torch.ops.simgpu.device_library()


def serve() -> None:
    """From now on mpi-gdr keeps tensors of this device there; else it copies them to the host and waits."""
    from mpi_backend.extension import _C

    _C.use_device_library("simgpu", device_library())
