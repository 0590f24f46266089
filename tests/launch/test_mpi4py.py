import re
from pathlib import Path

from support import processes

PROGRAM = str(Path(__file__).parent / "programs" / "with_mpi4py.py")
RUN = [*processes.MPI_GDR_RUN, "-n", "2", PROGRAM]


def test_mpi4py_initialises_mpi():
    assert processes.run([*RUN, "first", "multiple"]).expect(0).count("summed with both") == 2


def test_mpi4py_finalises_mpi():
    """While our own thread enters MPI periodically."""
    variables = {"MPIR_CVAR_NOLOCAL": "1", "MPI_GDR_P2P": "mpi"}
    output = processes.run([*RUN, "finalises", "multiple"], **variables).expect(0)
    assert output.count("summed with both") == 2, output


def test_we_initialise_mpi():
    assert processes.run([*RUN, "second"]).expect(0).count("summed with both") == 2


def test_we_initialise_mpi_under_torchrun():
    command = [*processes.TORCHRUN, "--standalone", "--nproc-per-node=2", PROGRAM, "second"]
    assert processes.run(command).expect(0).count("summed with both") == 2


def test_lower_thread_level_is_refused():
    result = processes.run([*RUN, "first", "funneled"], timeout=60)
    assert result.status not in (None, 0)
    assert re.search(
        r"with thread level funneled, and mpi-gdr needs 'multiple'.*thread_level", result.output
    ), result.tail()
