"""`mpi-gdr` and its modules as a user's shell would start them, for tests of their output."""

from __future__ import annotations

import subprocess
import sys

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
