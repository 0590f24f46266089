"""Runs tests/frameworks/ranks: torch's frameworks over mpi-gdr. See docs/frameworks.md."""

import pytest
from support import processes
from support.spmd import TESTS, run_spmd

pytestmark = pytest.mark.long

LIMITS = {"timeout": 600, "SPMD_HANG_SECONDS": "200"}


def test_two_ranks(tmp_path):
    assert run_spmd(tmp_path, "mpi-gdr run", 2, "frameworks/ranks", "-m", "not mesh", **LIMITS) > 0


def test_four_ranks(tmp_path):
    assert run_spmd(tmp_path, "mpi-gdr run", 4, "frameworks/ranks", "-m", "mesh", **LIMITS) > 0


def test_debug_detail(tmp_path):
    """torch wraps every group in one that compares shapes over Gloo before each collective."""
    selection = ["-m", "detail and not mesh"]
    passed = run_spmd(
        tmp_path, "mpi-gdr run", 2, "frameworks/ranks", *selection, TORCH_DISTRIBUTED_DEBUG="DETAIL", **LIMITS
    )
    assert passed > 0


def test_elastic_restart(tmp_path):
    """Keys in the store contain the attempt, so that the second attempt ignores the first one's."""
    command = [*processes.TORCHRUN, "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    command += [str(TESTS / "support" / "elastic_program.py"), str(tmp_path)]
    output = processes.run(command, timeout=180).expect(0)
    assert "rank 1 dies" in output
    for rank in range(2):
        assert f"attempt 1: rank {rank} of 2 has trained to the end" in output
    assert "attempt 0: rank" not in output
