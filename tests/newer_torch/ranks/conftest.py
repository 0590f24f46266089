"""The default group, with the test file's BACKEND."""

import datetime

import pytest
import torch
import torch.distributed as dist
from support.spmd import GROUP_SECONDS


@pytest.fixture(scope="module", autouse=True)
def world(request):
    torch.set_num_threads(1)
    dist.init_process_group(request.module.BACKEND, timeout=datetime.timedelta(seconds=GROUP_SECONDS))
    yield
    dist.destroy_process_group()
