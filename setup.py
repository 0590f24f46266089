"""Builds with CMake: the extension `mpi_backend._C` per minor version of torch, a library per ABI of MPI
whose mpi.h is found, the CUDA library if there is a toolkit, and the extension `mpi_backend._tools`.

It uses the installed torch, or MPI_GDR_TORCH_HEADERS: folders torch/include, separated as in PATH.
pyproject.toml deliberately does not require torch for the build: pip would fetch gigabytes of the newest
torch into an isolated build, and the extension would not fit the user's torch. Missing requirements are
reported in one sentence, here or by give_up() of CMakeLists.txt.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NoReturn

import setuptools
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.dist_info import dist_info
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
OLDEST_SETUPTOOLS = 77  # the first to support SPDX licence names
OLDEST_TORCH = (2, 11)
OLDEST_CMAKE = (3, 18)
INSTALL = "pip install --no-build-isolation ."
TOOLS = 'pip install "setuptools>=77" "cmake>=3.26" ninja'
# Build facts for Python that need no extension.
BUILD_INFO = "_build_info.json"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")  # of an extension for this Python
# A source distribution has no .git: this file holds commit()'s value.
COMMIT = ROOT / "COMMIT"
# Other MPIs with headers, installed there by tools/mpi.py.
MPIS = ROOT / "build" / "mpi"


def give_up(sentence: str) -> NoReturn:
    raise SystemExit(f"mpi-gdr: {sentence}")


def find_program(name: str) -> str | None:
    """Path of a program: beside this Python first (a venv may be inactive), then on PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def check_setuptools() -> None:
    """Called before setup() reads pyproject.toml, which older releases reject as invalid."""
    if int(setuptools.__version__.split(".")[0]) < OLDEST_SETUPTOOLS:
        give_up(f"setuptools {setuptools.__version__} is too old: `{TOOLS}`, then `{INSTALL}`.")


def check_python() -> str:
    """The folder of Python.h."""
    folder = sysconfig.get_path("include")
    if not Path(folder, "Python.h").exists():
        package = f"python{sysconfig.get_python_version()}"
        give_up(
            f"there is no Python.h in {folder}: install the headers of this Python, in most systems the "
            f"package {package}-dev or {package}-devel."
        )
    return folder


def check_compiler() -> None:
    """CMake uses the same compiler, but its message takes a page."""
    asked = shlex.split(os.environ.get("CXX", ""))[:1]
    if not any(map(shutil.which, asked or ("c++", "g++", "clang++"))):
        give_up(
            "no C++ compiler found (tried $CXX, else c++, g++, clang++): install one that knows C++20, "
            "such as g++ 11."
        )


def find_cmake() -> str:
    path = find_program("cmake")
    if not path:
        give_up(f"CMake is not found beside this Python or on PATH: `{TOOLS}`, then `{INSTALL}`.")
    found = re.search(r"version (\d+)\.(\d+)", first_line([path, "--version"]) or "")
    if not found:
        give_up(f"{path} is no CMake that works: `{TOOLS}`, then `{INSTALL}`.")
    if (int(found[1]), int(found[2])) < OLDEST_CMAKE:
        give_up(f"{path} is CMake {found[1]}.{found[2]}, which is too old: `{TOOLS}`, then `{INSTALL}`.")
    return path


def first_line(command: list[str]) -> str | None:
    """The first line of its output; None if it fails."""
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return result.stdout.partition("\n")[0].strip() if result.returncode == 0 else None


def commit() -> str | None:
    """The commit, with "+changes" if files of the checkout differ; None: unknown."""
    if not (ROOT / ".git").exists():  # not that of a parent folder
        return (COMMIT.exists() and COMMIT.read_text().strip()) or None
    return first_line(["git", "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=+changes"])


def check_torch(version: str) -> tuple[int, int]:
    major, minor = map(int, version.split(".")[:2])
    if (major, minor) < OLDEST_TORCH:
        give_up(f"torch {version} is too old: install torch {'.'.join(map(str, OLDEST_TORCH))} or newer.")
    return major, minor


