"""MPI_GDR_RANKS_PER_GPU: K ranks share a GPU though the script uses cuda:LOCAL_RANK.

The rank with node-local rank L sees only GPU L // K, as device 0, and LOCAL_RANK=0. This is set in the rank's
environment before CUDA reads it; nothing here starts CUDA.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path

from . import launchers

VARIABLE = "MPI_GDR_RANKS_PER_GPU"
# Marks that LOCAL_RANK and the GPU are set. A rank's children inherit it.
APPLIED = "_MPI_GDR_GPU_SETTLED"
PROC = Path("/proc/driver/nvidia/gpus")


def visible_gpus(env: launchers.Environment) -> list[str]:
    """The GPUs that a process with this environment sees, in the notation of CUDA_VISIBLE_DEVICES."""
    listed = env.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        gpus = []
        for entry in map(str.strip, listed.split(",")):
            if entry == "" or entry.startswith("-"):
                break  # CUDA ignores everything after an invalid entry
            gpus.append(entry)
        return gpus
    try:
        result = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, env={**env}, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return [str(index) for index in range(len(list(PROC.glob("*"))))]
    if slices := re.findall(r"^\s+MIG .*\(UUID: (MIG-[^)]+)\)", result.stdout, re.MULTILINE):
        return slices  # without names, CUDA would see the first one only
    return [str(index) for index in range(len(re.findall(r"^GPU \d+:", result.stdout, re.MULTILINE)))]


def shortage(gpus: list[str], ranks_per_gpu: int, ranks: int) -> str | None:
    """A sentence if the ranks of a node do not fit."""
    if ranks <= len(gpus) * ranks_per_gpu:
        return None
    seen = f" ({', '.join(gpus)})" if gpus else ""
    return (
        f"{ranks} ranks on a node do not fit on {len(gpus)} visible GPU{'s' * (len(gpus) != 1)}{seen} with "
        f"{ranks_per_gpu} ranks per GPU: at most {len(gpus) * ranks_per_gpu}"
    )


def apply(env: MutableMapping[str, str]) -> None:
    """If the process is a rank and VARIABLE is set, narrows CUDA_VISIBLE_DEVICES to its GPU and sets
    LOCAL_RANK=0. Raises ValueError if that is impossible. Idempotent."""
    text = env.get(VARIABLE, "")
    if text in ("", "0") or APPLIED in env:
        return
    if not text.isdecimal():
        raise ValueError(f"{VARIABLE}={text}: expected a number of ranks")
    placement = launchers.detect(env)
    local_rank, local_size = env.get("LOCAL_RANK", ""), env.get("LOCAL_WORLD_SIZE", "")
    if not local_rank.isdecimal():
        if placement is None:
            return  # not a rank: torchrun's agent, or a program beside the job
        if placement.local_rank is None:
            raise ValueError(f"{VARIABLE}={text}: {placement.launcher} does not set the rank on the node")
        local_rank, local_size = str(placement.local_rank), str(placement.local_size or "")
    ranks = max(int(local_rank) + 1, int(local_size) if local_size.isdecimal() else 0)
    gpus = visible_gpus(env)
    if (sentence := shortage(gpus, int(text), ranks)) is not None:
        raise ValueError(f"{VARIABLE}={text}: {sentence}")
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if env is os.environ and cuda is not None and cuda.is_initialized():
        raise ValueError(f"{VARIABLE}={text}: CUDA is already in use: import torch or mpi_backend earlier")
    env["CUDA_VISIBLE_DEVICES"] = gpus[int(local_rank) // int(text)]
    env[APPLIED] = local_rank
    if "LOCAL_RANK" in env:  # a job of one rank gets it later, as 0
        env["LOCAL_RANK"] = "0"
