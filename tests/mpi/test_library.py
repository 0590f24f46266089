"""The package on the MPI library that TEST_MPI names, set by `make test-mpi MPI=name`."""

import json
import os
import re
from pathlib import Path

import pytest
from support import processes
from support.mpis import LIBRARIES
from support.spmd import run_spmd

LIBRARY = LIBRARIES[os.environ["TEST_MPI"]]
MPIEXEC = str(LIBRARY.folder / LIBRARY.mpiexec)


def test_info_names_the_library(tmp_path):
    """Not in the sources' folder, because -m prefers the package there."""
    command = [processes.sys.executable, "-m", "mpi_backend", "info", "--json", "--init"]
    report = json.loads(processes.run(command, cwd=str(tmp_path), **LIBRARY.environment()).expect(0))
    mpi = report["mpi"]
    assert re.sub(r"\s+", " ", mpi["library"]).startswith(LIBRARY.version), mpi
    assert Path(mpi["library_path"]).is_relative_to(LIBRARY.folder), mpi
    assert mpi["thread_level"] == "multiple", mpi
    assert mpi["abi"] == LIBRARY.abi, mpi
    found = "MPI_GDR_MPI_LIBRARY" if LIBRARY.libmpi else "on LD_LIBRARY_PATH"
    assert report["mpi_library_is"] == found, report


# Only with --full: these start MPI over torch's store, which Open MPI cannot (test_open_mpi.py).
# tools/wheel_check.py runs the self-test under torchrun on each MPI, and test_spmd.py runs the smoke set on
# one.
STORE_LAUNCHERS = [pytest.param(n, marks=pytest.mark.full) for n in ("torchrun", "spawn") if LIBRARY.store]


@pytest.mark.parametrize("launcher", ["mpi-gdr run", *STORE_LAUNCHERS])
def test_smoke(tmp_path, launcher):
    environment = LIBRARY.environment()
    environment["MPI_GDR_P2P"] = "mpi" if launcher == "mpi-gdr run" else "auto"
    assert run_spmd(tmp_path, launcher, 2, "spmd/ranks", "-m", "smoke", mpiexec=MPIEXEC, **environment) > 0


def test_the_launcher_names_the_library(tmp_path):
    """Without other sources, mpi-gdr finds the library by its launcher, and ranks load no other MPI."""
    program = tmp_path / "maps.py"
    program.write_text(
        "import torch.distributed as dist\n"
        "dist.init_process_group('mpi-gdr')\n"
        "from mpi_backend import mpi_library\n"
        "from mpi_backend.extension import MPI\n"
        "if dist.get_rank() == 0: print('found', MPI.origin, *mpi_library.loaded_libraries())\n"
        "dist.destroy_process_group()\n"
    )
    environment = LIBRARY.environment() if LIBRARY.libmpi else dict(LIBRARY.variables)
    command = [MPIEXEC, "-n", "2", processes.sys.executable, program]
    output = processes.run(command, cwd=str(tmp_path), **environment).expect(0)
    (line,) = re.findall("^found (.*)$", output, re.MULTILINE)
    how, _, path = line.rpartition(" ")
    assert Path(path).is_relative_to(LIBRARY.folder)
    assert how == ("MPI_GDR_MPI_LIBRARY" if LIBRARY.libmpi else "beside the launcher")


def test_mpi4py_shares_the_library_or_an_error_explains_why_not(tmp_path):
    """Its wheel requires libmpi.so.12, which Debian renames, and lacks the standard ABI."""
    program = tmp_path / "shared.py"
    program.write_text(
        "import mpi_backend, torch.distributed as dist\n"
        "dist.init_process_group('mpi-gdr')\n"
        "print(f'together {mpi_backend.mpi4py_comm().allreduce(1)}')\n"  # in one write
        "dist.destroy_process_group()\n"
    )
    environment = {**LIBRARY.environment(), "LD_LIBRARY_PATH": str(LIBRARY.folder / LIBRARY.shared)}
    command = [MPIEXEC, "-n", "2", processes.sys.executable, program]
    if LIBRARY.name in ("debian-mpich", "mpich-abi"):
        output = processes.run(command, cwd=str(tmp_path), **environment).expect(1)
        assert re.search("ImportError: this mpi4py .* cannot use .*libmpi.*the MPI library of this", output)
    else:
        output = processes.run(command, cwd=str(tmp_path), **environment).expect(0)
        assert output.count("together 2") == 2
