"""What an installed package runs without a clone: a copy of the package alone, in front of the checkout."""

import shutil
from pathlib import Path

import pytest
from support.command import mpi_gdr

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Variables of a Python that imports the copy."""
    folder = tmp_path_factory.mktemp("packages")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "mpi_backend", folder / "mpi_backend", ignore=ignored)
    return {"PYTHONPATH": str(folder)}


def test_bench_ddp_needs_no_clone(installed):
    arguments = ("--steps", "2", "--compare", "", "--rounds", "1", "--layers", "1", "--channels", "32")
    result = mpi_gdr("bench", "-n", "2", "ddp", *arguments, **installed)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "DDP step of the GPT example, 2 ranks" in result.stdout
