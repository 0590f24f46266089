"""Extension of commands and tests: `from .tools import schedule` raises ImportError with the remedy if it is
missing. Needs neither torch nor MPI; raw_mpi uses the MPI that mpi_backend.extension has loaded."""

from .build_info import REBUILD

try:
    from ._tools import raw_mpi, schedule
except ImportError as error:
    raise ImportError(
        f"mpi-gdr cannot load the extension of its commands ({error}): rebuild it with {REBUILD}."
    ) from error

__all__ = ["raw_mpi", "schedule"]
