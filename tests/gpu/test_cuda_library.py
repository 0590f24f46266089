"""The built CUDA library: contents, dependencies, exports; the extension's report on it. Needs no device."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import sys
from pathlib import Path

import pytest
from support.processes import captured

import mpi_backend
from mpi_backend import info
from mpi_backend.build_info import build_info

LIBRARY = Path(mpi_backend.__file__).parent / "libmpi_gdr_cuda.so"
BUILT = build_info().get("cuda")
built = pytest.mark.skipif(BUILT is None, reason="this package was built without nvcc, so without CUDA")
needs_readelf = pytest.mark.skipif(not shutil.which("readelf"), reason="there is no readelf")
has_driver = any(
    Path(folder, "libcuda.so.1").exists() for folder in ("/usr/lib64", "/usr/lib/x86_64-linux-gnu")
)
without_driver = pytest.mark.skipif(has_driver, reason="this machine has a driver of NVIDIA")


REMOVED = ("MPI_GDR_CUDA", "CUDA_DEVICE_MAX_CONNECTIONS")


def cuda_info(**environment: str) -> dict:
    """A new process's report, as each loads the library once."""
    code = "import json; from mpi_backend.extension import _C; print(json.dumps(_C.cuda_info()))"
    env = {k: v for k, v in os.environ.items() if k not in REMOVED} | environment
    done = captured([sys.executable, "-c", code], check=False, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def readelf(*options: str) -> str:
    return captured(["readelf", "--wide", *options, LIBRARY]).stdout


def device_code(path: Path) -> set[tuple[str, int]]:
    """{("machine", 80), ("PTX", 90)} from the headers of a file's fat binaries."""
    data = path.read_bytes()
    magic, kinds = struct.pack("<I", 0xBA55ED50), {1: "PTX", 2: "machine"}
    found = set()
    at = data.find(magic)
    while at >= 0:
        header, size = struct.unpack_from("<HQ", data, at + 6)
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, entry_header, payload = struct.unpack_from("<HHIQ", data, entry)
            (architecture,) = struct.unpack_from("<I", data, entry + 28)
            found.add((kinds[kind], architecture))
            entry += entry_header + payload
        at = data.find(magic, end)
    return found


def test_the_record_and_the_file_agree() -> None:
    assert LIBRARY.exists() == (BUILT is not None)


@built
def test_it_loads_and_reports_what_it_was_built_for() -> None:
    found = cuda_info()
    assert found["library"] == str(LIBRARY)
    assert found["built"] == f"CUDA {BUILT['version']}: {', '.join(BUILT['architectures'])}"


@built
@without_driver
def test_without_a_driver_there_is_no_device_and_a_reason() -> None:
    found = cuda_info()
    assert found["devices"] == []
    assert found["problem"] == "no NVIDIA driver (libcuda.so.1) on this machine"


@pytest.mark.parametrize(("asked", "too_few"), [(None, False), ("32", False), ("8", False), ("7", True)])
def test_hardware_queues_for_our_streams_and_one_of_the_program(asked, too_few) -> None:
    shortage = cuda_info(**({"CUDA_DEVICE_MAX_CONNECTIONS": asked} if asked else {}))["queues"]
    assert shortage is None or shortage.startswith("CUDA_DEVICE_MAX_CONNECTIONS=7: 7 streams of this package")
    assert bool(shortage) == too_few


def test_off_loads_nothing() -> None:
    found = cuda_info(MPI_GDR_CUDA="off")
    assert found["built"] is None and found["devices"] == [] and found["problem"] == "MPI_GDR_CUDA=off"


@without_driver
def test_on_is_an_error_where_cuda_cannot_be_used() -> None:
    problem = cuda_info(MPI_GDR_CUDA="on")["problem"]
    assert problem.startswith("MPI_GDR_CUDA=on, but CUDA cannot be used: ")
    assert ("libcuda.so.1" if BUILT else "not built") in problem


def test_a_value_that_is_none() -> None:
    with pytest.raises(AssertionError, match="MPI_GDR_CUDA=perhaps is not valid: expected auto, on or off"):
        cuda_info(MPI_GDR_CUDA="perhaps")


@built
@needs_readelf
def test_it_needs_neither_runtime_nor_driver_and_names_no_folder() -> None:
    dynamic = readelf("-d")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    assert needed and not [name for name in needed if name.startswith(("libcuda", "libtorch", "libmpi"))]
    assert "PATH)" not in dynamic


@built
@needs_readelf
def test_it_shows_one_symbol() -> None:
    rows = [row.split() for row in readelf("--dyn-syms").splitlines()]
    shown = [
        row[7] for row in rows if len(row) > 7 and row[4] in ("GLOBAL", "WEAK", "UNIQUE") and row[6] != "UND"
    ]
    assert shown == ["mpi_gdr_device_library"]


@built
def test_it_has_code_for_each_architecture_and_ptx_of_the_oldest() -> None:
    numbers = [int(name[3:]) for name in BUILT["architectures"] if name.startswith("sm_")]
    assert device_code(LIBRARY) == {("machine", n) for n in numbers} | {("PTX", min(numbers))}


def test_info_shows_what_was_built() -> None:
    record = {"cuda": {"version": "13.0", "architectures": ["sm_80", "sm_90", "PTX"]}}
    built = "with 13.0 for sm_80, sm_90, PTX"
    assert info.cuda_build(record) == {"built": built, "devices": [], "problem": None, "nccl": None}
    assert info.cuda_build({}) == {"built": None, "devices": [], "problem": None, "nccl": None}
    record = {"cuda": None, "no_cuda": "no nvcc found"}
    assert info.cuda_build(record) == {"built": None, "devices": [], "problem": "no nvcc found", "nccl": None}
