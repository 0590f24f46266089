import pytest
from support import shared_memory

from mpi_backend import master_address


@pytest.fixture
def no_shared_memory_left():
    with shared_memory.assert_no_new_files():
        yield


@pytest.fixture
def unset_master_address(monkeypatch):
    """As in a new process."""
    for name in ("MPI_GDR_MASTER_ADDR", *master_address.NAMES):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("_last_set", None), ("_set_by_us", frozenset()), ("_endpoint", None)):
        monkeypatch.setattr(master_address, name, value)
