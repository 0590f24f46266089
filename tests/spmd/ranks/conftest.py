"""Fixtures of the SPMD tests. All ranks run all tests in the same order, over one default group."""

import datetime

import pytest
import torch
import torch.distributed as dist
from support.spmd import GROUP_SECONDS


@pytest.fixture(scope="session", autouse=True)
def world():
    """The default group, from the first test to the last."""
    torch.set_num_threads(1)
    dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=GROUP_SECONDS))
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def comm():
    """mpi4py's view of the default group."""
    import mpi_backend

    return mpi_backend.mpi4py_comm()
