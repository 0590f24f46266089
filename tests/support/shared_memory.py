"""MPI's remains in shared memory: its files have names in /dev/shm until all ranks have attached."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

SECONDS = 60  # seconds for a concurrent job to pass MPI_Init
NAMES = ("mpich_shm*", "mpich_shar_tmp*")  # MPICH 5; MPICH 4.0 and MVAPICH 4.0


def files() -> set[Path]:
    return {path for name in NAMES for path in Path("/dev/shm").glob(name)}


@contextlib.contextmanager
def assert_no_new_files() -> Iterator[None]:
    """Fails if the block leaves new files behind. Files of concurrent jobs disappear within SECONDS."""
    before = files()
    yield
    left = files() - before
    deadline = time.monotonic() + SECONDS
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = {path for path in left if path.exists()}
    assert not left, f"left in shared memory: {sorted(map(str, left))}"
