"""What setup.py finds, and the one sentence it ends with where something is missing. Nothing is compiled here
but a two-line program."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def build():
    """setup.py as a module; it builds nothing unless it is run."""
    spec = importlib.util.spec_from_file_location("mpi_gdr_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def script(path, body):
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def sentence(call):
    with pytest.raises(SystemExit) as stop:
        call()
    text = str(stop.value)
    assert text.startswith("mpi-gdr: ") and "\n" not in text
    return text


def test_without_torch(build, monkeypatch):
    def missing(name):
        raise build.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(build.importlib.metadata, "version", missing)
    assert "pip install --no-build-isolation ." in sentence(build.torch_version)
    assert build.requirements() == ["torch"]


def test_metadata_without_torch_stops_before_pip_would_download_one(tmp_path):
    """pip asks for the metadata, then fetches what they require: the build comes too late to stop it."""
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
    command = [sys.executable, "-c", code, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert "--no-build-isolation" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_old_torch(build, monkeypatch):
    monkeypatch.setattr(build.importlib.metadata, "version", lambda name: "2.4.1+cu121")
    assert "torch 2.4.1+cu121 is too old" in sentence(build.torch_version)


def test_the_wheel_asks_for_the_torch_it_was_built_for(build, monkeypatch):
    monkeypatch.setattr(build.importlib.metadata, "version", lambda name: "2.13.0+cpu")
    assert build.requirements() == ["torch==2.13.*"]


def test_without_mpi(build, monkeypatch, tmp_path):
    monkeypatch.delenv("MPICC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    text = sentence(build.find_mpicc)
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


@pytest.mark.parametrize("body", ["exit 1", "echo hello"])
def test_mpicc_that_is_none(build, tmp_path, body):
    mpicc = script(tmp_path / "mpicc", body)
    assert "neither -show nor -showme" in sentence(lambda: build.wrapper_command(mpicc))


def test_open_mpi_spelling(build, tmp_path):
    mpicc = script(tmp_path / "mpicc", 'test "$1" = -showme && echo gcc -I/o/include -L/o/lib -lmpi')
    assert build.wrapper_command(mpicc) == ["gcc", "-I/o/include", "-L/o/lib", "-lmpi"]


def test_headers_without_a_library(build, tmp_path):
    mpicc = str(tmp_path / "mpicc")
    (tmp_path / "mpi.h").write_text("int MPI_Init(int*, char***);\n")
    flags = build.MpiFlags(include_dirs=[str(tmp_path)], libraries=["no_such_mpi"])
    text = sentence(lambda: build.check_mpi(mpicc, flags))
    assert mpicc in text and "no_such_mpi" in text


def test_without_a_compiler(build, monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no C++ compiler" in sentence(build.cxx_compiler)


@pytest.mark.parametrize(
    ("command", "rpaths"),
    [
        ("cc -I/m/include -L/m/lib -Wl,-rpath -Wl,/m/lib -Wl,--enable-new-dtags -lmpi", ["/m/lib"]),
        ("gcc -I /m/include -L/m/lib -Wl,-rpath,/m/lib -Wl,-rpath=/m/more -lmpi", ["/m/lib", "/m/more"]),
        ("gcc -I/m/include -L/m/lib -Xlinker -rpath -Xlinker /m/lib -lmpi", ["/m/lib"]),
        ("gcc -O2 -DX=1 -I/m/include -L/m/lib -L/m/lib -lmpi -lmpi", []),
    ],
)
def test_flags_of_wrappers(build, command, rpaths):
    flags = build.parse_flags(command.split())
    assert flags.include_dirs == ["/m/include"]
    assert flags.library_dirs == ["/m/lib"]
    assert flags.libraries == ["mpi"]
    assert flags.rpaths == rpaths


def test_a_wrapper_without_run_path_gets_the_folder_of_its_library(build, tmp_path):
    (tmp_path / "libmpi.so.40").touch()
    assert build.parse_flags(["gcc", f"-L{tmp_path}", "-L/m/other", "-lmpi"]).rpaths == [str(tmp_path)]


def test_the_mpi_of_this_environment_is_usable(build):
    mpicc = build.find_mpicc()
    build.check_mpi(mpicc, build.parse_flags(build.wrapper_command(mpicc)))
    assert os.access(build.find_mpiexec(mpicc), os.X_OK)


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (["mpiexec", "mpirun"], "mpiexec"),
        (["mpirun"], "mpirun"),
        (["mpiexec", "mpiexec.openmpi"], "mpiexec.openmpi"),
        ([], ""),
    ],
)
def test_the_launcher_beside_mpicc(build, tmp_path, present, expected):
    for name in present:
        script(tmp_path / name, "exit 0")
    found = build.find_mpiexec(str(tmp_path / "mpicc.openmpi"))
    assert found == (str(tmp_path / expected) if expected else "")


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


# ---- CMake and Python -------------------------------------------------------------------------------------


def cmake_in(folder, says):
    """A folder for PATH with a program of this name."""
    folder.mkdir()
    script(folder / "cmake", f"echo '{says}'")
    return folder


@pytest.fixture
def only_path(monkeypatch, tmp_path):
    """Programs are looked for in this folder alone."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return lambda folder: monkeypatch.setenv(
        "PATH", f"{folder}:/bin:/usr/bin" if folder.exists() else str(folder)
    )


