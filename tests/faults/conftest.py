"""A host is an MPI node here, whatever network the tests use: it determines what ranks see of each other and
leave in shared memory."""

import os
from unittest import mock

import pytest


@pytest.fixture(autouse=True, scope="module")
def hosts_are_nodes():
    with mock.patch.dict(os.environ):
        os.environ.pop("MPIR_CVAR_NOLOCAL", None)
        yield
