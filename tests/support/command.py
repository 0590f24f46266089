"""`mpi-gdr` and its modules as a user's shell would start them, for tests of their output."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from .processes import clean_environment


def run_module(module: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m MODULE ARGUMENTS` in a clean_environment()."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=clean_environment(**variables),
        check=False,
    )


def mpi_gdr(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_module("mpi_backend", *arguments, **variables)


def copy_package(folder: Path) -> dict[str, str]:
    """A copy of the package in the folder; variables of a Python that imports it instead of the checkout."""
    source = Path(__file__).parents[2] / "mpi_backend"
    shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    return {"PYTHONPATH": str(folder)}
