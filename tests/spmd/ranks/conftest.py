"""Fixtures of the SPMD tests. All ranks run all tests in the same order, over one default group."""

import datetime
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.spmd import GROUP_SECONDS


@pytest.fixture(scope="session", autouse=True)
def world():
    torch.set_num_threads(1)
    dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=GROUP_SECONDS))
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


@pytest.fixture
def comm():
    """mpi4py's communicator of the default group."""
    import mpi4py

    import mpi_backend
    from mpi_backend.extension import _C

    served = list(Path(mpi4py.__path__[0]).glob("MPI.mpiabi*"))
    if _C.mpi_info()["abi"] == "MPI standard ABI" and not served:
        with pytest.raises(ImportError, match=r"cannot use .*, the MPI library of this process"):
            mpi_backend.mpi4py_comm()
        pytest.skip("this mpi4py has no build for the standard ABI, and mpi4py_comm() says so")
    return mpi_backend.mpi4py_comm()
