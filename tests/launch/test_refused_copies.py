"""The kernel refuses copies between ranks (process_vm_readv), so MPI carries long messages."""

from pathlib import Path

import pytest
from support import processes

pytestmark = pytest.mark.warm

PROGRAM = Path(__file__).parent / "programs" / "refused_copies.py"
BY_MPI = {"MPI_GDR_SHM": "off", "MPI_GDR_P2P": "mpi"}


def launched(launcher, size):
    return {
        "mpiexec": [processes.mpiexec(), "-n", size, processes.sys.executable],
        "torchrun": [*processes.TORCHRUN, "--standalone", f"--nproc-per-node={size}"],
    }[launcher]


@pytest.mark.parametrize("launcher", ["mpiexec", "torchrun"])
@pytest.mark.parametrize("refusal", ["filter", "rank 1"])
def test_long_messages_by_mpi(launcher, refusal):
    output = processes.run([*launched(launcher, 2), PROGRAM, refusal], 40, **BY_MPI).expect(0)
    assert output.count("is done") == 2
