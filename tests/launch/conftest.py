import pytest
from support import shared_memory

from mpi_backend import master_address


@pytest.fixture
def no_shared_memory_left():
    with shared_memory.nothing_left():
        yield


@pytest.fixture
def nothing_settled(monkeypatch):
    """As in a new process."""
    for name in ("MPI_GDR_MASTER_ADDR", *master_address.NAMES):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("_left", None), ("_filled", frozenset()), ("_offered", None)):
        monkeypatch.setattr(master_address, name, value)
