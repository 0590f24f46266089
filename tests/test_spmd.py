"""Runs tests/spmd on several ranks, under each launcher."""

import pytest
from support.spmd import run_spmd


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_mpi_launcher(tmp_path, size):
    assert run_spmd(tmp_path, "mpi-gdr run", size, "spmd") > 0


@pytest.mark.parametrize("launcher", ["torchrun", "spawn"])
def test_store_launchers(tmp_path, launcher):
    assert run_spmd(tmp_path, launcher, 2, "spmd", "-m", "smoke") > 0


# Every algorithm once, by name. What is not listed has one algorithm only.
FORCED = {
    "first": {
        "MPI_GDR_ALLREDUCE_ALGO": "recursive_doubling",
        "MPI_GDR_BROADCAST_ALGO": "binomial",
        "MPI_GDR_REDUCE_ALGO": "binomial",
        "MPI_GDR_ALLGATHER_ALGO": "recursive_doubling",
        "MPI_GDR_REDUCE_SCATTER_ALGO": "pairwise",
        "MPI_GDR_ALLTOALL_ALGO": "pairwise",
        "MPI_GDR_BARRIER_ALGO": "dissemination",
    },
    "second": {
        "MPI_GDR_ALLREDUCE_ALGO": "ring",
        "MPI_GDR_BROADCAST_ALGO": "chain",
        "MPI_GDR_ALLGATHER_ALGO": "ring",
        "MPI_GDR_REDUCE_SCATTER_ALGO": "ring",
        "MPI_GDR_CHUNK_BYTES": "1K",
    },
    "native": {
        f"MPI_GDR_{collective}_ALGO": "native"
        for collective in ("ALLREDUCE", "BROADCAST", "REDUCE", "ALLGATHER", "REDUCE_SCATTER", "BARRIER")
    },
}


@pytest.mark.parametrize("choice", FORCED)
def test_forced_algorithms(tmp_path, choice):
    assert run_spmd(tmp_path, "mpi-gdr run", 3, "spmd", "-m", "algorithms", **FORCED[choice]) > 0
