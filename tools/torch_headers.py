"""Fetches the headers of a torch release without installing it: pip gives the wheel's address, and HTTP range
requests read only `torch/include` (about 15 MB instead of 500)."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

HEADERS = "torch/include/"


class RemoteFile(io.RawIOBase):
    """A seekable file over HTTP; reads and caches whole blocks."""

    BLOCK = 1 << 21

    def __init__(self, url: str) -> None:
        self._url, self._position, self._blocks = url, 0, dict[int, bytes]()
        with self._request(0, 0) as response:
            if response.status != 206:
                raise SystemExit(f"{url}: its host does not answer range requests, as these headers need")
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
    """The address from which pip would load this torch; reads the wheel's metadata only."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps"),
                *("--ignore-installed", "--report", str(report), f"torch=={version}"),
            ],
            check=True,
            env={**os.environ, "PIP_CONSTRAINT": os.devnull},  # constraints of the environment do not apply
        )
        return json.loads(report.read_text())["install"][0]["download_info"]["url"]


def headers(version: str, folder: Path) -> Path:
    """Fetches the headers unless `folder` has them. Returns the release's torch/include."""
    target = folder / version
    if not target.exists():
        partial = folder / f"{version}.new"
        shutil.rmtree(partial, ignore_errors=True)
        url = wheel_address(version)
        # pip also finds wheels in folders (find-links).
        local = urllib.request.url2pathname(url.removeprefix("file://")) if url.startswith("file:") else None
        with zipfile.ZipFile(local or io.BufferedReader(RemoteFile(url), 1 << 20)) as wheel:
            members = [member for member in wheel.infolist() if member.filename.startswith(HEADERS)]
            for member in sorted(members, key=lambda m: m.header_offset):
                wheel.extract(member, partial)
        partial.rename(target)
    return target / HEADERS
