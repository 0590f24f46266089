"""Compiles csrc/ against the torch that is installed, into build/simgpu: once for all ranks and all runs.

It takes what the package's own build takes, a C++ compiler and the headers of torch. An object is named after
all that went into it, so that a change compiles what it touches, and an old library is never loaded.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.utils import cpp_extension

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
CORE = CHECKOUT / "csrc"
BUILD = CHECKOUT / "build" / "simgpu"
# What the simulated device is made of; the kernels without those for newer instruction sets.
CORE_SOURCES = ("common/*.cpp", "device/kernels/*.cpp", "device/host/*.cpp", "device/sim/*.cpp")
# -ffp-contract: as for the package, whose bits these kernels must give.
OPTIONS = (
    *("-std=c++20", "-O1", "-fPIC", "-pthread", "-ffp-contract=off", "-fvisibility=hidden"),
    *("-Wall", "-Wno-unused-parameter", "-DAT_PER_OPERATOR_HEADERS"),
    f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
)


def library() -> Path:
    """The compiled library. Whoever comes first compiles it, others wait for that."""
    compiler = [
        *shlex.split(os.environ.get("CMAKE_CXX_COMPILER_LAUNCHER", "")),
        *shlex.split(os.environ.get("CXX", "c++")),
    ]
    include = [f"-I{CORE}", *(word for path in cpp_extension.include_paths() for word in ("-isystem", path))]
    sources = sorted([*(HERE / "csrc").glob("*.cpp"), *(p for s in CORE_SOURCES for p in CORE.glob(s))])
    headers = sorted(
        [
            *(HERE / "csrc").glob("*.hpp"),
            *(p for d in ("common", "device") for p in CORE.glob(f"{d}/**/*.hpp")),
        ]
    )
    common = [*compiler, *OPTIONS, *include]
    shared = _digest([*common, torch.__version__], headers)
    objects = {source: BUILD / f"{source.stem}-{_digest([shared], [source])}.o" for source in sources}
    result = BUILD / f"libsimgpu-{_digest(str(path) for path in objects.values())}.so"
    if result.exists():
        return result
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            _build(common, objects, result)
    return result


def _build(compile_command: list[str], objects: dict[Path, Path], result: Path) -> None:
    began = time.monotonic()
    missing = [(source, object) for source, object in objects.items() if not object.exists()]
    print(f"simgpu: compiling {len(missing)} files into {BUILD}", file=sys.stderr, flush=True)

    def compile_one(job: tuple[Path, Path]) -> None:
        _run([*compile_command, "-c", str(job[0])], job[1])

    workers = int(os.environ.get("MAX_JOBS", 0)) or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(compile_one, missing))
    libraries = [f"-L{path}" for path in cpp_extension.library_paths()] + ["-ltorch", "-ltorch_cpu", "-lc10"]
    # Without the launcher of the compiler, which may know nothing of linking.
    link = shlex.split(os.environ.get("CXX", "c++"))
    _run(
        [*link, "-shared", "-pthread", *map(str, objects.values()), *libraries, "-Wl,--no-undefined"], result
    )
    print(f"simgpu: compiled in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _run(command: list[str], output: Path) -> None:
    """The output appears when it is whole: a build may be killed."""
    unfinished = output.with_suffix(".unfinished")
    done = subprocess.run([*command, "-o", str(unfinished)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    unfinished.rename(output)


def _digest(words: Iterable[str], files: Iterable[Path] = ()) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    for file in files:
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]
