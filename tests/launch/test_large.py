"""Counts beyond 31 bits. `make test-full` runs this; it needs minutes and 6 GiB of memory."""

from pathlib import Path

import pytest
from support import processes


@pytest.mark.full
def test_more_than_two_to_the_31_elements():
    program = Path(__file__).parents[1] / "support" / "large_program.py"
    output = processes.run([*processes.MPI_GDR_RUN, "-n", "2", str(program)], 900).expect()
    passed = [line.split()[-2] for line in output.splitlines() if line.endswith(" passed")]
    assert sorted(passed) == ["all_reduce"] * 2 + ["broadcast"] * 2 + ["recv"], output
