"""Two ranks that differ in a variable that must be equal fail in init_process_group."""

import re
from pathlib import Path

import pytest
from support import processes

from mpi_backend.extension import _C

pytestmark = pytest.mark.warm

PROGRAM = Path(__file__).parent / "programs" / "selection.py"
VALUES = {
    "MPI_GDR_DEBUG": ("not DETAIL", "DETAIL"), "MPI_GDR_BITS": ("order", "exact"),
    "MPI_GDR_GPU_AWARE": ("off", "auto"), "MPI_GDR_NODE": ("auto", "own"),
    "MPI_GDR_BOOTSTRAP": ("auto", "store"),
    "MPI_GDR_SECRET": ("0" * 64, "1" * 64),
    "MPI_GDR_SELECT": ("barrier:native", "barrier:flag"),
    "MPI_GDR_ADAPT": ("on", "off"), "MPI_GDR_CHUNK_BYTES": ("256K", "1M"), "MPI_GDR_LANES": ("4", "2"),
    "MPI_GDR_RANKS_PER_NODE": ("0", "1"),
}  # fmt: skip
OTHERS = {"MPI_GDR_TUNING"}  # commands/test_tuning.py


def test_there_is_a_case_for_each():
    equal = {row["name"] for row in _C.env_table() if row["equal"]}
    assert {name for name in equal if not name.endswith("_ALGO")} == {*VALUES, *OTHERS}


@pytest.mark.parametrize("name", [*VALUES, "MPI_GDR_SCATTER_ALGO"])
def test_both_ranks_name_the_variable_and_both_values(name):
    zero, one = VALUES.get(name, ("linear", "binomial"))
    sentence = f"{name} is {zero} on rank 0 and {one} on rank 1"
    if name == "MPI_GDR_BOOTSTRAP":
        sentence = f"{name} is '{one}' on rank 1 and '{zero}' on rank 0"
    elif name == "MPI_GDR_SECRET":  # its values are not shown
        sentence = f"is {name} equal on all ranks"
    different = f"{name}|{zero.replace('not DETAIL', 'INFO')}|{one}"
    for result in processes.run_apart(2, PROGRAM, timeout=60, DIFFERENT=different):
        output = result.expect(0)
        assert re.search(rf"^different: \w+: .*{re.escape(sentence)}", output, re.MULTILINE), output
        assert zero[:8] not in output or name != "MPI_GDR_SECRET"
