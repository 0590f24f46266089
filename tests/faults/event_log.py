"""For the programs of this folder: events as JSON lines, with one clock for all processes of a machine."""

from __future__ import annotations

import json
import os
import time


class Log:
    """rank<r>.<attempt>.jsonl in the folder."""

    def __init__(self, folder: str | os.PathLike, rank: int, attempt: str = "0") -> None:
        path = os.path.join(folder, f"rank{rank}.{attempt}.jsonl")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __call__(self, event: str, **fields: object) -> None:
        line = json.dumps({"event": event, "time": time.monotonic(), **fields})
        os.write(self._file, f"{line}\n".encode())


def shared_memory(pid: int | str = "self") -> list[str]:
    """Files of /dev/shm that the process maps, including unlinked ones."""
    with open(f"/proc/{pid}/maps") as maps:
        names = {line.split(maxsplit=5)[5].strip() for line in maps if "/dev/shm/" in line}
    return sorted(name.removesuffix(" (deleted)") for name in names)
