# Written by `make stubs`.
"""What commands and tests of mpi_backend use, and no job."""

from __future__ import annotations

from . import raw_mpi, schedule

__all__: list[str] = ["raw_mpi", "schedule"]
