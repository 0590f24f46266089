# Written by `make stubs`.
"""For commands and tests of mpi_backend, not for jobs."""

from __future__ import annotations

from . import raw_mpi, schedule

__all__: list[str] = ["raw_mpi", "schedule"]
