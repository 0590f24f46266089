"""CUDA_DEVICE_MAX_CONNECTIONS: how many of the GPU's 32 hardware queues the streams of a rank share.

A stream that waits for another rank blocks all streams of its hardware queue. CUDA's default is 8, for the
program's streams and ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
MAX_QUEUES = "32"
MPS_FOLDER = "/tmp/nvidia-mps"  # of a daemon with default settings


def apply(env: MutableMapping[str, str]) -> None:
    """Requests all queues if the process is a rank, the user chose no number and CUDA has not started."""
    if VARIABLE in env or "RANK" not in env:
        return
    # Clients of MPS share the queues: with too few left, no more clients can start.
    if Path(env.get("CUDA_MPS_PIPE_DIRECTORY", MPS_FOLDER)).exists():
        return
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if env is os.environ and cuda is not None and cuda.is_initialized():
        return
    env[VARIABLE] = MAX_QUEUES
