"""Every rank reports different calls with both sides; with MPI_GDR_DEBUG=DETAIL before anything is sent."""

import re
from pathlib import Path

import pytest
from support import processes
from support.cases import cases

pytestmark = pytest.mark.warm

PROGRAMS = Path(__file__).parent / "programs"

EXPECTED = {
    "operation": r"ranks 0, 1 called all_reduce seq=1 float32\[10\] op=sum .*; rank 2 called broadcast ",
    "count": r"ranks 0, 2 called .*float32 count=10 op=sum\); rank 1 called .*float32 count=11 op=sum\)",
    "dtype": r"rank 0 called .*int32 count=10 op=sum\); ranks 1, 2 called .*float32 count=10 op=sum\)",
    "moved": r"rank 0 called broadcast .*Int bytes=40 root=0\); ranks 1, 2 called .*Float bytes=40 root=0\)",
    "root": r"ranks 0, 1 called broadcast .* root=0\); rank 2 called broadcast .* root=1\)",
    "op": r"ranks 0, 1 called all_reduce .*op=sum\); rank 2 called all_reduce .*op=max\)",
    "async": r"rank 0 called .*count=10 .*; rank 1 called .*count=11 .*; rank 2 called .*count=12 ",
    "splits": r"all_to_all_single seq=1 .*rank 0 sends 8 bytes to rank 2, which expects 4 bytes from it",
    "coalesced": r"ranks 0, 2 called .*call 2 of 3: all_reduce float32 count=3 .*; rank 1 called .*count=4 ",
}


def test_every_rank_names_both_sides(tmp_path):
    variables = {"MPI_GDR_DEBUG": "DETAIL", "MPI_GDR_FLIGHT_DIR": str(tmp_path)}
    results = processes.run_apart(3, PROGRAMS / "mismatched.py", timeout=100, **variables)
    for rank, result in enumerate(results):
        output = result.expect(0)
        for name, pattern in EXPECTED.items():
            sides = rf"^{name}: mpi-gdr: the ranks called .*{pattern}"
            assert re.search(sides, output, re.MULTILINE), name + output
            assert re.search(rf"^{name} then: mpi-gdr: .*the group failed earlier: ", output, re.MULTILINE)
        if rank != 1:
            assert re.search(r"^nothing: mpi-gdr: timed out .*; still waiting for rank 1; ", output, re.M)
        assert "others: [3.0, 3.0, 3.0]" in output


NAMES = ["broadcast, roots", "broadcast, int64", "broadcast, int32", "scatter, roots"]
NAMES += ["reduce, roots", "sum, max", "sizes", "collectives"]


@cases(
    ("size", "variables"),
    (2, {}), (4, {}), (2, {"MPI_GDR_SHM": "off"}), (4, {"MPI_GDR_SHM": "off"}),
    (4, {"MPI_GDR_RANKS_PER_NODE": "2"}),
    ids=["node-2", "node-4", "messages-2", "messages-4", "two levels"],
)  # fmt: skip
def test_different_calls_without_debugging(tmp_path, size, variables):
    """Detected by the next calls that compare, long before the timeout; equal calls succeed."""
    variables = {**variables, "MPI_GDR_FLIGHT_DIR": str(tmp_path)}
    results = processes.run_apart(size, PROGRAMS / "differing.py", timeout=50, **variables)
    for result in results:
        output = result.expect(0)
        assert "equal: no error" in output
        assert "timed out" not in output
        for name in NAMES:
            named = r".*rank \d called \S+ #.*(this rank called|another call before it)"
            assert re.search(rf"^{name}: \d+ calls: mpi-gdr: {named}", output, re.MULTILINE), name + output


def test_a_difference_in_the_last_call_fails_the_job():
    results = processes.run_apart(2, PROGRAMS / "differing.py", "last", timeout=50)
    for result in results:
        assert "the ranks of a group called different collectives" in result.expect(121)
        assert "Traceback" not in result.output


@pytest.mark.parametrize("variables", [{}, {"MPI_GDR_SHM": "off"}], ids=["node", "messages"])
def test_legal_calls_are_no_difference(variables):
    for result in processes.run_apart(3, PROGRAMS / "legal.py", timeout=50, **variables):
        assert "legal" in result.expect(0)
