"""Runs tests/gpu/ranks on software GPUs (tests/fakecuda), or on MPI_GDR_TEST_DEVICE=cuda|cpu."""

import os

import pytest
from support import simgpu_build
from support.spmd import run_spmd

from mpi_backend.gpu_share import visible_gpus

pytestmark = pytest.mark.long

DEVICE = os.environ.get("MPI_GDR_TEST_DEVICE", "simgpu")
cuda_only = pytest.mark.skipif(DEVICE != "cuda", reason="MPI_GDR_TEST_DEVICE is not cuda")


def run(tmp_path, size, *selection, **env):
    """Ranks share the GPUs evenly."""
    if DEVICE == "cuda":
        gpus = len(visible_gpus(os.environ))
        assert gpus > 0, "MPI_GDR_TEST_DEVICE=cuda, and no GPU is visible"
        env["MPI_GDR_RANKS_PER_GPU"] = str(-(-size // gpus))
    # Removed by processes.clean_environment, but needed by the ranks.
    env |= {name: os.environ[name] for name in ("SPMD_NOTES", "SPMD_REFERENCE") if name in os.environ}
    assert run_spmd(tmp_path, "mpi-gdr run", size, "gpu/ranks", *selection, SPMD_DEVICE=DEVICE, **env) > 0


@pytest.mark.skipif(DEVICE == "simgpu", reason="test_software_gpus")
@pytest.mark.parametrize("size", [1, 2, 4, 8] if DEVICE == "cuda" else [2])
def test_ranks(tmp_path, size):
    run(tmp_path, size)


@cuda_only
@pytest.mark.parametrize("size", [2, 4])
def test_one_hardware_queue(tmp_path, size):
    run(tmp_path, size, "-k", "streams or memory or training", CUDA_DEVICE_MAX_CONNECTIONS="1")


# Phases, with larger calls in several parts.
TWO_NODES = {
    "MPI_GDR_RANKS_PER_NODE": "2",
    "MPI_GDR_CHUNK_BYTES": "64K",
    "MPI_GDR_BROADCAST_ALGO": "two_level",
}
THREE_AND_ONE = TWO_NODES | {"MPI_GDR_RANKS_PER_NODE": "3"}
NCCL = {"LD_PRELOAD": str(simgpu_build.NCCL)}
# GPUs: streams share hardware queues or not, wait for flags or use kernels; ranks share a GPU or not.
GPUS = {
    "8 queues, memory operations": {"FAKECUDA_SEED": "1", "FAKECUDA_QUEUES": "8"},
    "32 queues, flag kernels, one GPU": {
        "FAKECUDA_SEED": "2",
        "FAKECUDA_QUEUES": "32",
        "FAKECUDA_STREAM_WORDS": "0",
        "FAKECUDA_DEVICES": "1",
    },
    "1 queue, memory operations, one GPU": {
        "FAKECUDA_SEED": "3",
        "FAKECUDA_QUEUES": "1",
        "FAKECUDA_DEVICES": "1",
    },
    "128 queues, memory operations": {"FAKECUDA_SEED": "4", "FAKECUDA_QUEUES": "128"},
    "as many queues as the backend asks for": {"FAKECUDA_SEED": "5"},
}
EIGHT, KERNELS, ONE, MANY, OWN = GPUS
# Software kernels are slow: only these types have a million elements.
STRESS = "lifetimes or works or streams"
LARGE = "not (1048579 and (float64 or float16 or int or complex64))"
SMALL = "collectives and not 1048579"
# (number of ranks, GPUs, tests, environment)
WAYS = {
    "all": (2, EIGHT, LARGE, {}),
    "three ranks": (3, KERNELS, f"({SMALL} and (float16 or int64)) or training or memory or bits", {}),
    "one hardware queue, little group memory": (
        2,
        ONE,
        f"{STRESS} or training or group_memory",
        {"MPI_GDR_DEVICE_GROUP_MEMORY": "256M"},
    ),
    "late and waiting for memory": (
        2,
        KERNELS,
        f"(({STRESS}) and not hundreds and not ddp) or refusals",
        {"FAKECUDA_DELAY_US": "100", "FAKECUDA_WAITS": "1"},
    ),
    "by messages": (
        2,
        ONE,
        f"((({SMALL} and (float16 or int64)) or {STRESS}) and not graphs) or cannot_be_captured or refusals",
        {"MPI_GDR_IPC": "off"},
    ),
    "messages from the device": (
        2,
        KERNELS,
        f"({SMALL} and (float32 or bool)) or lifetimes or another_thread or log_shows",
        {
            "MPI_GDR_GPU_AWARE": "on",
            "MPI_GDR_DEBUG": "INFO",
            "MPI_GDR_DEBUG_FILE": "{folder}/log%p",
            "SPMD_LOGGED": "are passed to MPI by address",
        },
    ),
    "an MPI that calls CUDA": (
        2,
        ONE,
        "another_thread or log_shows",
        {
            "MPI_GDR_GPU_AWARE": "on",
            "MPI_GDR_IPC": "off",
            "FAKECUDA_WAITS": "1",
            "MPI_GDR_DEBUG": "INFO",
            "MPI_GDR_DEBUG_FILE": "{folder}/log%p",
            "SPMD_LOGGED": "its messages did not progress while a stream waited",
            "LD_PRELOAD": str(simgpu_build.FOLDER / "libcuda_in_mpi.so"),
        },
    ),
    # Like an MPI whose long messages need CUDA IPC, with memory that does not support it.
    "an MPI that refuses long messages": (
        2,
        EIGHT,
        "another_thread or log_shows",
        {
            "MPI_GDR_GPU_AWARE": "on",
            "MPI_GDR_IPC": "off",
            "MPI_CALLS_CUDA_REFUSES": "65536",
            "MPI_GDR_DEBUG": "INFO",
            "MPI_GDR_DEBUG_FILE": "{folder}/log%p",
            "SPMD_LOGGED": "go through pinned host memory: messages of a device's memory, tried",
            "LD_PRELOAD": str(simgpu_build.FOLDER / "libcuda_in_mpi.so"),
        },
    ),
    "two nodes": (4, KERNELS, f"({SMALL} and float32) or (training and fsdp) or mixed", TWO_NODES),
    "nodes of three and of one": (
        4,
        EIGHT,
        f"({SMALL} and int64) or (training and ddp) or mixed",
        THREE_AND_ONE,
    ),
    # Memory order is no stronger than the kernels' fences make it.
    "graphs on four ranks": (
        4,
        ONE,
        "graphs and not ddp",
        {"FAKECUDA_DELAY_US": "50", "FAKECUDA_MEMORY": "weak"},
    ),
    "one GPU without MPS": (
        2,
        ONE,
        "log_shows",
        {
            "FAKECUDA_SLICE_US": "100",
            "MPI_GDR_DEBUG_FILE": "{folder}/log%p",
            "SPMD_LOGGED": "share simgpu:0 without MPS",
        },
    ),
    "devices that do not reach each other": (
        2,
        EIGHT,
        "log_shows",
        {
            "FAKECUDA_PEERS": "0",
            "MPI_GDR_DEBUG_FILE": "{folder}/log%p",
            "SPMD_LOGGED": "WARN INIT group 0: devices share no memory: rank ",
        },
    ),
    "little memory": (
        2,
        EIGHT,
        "cache_of_torch",
        {
            "FAKECUDA_BYTES": str(300 << 20),
            "MPI_GDR_DEBUG": "INFO",
            "MPI_GDR_DEBUG_FILE": "{folder}/log%p",
        },
    ),
    "a program that asked for one hardware queue": (
        2,
        EIGHT,
        "log_shows",
        {
            "CUDA_DEVICE_MAX_CONNECTIONS": "1",
            "MPI_GDR_DEBUG_FILE": "{folder}/log%p",
            "SPMD_LOGGED": "WARN INIT CUDA_DEVICE_MAX_CONNECTIONS=1: 7 streams",
        },
    ),
    "a host that waits": (2, EIGHT, "lifetimes or cannot_be_captured", {"MPI_GDR_BLOCKING_WAIT": "on"}),
    "a driver too old for the library": (
        2,
        EIGHT,
        f"{SMALL} and float32",
        {"FAKECUDA_FAILS": "cudaGetDeviceCount", "FAKECUDA_FAILS_WITH": "35"},
    ),
    "NCCL": (2, EIGHT, f"not test_collectives or ({SMALL} and (float32 or int16 or bool))", NCCL),
    "NCCL on three ranks": (3, MANY, f"({SMALL} and (float16 or int64)) or training or memory or bits", NCCL),
    "NCCL on two nodes": (
        4,
        EIGHT,
        f"({SMALL} and float32) or (training and fsdp) or mixed or nccl_counts",
        TWO_NODES | NCCL,
    ),
    "NCCL on nodes of three and of one": (
        4,
        EIGHT,
        f"({SMALL} and int64) or (training and ddp) or mixed",
        THREE_AND_ONE | NCCL,
    ),
    "NCCL, as the log shows": (
        2,
        EIGHT,
        "log_shows",
        NCCL
        | {
            "MPI_GDR_DEBUG": "INFO",
            "MPI_GDR_DEBUG_FILE": "{folder}/log%p",
            "SPMD_LOGGED": ": NCCL 2.27.3 carries collectives inside the node",
        },
    ),
    "NCCL that one rank cannot set up": (
        2,
        EIGHT,
        "log_shows",
        NCCL
        | {
            "FAKENCCL_INIT_FAILS": "1",
            "MPI_GDR_DEBUG_FILE": "{folder}/log%p",
            "SPMD_LOGGED": "WARN INIT group 0: collectives do not use NCCL: rank ",
        },
    ),
    "an old NCCL": (
        2,
        EIGHT,
        "log_shows",
        NCCL
        | {
            "FAKENCCL_VERSION": "21803",
            "MPI_GDR_DEBUG": "INFO",
            "MPI_GDR_DEBUG_FILE": "{folder}/log%p",
            "SPMD_LOGGED": ": collectives do not use NCCL: rank 0: NCCL 2.18.3 is older than 2.19.1",
        },
    ),
    "NCCL and little memory": (
        2,
        EIGHT,
        "cache_of_torch",
        NCCL
        | {
            "FAKECUDA_BYTES": str(300 << 20),
            "MPI_GDR_DEBUG": "INFO",
            "MPI_GDR_DEBUG_FILE": "{folder}/log%p",
        },
    ),
    "NCCL for ranks that share a GPU": (
        2,
        ONE,
        "log_shows",
        NCCL
        | {
            "MPI_GDR_DEBUG": "INFO",
            "MPI_GDR_DEBUG_FILE": "{folder}/log%p",
            "SPMD_LOGGED": ": collectives do not use NCCL: rank 0: another rank uses simgpu:0, too",
        },
    ),
    "NCCL that answers later": (
        2,
        EIGHT,
        f"{STRESS} and not hundreds and not ddp",
        NCCL | {"FAKENCCL_IN_PROGRESS": "1", "FAKECUDA_DELAY_US": "100"},
    ),
    "a hardware queue for each stream": (2, MANY, "no_stream_of_the_program or no_blocked_stream", {}),
    "many streams": (2, OWN, "hardware_queues_are_for", {"SPMD_FEW_STREAMS": "1"}),
}
MISSING = simgpu_build.missing()


@pytest.mark.skipif(DEVICE != "simgpu", reason="MPI_GDR_TEST_DEVICE is not simgpu")
@pytest.mark.skipif(bool(MISSING), reason=str(MISSING))
@pytest.mark.parametrize("way", WAYS)
def test_software_gpus(tmp_path, way):
    simgpu_build.compiled()  # the preloaded library is beside it
    size, gpus, chosen, env = WAYS[way]
    env = {name: value.format(folder=tmp_path) for name, value in env.items()}
    run(tmp_path, size, "-k", chosen, **GPUS[gpus], **env)