def installed_torch() -> Path | None:
    """torch's folder, found without an import."""
    try:
        check_torch(importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        return None
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec and spec.origin else None


def torch_headers() -> dict[str, str]:
    """Folders of torch's headers by minor version, oldest first."""
    asked = [each for each in os.environ.get("MPI_GDR_TORCH_HEADERS", "").split(os.pathsep) if each]
    installed = None if asked else installed_torch()
    found = {}
    for folder in [installed / "include"] if installed else map(Path, asked):
        header = folder / "torch" / "headeronly" / "version.h"
        if not header.exists():
            give_up(
                f"{'MPI_GDR_TORCH_HEADERS: ' if asked else ''}{folder} has no torch/headeronly/version.h of "
                "torch 2.11 or newer."
            )
        names = dict(re.findall(r"#define TORCH_VERSION_(M\w+) (\d+)", header.read_text()))
        found[check_torch(f"{names['MAJOR']}.{names['MINOR']}")] = str(folder)
    return {".".join(map(str, minor)): found[minor] for minor in sorted(found)}


def required_torch_headers() -> dict[str, str]:
    return torch_headers() or give_up(
        "torch is not installed where the build can see it: install torch first, "
        f"then build with `{INSTALL}` (--no-build-isolation lets the build see it)."
    )


def find_mpicc() -> str | None:
    """The compiler wrapper: $MPICC, else the one beside this Python (the mpich wheel), else PATH's."""
    asked = os.environ.get("MPICC", "").strip()
    found = shutil.which(asked) if asked else find_program("mpicc")
    if asked and not found:
        give_up(f"MPICC={asked} is not an executable file: set MPICC to the full path of your MPI's mpicc.")
    return os.path.abspath(found) if found else None


def mpi_headers() -> dict[str, str]:
    """Folders of mpi.h by ABI: mpicc's, else those in build/mpi. mpi_abi.h (MPICH 5): the MPI 5.0
    standard."""
    mpicc = find_mpicc()
    flags = shlex.split((first_line([mpicc, "-show"]) if mpicc else None) or "")
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-I")] + sorted(MPIS.glob("*/include"))
    found: dict[str, str] = {}
    for folder in folders:
        if (folder / "mpi.h").exists():
            abi = "openmpi" if "OPEN_MPI" in (folder / "mpi.h").read_text(errors="replace") else "mpich"
            found.setdefault(abi, str(folder))
        if (folder / "mpi_abi.h").exists():
            found.setdefault("mpiabi", str(folder))
    if not found and mpicc:
        give_up(f"there is no mpi.h where {mpicc} looks: set MPICC to the mpicc of an MPI that works.")
    if not found:
        give_up(
            "no mpicc found in $MPICC, beside this Python or on PATH: set MPICC to your MPI's mpicc, "
            "or `pip install mpich` for one that needs no system packages."
        )
    return found


class CMakeBuild(build_ext):
    """Builds incrementally in build/."""

    def build_extension(self, ext: Extension) -> None:
        check_compiler()
        cmake, headers, ninja = find_cmake(), mpi_headers(), find_program("ninja")
        torches, installed = required_torch_headers(), installed_torch()
        settings = {
            "PACKAGE_VERSION": self.distribution.get_version(),
            "PYTHON_INCLUDE_DIR": check_python(),
            "PYTHON_MODULE_SUFFIX": SUFFIX,
            "PYTHON_PACKAGES": sysconfig.get_path("purelib"),
            **{f"HEADERS_{abi}": folder for abi, folder in headers.items()},
            # Not find_package(Torch): with a CUDA wheel it needs a toolkit.
            "TORCHES": ";".join(f"{version}={folder}" for version, folder in torches.items()),
            "TORCH": str(installed or ""),
            "TORCH_CUDA": (runpy.run_path(str(installed / "version.py"))["cuda"] if installed else "") or "",
        }
        folder = ROOT / "build" / f"{sys.implementation.cache_tag}-{'ninja' if ninja else 'make'}"
        discard_moved_cache(folder, ROOT)
        configure = [cmake, "-S", str(ROOT), "-B", str(folder)]
        configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else ["-G", "Unix Makefiles"]
        configure += ["-UMPI_GDR_HEADERS_*", "-UMPI_GDR_*NVCC"]  # the environment may have changed
        run([*configure, *(f"-DMPI_GDR_{name}={value}" for name, value in settings.items())], folder)
        jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))
        parts = ["core", *headers, *(f"raw_{abi}" for abi in headers)]
        parts += [name for name in cached(folder, "MPI_GDR_LIBRARIES").split(";") if name]
        libraries = {f"mpi_gdr_{part}": f"libmpi_gdr_{part}.so" for part in parts}
        libraries["_tools"] = f"_tools{SUFFIX}"
        # mpi_backend/build_info.py searches for the extensions by name.
        libraries |= {f"_C{torch}": f"_C.torch{torch}{SUFFIX}" for torch in torches}
        run([cmake, "--build", str(folder), "--parallel", jobs, "--target", *libraries], folder)
        record = build_record(folder, sorted(headers))
        (folder / BUILD_INFO).write_text(json.dumps(record, indent=2) + "\n")
        files = [folder / name for name in (*libraries.values(), BUILD_INFO)]
        replace_libraries(files, Path(self.get_ext_fullpath(ext.name)).parent)

    def copy_extensions_to_source(self) -> None:
        """Editable installs only: copies the libraries and the record beside the sources."""
        built = Path(self.build_lib, "mpi_backend")
        replace_libraries([*built.glob("*.so"), built / BUILD_INFO], ROOT / "mpi_backend")


