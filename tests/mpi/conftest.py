"""Collects the tests of Open MPI without its launcher only for Open MPI."""

import os

collect_ignore = [] if os.environ.get("TEST_MPI") == "openmpi" else ["test_open_mpi.py"]
