"""Parts that setup.py and CMake find, and errors on missing ones. Compiles only programs of a few lines."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.building import ROOT, load_setup
from support.processes import captured
from support.processes import write_script as script

TORCH = ".".join(torch.__version__.split(".")[:2])
# Names of csrc/checker, csrc/transport/mpi/raw, csrc/python and tests/doubles.
NOT_OF_JOBS = (
    *("check_rank", "is_skipped", "CheckFailure", "ExpressionTable", "Layout", "RaceDetector", "RankSet"),
    *("Simulation", "SymbolicMemory", "mpi::RawCalls", "mpi::RawMpi", "python::bind_schedules"),
    *("python::bind_raw_mpi", r"Loopback\w*"),
)
built = pytest.mark.skipif(
    not (ROOT / "mpi_backend" / "_build_info.json").exists(), reason="nothing is built here"
)


@pytest.fixture(scope="module")
def build():
    return load_setup()


def sentence(call):
    with pytest.raises(SystemExit) as stop:
        call()
    text = str(stop.value)
    assert text.startswith("mpi-gdr: ") and "\n" not in text
    return text


@pytest.fixture
def without_torch(build, monkeypatch):
    """A function after whose call no torch is installed."""

    def missing(name):
        raise build.importlib.metadata.PackageNotFoundError(name)

    return lambda: monkeypatch.setattr(build.importlib.metadata, "version", missing)


def test_without_torch(build, without_torch):
    without_torch()
    assert "pip install --no-build-isolation ." in sentence(build.required_torch_headers)
    assert build.requirements() == ["torch"]


def test_metadata_without_torch_stops_before_pip_would_download_one(tmp_path):
    """pip fetches the requirements of the metadata before the build, which would be too late."""
    code = (
        "import sys, importlib.metadata as metadata\n"
        "found = metadata.version\n"
        "def version(name):\n"
        "    if name == 'torch': raise metadata.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "metadata.version = version\n"
        "import setuptools.build_meta\n"
        "setuptools.build_meta.prepare_metadata_for_build_wheel(sys.argv[1])\n"
    )
    result = captured([sys.executable, "-c", code, str(tmp_path)], check=False, cwd=ROOT)
    assert result.returncode == 1
    assert "--no-build-isolation" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_old_torch(build, monkeypatch):
    monkeypatch.setattr(build.importlib.metadata, "version", lambda name: "2.4.1+cu121")
    assert "torch 2.4.1+cu121 is too old" in sentence(build.requirements)


def test_the_wheel_asks_for_the_torches_it_was_built_for(build, without_torch, monkeypatch, tmp_path):
    folders = []
    for minor in (13, 11, 9):
        folders.append(tmp_path / str(minor))
        header = folders[-1] / "torch" / "headeronly" / "version.h"
        header.parent.mkdir(parents=True)
        header.write_text(f"#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR {minor}\n")

    def asked(*folders):
        monkeypatch.setenv("MPI_GDR_TORCH_HEADERS", ":".join(map(str, folders)))

    asked(*folders[:2])
    assert build.torch_headers() == {"2.11": str(folders[1]), "2.13": str(folders[0])}
    assert build.requirements() == ["torch>=2.11,<2.14"]
    asked(folders[2])
    assert "torch 2.9 is too old" in sentence(build.torch_headers)
    asked("/nowhere")
    assert "MPI_GDR_TORCH_HEADERS: /nowhere has no torch" in sentence(build.torch_headers)
    asked()
    (minor,) = build.torch_headers()
    assert build.importlib.metadata.version("torch").startswith(minor)

    without_torch()
    asked(folders[0])  # torch's headers suffice
    assert list(build.required_torch_headers()) == ["2.13"]


def test_without_mpi(build, monkeypatch, tmp_path):
    monkeypatch.delenv("MPICC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(build, "MPIS", tmp_path)
    text = sentence(build.mpi_headers)
    assert "MPICC" in text and "pip install mpich" in text


def test_mpicc_that_does_not_exist(build, monkeypatch):
    monkeypatch.setenv("MPICC", "/nowhere/mpicc")
    assert "MPICC=/nowhere/mpicc" in sentence(build.find_mpicc)


def test_mpicc_in_the_environment_wins_over_all_others(build, monkeypatch, tmp_path):
    chosen = script(tmp_path / "mpicc", "exit 0")
    monkeypatch.setenv("MPICC", chosen)
    assert build.find_mpicc() == chosen


def test_the_mpicc_beside_python_wins_over_path(build, monkeypatch, tmp_path):
    for folder in ("venv", "system"):
        (tmp_path / folder).mkdir()
        script(tmp_path / folder / "mpicc", "exit 0")
    monkeypatch.delenv("MPICC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "system"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    assert build.find_mpicc() == str(tmp_path / "venv" / "mpicc")


def test_without_a_compiler(build, monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no C++ compiler" in sentence(build.check_compiler)
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    assert "no C++ compiler" in sentence(build.check_compiler)


# ---- MPI --------------------------------------------------------------------------------------------------


@pytest.fixture
def no_other_mpi(build, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "MPIS", tmp_path / "none")


@pytest.mark.parametrize("body", ["exit 1", "echo hello", "echo cc -I/nowhere -L/nowhere -lno_such_mpi"])
def test_mpicc_that_is_none(build, monkeypatch, tmp_path, no_other_mpi, body):
    mpicc = script(tmp_path / "mpicc", body)
    monkeypatch.setenv("MPICC", mpicc)
    text = sentence(build.mpi_headers)
    assert mpicc in text and "set MPICC to the mpicc of an MPI that works." in text


def test_the_mpi_of_this_environment_has_two_abis(build, monkeypatch, no_other_mpi):
    monkeypatch.delenv("MPICC", raising=False)
    found = build.mpi_headers()
    assert set(found) == {"mpich", "mpiabi"} and len(set(found.values())) == 1


def test_the_headers_of_other_mpis(build, monkeypatch, tmp_path):
    """mpicc's take precedence; build/mpi adds missing ABIs."""
    for name, line in (("a", "#define OPEN_MPI 1"), ("site", '#define MPICH_VERSION "4.3.1"'), ("z", "")):
        (tmp_path / name / "include").mkdir(parents=True)
        (tmp_path / name / "include" / "mpi.h").write_text(line)
    monkeypatch.setattr(build, "MPIS", tmp_path)
    monkeypatch.setenv("MPICC", script(tmp_path / "mpicc", f"echo cc -I{tmp_path}/site/include -lmpi"))
    expected = {"mpich": f"{tmp_path}/site/include", "openmpi": f"{tmp_path}/a/include"}
    assert build.mpi_headers() == expected


