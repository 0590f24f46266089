"""Builds tests/fakecuda, the software CUDA and torch's device on it, once for all ranks and runs.

Uses the package's build folder and tools, and links the object files of its CUDA library again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

CHECKOUT = Path(__file__).resolve().parents[2]
BUILD = CHECKOUT / "build" / f"{sys.implementation.cache_tag}-ninja"
FOLDER = BUILD / "fakecuda"
NCCL = FOLDER / "nccl" / "libnccl.so.2"  # built with the rest; for LD_PRELOAD
INPUTS = ("csrc/common", "csrc/device", "csrc/transport/nccl", "tests/fakecuda")


def missing() -> str | None:
    """Why it cannot be built here, or None."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return "the software CUDA switches between threads on x86-64 only"
    if not (BUILD / "CMakeCache.txt").exists():
        return f"the package was not built in {BUILD}"
    if not _setting("MPI_GDR_NVCC"):
        return "the package was built without nvcc, which makes the kernels of the software CUDA"
    return None


def compiled() -> Path:
    """The library; the first caller rebuilds it after changes."""
    if why := missing():
        raise RuntimeError(f"simgpu: {why}")
    stamp = FOLDER / f"built-{_digest(torch.__version__, _inputs())}"
    if not stamp.exists():
        with _alone():
            if not stamp.exists():
                _build("simgpu")
                stamp.touch()
    return FOLDER / "libsimgpu.so"


def program(target: str) -> Path:
    """A test program of tests/fakecuda, rebuilt after changes."""
    with _alone():
        _build(target)
    return next(path for path in (FOLDER / target, BUILD / "tests/fakecuda" / target) if path.exists())


def nvcc() -> Path:
    return Path(_setting("MPI_GDR_NVCC"))


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    with open(BUILD / "lock", "w") as lock:  # make holds it, too
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(target: str) -> None:
    began = time.monotonic()
    print(f"{target}: compiling into {FOLDER}", file=sys.stderr, flush=True)
    cmake = _setting("CMAKE_COMMAND")
    workers = int(os.environ.get("MAX_JOBS", 0)) or len(os.sched_getaffinity(0))
    if _setting("MPI_GDR_TESTS") != "ON":
        _run([cmake, "-DMPI_GDR_TESTS=ON", str(BUILD)])
    _run([cmake, "--build", str(BUILD), "--target", target, "--parallel", str(workers)])
    print(f"{target}: compiled in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def _setting(name: str) -> str:
    found = re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found[1] if found else ""


def _inputs() -> list[Path]:
    paths = sorted(path for folder in INPUTS for path in (CHECKOUT / folder).rglob("*"))
    sources = (".cpp", ".hpp", ".cu", ".cuh", ".txt", ".map", "ptx.py")
    return [path for path in paths if path.name.endswith(sources) and not path.name.startswith("test_")]


def _digest(word: str, files: Iterable[Path]) -> str:
    digest = hashlib.sha256(word.encode())
    for file in files:
        digest.update(f"\0{file}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]
