"""`python -m mpi_backend` is the command `mpi-gdr`. Commands start ranks with the path of this file."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path

PACKAGE = "mpi_backend"


def leave_first_folder() -> None:
    """Removes the first entry that Python put on sys.path: the current folder (-m), where a checkout hides
    the installed package, or this file's folder (a path). Python 3.10 has no option for it."""
    first = Path(sys.path[0]).resolve() if sys.path else None
    # Else this was called through runpy, or Python was started with -P.
    if first == Path(__file__).resolve().parent or first == Path.cwd():
        del sys.path[0]
    found = PathFinder.find_spec(PACKAGE)
    if found is None or found.origin is None:  # not installed; a folder without __init__.py is not a package
        sys.path.append(str(Path(__file__).resolve().parents[1]))
    elif PACKAGE in sys.modules and sys.modules[PACKAGE].__file__ != found.origin:
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


if __name__ == "__main__":
    leave_first_folder()
    from mpi_backend.cli import main

    sys.exit(main())
