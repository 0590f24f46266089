"""The error that Open MPI gives without its launcher has tests of its own."""

import os

collect_ignore = [] if os.environ.get("TEST_MPI") == "openmpi" else ["test_open_mpi.py"]
