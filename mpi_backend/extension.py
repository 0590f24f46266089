"""The extension, checked: `from .extension import _C` raises ImportError with the reason and the cure where
`mpi_backend._C` or an MPI cannot be loaded here.

Imports torch. MPI is loaded (mpi_library.py says which), and not started.
"""

from __future__ import annotations

import atexit
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch  # first: the extension finds the symbols of torch in what this loads

from . import mpi_library
from .build_info import build_info

__all__ = ["MPI", "_C"]

REBUILD = "`pip install --no-build-isolation --no-deps --force-reinstall .` in a checkout of mpi-gdr"


def check_torch_version(built_for: str | None, running: str) -> None:
    """torch keeps no binary interface across minor versions: the extension fits the one that it was built
    for."""
    if built_for is not None and built_for.split(".")[:2] != running.split(".")[:2]:
        raise ImportError(
            f"mpi-gdr was built for torch {built_for} and this is torch {running}: "
            f"rebuild it with {REBUILD}, or install torch {'.'.join(built_for.split('.')[:2])}.*."
        )


def has_extension(package: Path) -> bool:
    """Whether one for this Python is in a folder of the package."""
    return any(os.path.exists(package / f"_C{suffix}") for suffix in EXTENSION_SUFFIXES)  # no PermissionError


def hidden_package(here: Path) -> Path | None:
    """The folder of the package with an extension that the one in `here`, without, hides on sys.path."""
    if has_extension(here):
        return None
    behind = (Path(entry).resolve() / here.name for entry in sys.path)
    return next(filter(has_extension, behind), None)


def explain_import_error(message: str) -> str:
    """Turns what the dynamic loader says into what the user can do about it."""
    if "No module named" in message or "cannot import name" in message:
        here = Path(__file__).resolve().parent
        if (hidden := hidden_package(here)) is not None:
            return (
                f"mpi_backend was imported from {here}, a source folder without the compiled extension, "
                f"which hides the installed package in {hidden}: start in another folder, with a script that "
                f"is not in {here.parent}, and without {here.parent} on PYTHONPATH."
            )
        return f"mpi-gdr has no compiled extension here ({message}): build it with {REBUILD}."
    return f"mpi-gdr cannot load its extension ({message}): rebuild it with {REBUILD}."


def load_mpi() -> mpi_library.MpiLibrary:
    """What the extension has loaded. mpi4py, imported later, takes the same."""
    library = mpi_library.find()
    try:
        _C.load_mpi(library.path)
    except (ValueError, RuntimeError) as error:
        raise ImportError(f"{error} ({library.path} is {library.origin})") from error
    os.environ.setdefault("MPI4PY_LIBMPI", library.path)
    return library


def _finalize(owner: int) -> None:
    if os.getpid() == owner:  # a forked DataLoader worker inherits this handler, but MPI is not its own
        # After an uncaught exception there must be no wait: the others may wait for this rank. Its
        # exit status tells the launcher to end them.
        error = getattr(sys, "last_value", None)
        failure = "" if error is None else f"an uncaught exception, {type(error).__name__}: {error}"
        _C.finalize(" ".join(failure.split())[:300])


# The record is asked before the extension is: with another torch it would fail on a mangled symbol.
check_torch_version(build_info().get("torch_version"), str(torch.__version__))
try:
    from . import _C

    if _C.__file__ is None:  # the folder of its types alone
        raise ImportError("No module named 'mpi_backend._C'")
except ImportError as error:
    raise ImportError(explain_import_error(str(error))) from error
check_torch_version(_C.__torch_version__, str(torch.__version__))
MPI = load_mpi()
atexit.register(_finalize, os.getpid())
