"""The installed package needs no git clone."""

import pytest
from support.command import copy_package, mpi_gdr_output, run_module


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Environment in which Python imports a copy of the package outside the clone."""
    return copy_package(tmp_path_factory.mktemp("packages"))


def test_bench_ddp_needs_no_clone(installed):
    arguments = ("--steps", "2", "--compare", "", "--rounds", "1", "--layers", "1", "--channels", "32")
    output = mpi_gdr_output("bench", "-n", "2", "ddp", *arguments, **installed)
    assert "DDP step of the GPT example, 2 ranks" in output


def test_the_demo_needs_no_clone(installed):
    result = run_module("mpi_backend.demo", "--steps", "1", **installed)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all 2 ranks hold the same bits") == 2