def build_record(folder: Path, abis: list[str]) -> dict[str, object]:
    """BuildInfo of mpi_backend/build_info.py."""
    architectures = [f"sm_{each}" for each in cached(folder, "MPI_GDR_CUDA_ARCHITECTURES").split(";")]
    cuda = {"version": cached(folder, "MPI_GDR_CUDA_VERSION"), "architectures": [*architectures, "PTX"]}
    return {
        "mpi_abis": abis,
        "cuda": cuda if cached(folder, "MPI_GDR_NVCC") else None,
        "no_cuda": cached(folder, "MPI_GDR_NO_CUDA") or None,
        "commit": commit(),
        "compiler": first_line([cached(folder, "CMAKE_CXX_COMPILER"), "--version"]),
    }


def replace_libraries(files: list[Path], target: Path) -> None:
    """Copies via new files, because a running process may map the old ones. Removes other builds'
    libraries."""
    target.mkdir(parents=True, exist_ok=True)
    for old in (*target.glob("libmpi_gdr_*.so"), *target.glob(f"_C.*{SUFFIX}")):
        if old.name not in [file.name for file in files]:
            old.unlink()
    for file in files:
        fresh = target / f"{file.name}.new"
        shutil.copy2(file, fresh)
        os.replace(fresh, target / file.name)


def cached(folder: Path, name: str) -> str:
    """A value of CMake's cache; "" if missing."""
    cache = folder / "CMakeCache.txt"
    text = cache.read_text() if cache.exists() else ""
    found = re.search(rf"^{name}:\w+=(.*)$", text, re.MULTILINE)
    return found[1] if found else ""


def run(command: list[str], folder: Path) -> None:
    if subprocess.call(command) != 0:
        failed = f"the build failed at `{shlex.join(command[:4])} ...`: its first error is above."
        give_up(cached(folder, "MPI_GDR_PROBLEM") or failed)


def discard_moved_cache(folder: Path, source: Path) -> None:
    """CMake refuses a build folder made for another path (a copied or moved checkout)."""
    cache = folder / "CMakeCache.txt"
    if cache.exists() and f"CMAKE_HOME_DIRECTORY:INTERNAL={source}\n" not in cache.read_text():
        shutil.rmtree(folder)


class CheckedDistInfo(dist_info):
    """Looks for torch before pip resolves requirements: an isolated build would first download one."""

    def run(self) -> None:
        required_torch_headers()
        super().run()


class SourceDistribution(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        Path(base_dir, COMMIT.name).write_text(f"{commit() or ''}\n")


def requirements() -> list[str]:
    """The versions of torch that the extensions fit."""
    minors = list(torch_headers())
    if not minors:
        return ["torch"]  # a source distribution; other builds stop in CheckedDistInfo
    major, minor = minors[-1].split(".")
    return [f"torch>={minors[0]},<{major}.{int(minor) + 1}"]


def long_description() -> str:
    """README.md without links and pictures that work only beside it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[[^\]]*\]\([^)]*\)\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)([^)]*)\)", r"\1 (`\2`)", text)


if __name__ == "__main__":
    check_setuptools()
    setup(
        ext_modules=[Extension("mpi_backend._C", sources=[])],
        cmdclass={"build_ext": CMakeBuild, "dist_info": CheckedDistInfo, "sdist": SourceDistribution},
        install_requires=requirements(),
        long_description=long_description(),
        long_description_content_type="text/markdown",
    )
