"""Runs tests/gpu on several ranks: on the simulated accelerator, with MPI_GDR_TEST_DEVICE=cuda on GPUs, with
MPI_GDR_TEST_DEVICE=cpu on CPU tensors."""

import os

import pytest
from support.spmd import run_spmd

from mpi_backend.gpu_share import visible_gpus

DEVICE = os.environ.get("MPI_GDR_TEST_DEVICE", "simgpu")
cuda_only = pytest.mark.skipif(DEVICE != "cuda", reason="MPI_GDR_TEST_DEVICE is not cuda")


def run(tmp_path, size, *selection, **env):
    """The ranks share the GPUs evenly."""
    if DEVICE == "cuda":
        gpus = len(visible_gpus(os.environ))
        assert gpus > 0, "MPI_GDR_TEST_DEVICE=cuda, and no GPU is visible"
        env["MPI_GDR_RANKS_PER_GPU"] = str(-(-size // gpus))
    # What processes.clean_environment takes from the ranks, and they need.
    env |= {name: os.environ[name] for name in ("SPMD_NOTES", "SPMD_REFERENCE") if name in os.environ}
    assert run_spmd(tmp_path, "mpi-gdr run", size, "gpu", *selection, SPMD_DEVICE=DEVICE, **env) > 0


@pytest.mark.parametrize("size", [1, 2, 4, 8] if DEVICE == "cuda" else [2])
def test_ranks(tmp_path, size):
    run(tmp_path, size)


@cuda_only
@pytest.mark.parametrize("size", [2, 4])
def test_one_hardware_queue(tmp_path, size):
    run(tmp_path, size, "-k", "streams or memory or training", CUDA_DEVICE_MAX_CONNECTIONS="1")


# In phases, the larger calls in several parts.
TWO_NODES = {
    "MPI_GDR_RANKS_PER_NODE": "2",
    "MPI_GDR_CHUNK_BYTES": "64K",
    "MPI_GDR_BROADCAST_ALGO": "two_level",
}
# The simulated accelerator, in ways of its own: the number of ranks, which tests, the environment.
STRESS = "lifetimes or works or streams"
SIMULATED = {
    "three ranks": (3, "(collectives and not 1048579 and (float16 or int64)) or training or memory", {}),
    "one hardware queue, little group memory": (
        2,
        f"{STRESS} or training or group_memory",
        {"SIMGPU_QUEUES": "1", "MPI_GDR_DEVICE_GROUP_MEMORY": "256M"},
    ),
    "late and waiting for memory": (
        2,
        f"(({STRESS}) and not hundreds) or refusals",
        {"SIMGPU_DELAY_US": "100", "SIMGPU_MALLOC_WAITS": "1"},
    ),
    "by messages": (
        2,
        f"(((collectives and not 1048579 and (float16 or int64)) or {STRESS}) and not graphs) "
        "or cannot_be_captured or refusals",
        {"MPI_GDR_IPC": "off"},
    ),
    "messages from the device": (
        2,
        "(collectives and (float32 or bool)) or lifetimes",
        {"MPI_GDR_GPU_AWARE": "on"},
    ),
    "two nodes": (4, "(collectives and float32) or (training and fsdp)", TWO_NODES),
    "nodes of two and of one": (3, "(collectives and bfloat16 and not 1048579) or training", TWO_NODES),
    "four nodes": (4, "collectives and int64 and not 1048579", {"MPI_GDR_RANKS_PER_NODE": "1"}),
    "graphs on three ranks": (3, "graphs", {"SIMGPU_DELAY_US": "50"}),
    "a host that waits": (2, "lifetimes or training or cannot_be_captured", {"MPI_GDR_BLOCKING_WAIT": "on"}),
}


@pytest.mark.skipif(DEVICE != "simgpu", reason="MPI_GDR_TEST_DEVICE is not simgpu")
@pytest.mark.parametrize("way", SIMULATED)
def test_simulated(tmp_path, way):
    size, chosen, env = SIMULATED[way]
    run(tmp_path, size, "-k", chosen, **env)
