"""Limits the calls of NCCL and CUDA in a collective by NCCL: no other test detects superfluous ones."""

import ctypes
import os
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist
from support.gpu import DEVICE, ON_SIMGPU, note, synchronize

from mpi_backend.bench.limit import gather_json

if ON_SIMGPU:
    from fakecuda import simgpu

TWO_NODES = "MPI_GDR_RANKS_PER_NODE" in os.environ
pytestmark = [
    pytest.mark.simulated,
    pytest.mark.ranks(4 if TWO_NODES else 2),
    pytest.mark.skipif(
        "libnccl.so.2" not in os.environ.get("LD_PRELOAD", ""), reason="simulated only, with NCCL"
    ),
    pytest.mark.skipif(
        os.environ.get("FAKECUDA_STREAM_WORDS") == "0", reason="simulated only, flags without kernels"
    ),
]
NCCL_CALLS = ("AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Reduce", "Send", "Recv")


class Counts(NamedTuple):
    """Counts of one call: the least of several calls, on the rank with the most."""

    nccl: int  # calls of NCCL that move data
    groups: int  # of these calls
    kernels: int  # NCCL's and ours
    copies: int
    orders: int  # events recorded and awaited, flags written and awaited
    waits: int  # calls that wait, or may wait, for the whole device
    allocations: int  # blocks of torch's allocator


LIMITS = {
    "all_reduce": Counts(1, 1, 1, 0, 7, 0, 0),
    "all_gather": Counts(1, 1, 1, 0, 7, 0, 0),
    "reduce_scatter": Counts(1, 1, 1, 0, 7, 0, 0),
    "broadcast": Counts(1, 1, 1, 0, 7, 0, 0),
    "all_to_all": Counts(4, 1, 1, 0, 7, 0, 0),  # with itself, too
}
if TWO_NODES:  # copies to and from pinned memory, for messages
    LIMITS = {
        "all_reduce": Counts(2, 2, 3, 2, 23, 0, 1),
        "all_gather": Counts(2, 1, 1, 3, 18, 0, 0),
        "reduce_scatter": Counts(2, 1, 2, 2, 18, 0, 2),
        "broadcast": Counts(1, 1, 1, 1, 17, 0, 0),
    }


def counts():
    nccl = ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD).fakenccl_count
    nccl.restype = ctypes.c_uint64
    cuda = simgpu.calls()

    def of(*names):
        return sum(cuda[name] for name in names)

    return Counts(
        sum(nccl(f"nccl{name}".encode()) for name in NCCL_CALLS),
        nccl(b"ncclGroupStart"),
        of("cudaLaunchKernel", "launch_steps"),
        of("cudaMemcpyAsync", "cudaMemsetAsync", "launch"),
        of("cudaEventRecord", "cudaStreamWaitEvent", "cuStreamWaitValue64", "cuStreamWriteValue64"),
        simgpu.device_wide_waits(),
        simgpu.allocations().allocated,
    )


@pytest.mark.parametrize("name", LIMITS)
def test_counts(rank, size, name):
    blocks = [torch.ones(count, device=DEVICE) for count in (1000, 1000 * size, 1000 * size)]
    block, whole, received = blocks
    calls = {
        "all_reduce": lambda: dist.all_reduce(block),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, block),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(block, whole),
        "broadcast": lambda: dist.broadcast(block, 0),
        "all_to_all": lambda: dist.all_to_all_single(received, whole),
    }
    found = []
    for _ in range(6):
        before = counts()
        calls[name]()
        found.append([after - earlier for after, earlier in zip(counts(), before, strict=True)])
        synchronize()
    # The least: first calls allocate, and so does a call before the host has freed an earlier one's flags.
    most = Counts(*map(max, *gather_json(name, list(map(min, *found)))))
    note(f"| {name}, {'two nodes' if TWO_NODES else 'one node'}", f"| {' | '.join(map(str, most))} |")
    assert all(count <= limit for count, limit in zip(most, LIMITS[name], strict=True)), most
