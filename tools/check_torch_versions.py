"""Compiles csrc/torch against the headers of several torch releases, without installing any of them.

    python tools/check_torch_versions.py [--folder build/torch] [--jobs N] 2.11.0 2.12.1 ...

Of each wheel only `torch/include` is read: pip is asked for the wheel's address, and the parts of the file
that hold the headers are fetched by HTTP range requests (about 15 MB instead of 500). They are kept in the
folder. Every file is checked with -fsyntax-only and -Werror against the headers of this Python. The status
is 1 if a file of any release does not compile. What links and runs is not shown by this.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADERS = "torch/include/"
# What CMake passes: values do not matter here.
DEFINES = (
    'TORCH_EXTENSION_NAME=_C MPI_GDR_TORCH_VERSION="" MPI_GDR_VERSION="" MPI_GDR_MPICC="" MPI_GDR_MPIEXEC=""'
)


class RemoteFile(io.RawIOBase):
    """A file behind HTTP as a seekable one; reads whole blocks and keeps them."""

    BLOCK = 1 << 21

    def __init__(self, url: str) -> None:
        self._url, self._position, self._blocks = url, 0, dict[int, bytes]()
        with self._request(0, 0) as response:
            if response.status != 206:
                raise SystemExit("the index does not answer range requests: install that torch to check it")
            self._size = int(response.headers["Content-Range"].rpartition("/")[2])

    def _request(self, first: int, last: int):
        request = urllib.request.Request(self._url, headers={"Range": f"bytes={first}-{last}"})
        return urllib.request.urlopen(request, timeout=180)

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            first = number * self.BLOCK
            with self._request(first, min(first + self.BLOCK, self._size) - 1) as response:
                self._blocks[number] = response.read()
        return self._blocks[number]

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer) -> int:
        number, offset = divmod(self._position, self.BLOCK)
        piece = self._block(number)[offset : offset + len(buffer)] if self._position < self._size else b""
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)


def wheel_address(version: str) -> str:
    """Where pip would load this torch from; it reads the wheel's metadata only."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps"),
                *("--ignore-installed", "--report", str(report), f"torch=={version}"),
            ],
            check=True,
        )
        return json.loads(report.read_text())["install"][0]["download_info"]["url"]


def headers(version: str, folder: Path) -> Path:
    """The folder that holds torch/include of this release."""
    target = folder / version
    if not target.exists():
        fresh = folder / f"{version}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        url = wheel_address(version)
        # pip also finds wheels in folders (find-links).
        local = urllib.request.url2pathname(url.removeprefix("file://")) if url.startswith("file:") else None
        with zipfile.ZipFile(local or io.BufferedReader(RemoteFile(url), 1 << 20)) as wheel:
            members = [member for member in wheel.infolist() if member.filename.startswith(HEADERS)]
            for member in sorted(members, key=lambda m: m.header_offset):
                wheel.extract(member, fresh)
        fresh.rename(target)
    return target / HEADERS


def compiler(include: Path) -> list[str]:
    """The command without a source."""
    command = [
        *shlex.split(os.environ.get("CXX", "g++")),
        "-std=c++20",
        "-fPIC",
        "-Wall",
        "-Wno-unused-parameter",
    ]
    command += ["-Werror", "-pthread", f"-I{ROOT / 'csrc'}"]
    for system in (include, include / "torch/csrc/api/include", sysconfig.get_path("include")):
        command += ["-isystem", str(system)]
    return command + [f"-D{define}" for define in DEFINES.split()]


def precompile(sources: list[Path], include: Path) -> Path:
    """One header with what the sources include of others, compiled once: most of the time goes there."""
    text = "".join(source.read_text() for source in (*sources, *(ROOT / "csrc" / "torch").glob("*.hpp")))
    header = include.parent / "external.hpp"
    names = sorted(set(re.findall(r"^#include (<[\w/]+\.h(?:pp)?>)", text, re.MULTILINE)))
    header.write_text("".join(f"#include {name}\n" for name in names))
    command = [*compiler(include), "-x", "c++-header", str(header), "-o", f"{header}.gch"]
    subprocess.run(command, check=True)
    return header


def compile_one(include: Path, header: Path, source: Path) -> tuple[Path, str]:
    """(source, the compiler's messages if it failed)."""
    command = [*compiler(include), "-fsyntax-only", "-include", str(header), str(source)]
    result = subprocess.run(command, capture_output=True, text=True)
    return source, result.stderr if result.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "torch", help="keeps the headers")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="compilers at once")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    sources = sorted((ROOT / "csrc" / "torch").glob("*.cpp"))
    failed = 0
    for version in options.versions:
        include = headers(version, options.folder)
        start = time.monotonic()
        header = precompile(sources, include)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            outcomes = list(pool.map(functools.partial(compile_one, include, header), sources))
        broken = [(source, text) for source, text in outcomes if text]
        for source, text in broken:
            print(f"torch {version}: {source.relative_to(ROOT)} does not compile:\n{text[:6000]}", flush=True)
        took = time.monotonic() - start
        good = len(sources) - len(broken)
        print(f"torch {version}: {good} of {len(sources)} files compile ({took:.0f} s)", flush=True)
        failed += len(broken)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
