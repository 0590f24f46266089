"""CUDA_DEVICE_MAX_CONNECTIONS: how many hardware queues the streams of a rank share.

A stream that waits for another rank holds up all streams of its hardware queue. CUDA's default is 8, which a
training program and our own streams share; there are 32.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
MOST = "32"
MPS_FOLDER = "/tmp/nvidia-mps"  # of a daemon without other settings


def settle(env: MutableMapping[str, str]) -> None:
    """Asks for all of them, if the process is a rank, the user chose none, and CUDA has not read it yet."""
    if VARIABLE in env or "RANK" not in env:
        return
    # What one client of MPS takes the others lack: with too few of them left, no more clients can start.
    if Path(env.get("CUDA_MPS_PIPE_DIRECTORY", MPS_FOLDER)).exists():
        return
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if env is os.environ and cuda is not None and cuda.is_initialized():
        return
    env[VARIABLE] = MOST
