"""Open MPI without its launcher: the error names the right command, at once and on every rank. And its
launcher with another MPI."""

import re

import pytest
from support import processes
from support.cases import cases
from support.mpis import LIBRARIES, install
from support.spmd import TESTS

ENVIRONMENT = LIBRARIES["openmpi"].environment()
MPICH = LIBRARIES["mpich"]
PROGRAMS = TESTS / "launch" / "programs"
ERROR = "Open MPI can only be started by its own launcher, and these 2 ranks were {}"
COMMAND = "Start with `mpirun -n 2 python script.py` or `mpi-gdr run -n 2 script.py`"


@cases("launcher", "torchrun", "plain scripts", pytest.param("spawn", marks=pytest.mark.full))
def test_error_names_the_command(tmp_path, launcher):
    if launcher == "plain scripts":
        results = processes.run_apart(2, PROGRAMS / "plain.py", **ENVIRONMENT)
    else:
        spawn = [processes.sys.executable, PROGRAMS / "spawned.py", "2", f"file://{tmp_path}/meeting", "-1"]
        torchrun = [*processes.launched("torchrun", 2), PROGRAMS / "plain.py"]
        results = [processes.run(torchrun if launcher == "torchrun" else spawn, **ENVIRONMENT)]
    how = "by torchrun" if launcher == "torchrun" else "without it (launcher on rank 0: none)"
    cause = f"started {how}"
    for result in results:
        assert result.status == 1, result.tail()
        assert ERROR.format(cause) in result.output and COMMAND in result.output, result.tail()


def test_the_launcher_of_another_mpi_is_named():
    """Hydra with Open MPI requested."""
    install(MPICH)
    library = LIBRARIES["openmpi"]
    asked = {"MPI_GDR_MPI_LIBRARY": str(library.folder / library.shared / "libmpi.so.40")}
    command = [MPICH.folder / MPICH.mpiexec, "-n", 2, processes.sys.executable, PROGRAMS / "plain.py"]
    output = processes.run(command, **asked).expect_failure()
    sentence = "the MPI of this process is Open MPI, and these 2 ranks were started by the mpiexec of an MPI "
    sentence += "of the MPICH family, which cannot start it. Start with `mpi-gdr run -n 2 script.py`"
    assert sentence in output, output


def test_its_launcher_with_another_mpi():
    """On one host ranks compute their meeting point, and the other MPI starts over the store."""
    install(MPICH)
    library = LIBRARIES["openmpi"]
    asked = {"MPI_GDR_MPI_LIBRARY": str(MPICH.folder / MPICH.shared / "libmpi.so.12")}
    words = [processes.sys.executable, PROGRAMS / "plain.py", "--addresses"]
    command = [library.folder / library.mpiexec, "-n", 2, *words]
    output = processes.run(command, **dict(library.variables), **asked).expect(0)
    found = re.findall(r"rank \d of 2: before (\S+), after (\S+)", output)
    assert len(found) == 2 and len({pair for pairs in found for pair in pairs}) == 1, output