@built
def test_nothing_is_linked_with_an_mpi():
    """The MPI is chosen at run time. Libraries find each other in their own folder, wherever that is."""
    built = sorted((ROOT / "mpi_backend").glob("*.so"))
    assert len(built) >= 3
    for file in built:
        dynamic = captured(["readelf", "-d", file]).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        assert not [name for name in needed if "mpi" in name and not name.startswith("libmpi_gdr_")]
        if "libmpi_gdr_core.so" in needed:
            assert re.findall(r"\((R(?:UN)?PATH)\).*\[(.*)\]", dynamic) == [("RUNPATH", "$ORIGIN")]


@built
def test_libraries_and_record_name_no_folder_of_the_machine(tmp_path):
    """Otherwise two clones of a commit would build different bytes. Stripped, as in the wheel."""
    folders = {f"{path}/".encode() for path in (ROOT, Path.home(), sys.prefix, Path(torch.__file__).parent)}
    folders = folders - {b"//"} | {b"_GLOBAL__N__"}  # prefix of nvcc's hash of a path
    for file in (ROOT / "mpi_backend").glob("*.so"):
        subprocess.run(["strip", "-o", tmp_path / file.name, file], check=True)
    (tmp_path / "record").write_text((ROOT / "mpi_backend" / "_build_info.json").read_text())
    for file in tmp_path.iterdir():
        strings = re.findall(rb"[ -~]{4,}", file.read_bytes())
        assert [text for text in strings if any(folder in text for folder in folders)] == [], file.name


@built
def test_the_core_has_its_variables_alone():
    """A header's inline variable is duplicated in each library with hidden symbols."""
    package = ROOT / "mpi_backend"

    def variables(file: Path) -> set[str]:
        symbols = captured(["nm", "-C", "--defined-only", file]).stdout
        found = re.findall(r"^\w+ [BDVbduv] ((?:guard variable for )?mpi_gdr::.*)$", symbols, re.MULTILINE)
        # Functions' variables have a guard, or are constants such as kNames.
        found = [name for name in found if not re.match(r"mpi_gdr::k[A-Z]", name)]
        return {name for name in found if "(anonymous" not in name and ("(" not in name or "guard" in name)}

    core = variables(package / "libmpi_gdr_core.so")
    assert "mpi_gdr::Gate::holding_" in core
    for file in package.glob("*.so"):
        if file.name != "libmpi_gdr_core.so":
            assert not core & variables(file), file


