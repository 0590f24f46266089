"""What setup.py has recorded of the build: readable without torch, without the extension and without MPI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict, cast


class CudaBuild(TypedDict):
    """The toolkit that the CUDA library was built with, and for which GPUs."""

    version: str
    architectures: list[str]


class BuildInfo(TypedDict, total=False):
    """The record; empty where there is none."""

    torch_version: str
    mpi_abis: list[str]
    cuda: CudaBuild | None
    commit: str | None
    compiler: str | None


def build_info() -> BuildInfo:
    """The record that setup.py left beside the extension."""
    try:
        return cast(BuildInfo, json.loads(Path(__file__).with_name("_build_info.json").read_text()))
    except OSError:
        return {}