def test_without_cmake(build, only_path, tmp_path):
    only_path(tmp_path / "empty")
    text = sentence(build.find_cmake)
    assert 'pip install "setuptools>=77" "cmake>=3.26" ninja' in text


@pytest.mark.parametrize(
    ("says", "told"),
    [("cmake version 3.16.3", "CMake 3.16, which is too old"), ("no", "no CMake that works")],
)
def test_a_cmake_that_is_of_no_use(build, only_path, tmp_path, says, told):
    only_path(cmake_in(tmp_path / "bin", says))
    text = sentence(build.find_cmake)
    assert told in text and "pip install" in text


def test_an_old_setuptools(build, monkeypatch):
    monkeypatch.setattr(build.setuptools, "__version__", "65.5.0")
    assert 'setuptools 65.5.0 is too old: `pip install "setuptools>=77"' in sentence(build.check_setuptools)


def test_a_python_without_headers(build, monkeypatch, tmp_path):
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(tmp_path))
    text = sentence(build.check_python)
    assert f"no Python.h in {tmp_path}" in text and "-dev" in text


# ---- CUDA -------------------------------------------------------------------------------------------------


@pytest.fixture
def no_cuda(build, monkeypatch, tmp_path):
    """An environment that leads to no nvcc, but for a path that is given as the last resort."""
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH", "MPI_GDR_BUILD_CUDA", "MPI_GDR_CUDA_ARCHITECTURES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(build, "cuda_of_torch", lambda: "")
    return monkeypatch


def nvcc_in(folder, version="13.0", status=0):
    folder.mkdir(parents=True)
    answer = (
        f'test "$1" = --version && echo "Cuda compilation tools, release {version}, V{version}.1" && exit 0'
    )
    return script(folder / "nvcc", f"{answer}\necho 'fatal: unsupported GNU version' >&2\nexit {status}")


def test_cuda_may_be_refused(build, no_cuda, tmp_path):
    no_cuda.setenv("CUDACXX", nvcc_in(tmp_path / "bin"))
    no_cuda.setenv("MPI_GDR_BUILD_CUDA", "off")
    assert build.find_cuda(new_cmake(build)) is None


def new_cmake(build):
    return build.CMake("cmake", build.OLDEST_CMAKE_OF_CUDA)


def test_an_old_cmake_leaves_cuda_out_and_goes_on(build, no_cuda, tmp_path, capsys):
    """That of Debian 12."""
    no_cuda.setenv("CUDACXX", nvcc_in(tmp_path / "bin"))
    cmake = build.CMake("/usr/bin/cmake", (3, 25))
    assert build.find_cuda(cmake) is None
    said = capsys.readouterr().err
    assert "without CUDA: /usr/bin/cmake is CMake 3.25" in said and "pip install" in said
    no_cuda.setenv("MPI_GDR_BUILD_CUDA", "on")
    assert "CMake 3.25, and CUDA needs 3.26" in sentence(lambda: build.find_cuda(cmake))


def test_the_places_of_nvcc_in_order(build, no_cuda, tmp_path):
    places = {name: nvcc_in(tmp_path / name / "bin") for name in ("cxx", "home", "path", "nvidia/cu13")}
    no_cuda.setattr(build.sysconfig, "get_path", lambda _: str(tmp_path))
    no_cuda.setenv("PATH", str(tmp_path))
    no_cuda.setattr(build, "CUDA_FOLDER", str(tmp_path / "none"))
    assert build.find_nvcc() == places["nvidia/cu13"]
    no_cuda.setenv("PATH", str(tmp_path / "path" / "bin"))
    assert build.find_nvcc() == places["path"]
    no_cuda.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert build.find_nvcc() == places["home"]
    no_cuda.setenv("CUDACXX", places["cxx"])
    assert build.find_nvcc() == places["cxx"]


