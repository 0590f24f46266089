"""MPI_GDR_RANKS_PER_GPU: several ranks share a GPU, though the script takes cuda:LOCAL_RANK.

The rank with node-local rank L sees only GPU L // K, as device 0, and LOCAL_RANK=0. That is settled in the
environment of the rank's process, before CUDA reads it; nothing here starts CUDA.
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
# Says to children of a rank, which inherit its environment, that LOCAL_RANK and the GPU are settled.
SETTLED = "_MPI_GDR_GPU_SETTLED"
PROC = Path("/proc/driver/nvidia/gpus")


def visible_gpus(env: launchers.Environment) -> list[str]:
    """The GPUs that a process with this environment sees, as CUDA_VISIBLE_DEVICES would name them."""
    listed = env.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        gpus = []
        for entry in map(str.strip, listed.split(",")):
            if entry == "" or entry.startswith("-"):
                break  # as CUDA does: what stands behind a name that is none is not seen
            gpus.append(entry)
        return gpus
    try:
        result = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, env={**env}, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return [str(index) for index in range(len(list(PROC.glob("*"))))]
    if slices := re.findall(r"^\s+MIG .*\(UUID: (MIG-[^)]+)\)", result.stdout, re.MULTILINE):
        return slices  # without names, CUDA would see the first one alone
    return [str(index) for index in range(len(re.findall(r"^GPU \d+:", result.stdout, re.MULTILINE)))]


def shortage(gpus: list[str], ranks_per_gpu: int, ranks: int) -> str | None:
    """A sentence if so many ranks of a node do not fit."""
    if ranks <= len(gpus) * ranks_per_gpu:
        return None
    seen = f" ({', '.join(gpus)})" if gpus else ""
    return (
        f"{ranks} ranks on a node do not fit on {len(gpus)} visible GPU{'s' * (len(gpus) != 1)}{seen} with "
        f"{ranks_per_gpu} ranks per GPU: at most {len(gpus) * ranks_per_gpu}"
    )


def settle(env: MutableMapping[str, str]) -> None:
    """Narrows CUDA_VISIBLE_DEVICES to this rank's GPU and sets LOCAL_RANK=0, if VARIABLE asks for it and the
    process is a rank. Raises ValueError if it cannot be done; does nothing the second time."""
    text = env.get(VARIABLE, "")
    if text in ("", "0") or SETTLED in env:
        return
    if not text.isdecimal():
        raise ValueError(f"{VARIABLE}={text}: expected a number of ranks")
    placement = launchers.detect(env)
    local_rank, local_size = env.get("LOCAL_RANK", ""), env.get("LOCAL_WORLD_SIZE", "")
    if not local_rank.isdecimal():
        if placement is None:
            return  # no rank: torchrun's agent, or a program beside the job
        if placement.local_rank is None:
            raise ValueError(f"{VARIABLE}={text}: {placement.launcher} does not tell the rank on the node")
        local_rank, local_size = str(placement.local_rank), str(placement.local_size or "")
    ranks = max(int(local_rank) + 1, int(local_size) if local_size.isdecimal() else 0)
    gpus = visible_gpus(env)
    if (sentence := shortage(gpus, int(text), ranks)) is not None:
        raise ValueError(f"{VARIABLE}={text}: {sentence}")
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if env is os.environ and cuda is not None and cuda.is_initialized():
        raise ValueError(f"{VARIABLE}={text}: CUDA is in use already, import torch or mpi_backend earlier")
    env["CUDA_VISIBLE_DEVICES"] = gpus[int(local_rank) // int(text)]
    env[SETTLED] = local_rank
    if "LOCAL_RANK" in env:  # not in a job of one rank: it gets its variables later, and they are 0
        env["LOCAL_RANK"] = "0"
