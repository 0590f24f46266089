"""MPI_GDR_BITS=order: training depends only on the number of ranks, not on their nodes or the algorithm."""

import re

import pytest
from support.command import mpi_gdr_output
from test_example_gpt import EXAMPLE

from mpi_backend._tools import schedule

RANKS = 4
ORDERED = [a["name"] for a in schedule.algorithms() if a["collective"] == "all_reduce" and a["ordered"]]


def digest(ranks_per_node: int, **variables: str) -> str:
    """SHA-256 of the parameters after a few iterations."""
    options = ["--preset=tiny", "--device=cpu", "--iterations=5", "--out", variables.pop("out")]
    variables |= {"OMP_NUM_THREADS": "1", "MPI_GDR_RANKS_PER_NODE": str(ranks_per_node)}
    output = mpi_gdr_output("run", "-n", str(RANKS), str(EXAMPLE / "train.py"), *options, **variables)
    (found,) = re.findall(rf"bitwise equal on all {RANKS} ranks, SHA-256 (\w+)", output)
    return found


@pytest.fixture(scope="module")
def on_one_node(tmp_path_factory) -> str:
    return digest(RANKS, out=str(tmp_path_factory.mktemp("one")), MPI_GDR_BITS="order")


@pytest.mark.parametrize("ranks_per_node", [2, 1])
def test_layouts_agree(on_one_node, tmp_path, ranks_per_node):
    assert digest(ranks_per_node, out=str(tmp_path), MPI_GDR_BITS="order") == on_one_node


@pytest.mark.full
def test_a_difference_of_one_bit_is_detected(on_one_node, tmp_path):
    """Otherwise the other tests would prove nothing."""
    assert digest(2, out=str(tmp_path), MPI_GDR_SELECT="all_reduce:ring") != on_one_node


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ORDERED)
@pytest.mark.parametrize("ranks_per_node", [4, 2, 1])
def test_algorithms_agree(on_one_node, tmp_path, algorithm, ranks_per_node):
    """An algorithm that does not support a layout falls through to later rows."""
    rows = f"all_reduce:{algorithm}"
    found = digest(ranks_per_node, out=str(tmp_path), MPI_GDR_BITS="order", MPI_GDR_SELECT=rows)
    assert found == on_one_node
