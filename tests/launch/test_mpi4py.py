import re
from pathlib import Path

from support import processes
from support.cases import cases

PROGRAM = Path(__file__).parent / "programs" / "with_mpi4py.py"
# With these, mpi-gdr's idle thread also calls MPI, concurrently with mpi4py.
IDLE = {"MPIR_CVAR_NOLOCAL": "1", "MPI_GDR_P2P": "mpi"}


@cases(
    ("launcher", "arguments", "variables"),
    ("mpi-gdr run", ("first", "multiple"), {}),
    ("mpi-gdr run", ("finalises", "multiple"), IDLE),
    ("mpi-gdr run", ("second",), {}),
    ("torchrun", ("second",), {}),
)
def test_either_initialises_or_finalises_mpi(launcher, arguments, variables):
    output = processes.run([*processes.launched(launcher, 2), PROGRAM, *arguments], **variables).expect(0)
    assert output.count("summed with both") == 2, output


def test_lower_thread_level_is_refused():
    command = [*processes.launched("mpi-gdr run", 2), PROGRAM, "first", "funneled"]
    output = processes.run(command, timeout=60).expect_failure()
    sentence = r"with thread level funneled, and mpi-gdr needs 'multiple'.*thread_level"
    assert re.search(sentence, output), output