@built
def test_a_job_loads_nothing_that_only_commands_and_tests_use():
    """Checker and bare calls of MPI have files of their own; loopback is in none."""
    package = ROOT / "mpi_backend"

    def names(file: Path) -> set[str]:
        symbols = captured(["nm", "-C", file]).stdout
        return {name for name in NOT_OF_JOBS if re.search(rf"\bmpi_gdr::{name}\b", symbols)}

    apart = [*package.glob("_tools.*.so"), *package.glob("libmpi_gdr_raw_*.so")]
    assert set().union(*map(names, apart)) == {name for name in NOT_OF_JOBS if name != "Loopback\\w*"}
    of_jobs = set(package.glob("*.so")) - set(apart)
    assert {file.name.partition(".")[0] for file in of_jobs} >= {"_C", "libmpi_gdr_core", "libmpi_gdr_mpich"}
    assert {file.name: found for file in of_jobs if (found := names(file))} == {}

    code = "import mpi_backend\nmpi_backend.empty(1)\nprint(open('/proc/self/maps').read())"
    maps = captured([sys.executable, "-c", code], cwd=ROOT).stdout
    loaded = {Path(line).name for line in maps.splitlines() if f" {package}/" in line}
    assert loaded and loaded <= {file.name for file in of_jobs}


@pytest.mark.parametrize(
    ("target", "shown"),
    [(f"_C{TORCH}", "PyInit__C"), ("_tools", "PyInit__tools"), ("mpi_gdr_core", "mpi_gdr::Env::get()")],
)
def test_nothing_of_a_static_libstdcxx_is_exported(build, tmp_path, target, shown):
    """A compiler without a shared libstdc++ links it statically. When exported, its symbols mixed with the
    process's: a number written into a text was lost, or ended the process."""
    folder = ROOT / "build" / f"{sys.implementation.cache_tag}-ninja"
    ninja = build.find_program("ninja")
    if not ninja or not (folder / "build.ninja").exists():
        pytest.skip("the extension was not built here by ninja")
    command = captured([ninja, "-C", folder, "-t", "commands", target]).stdout.splitlines()[-1]
    linked = tmp_path / "linked.so"
    command = re.sub(r" -shared (.*) -o \S+", rf" -shared -static-libstdc++ \1 -o {linked}", command)
    subprocess.run(command, shell=True, cwd=folder, check=True)
    names = captured(["nm", "-DC", "--defined-only", linked]).stdout
    assert shown in names
    assert "std::locale" not in names


def test_a_moved_checkout_gets_a_new_build_folder(build, tmp_path):
    cache = tmp_path / "build" / "CMakeCache.txt"
    cache.parent.mkdir()
    cache.write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere\n")
    build.discard_moved_cache(cache.parent, tmp_path)
    assert not cache.exists()
    cache.parent.mkdir()
    cache.write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={tmp_path}\n")
    build.discard_moved_cache(cache.parent, tmp_path)
    assert cache.exists()


# ---- CMake itself and Python ------------------------------------------------------------------------------


def test_a_checkout_whose_path_is_no_regular_expression(build, tmp_path):
    checkout, cmake = tmp_path / "c++" / "checkout", build.find_cmake()
    for name in ("CMakeLists.txt", "csrc"):
        checkout.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, checkout / name)
    options = ("-DMPI_GDR_EXTENSION=OFF", "-DMPI_GDR_UNITY=OFF", "-G", "Unix Makefiles")
    subprocess.run([cmake, "-S", checkout, "-B", tmp_path / "build", *options], check=True)
    commands = (tmp_path / "build" / "compile_commands.json").read_text()
    assert "device/host/reduce.cpp" in commands and "device/cuda/" not in commands


def cmake_in(folder, output):
    folder.mkdir()
    script(folder / "cmake", f"echo '{output}'")
    return folder


@pytest.fixture
def only_path(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    more = ":/bin:/usr/bin"
    return lambda folder: monkeypatch.setenv("PATH", f"{folder}{more if folder.exists() else ''}")


def test_without_cmake(build, only_path, tmp_path):
    only_path(tmp_path / "empty")
    assert 'pip install "setuptools>=77" "cmake>=3.26" ninja' in sentence(build.find_cmake)


@pytest.mark.parametrize(
    ("output", "message"),
    [("cmake version 3.16.3", "CMake 3.16, which is too old"), ("no", "no CMake that works")],
)
def test_a_cmake_that_is_of_no_use(build, only_path, tmp_path, output, message):
    only_path(cmake_in(tmp_path / "bin", output))
    text = sentence(build.find_cmake)
    assert message in text and "pip install" in text


def test_an_old_setuptools(build, monkeypatch):
    monkeypatch.setattr(build.setuptools, "__version__", "65.5.0")
    assert 'setuptools 65.5.0 is too old: `pip install "setuptools>=77"' in sentence(build.check_setuptools)


def test_a_python_without_headers(build, monkeypatch, tmp_path):
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(tmp_path))
    text = sentence(build.check_python)
    assert f"no Python.h in {tmp_path}" in text and "-dev" in text
