"""Shared by tests/gpu/ranks: the device, inputs, a float64 reference by NumPy or CuPy, slow kernels.

SPMD_DEVICE=cpu|cuda|simgpu selects the device (simgpu: the simulated accelerator, tests/fakecuda),
SPMD_REFERENCE=numpy|cupy the reference.
"""

import contextlib
import functools
import os

import numpy
import torch
import torch.distributed as dist

from .data import op_name, sample

if os.environ.get("SPMD_DEVICE") == "simgpu":
    from fakecuda import simgpu  # makes it a device of torch

    simgpu.serve()

DEVICE = torch.device(os.environ.get("SPMD_DEVICE", "cpu"))
ON_CUDA = DEVICE.type == "cuda"
ON_SIMGPU = DEVICE.type == "simgpu"
HAS_STREAMS = ON_CUDA or ON_SIMGPU
# The backend's name for torch on this device.
BACKEND = "cpu:mpi-gdr,simgpu:mpi-gdr" if ON_SIMGPU else "mpi-gdr"
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES += [torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64]
COUNTS = [0, 1, 7, 1000, 2**20 + 3]
COUNT = 5000


def inputs(dtype, count, size, seed=0):
    """The tensors of all ranks, on the CPU: small whole numbers, whose sums are exact in any order."""
    if not dtype.is_complex:
        return [sample(dtype, count, rank, seed) for rank in range(size)]
    parts = [[sample(torch.float32, count, rank, seed + k) for k in (0, 50)] for rank in range(size)]
    return [torch.complex(*pair).to(dtype) for pair in parts]


def reduced(tensors, op):
    """The reduction of all ranks' tensors in float64, complex128 or int64, as a CPU tensor of their dtype."""
    dtype = tensors[0].dtype
    real = torch.float64 if dtype.is_floating_point else torch.int64
    arrays = [_array(t.to(torch.complex128 if dtype.is_complex else real)) for t in tensors]
    total = arrays[0].copy()
    fold = {"SUM": "add", "AVG": "add", "PRODUCT": "multiply", "MIN": "minimum", "MAX": "maximum"}
    for array in arrays[1:]:
        total = getattr(_library(), fold[op_name(op)])(total, array)
    if op_name(op) == "AVG":
        total = total / len(tensors)  # integers: the conversion below truncates
    if _library() is not numpy:
        total = total.get()
    result = torch.from_numpy(numpy.ascontiguousarray(total))
    return (result != 0) if dtype == torch.bool else result.to(dtype)


@functools.cache
def _library():
    if os.environ.get("SPMD_REFERENCE", "numpy") == "cupy":
        import cupy

        return cupy
    return numpy


def _array(tensor):
    return _library().asarray(tensor.numpy())


def reductions(dtype):
    """The operations defined on the dtype, SUM first."""
    from torch.distributed import ReduceOp as Op

    found = [Op.SUM]
    if dtype != torch.bool:
        found.append(Op.AVG)
    if not dtype.is_complex:
        found += [Op.PRODUCT, Op.MIN, Op.MAX]
    return found


def full(value, count=COUNT):
    return torch.full((count,), float(value))


def on_device(value, count=COUNT):
    return full(value, count).to(DEVICE)


def check_group(size, group=None):
    """Checks that the group of `size` ranks works."""
    tensor = on_device(1, 10)
    dist.all_reduce(tensor, group=group)
    check(tensor, full(size, 10))


def check_on_another_stream(tensor, expected):
    """Checks the tensor at once, on a stream that waits for no other stream."""
    with use(streams(1)[0]):
        result = tensor + 1
    synchronize()
    check(result, expected + 1)


def check(actual, expected, rounds=False):
    """Compares bits, or if the result `rounds`, to two units in the last place."""
    assert actual.device.type == DEVICE.type, actual.device
    tolerance = 0.0
    if rounds and (expected.dtype.is_floating_point or expected.dtype.is_complex):
        tolerance = 2 * torch.finfo(expected.dtype).eps
    torch.testing.assert_close(actual.cpu(), expected, rtol=tolerance, atol=tolerance)


def note(name, value):
    """Appends a finding that is no failure to the file SPMD_NOTES."""
    if os.environ.get("RANK", "0") == "0" and (path := os.environ.get("SPMD_NOTES")):
        with open(path, "a") as file:
            file.write(f"{name}, {os.environ.get('WORLD_SIZE', '1')} ranks\t{value}\n")


# ---- streams: on the CPU there are none, and nothing is late ----------------------------------------------


def streams(count):
    return [torch.Stream(device=DEVICE) if HAS_STREAMS else None for _ in range(count)]


def stream_count():
    """The number of streams in this process, the program's and ours; simulated only."""
    return simgpu.stream_count()


def use(stream):
    """A context in which `stream` is torch's current one."""
    return stream if HAS_STREAMS else contextlib.nullcontext()


def synchronize():
    if HAS_STREAMS:
        torch.accelerator.synchronize()


def idle():
    """Whether the current stream has completed all its work."""
    return not HAS_STREAMS or torch.accelerator.current_stream().query()


def new_graph():
    """A torch.cuda.CUDAGraph or its substitute; captured() fills it."""
    return torch.cuda.CUDAGraph() if ON_CUDA else simgpu.Graph()


def captured(graph, stream=None):
    """Records the block's work into the graph without running it, on this or a new stream."""
    return torch.cuda.graph(graph, stream=stream) if ON_CUDA else simgpu.graph(graph, stream)


def allocate_and_free(megabytes=1):
    """cudaMalloc and cudaFree, which may wait for the whole device."""
    if ON_CUDA:
        torch.cuda.empty_cache()
        torch.empty(megabytes << 20, dtype=torch.uint8, device=DEVICE)
    elif ON_SIMGPU:
        simgpu.malloc_free(megabytes << 20)


@functools.cache
def _cycles_per_ms():
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1000)
    begin.record()
    torch.cuda._sleep(10_000_000)
    end.record()
    end.synchronize()
    return 10_000_000 / begin.elapsed_time(end)


def sleep(milliseconds):
    if ON_CUDA:
        torch.cuda._sleep(int(milliseconds * _cycles_per_ms()))
    elif ON_SIMGPU:
        simgpu.sleep(milliseconds)


def late(count, value, milliseconds=20):
    """A tensor whose value is written at the end of a slow kernel."""
    tensor = torch.zeros(count, device=DEVICE)
    sleep(milliseconds)
    return tensor.fill_(value)
