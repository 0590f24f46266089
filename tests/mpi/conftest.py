"""Open MPI's error without its launcher is tested separately."""

import os

collect_ignore = [] if os.environ.get("TEST_MPI") == "openmpi" else ["test_open_mpi.py"]
