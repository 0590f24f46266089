"""Fixtures of the framework tests. All ranks run all tests in the same order, over one default group."""

import datetime
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

# Shorter than the watchdog's (SPMD_HANG_SECONDS in test_frameworks.py), so that the backend's own message
# appears; longer than another rank's compilation.
TIMEOUT = datetime.timedelta(seconds=150)


@pytest.fixture(scope="session", autouse=True)
def world():
    torch.set_num_threads(1)
    dist.init_process_group("mpi-gdr", timeout=TIMEOUT)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def gloo(world):
    """The same ranks over Gloo, for references."""
    return dist.new_group(backend="gloo", timeout=TIMEOUT)


@pytest.fixture
def folder(request):
    path = Path(os.environ["SPMD_REPORTS"]) / request.node.name
    if dist.get_rank() == 0:
        path.mkdir()
    dist.barrier()
    return path
