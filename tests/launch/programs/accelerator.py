"""The generic path: tensors of an accelerator unknown to mpi-gdr.

The device is torch's PrivateUse1 for backends written in Python. Only its own copies can reach its memory, so
that a read through data_ptr() in C++ would fail.
"""

import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import library
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "faraway"
_setup_privateuseone_for_python_backend(NAME)
copies = {"to host": 0, "to device": 0}


def device_tensor(shape, dtype):
    tensor = torch._C._acc.create_empty_tensor(shape, dtype)
    tensor.memory = torch.empty(shape, dtype=dtype)
    return tensor


@library.impl("aten::empty.memory_format", "privateuseone")
def empty(size, dtype=None, layout=None, device=None, pin_memory=False, memory_format=None):
    return device_tensor(size, dtype or torch.float32)


@library.impl("aten::_copy_from", "privateuseone")
def copy_from(source, target, non_blocking=False):
    if source.device.type == "cpu":
        target.memory.copy_(source)
        copies["to device"] += 1
    elif target.device.type == "cpu":
        target.copy_(source.memory)
        copies["to host"] += 1
    else:
        target.memory.copy_(source.memory)
    return target


def on_device(values):
    tensor = torch.empty(values.shape, dtype=values.dtype, device=NAME)
    tensor.copy_(values)
    return tensor


def expect(tensor, values):
    host = torch.empty(tensor.shape, dtype=tensor.dtype)
    host.copy_(tensor)
    np.testing.assert_array_equal(host.numpy(), np.broadcast_to(values, host.shape))


dist.init_process_group(f"cpu:mpi-gdr,{NAME}:mpi-gdr")
rank, size = dist.get_rank(), dist.get_world_size()
right, left = (rank + 1) % size, (rank - 1) % size

for dtype in (torch.float32, torch.float64, torch.int64):
    tensor = on_device(torch.full((5, 7), rank + 1, dtype=dtype))
    dist.all_reduce(tensor)
    expect(tensor, size * (size + 1) / 2)
assert copies["to host"] >= 3 and copies["to device"] >= 6, copies

tensor = on_device(torch.full((1000,), float(rank)))
work = dist.all_reduce(tensor, async_op=True)
work.wait()
work.wait()
expect(tensor, sum(range(size)))

tensor = on_device(torch.full((9,), float(rank)))
dist.broadcast(tensor, size - 1)
expect(tensor, size - 1)

incoming = on_device(torch.zeros(33))
works = [dist.isend(on_device(torch.full((33,), float(rank))), right), dist.irecv(incoming, left)]
for work in works:
    work.wait()
expect(incoming, left)

outputs = [on_device(torch.zeros(4)) for _ in range(size)]
dist.all_gather(outputs, on_device(torch.full((4,), float(rank))))
for r, output in enumerate(outputs):
    expect(output, r)

output = on_device(torch.zeros(3))
dist.reduce_scatter_tensor(output, on_device(torch.ones(3 * size)))
expect(output, size)

cpu = torch.ones(3)  # the same group serves the host
dist.all_reduce(cpu)
assert cpu.tolist() == [size] * 3

future = dist.all_reduce(on_device(torch.full((8,), 2.0)), async_op=True).get_future()
expect(future.wait()[0], 2.0 * size)

# A barrier blocks the host until the group's earlier work on the accelerator is complete.
for asynchronous in (False, True):
    tensor = on_device(torch.full((1 << 22,), float(rank)))
    work = dist.all_reduce(tensor, async_op=True)
    barrier = dist.barrier(async_op=asynchronous)
    if asynchronous:
        barrier.wait()
    assert work.is_completed()
    expect(tensor, sum(range(size)))

dist.destroy_process_group()
print("summed on the accelerator\n", end="")
sys.stdout.flush()
