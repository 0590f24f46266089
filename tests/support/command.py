"""`mpi-gdr` and its modules as a user's shell would start them, for tests of their output."""

from __future__ import annotations

import os
import subprocess
import sys

# The tests themselves may run inside a launcher: the command must not take part in its job.
LAUNCHER_VARIABLES = ("PMI", "PMIX", "OMPI", "HYDRA", "SLURM", "MPI_LOCAL", "RANK", "WORLD_SIZE", "MASTER_")


def clean_environment(**variables: str) -> dict[str, str]:
    """That of a login shell, with one thread per rank and these variables added."""
    env = {k: v for k, v in os.environ.items() if not k.startswith((*LAUNCHER_VARIABLES, "MPI_GDR_"))}
    return {**env, "OMP_NUM_THREADS": "1", **variables}


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
