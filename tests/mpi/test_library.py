"""The package on one MPI library, the one that TEST_MPI names: `make test-mpi MPI=name` sets it.

All libraries of the MPICH ABI are loaded by the one extension that was built against the MPICH wheel.
"""

import json
import os
import re
from pathlib import Path

import pytest
from libraries import LIBRARIES, ROOT
from support import processes
from support.spmd import run_spmd

LIBRARY = LIBRARIES[os.environ["TEST_MPI"]]
MPIEXEC = str(LIBRARY.folder / LIBRARY.mpiexec)


def test_info_names_the_library(tmp_path):
    """Not from the folder of the sources: with -m, Python would prefer the package there."""
    command = [processes.sys.executable, "-m", "mpi_backend", "info", "--json", "--init"]
    report = json.loads(processes.run(command, cwd=str(tmp_path), **LIBRARY.environment()).expect(0))
    mpi = report["mpi"]
    assert re.sub(r"\s+", " ", mpi["library"]).startswith(LIBRARY.version), mpi
    assert Path(mpi["library_path"]).is_relative_to(LIBRARY.folder), mpi
    assert mpi["thread_level"] == "multiple", mpi
    assert mpi["abi"] == ("Open MPI" if LIBRARY.own_build else "MPICH ABI"), mpi
    package = LIBRARY.site if LIBRARY.own_build else ROOT
    assert Path(report["extension"]["path"]).is_relative_to(package), report["extension"]


# torchrun and spawn start MPI over torch's store, which Open MPI cannot: see test_open_mpi.py. To the other
# MPIs the two are the same; one of them is enough for every change.
STORE_LAUNCHERS = [] if LIBRARY.own_build else ["torchrun", pytest.param("spawn", marks=pytest.mark.full)]


@pytest.mark.parametrize("launcher", ["mpi-gdr run", *STORE_LAUNCHERS])
def test_smoke(tmp_path, launcher):
    environment = LIBRARY.environment()
    environment["MPI_GDR_P2P"] = "mpi" if launcher == "mpi-gdr run" else "auto"
    assert run_spmd(tmp_path, launcher, 2, "spmd/ranks", "-m", "smoke", mpiexec=MPIEXEC, **environment) > 0
