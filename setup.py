"""Builds the extension `mpi_backend._C` with CMake against the torch and the MPI that are installed, and the
library for CUDA devices where there is a toolkit.

pyproject.toml does not list torch as a build requirement on purpose: in an isolated build pip would fetch
the newest torch, gigabytes of it, and the extension would not fit the torch that the user runs.
Everything that the build needs is looked for first; what is missing is said in one sentence.
"""

from __future__ import annotations

import glob
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import setuptools
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.dist_info import dist_info

ROOT = Path(__file__).resolve().parent
OLDEST_SETUPTOOLS = 77  # the first that knows a licence by its SPDX name
OLDEST_TORCH = (2, 11)
OLDEST_CMAKE = (3, 18)
OLDEST_CMAKE_OF_CUDA = (3, 26)
OLDEST_CUDA = 12  # the first nvcc that knows C++20
CUDA_FOLDER = "/usr/local/cuda"
CUDA_ARCHITECTURES = ["80", "90"]
INSTALL = "pip install --no-build-isolation ."
TOOLS = 'pip install "setuptools>=77" "cmake>=3.26" ninja'
# What the Python side must know about the build without loading the extension.
BUILD_INFO = "_build_info.json"
# Beside the extension, if there is a toolkit of CUDA.
CUDA_LIBRARY = "libmpi_gdr_cuda.so"
PROBE = "#include <mpi.h>\nint main(int argc, char** argv) { return MPI_Init(&argc, &argv); }\n"
CUDA_PROBE = "__global__ void probe(int* p) { *p = 1; }\nvoid run(int* p) { probe<<<1, 1>>>(p); }\n"


def give_up(sentence: str) -> NoReturn:
    """Ends the build with one sentence and no traceback."""
    raise SystemExit(f"mpi-gdr: {sentence}")


def find_program(name: str) -> str | None:
    """Path of a program: beside this Python first (a venv need not be activated), then on PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def check_setuptools() -> None:
    """Before setup() reads pyproject.toml: an older one calls it wrong."""
    if int(setuptools.__version__.split(".")[0]) < OLDEST_SETUPTOOLS:
        give_up(f"setuptools {setuptools.__version__} is too old: `{TOOLS}`, then `{INSTALL}`.")


def check_python() -> str:
    """The folder of Python.h."""
    folder = sysconfig.get_path("include")
    if not Path(folder, "Python.h").exists():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        give_up(
            f"there is no Python.h in {folder}: install the headers of this Python, in most systems the "
            f"package python{version}-dev or python{version}-devel."
        )
    return folder


@dataclass
class CMake:
    path: str
    version: tuple[int, int]


def find_cmake() -> CMake:
    path = find_program("cmake")
    if not path:
        give_up(f"CMake is not found beside this Python or on PATH: `{TOOLS}`, then `{INSTALL}`.")
    said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)\.(\d+)", said)
    if not found:
        give_up(f"{path} is no CMake that works: `{TOOLS}`, then `{INSTALL}`.")
    version = (int(found[1]), int(found[2]))
    if version < OLDEST_CMAKE:
        give_up(f"{path} is CMake {found[1]}.{found[2]}, which is too old: `{TOOLS}`, then `{INSTALL}`.")
    return CMake(path, version)


def first_line(command: list[str]) -> str | None:
    """Of what it prints; None where it fails."""
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return result.stdout.partition("\n")[0].strip() if result.returncode == 0 else None


def commit() -> str | None:
    """Of the checkout that is built, "+changes" behind it where files differ from it; None: it is none."""
    if not (ROOT / ".git").exists():  # not that of a folder above
        return None
    found = first_line(["git", "rev-parse", "HEAD"])
    changed = first_line(["git", "status", "--porcelain", "--untracked-files=no"])
    return f"{found}+changes" if found and changed else found


# ---- torch ------------------------------------------------------------------------------------------------


def torch_version() -> str:
    """Version of the installed torch, without importing it."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        give_up(
            "torch is not installed where the build can see it: install torch first, "
            f"then build with `{INSTALL}` (--no-build-isolation lets the build see it)."
        )
    if minor_version(version) < OLDEST_TORCH:
        give_up(f"torch {version} is too old: install torch {'.'.join(map(str, OLDEST_TORCH))} or newer.")
    return version


