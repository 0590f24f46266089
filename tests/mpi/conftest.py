"""test_open_mpi.py runs with TEST_MPI=openmpi only."""

import os

collect_ignore = [] if os.environ.get("TEST_MPI") == "openmpi" else ["test_open_mpi.py"]
