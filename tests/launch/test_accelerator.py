"""The generic path: collectives and messages on tensors of an unknown accelerator."""

from pathlib import Path

import pytest
from support import processes

pytestmark = pytest.mark.warm

PROGRAM = str(Path(__file__).parent / "programs" / "accelerator.py")


@pytest.mark.parametrize("size", [2, 3])
def test_tensors_that_only_copies_can_reach(size):
    output = processes.run([*processes.launched("mpi-gdr run", size), PROGRAM]).expect(0)
    assert output.count("summed on the accelerator") == size
    fallback = "WARN INIT faraway tensors: copied to the host and back, blocking: no library of this"
    assert output.count(fallback) == size


def test_a_requested_fallback_does_not_warn():
    output = processes.run([*processes.MPI_GDR_RUN, "-n", "1", PROGRAM], MPI_GDR_CUDA="off").expect(0)
    assert "WARN INIT" not in output
