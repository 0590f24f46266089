"""examples/hello.py and examples/ddp.py: short, self-contained, under any launcher."""

import re

import pytest
from support import labs, processes

HELLO, DDP = labs.EXAMPLES / "hello.py", labs.EXAMPLES / "ddp.py"


@pytest.mark.parametrize("path", [HELLO, DDP], ids=["hello", "ddp"])
def test_short_and_by_itself(path):
    text = path.read_text()
    assert len(text.partition('"""\n\n')[2].splitlines()) <= 28
    assert set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)) == {"torch"}


@pytest.mark.parametrize("launcher", ["mpi-gdr run", "torchrun"])
def test_hello(launcher):
    output = processes.run([*processes.launched(launcher, 2), HELLO]).expect(0)
    assert output.count("the sum over 2 ranks: [3.0, 3.0, 3.0]") == 1
    assert "Warning" not in output


def test_ddp_learns_the_same_on_any_number_of_ranks():
    shown = {}
    for ranks in (1, 2):
        output = processes.run([*processes.MPI_GDR_RUN, "-n", str(ranks), str(DDP)]).expect(0)
        shown[ranks] = [float(loss) for loss in re.findall(r"^step \d+: loss (\S+)$", output, re.MULTILINE)]
    assert len(shown[2]) == 4 and shown[2][-1] < 0.6 * shown[2][0]
    assert shown[2] == pytest.approx(shown[1], abs=2e-4)
