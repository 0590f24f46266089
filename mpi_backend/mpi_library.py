"""Finds the MPI library of this process, without torch and without starting MPI."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

VARIABLE = "MPI_GDR_MPI_LIBRARY"
MPICH = ("libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12")  # MPICH's, Debian's, Cray's
OPEN_MPI = ("libmpi.so.40",)
ALL = (*MPICH, *OPEN_MPI, "libmpi_abi.so.1", "libmpi_abi.so.0")  # the last two: the ABI of MPI 5.0
# Excludes the bindings of other languages: libmpicxx, libmpifort, ...
FILE = re.compile(r"lib(mpi|mpich|mpi_(abi|cray|intel|nvidia|amd|gnu_?\d*))\.so[.\d]*")
# {program that starts ranks: libraries that it can start}
DAEMONS = {
    **dict.fromkeys(("hydra_pmi_proxy", "hydra_bstrap_proxy", "mpiexec.hydra", "mpispawn"), MPICH),
    **dict.fromkeys(("prted", "prterun", "prte", "orted", "orterun"), OPEN_MPI),
}
# Relative to an installation's prefix, the parent of the program's folder.
LIBRARY_FOLDERS = ("lib", "lib64", "lib/release", "lib/*-linux-gnu", "lib64/*")
ANCESTORS = 8  # examined at most: wrappers may stand between a rank and its launcher


class MpiLibrary(NamedTuple):
    """A library's file, and the rule that found it."""

    path: str
    origin: str


class MpiLibraryError(ImportError):
    """No MPI library, or more than one."""


def find(env: Mapping[str, str] = os.environ) -> MpiLibrary:
    """The first of: the one loaded already (by mpi4py, say), MPI_GDR_MPI_LIBRARY, the launcher's,
    LD_LIBRARY_PATH's, the dynamic loader's, the mpich wheel's beside this Python. Raises MpiLibraryError."""
    asked = env.get(VARIABLE, "").strip()
    loaded = loaded_libraries()
    if len(loaded) > 1:
        raise MpiLibraryError(
            f"this process has loaded {len(loaded)} MPI libraries, {' and '.join(loaded)}, which do not work "
            f"beside each other: name one in {VARIABLE} and, for mpi4py, in MPI4PY_LIBMPI"
        )
    if loaded:
        if asked and not is_same_file(asked, loaded[0]):
            raise MpiLibraryError(
                f"{VARIABLE}={asked}, but this process has already loaded {loaded[0]}: unset {VARIABLE}, or "
                f"set MPI4PY_LIBMPI={asked} where mpi4py is imported first"
            )
        return MpiLibrary(loaded[0], "already loaded by this process")
    if asked:
        return MpiLibrary(asked, VARIABLE)
    if path := next(beside_launcher(), None):
        return MpiLibrary(path, "beside the launcher")
    if path := next(existing(map(Path, env.get("LD_LIBRARY_PATH", "").split(":")), ALL), None):
        return MpiLibrary(path, "on LD_LIBRARY_PATH")
    if path := next(filter(None, map(open_by_name, ALL)), None):
        return MpiLibrary(path, "found by the dynamic loader")
    if path := next(existing([Path(sys.prefix, "lib")], ALL), None):
        return MpiLibrary(path, "beside this Python")
    raise MpiLibraryError(
        "there is no MPI library: `pip install mpich`, load your site's module, or set "
        f"{VARIABLE}=/path/to/libmpi.so.12"
    )


def loaded_libraries() -> list[str]:
    """Files of MPI libraries that this process has mapped."""
    maps = Path("/proc/self/maps").read_text(errors="replace")
    files = {line.split(maxsplit=5)[5] for line in maps.splitlines() if "libmpi" in line}
    return sorted(file for file in files if FILE.fullmatch(Path(file).name))


def is_same_file(asked: str, loaded: str) -> bool:
    """Whether `asked`, a path or a name for the loader, is the loaded file."""
    found = asked if "/" in asked else open_by_name(asked)
    return bool(found) and os.path.realpath(found) == os.path.realpath(loaded)


def beside_launcher() -> Iterator[str]:
    """Libraries in the installation of the program that started this process."""
    for program in ancestors():
        if program.name in DAEMONS:
            yield from existing(folders_of(program.parent.parent), DAEMONS[program.name])


def ancestors() -> Iterator[Path]:
    """Programs of this process's ancestors, nearest first, up to one of another user."""
    pid = os.getppid()
    for _ in range(ANCESTORS):
        if pid <= 1:
            return
        try:
            yield Path(os.readlink(f"/proc/{pid}/exe"))
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return
        pid = int(stat.rpartition(")")[2].split()[1])


def folders_of(prefix: Path) -> list[Path]:
    """Folders that may hold an installation's libraries."""
    return [folder for pattern in LIBRARY_FOLDERS for folder in sorted(prefix.glob(pattern))]


def existing(folders: Iterable[Path], names: Sequence[str]) -> Iterator[str]:
    """The existing files of these names, by folder."""
    yield from (str(folder / name) for folder in folders for name in names if (folder / name).exists())


def open_by_name(name: str) -> str:
    """The file that the dynamic loader finds, which stays loaded; "": none."""
    before = set(loaded_libraries())
    try:
        ctypes.CDLL(name)
    except OSError:
        return ""
    opened = [file for file in loaded_libraries() if file not in before]
    return opened[0] if opened else ""


def launchers_of(library: str) -> Iterator[str]:
    """Launchers in the library's installation, best first. Debian adds a suffix to their names."""
    path = Path(library)
    suffix = ".mpich" if path.name.startswith(("libmpich.", "libmpi.so.12")) else ".openmpi"
    names = [f"{name}{end}" for end in (suffix, ".hydra", "") for name in ("mpiexec", "mpirun")]
    for folder in (path.parent.parent, path.parent.parent.parent):
        yield from existing([folder / "bin"], names)
