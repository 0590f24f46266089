"""`python -m mpi_backend` runs `mpi-gdr`. Commands that start ranks run this file by its path instead."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path

PACKAGE = "mpi_backend"


def remove_first_folder_from_path() -> None:
    """Removes the folder that Python put first on sys.path: the current one (-m), where a checkout hides the
    installed package, or this file's (started by path). Python 3.10 has no option to prevent it."""
    first = Path(sys.path[0]).resolve() if sys.path else None
    # Python put no such folder there if it was started with -P, or if runpy called this.
    if first == Path(__file__).resolve().parent or first == Path.cwd():
        del sys.path[0]
    found = PathFinder.find_spec(PACKAGE)
    if found is None or found.origin is None:  # not installed; a folder without __init__.py is not a package
        sys.path.append(str(Path(__file__).resolve().parents[1]))
    elif PACKAGE in sys.modules and sys.modules[PACKAGE].__file__ != found.origin:
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


if __name__ == "__main__":
    remove_first_folder_from_path()
    from mpi_backend.cli import main

    sys.exit(main())
