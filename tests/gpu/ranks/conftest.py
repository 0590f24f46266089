"""Fixtures of the tests on device tensors. All ranks run all tests in the same order, over one default group.

The same files run on the simulated accelerator (SPMD_DEVICE=simgpu) without tests marked cuda, and on CPU
tensors (SPMD_DEVICE=cpu) also without those marked streams. Tests marked simulated run on simgpu only.
"""

import datetime

import pytest
import torch
import torch.distributed as dist
from support.gpu import BACKEND, DEVICE, HAS_STREAMS, ON_CUDA, ON_SIMGPU, note
from support.spmd import GROUP_SECONDS

from mpi_backend.bench.limit import gather_json


def pytest_collection_modifyitems(items):
    for item in items:
        if not ON_CUDA and item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.skip(reason=f"CUDA only, and the tensors are on the {DEVICE.type}"))
        if not ON_SIMGPU and item.get_closest_marker("simulated"):
            item.add_marker(pytest.mark.skip(reason="simulated only, tests do not control another device"))
        if not HAS_STREAMS and item.get_closest_marker("streams"):
            item.add_marker(pytest.mark.skip(reason="only on a device with streams"))


@pytest.fixture(scope="session", autouse=True)
def world():
    """The default group of all tests. The program selects its GPU first, as most do."""
    torch.set_num_threads(1)
    if ON_CUDA:
        torch.cuda.set_device(0)  # MPI_GDR_RANKS_PER_GPU makes the rank's own GPU number 0
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=GROUP_SECONDS))
    if HAS_STREAMS:  # a wrong placement of ranks would be unnoticed
        gpu = torch.get_device_module(DEVICE).get_device_properties(DEVICE).uuid
        note("distinct GPUs", len(set(gather_json("gpu", str(gpu)))))
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
