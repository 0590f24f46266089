"""Makes each host one node for MPI, whatever network the test session selects, so that ranks of a host use
MPI's shared memory."""

import os
from unittest import mock

import pytest


@pytest.fixture(autouse=True, scope="module")
def hosts_are_nodes():
    with mock.patch.dict(os.environ):
        os.environ.pop("MPIR_CVAR_NOLOCAL", None)
        yield
