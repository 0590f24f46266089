"""The choice of a process's MPI library, rule by rule, and errors."""

import os
import sys
from pathlib import Path

import pytest
from support import processes
from support.cases import cases

from mpi_backend import mpi_library
from mpi_backend.mpi_library import MpiLibrary, MpiLibraryError

WHEEL = Path(processes.mpiexec()).parents[1] / "lib"  # MPICH 5 with both of its ABIs


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    """No rule finds a library; tests change one rule each."""
    monkeypatch.setattr(mpi_library, "loaded_libraries", list)
    monkeypatch.setattr(mpi_library, "ancestors", lambda: iter(()))
    monkeypatch.setattr(mpi_library, "open_by_name", lambda name: "")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "python"))
    (tmp_path / "python" / "lib").mkdir(parents=True)
    return tmp_path


def test_none(nothing):
    with pytest.raises(MpiLibraryError, match=r"pip install mpich.*MPI_GDR_MPI_LIBRARY=/path/to"):
        mpi_library.find({})


def test_the_order_of_the_rules(nothing, monkeypatch):
    """Each added rule precedes the earlier ones."""

    def found(**env):
        return mpi_library.find(env)

    wheel = nothing / "python" / "lib" / "libmpi.so.12"
    wheel.touch()
    assert found() == MpiLibrary(str(wheel), "beside this Python")
    names = {"libmpi.so.40": "/usr/lib/libmpi.so.40"}
    monkeypatch.setattr(mpi_library, "open_by_name", lambda name: names.get(name, ""))
    assert found() == MpiLibrary("/usr/lib/libmpi.so.40", "found by the dynamic loader")
    module = nothing / "module"
    module.mkdir()
    (module / "libmpi.so.40").touch()
    path = f"/nowhere:{module}"
    assert found(LD_LIBRARY_PATH=path) == MpiLibrary(f"{module}/libmpi.so.40", "on LD_LIBRARY_PATH")
    (nothing / "site" / "lib64").mkdir(parents=True)
    (nothing / "site" / "lib64" / "libmpi.so.12").touch()
    ancestors = [Path("/bin/sh"), nothing / "site" / "bin" / "hydra_pmi_proxy"]
    monkeypatch.setattr(mpi_library, "ancestors", lambda: iter(ancestors))
    launched = MpiLibrary(f"{nothing}/site/lib64/libmpi.so.12", "beside the launcher")
    assert found(LD_LIBRARY_PATH=path) == launched
    chosen = found(LD_LIBRARY_PATH=path, MPI_GDR_MPI_LIBRARY="/mine/libmpi.so")
    assert chosen == MpiLibrary("/mine/libmpi.so", "MPI_GDR_MPI_LIBRARY")
    monkeypatch.setattr(mpi_library, "loaded_libraries", lambda: ["/other/libmpi.so.12.1"])
    assert found() == MpiLibrary("/other/libmpi.so.12.1", "already loaded by this process")


@cases("daemon, expected", ("hydra_pmi_proxy", "libmpich.so.12"), ("prted", "libmpi.so.40"), ("bash", None))
def test_a_launcher_has_its_own_family(nothing, monkeypatch, daemon, expected):
    """Debian keeps all MPIs in one folder."""
    folder = nothing / "usr" / "lib" / "x86_64-linux-gnu"
    folder.mkdir(parents=True)
    for name in ("libmpi.so.40", "libmpich.so.12"):
        (folder / name).touch()
    monkeypatch.setattr(mpi_library, "ancestors", lambda: iter([nothing / "usr" / "bin" / daemon]))
    assert next(mpi_library.beside_launcher(), None) == (str(folder / expected) if expected else None)


def test_the_programs_above_this_one():
    code = "from mpi_backend import mpi_library; print([each.name for each in mpi_library.ancestors()])"
    command = ["bash", "-c", f"{sys.executable} -c '{code}'; true"]
    output = processes.captured(command, cwd=Path(mpi_library.__file__).parents[1]).stdout
    assert output.startswith("['bash', 'python")


@cases(
    ("name", "is_mpi"),
    ("libmpi.so.12", True), ("libmpi.so.12.5.2", True), ("libmpich.so.12", True),
    ("libmpi_abi.so.1", True), ("libmpi_gnu_123.so.12", True), ("libmpicxx.so.12", False),
    ("libmpi_mpifh.so.40", False), ("libmpi_gdr_mpich.so", False), ("libmpifort.so.12", False),
)  # fmt: skip
def test_names_of_mpi_libraries(name, is_mpi):
    assert bool(mpi_library.FILE.fullmatch(name)) == is_mpi


LOADS = """
import ctypes, sys
for path in sys.argv[1:]: ctypes.CDLL(path)
import torch
from mpi_backend.extension import _C, MPI
from mpi_backend import mpi_library
print(MPI.origin, _C.mpi_info()["abi"], *mpi_library.loaded_libraries(), sep="; ")
"""


def load(*libraries: Path, **variables: str) -> str:
    """The library that a process finds after it has loaded these, as mpi4py may."""
    command = [sys.executable, "-c", LOADS, *map(str, libraries)]
    return processes.run(command, **variables).output.strip().splitlines()[-1]


@cases("name, abi", ("libmpi.so.12", "MPICH ABI"), ("libmpi_abi.so.1", "MPI standard ABI"))
def test_what_is_loaded_already_is_taken(name, abi):
    """Opened with local symbols, as Python does: our library still resolves them."""
    assert load(WHEEL / name) == f"already loaded by this process; {abi}; {WHEEL / name}"


def test_two_mpis_are_refused():
    text = load(WHEEL / "libmpi.so.12", WHEEL / "libmpi_abi.so.1")
    error = "mpi_backend.mpi_library.MpiLibraryError: this process has loaded 2 MPI libraries, "
    assert text.startswith(error)
    assert str(WHEEL / "libmpi_abi.so.1") in text and "MPI4PY_LIBMPI" in text


def test_another_than_the_loaded_one_is_refused():
    text = load(WHEEL / "libmpi.so.12", MPI_GDR_MPI_LIBRARY=str(WHEEL / "libmpi_abi.so.1"))
    assert "has already loaded" in text and str(WHEEL / "libmpi.so.12") in text
    same = load(WHEEL / "libmpi.so.12", MPI_GDR_MPI_LIBRARY=os.path.relpath(WHEEL / "libmpi.so.12"))
    assert same.startswith("already loaded")


@pytest.mark.parametrize(
    ("variable", "message"),
    [("/nowhere/libmpi.so.12", "cannot open shared object file"), ("libm.so.6", "is not an MPI library")],
)
def test_libraries_that_are_not_mpi_are_refused(variable, message):
    text = load(MPI_GDR_MPI_LIBRARY=variable)
    assert text.startswith("ImportError: ")
    assert all(word in text for word in (message, variable, "MPI_GDR_MPI_LIBRARY"))