def test_without_nvcc_there_is_no_cuda_and_it_is_an_error_only_if_asked_for(build, no_cuda):
    no_cuda.setattr(build, "find_nvcc", lambda: None)
    assert build.find_cuda(new_cmake(build)) is None
    no_cuda.setenv("MPI_GDR_BUILD_CUDA", "on")
    assert "MPI_GDR_BUILD_CUDA=on, but no nvcc found" in sentence(lambda: build.find_cuda(new_cmake(build)))


@pytest.mark.parametrize(
    ("version", "status", "says"),
    [("11.8", 0, "is of CUDA 11.8, which is older than 12.0"), ("12.4", 1, "unsupported GNU version")],
)
def test_an_nvcc_that_is_of_no_use(build, no_cuda, tmp_path, version, status, says):
    no_cuda.setenv("CUDACXX", nvcc_in(tmp_path / "bin", version, status))
    assert build.find_cuda(new_cmake(build)) is None
    no_cuda.setenv("MPI_GDR_BUILD_CUDA", "on")
    assert says in sentence(lambda: build.find_cuda(new_cmake(build)))


def test_an_nvcc_that_is_newer_than_torchs_cuda(build, no_cuda, tmp_path):
    """Its programs need a newer driver than torch does."""
    no_cuda.setenv("CUDACXX", nvcc_in(tmp_path / "bin"))
    no_cuda.setattr(build, "cuda_of_torch", lambda: "12.8")
    assert build.find_cuda(new_cmake(build)) is None
    no_cuda.setenv("MPI_GDR_BUILD_CUDA", "on")
    text = sentence(lambda: build.find_cuda(new_cmake(build)))
    assert "is of CUDA 13.0, and torch of CUDA 12.8" in text and "CUDA 12 is needed" in text
    for torchs in ("13.1", "14.0"):
        no_cuda.setattr(build, "cuda_of_torch", lambda torchs=torchs: torchs)
        assert build.find_cuda(new_cmake(build)).version == "13.0"


def test_an_nvcc_that_works(build, no_cuda, tmp_path):
    nvcc = nvcc_in(tmp_path / "bin")
    no_cuda.setenv("CUDACXX", nvcc)
    no_cuda.setenv("MPI_GDR_CUDA_ARCHITECTURES", "90;80")
    cuda = build.find_cuda(new_cmake(build))
    assert cuda == build.Cuda(nvcc, "13.0", ["80", "90"])
    assert cuda.record() == {"version": "13.0", "architectures": ["sm_80", "sm_90", "PTX"]}


@pytest.mark.parametrize(
    ("name", "value"), [("MPI_GDR_BUILD_CUDA", "maybe"), ("MPI_GDR_CUDA_ARCHITECTURES", "sm_80")]
)
def test_settings_of_cuda_that_are_none(build, no_cuda, name, value):
    no_cuda.setenv(name, value)
    assert f"{name}={value} is not valid" in sentence(lambda: build.find_cuda(new_cmake(build)))


# ---- what is shipped --------------------------------------------------------------------------------------

# Of the repository, not of the package.
NOT_SHIPPED = (".ci/", ".github/", ".gitignore")


def egg_info(folder):
    """What setuptools makes of setup.py, pyproject.toml and MANIFEST.in."""
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return folder / "mpi_gdr.egg-info"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is not a checkout")
def test_a_source_distribution_has_all_files_of_the_repository(tmp_path):
    listed = (egg_info(tmp_path) / "SOURCES.txt").read_text().splitlines()
    shipped = {os.path.normpath(name) for name in listed if not name.startswith(str(tmp_path))}
    git = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    tracked = {name for name in git.stdout.splitlines() if not name.startswith(NOT_SHIPPED)}
    assert tracked - shipped == set()
    assert {
        name for name in shipped - tracked if "_build_info" in name or name.endswith((".so", ".pyc"))
    } == set()


def test_the_metadata_names_licence_authors_and_a_readme_without_relative_links(tmp_path):
    text = (egg_info(tmp_path) / "PKG-INFO").read_text()
    head, readme = text.split("\n\n", 1)
    for line in (
        "License-Expression: BSD-3-Clause",
        "License-File: LICENSE",
        "Author: The mpi-gdr authors",
        "Description-Content-Type: text/markdown",
    ):
        assert line in head.splitlines()
    assert readme.startswith("# mpi-gdr")
    assert re.findall(r"\]\((?!https?:)", readme) == []
    assert "installing (`docs/install.md`)" in readme


def test_the_commit_of_a_checkout(build, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "ROOT", tmp_path)
    assert build.commit() is None

    def git(*arguments):
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, timeout=60
        )

    git("init")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "1")
    found = build.commit()
    assert re.fullmatch("[0-9a-f]{40}", found)
    (tmp_path / "file").write_text("2")
    assert build.commit() == f"{found}+changes"
