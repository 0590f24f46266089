"""What setup.py and CMake find, and the one sentence where something is missing. Nothing is compiled here but
programs of a few lines."""

import functools
import os
import re
import subprocess
import sys

import pytest
from support.building import GIVE_UP, ROOT, load_setup, script


@pytest.fixture(scope="module")
def build():
    return load_setup()


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


def test_without_a_compiler(build, monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no C++ compiler" in sentence(build.check_compiler)
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    assert "no C++ compiler" in sentence(build.check_compiler)


# ---- CMake's part -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def find_mpi(build, tmp_path_factory):
    """What find.cmake makes of an mpicc: {variable: value}, or the sentence of give_up()."""
    folder = tmp_path_factory.mktemp("find_mpi")
    (folder / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.18)\nproject(probe LANGUAGES C)\n{GIVE_UP}"
        f"include({ROOT}/csrc/transport/mpi/find.cmake)\n"
        "foreach(property INCLUDE_DIRECTORIES LINK_LIBRARIES LINK_OPTIONS)\n"
        "  get_target_property(value mpi INTERFACE_${property})\n"
        '  message(STATUS "${property}=${value}")\n'
        "endforeach()\n"
        'message(STATUS "FOLDERS=${MPI_GDR_MPI_LIBRARY_DIRS}")\n'
    )

    def run(mpicc):  # run.cached(): of the last one
        command = [build.find_cmake(), "-S", folder, "-B", folder / "build"]
        if (ninja := build.find_program("ninja")) is not None:
            command += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        command += [*(f"-U{name}" for name in build.FORGOTTEN), f"-DMPI_C_COMPILER={mpicc}"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if result.returncode != 0:
            return run.cached("MPI_GDR_PROBLEM")
        return dict(re.findall(r"^-- ([A-Z_]+)=(.*)$", result.stdout, re.M))

    run.cached = functools.partial(build.cached, folder / "build")
    return run


@pytest.mark.parametrize("body", ["exit 1", "echo hello", "echo cc -I/nowhere -L/nowhere -lno_such_mpi"])
def test_mpicc_that_is_none(find_mpi, tmp_path, body):
    mpicc = script(tmp_path / "mpicc", body)
    text = find_mpi(mpicc)
    assert mpicc in text and "set MPICC to the mpicc of an MPI installation that works." in text


def test_the_mpi_of_this_environment_is_usable(build, find_mpi):
    mpicc = build.find_mpicc()
    found = find_mpi(mpicc)
    library, folder = found["LINK_LIBRARIES"], found["FOLDERS"]
    assert os.path.dirname(library) == folder and os.path.exists(library)
    # LD_LIBRARY_PATH comes before DT_RUNPATH, and after DT_RPATH.
    assert found["LINK_OPTIONS"].split(";") == ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{folder}"]
    assert os.access(find_mpi.cached("MPI_GDR_MPIEXEC"), os.X_OK)


@pytest.mark.parametrize("option", ["-show", "-showme:compile"])
def test_the_spellings_of_wrappers_without_run_path(build, find_mpi, tmp_path, option):
    """MPICH's and Open MPI's. The run path is the folder of the library, whatever the wrapper says of it."""
    found = find_mpi(build.find_mpicc())
    words = f"cc -I{found['INCLUDE_DIRECTORIES']} -L{found['FOLDERS']} -lmpi"
    answer = f'case "$1" in {option}|-showme*) echo {words};; *) exit 1;; esac'
    assert find_mpi(script(tmp_path / "mpicc", answer)) == found


@pytest.mark.skipif(not (ROOT / "mpi_backend" / "_build_info.json").exists(), reason="nothing is built here")
def test_another_mpi_may_be_chosen_when_the_extension_is_loaded():
    from mpi_backend.extension import _C

    dynamic = subprocess.run(
        ["readelf", "-d", _C.__file__], capture_output=True, text=True, check=True
    ).stdout
    assert "(RUNPATH)" in dynamic and "(RPATH)" not in dynamic
    assert re.search(r"\(NEEDED\).*\[libmpi\.so\.\d+\]", dynamic)


def test_the_extension_exports_nothing_of_a_static_libstdcxx(build, tmp_path):
    """As a compiler without a shared one links it. Exported, it shared symbols with that of the process: a
    number written into a text was lost, or ended the process."""
    folder = ROOT / "build" / f"{sys.implementation.cache_tag}-ninja"
    ninja = build.find_program("ninja")
    if not ninja or not (folder / "build.ninja").exists():
        pytest.skip("the extension was not built here by ninja")
    command = subprocess.run(
        [ninja, "-C", str(folder), "-t", "commands", "_C"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[-1]
    linked = tmp_path / "_C.so"
    command = re.sub(r" -shared (.*) -o \S+", rf" -shared -static-libstdc++ \1 -o {linked}", command)
    subprocess.run(command, shell=True, cwd=folder, check=True)
    names = subprocess.run(
        ["nm", "-DC", "--defined-only", str(linked)], capture_output=True, text=True, check=True
    ).stdout
    assert "PyInit__C" in names
    assert "std::locale" not in names


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (["mpiexec", "mpirun"], "mpiexec"),
        (["mpirun"], "mpirun"),
        (["mpiexec", "mpiexec.openmpi"], "mpiexec.openmpi"),
        ([], ""),
    ],
)
def test_the_launcher_beside_mpicc(find_mpi, tmp_path, present, expected):
    for name in present:
        script(tmp_path / name, "exit 0")
    find_mpi(script(tmp_path / "mpicc.openmpi", "exit 1"))  # looked for before the library
    assert find_mpi.cached("MPI_GDR_MPIEXEC") == (str(tmp_path / expected) if expected else "")


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
