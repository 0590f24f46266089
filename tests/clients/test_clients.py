"""Each framework's shortest program over this backend, compared with Gloo."""

from pathlib import Path

import pytest
from support import processes

PROGRAMS = Path(__file__).parent / "programs"


def lines(program, *backends):
    """Returns the result, which both ranks must print."""
    command = [*processes.MPI_GDR_RUN, "-n", "2", PROGRAMS / program, *backends]
    output = processes.run(command, timeout=200).expect(0)
    found = [line.partition(", 2 ranks: ") for line in output.splitlines() if ", 2 ranks: " in line]
    assert len(found) == 2 and found[0] == found[1], output
    assert found[0][0] in (backends[0], f"cpu:{backends[0]},cuda:{backends[-1]}"), output
    return found[0][2]


@pytest.mark.parametrize("program", ["with_accelerate.py", "with_lightning.py", "with_trainer.py"])
def test_weights_are_those_over_gloo(program):
    assert lines(program, "mpi-gdr") == lines(program, "gloo") != ""


def test_a_backend_for_each_kind_of_device():
    """Uses cuda:gloo, because a torch for CPUs lacks NCCL. Jobs on GPUs use `cpu:mpi-gdr,cuda:nccl`."""
    assert lines("with_megatron_groups.py", "mpi-gdr", "gloo") == "CPU tensors by MpiBackend"
