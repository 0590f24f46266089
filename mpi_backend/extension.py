"""`from .extension import _C` raises ImportError with reason and remedy if `mpi_backend._C` or an MPI cannot
be loaded. Imports torch. Loads MPI (see mpi_library.py) without starting it."""

from __future__ import annotations

import atexit
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch  # first: it loads torch's symbols for the extension

from . import mpi_library
from .build_info import HERE, REBUILD, extensions

__all__ = ["MPI", "_C"]


def extension_for(running: str, found: dict[str, Path]) -> Path:
    """The extension for this version of torch. Raises ImportError with the remedy if there is none."""
    if not found:
        behind = next((p for entry in sys.path if extensions(p := Path(entry).resolve() / HERE.name)), None)
        if behind:
            raise ImportError(
                f"mpi_backend was imported from {HERE}, a source folder without the compiled extension, "
                f"which hides the installed package in {behind}: start in another folder, with a script that "
                f"is not in {HERE.parent}, and without {HERE.parent} on PYTHONPATH."
            )
        raise ImportError(f"mpi-gdr has no compiled extension for this Python: build it with {REBUILD}.")
    minor = ".".join(running.split(".")[:2])
    if minor not in found:
        raise ImportError(
            f"mpi-gdr was built for torch {', '.join(found)} and this is torch {running}: install "
            f"one of those, another release of mpi-gdr, or rebuild this one with {REBUILD}."
        )
    return found[minor]


def load(path: Path) -> ModuleType:
    """Imports the extension as `mpi_backend._C`."""
    name = f"{__package__}._C"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    try:
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        sys.modules.pop(name, None)
        raise ImportError(
            f"mpi-gdr cannot load its extension ({error}): rebuild it with {REBUILD}."
        ) from error
    return module


def load_mpi() -> mpi_library.MpiLibrary:
    """Loads MPI into the extension; a later import of mpi4py takes the same."""
    library = mpi_library.find()
    try:
        _C.load_mpi(library.path)
    except (ValueError, RuntimeError) as error:
        raise ImportError(f"{error} ({library.path} is {library.origin})") from error
    os.environ.setdefault("MPI4PY_LIBMPI", library.path)
    return library


def _finalize(owner: int) -> None:
    if os.getpid() == owner:  # a forked DataLoader worker inherits this handler, but does not own MPI
        # Must not wait after an uncaught exception: other ranks may wait for this one, whose exit status
        # makes the launcher end them.
        error = getattr(sys, "last_value", None)
        failure = "" if error is None else f"an uncaught exception, {type(error).__name__}: {error}"
        _C.finalize(" ".join(failure.split())[:300])


if TYPE_CHECKING:
    from . import _C
else:
    _C = load(extension_for(str(torch.__version__), extensions(HERE)))
MPI = load_mpi()
atexit.register(_finalize, os.getpid())
