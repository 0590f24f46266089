"""setup.py's record of the build; reading it needs neither torch nor the extension nor MPI."""

from __future__ import annotations

import json
import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TypedDict, cast

HERE = Path(__file__).resolve().parent
REBUILD = "`pip install --no-build-isolation --no-deps --force-reinstall .` in a checkout of mpi-gdr"
# torch's binary interface changes with its minor version: there is an extension for each.
EXTENSION = re.compile(r"_C\.torch(\d+)\.(\d+)" + re.escape(EXTENSION_SUFFIXES[0]))


class CudaBuild(TypedDict):
    """Toolkit and target GPUs of the CUDA library."""

    version: str
    architectures: list[str]


class BuildInfo(TypedDict, total=False):
    """The record; empty if there is none. `no_cuda`: why there is no CUDA library."""

    mpi_abis: list[str]
    cuda: CudaBuild | None
    no_cuda: str | None
    commit: str | None
    compiler: str | None


def build_info() -> BuildInfo:
    """Reads the record beside the extension."""
    try:
        return cast(BuildInfo, json.loads((HERE / "_build_info.json").read_text()))
    except OSError:
        return {}


def extensions(package: Path = HERE) -> dict[str, Path]:
    """Extensions for this Python in a folder of the package: {torch's minor version: file}, oldest first."""
    try:
        found = [(match, file) for file in package.iterdir() if (match := EXTENSION.fullmatch(file.name))]
    except OSError:
        return {}
    found.sort(key=lambda each: (int(each[0][1]), int(each[0][2])))
    return {f"{match[1]}.{match[2]}": file for match, file in found}