def minor_version(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def torch_settings() -> dict[str, object]:
    """What CMake must know about torch. find_package(Torch) is avoided: with a CUDA wheel it needs a
    toolkit."""
    torch_version()
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # an installed copy of this package must not be loaded
    import torch
    from torch.utils import cpp_extension

    return {
        "TORCH_INCLUDE_DIRS": cpp_extension.include_paths(),
        "TORCH_LIBRARY_DIRS": cpp_extension.library_paths(),
        "TORCH_VERSION": torch.__version__,
        "TORCH_CXX11_ABI": int(torch.compiled_with_cxx11_abi()),
    }


# ---- MPI --------------------------------------------------------------------------------------------------


@dataclass
class MpiFlags:
    """What a compiler wrapper adds to the command line."""

    include_dirs: list[str] = field(default_factory=list)
    library_dirs: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    rpaths: list[str] = field(default_factory=list)


def find_mpicc() -> str:
    """The compiler wrapper: $MPICC, else the one beside this Python (the mpich wheel), else the one on
    PATH."""
    asked = os.environ.get("MPICC", "").strip()
    if asked:
        found = shutil.which(asked)
        if not found:
            give_up(
                f"MPICC={asked} is not an executable file: set MPICC to the full path of your MPI's mpicc."
            )
        return os.path.abspath(found)
    found = find_program("mpicc")
    if not found:
        give_up(
            "no mpicc found in $MPICC, beside this Python or on PATH: set MPICC to your MPI's mpicc, "
            "or `pip install mpich` for one that needs no system packages."
        )
    return os.path.abspath(found)


def wrapper_command(mpicc: str) -> list[str]:
    """The compiler command that `mpicc` stands for (-show: MPICH family, -showme: Open MPI)."""
    for option in ("-show", "-showme"):
        try:
            result = subprocess.run([mpicc, option], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        words = shlex.split(result.stdout) if result.returncode == 0 else []
        if any(word.startswith(("-l", "-I", "-L")) for word in words):
            return words
    give_up(f"{mpicc} answers neither -show nor -showme: set MPICC to the mpicc of an MPI installation.")


def parse_flags(words: list[str]) -> MpiFlags:
    """Sorts the words of a wrapper's command. Linker words come as -Wl,a,b or as -Xlinker a -Xlinker b."""
    flags = MpiFlags()
    linker: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if word == "-Xlinker":
            linker.append(next(rest, ""))
        elif word.startswith("-Wl,"):
            linker += word[4:].split(",")
        elif word.startswith("-I"):
            flags.include_dirs.append(word[2:] or next(rest, ""))
        elif word == "-isystem":
            flags.include_dirs.append(next(rest, ""))
        elif word.startswith("-L"):
            flags.library_dirs.append(word[2:] or next(rest, ""))
        elif word.startswith("-l"):
            flags.libraries.append(word[2:])
        elif re.search(r"\.(a|so)(\.\d+)*$", word):
            flags.libraries.append(word)
    rest = iter(linker)
    for word in rest:
        if word in ("-rpath", "--rpath"):
            flags.rpaths.append(next(rest, ""))
        elif match := re.match(r"--?rpath=(.+)", word):
            flags.rpaths.append(match.group(1))
    if not flags.rpaths:  # a wrapper without run path still names the directory to link from
        flags.rpaths = [d for d in flags.library_dirs if list(Path(d).glob("libmpi*.so*"))]
    for name in ("include_dirs", "library_dirs", "libraries", "rpaths"):
        setattr(flags, name, list(dict.fromkeys(getattr(flags, name))))
    return flags


def cxx_compiler() -> str:
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if shutil.which(shlex.split(name)[0]):
            return name
    give_up(
        "no C++ compiler found (tried $CXX, c++, g++, clang++): install one that knows C++20, such as g++ 11."
    )


def check_mpi(mpicc: str, flags: MpiFlags) -> None:
    """Compiles and links a two-line MPI program with the flags found."""
    command = [*shlex.split(cxx_compiler()), "-std=c++20", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.cpp")
        source.write_text(PROBE)
        command += [f"-I{d}" for d in flags.include_dirs] + [str(source), "-o", str(Path(folder, "probe"))]
        command += [f"-L{d}" for d in flags.library_dirs]
        command += [n if "/" in n else f"-l{n}" for n in flags.libraries]
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if "error" in line or "cannot find" in line]
        give_up(
            f"a two-line MPI program does not build with {mpicc} ({(lines or ['no message'])[0].strip()}): "
            "set MPICC to a working mpicc and use a compiler that knows C++20."
        )


def find_mpiexec(mpicc: str) -> str:
    """The launcher beside mpicc; Debian adds a suffix to both (mpicc.openmpi, mpiexec.openmpi). "" if
    none."""
    folder, name = os.path.split(mpicc)
    suffix = name[len("mpicc") :] if name.startswith("mpicc.") else ""
    for launcher in (f"mpiexec{suffix}", f"mpirun{suffix}", "mpiexec", "mpirun"):
        path = os.path.join(folder, launcher)
        if os.access(path, os.X_OK):
            return path
    return ""


def mpi_settings() -> dict[str, object]:
    """What CMake must know about MPI."""
    mpicc = find_mpicc()
    flags = parse_flags(wrapper_command(mpicc))
    check_mpi(mpicc, flags)
    return {
        "MPI_INCLUDE_DIRS": flags.include_dirs,
        "MPI_LIBRARY_DIRS": flags.library_dirs,
        "MPI_LIBRARIES": flags.libraries,
        "MPI_RPATHS": flags.rpaths,
        "MPICC": mpicc,
        "MPIEXEC": find_mpiexec(mpicc),
    }


# ---- CUDA -------------------------------------------------------------------------------------------------


@dataclass
class Cuda:
    """A toolkit that works, and what is built with it."""

    nvcc: str
    version: str  # "13.0"
    architectures: list[str]  # "80"; machine code for each, and PTX of the last

    def record(self) -> dict[str, object]:
        return {"version": self.version, "architectures": [*(f"sm_{a}" for a in self.architectures), "PTX"]}


def find_nvcc() -> str | None:
    """The first of $CUDACXX, $CUDA_HOME or $CUDA_PATH, PATH, /usr/local/cuda and NVIDIA's packages for
    Python (`make nvcc` installs those) that has one."""
    candidates = [os.environ.get("CUDACXX", "").strip()]
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        candidates.append(os.path.join(home, "bin", "nvcc") if home else "")
    packages = glob.glob(os.path.join(sysconfig.get_path("purelib"), "nvidia", "cu*", "bin", "nvcc"))
    for candidate in (*candidates, "nvcc", f"{CUDA_FOLDER}/bin/nvcc", *packages):
        found = shutil.which(candidate) if candidate else None
        if found:
            return os.path.abspath(found)
    return None


def cuda_architectures() -> list[str]:
    asked = os.environ.get("MPI_GDR_CUDA_ARCHITECTURES", "").strip()
    found = re.split(r"[;, ]+", asked) if asked else CUDA_ARCHITECTURES
    if not all(re.fullmatch(r"\d+[af]?", a) for a in found):
        give_up(f"MPI_GDR_CUDA_ARCHITECTURES={asked} is not valid: expected numbers such as 80;90.")
    return sorted(found, key=lambda a: int(a.rstrip("af")))


def cuda_of_torch() -> str:
    """ "12.8"; "" if torch has none."""
    import torch

    return torch.version.cuda or ""


def check_nvcc(nvcc: str, architectures: list[str]) -> str:
    """Version of a toolkit that builds a library of one kernel. ValueError: why it does not."""
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{nvcc} does not run: {error}") from None
    version = re.search(r"release (\d+)\.(\d+)", said)
    if not version:
        raise ValueError(f"{nvcc} is no nvcc")
    if int(version[1]) < OLDEST_CUDA:
        raise ValueError(f"{nvcc} is of CUDA {version[1]}.{version[2]}, which is older than {OLDEST_CUDA}.0")
    if (torchs := cuda_of_torch()) and int(version[1]) > int(torchs.split(".")[0]):
        # Each major version needs a newer driver, which torch may do without.
        raise ValueError(
            f"{nvcc} is of CUDA {version[1]}.{version[2]}, and torch of CUDA {torchs}: a driver that is new "
            f"enough for torch may be too old for it, so that CUDA {torchs.split('.')[0]} is needed"
        )
    command = [nvcc, "-std=c++20", f"-arch=sm_{architectures[-1]}", "-cudart=static", "-shared"]
    compiler = [word for word in shlex.split(cxx_compiler()) if not word.startswith("-")][
        -1
    ]  # "ccache g++ -m64"
    command += ["-Xcompiler=-fPIC", f"-ccbin={shutil.which(compiler)}"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.cu")
        source.write_text(CUDA_PROBE)
        command += [str(source), "-o", str(Path(folder, "probe.so"))]
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if re.search("error|fatal|cannot find", line)]
        raise ValueError(f"{nvcc} does not build one kernel ({(lines or ['no message'])[0].strip()})")
    return f"{version[1]}.{version[2]}"


def find_cuda(cmake: CMake) -> Cuda | None:
    """What to build the CUDA library with; None: it is not built. MPI_GDR_BUILD_CUDA=auto|on|off."""
    asked = os.environ.get("MPI_GDR_BUILD_CUDA", "").strip().lower() or "auto"
    if asked not in ("auto", "on", "off"):
        give_up(f"MPI_GDR_BUILD_CUDA={asked} is not valid: expected auto, on or off.")
    if asked == "off":
        return None
    architectures = cuda_architectures()
    nvcc = find_nvcc()
    if nvcc and cmake.version < OLDEST_CMAKE_OF_CUDA:
        problem = (
            f"{cmake.path} is CMake {cmake.version[0]}.{cmake.version[1]}, and CUDA needs 3.26: `{TOOLS}`"
        )
    elif nvcc:
        try:
            return Cuda(nvcc, check_nvcc(nvcc, architectures), architectures)
        except ValueError as error:
            problem = str(error)
    else:
        problem = (
            f"no nvcc found in $CUDACXX, $CUDA_HOME, $CUDA_PATH, on PATH, in {CUDA_FOLDER} or among "
            f"Python's packages: install the toolkit of CUDA {OLDEST_CUDA} or newer for it"
        )
    if asked == "on":
        give_up(f"MPI_GDR_BUILD_CUDA=on, but {problem}.")
    print(f"mpi-gdr: without CUDA: {problem}.", file=sys.stderr)
    return None


# ---- commands ---------------------------------------------------------------------------------------------


class CMakeBuild(build_ext):
    """Configures and builds in build/, which is kept: only what changed is compiled again."""

    def build_extension(self, ext: Extension) -> None:
        cmake = find_cmake()
        settings: dict[str, object] = {
            "PACKAGE_VERSION": self.distribution.get_version(),
            "PYTHON_INCLUDE_DIR": check_python(),
            "PYTHON_MODULE_SUFFIX": sysconfig.get_config_var("EXT_SUFFIX"),
            **torch_settings(),
            **mpi_settings(),
        }
        cuda = find_cuda(cmake)
        settings["NVCC"] = cuda.nvcc if cuda else ""
        settings["CUDA_ARCHITECTURES"] = cuda.architectures if cuda else CUDA_ARCHITECTURES
        ninja = find_program("ninja")
        folder = ROOT / "build" / f"{sys.implementation.cache_tag}-{'ninja' if ninja else 'make'}"
        discard_moved_cache(folder, ROOT)
        configure = [cmake.path, "-S", str(ROOT), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release"]
        if ninja:
            configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        else:
            configure += ["-G", "Unix Makefiles"]
        for name, value in settings.items():
            text = ";".join(value) if isinstance(value, list) else str(value)
            configure.append(f"-DMPI_GDR_{name}={text}")
        jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))
        targets = ["_C", "mpi_gdr_cuda"] if cuda else ["_C"]
        for command in (
            configure,
            [cmake.path, "--build", str(folder), "--parallel", jobs, "--target", *targets],
        ):
            if subprocess.call(command) != 0:
                give_up(f"the build failed at `{shlex.join(command[:4])} ...`: its first error is above.")
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(folder / f"_C{settings['PYTHON_MODULE_SUFFIX']}", target)
        if cuda:
            replace_file(folder / CUDA_LIBRARY, target.parent / CUDA_LIBRARY)
        else:  # that of an earlier build
            (target.parent / CUDA_LIBRARY).unlink(missing_ok=True)
        record = {
            "torch_version": settings["TORCH_VERSION"],
            "mpicc": settings["MPICC"],
            "mpiexec": settings["MPIEXEC"],
            "mpi_library_dirs": settings["MPI_RPATHS"] or settings["MPI_LIBRARY_DIRS"],
            "cuda": cuda.record() if cuda else None,
            "commit": commit(),
            "compiler": compiler_of(folder),
        }
        (target.parent / BUILD_INFO).write_text(json.dumps(record, indent=2) + "\n")

    def copy_extensions_to_source(self) -> None:
        """Editable installs only: the folder of the sources gets the extension and the record beside it."""
        for ext in self.extensions:
            built = Path(self.build_lib, *ext.name.split(".")[:-1])
            source = Path(self.get_finalized_command("build_py").get_package_dir("mpi_backend"))
            for name in (Path(self.get_ext_filename(ext.name)).name, BUILD_INFO, CUDA_LIBRARY):
                if (built / name).exists():
                    replace_file(built / name, source / name)
                else:  # the CUDA library, which is not built everywhere
                    (source / name).unlink(missing_ok=True)


def replace_file(source: Path, target: Path) -> None:
    """Copies by way of a new file: a running process may have the old one mapped."""
    fresh = target.with_name(target.name + ".new")
    shutil.copy2(source, fresh)
    os.replace(fresh, target)


def compiler_of(folder: Path) -> str | None:
    """What the compiler that CMake took says of itself."""
    found = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", (folder / "CMakeCache.txt").read_text(), re.MULTILINE)
    return first_line([found[1], "--version"]) if found else None


def discard_moved_cache(folder: Path, source: Path) -> None:
    """CMake refuses a build folder that was made for another path (a copied or moved checkout)."""
    cache = folder / "CMakeCache.txt"
    if cache.exists() and f"CMAKE_HOME_DIRECTORY:INTERNAL={source}\n" not in cache.read_text():
        shutil.rmtree(folder)


class CheckedDistInfo(dist_info):
    """Looks for torch before pip resolves the requirements: otherwise an isolated build downloads a torch
    first."""

    def run(self) -> None:
        torch_version()
        super().run()


def requirements() -> list[str]:
    """The extension fits one torch minor version only, so the wheel asks for exactly that one."""
    try:
        major, minor = minor_version(importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        return ["torch"]  # a source distribution; everything else stops in CheckedDistInfo
    return [f"torch=={major}.{minor}.*"]


def long_description() -> str:
    """README.md for where its pages and pictures are not beside it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[[^\]]*\]\([^)]*\)\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)([^)]*)\)", r"\1 (`\2`)", text)


if __name__ == "__main__":
    check_setuptools()
    setup(
        ext_modules=[Extension("mpi_backend._C", sources=[])],
        cmdclass={"build_ext": CMakeBuild, "dist_info": CheckedDistInfo},
        install_requires=requirements(),
        long_description=long_description(),
        long_description_content_type="text/markdown",
    )
