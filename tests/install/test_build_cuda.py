"""CMake's choice of nvcc, and its message without one."""

import re
from pathlib import Path

import pytest
from support.building import GIVE_UP, ROOT, load_setup
from support.cases import cases
from support.processes import captured
from support.processes import write_script as script


@pytest.fixture
def no_cuda(monkeypatch):
    """An environment whose variables lead to no nvcc."""
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH", "MPI_GDR_BUILD_CUDA", "MPI_GDR_CUDA_ARCHITECTURES"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def nvcc_in(folder, version="13.0", status=0, known=(80, 90)):
    folder.mkdir(parents=True)
    answer = (
        f'test "$1" = --version && echo "Cuda compilation tools, release {version}, V{version}.1" && exit 0\n'
        f'test "$1" = --list-gpu-arch && printf "compute_%s\\n" {" ".join(map(str, known))} && exit 0'
    )
    return script(folder / "nvcc", f"{answer}\necho 'fatal: unsupported GNU version' >&2\nexit {status}")


@pytest.fixture
def find_cuda(no_cuda, tmp_path):
    """Runs find.cmake without other programs: ((nvcc, version, architectures), message)."""
    program = load_setup().find_cmake()
    no_cuda.setenv("PATH", "/none")

    def run(torch="", cmake="", packages="/none", driver="/none"):
        file = tmp_path / "probe.cmake"
        file.write_text(
            f"set(MPI_GDR_TORCH_CUDA {torch})\nset(MPI_GDR_PYTHON_PACKAGES {packages})\n{GIVE_UP}"
            "set(CMAKE_CXX_COMPILER c++)\n"
            f"set(CUDA_FOLDER /none)\nset(CUDA_DRIVER {driver})\nset(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)\n"
            f"{f'set(CMAKE_VERSION {cmake})' if cmake else ''}\n"
            f"include({ROOT}/csrc/device/cuda/find.cmake)\n"
            'message(STATUS "FOUND ${MPI_GDR_NVCC}|${MPI_GDR_CUDA_VERSION}|${MPI_GDR_CUDA_ARCHITECTURES}")\n'
            'message(STATUS "WITHOUT ${MPI_GDR_NO_CUDA}")\n'
        )
        result = captured([program, "-P", file], check=False, cwd=tmp_path)
        output = " ".join(result.stderr.split())
        found = re.search(r"FOUND (.*)\|(.*)\|(.*)", result.stdout)
        run.reason = re.search(r"WITHOUT (.*)|$", result.stdout)[1]
        return (found.groups() if found else None), output

    return run


def test_cuda_may_be_refused(no_cuda, find_cuda, tmp_path):
    no_cuda.setenv("CUDACXX", nvcc_in(tmp_path / "bin"))
    no_cuda.setenv("MPI_GDR_BUILD_CUDA", "off")
    found, output = find_cuda(torch="13.0", driver="/dev/null")
    assert found[0] == "" and output == "" and find_cuda.reason == "MPI_GDR_BUILD_CUDA=off"


def test_an_old_cmake_leaves_cuda_out_and_goes_on(no_cuda, find_cuda, tmp_path):
    """Debian 12's."""
    no_cuda.setenv("CUDACXX", nvcc_in(tmp_path / "bin"))
    found, output = find_cuda(cmake="3.25.1")
    assert found[0] == "" and "without CUDA: " in output and "CMake 3.25.1, and CUDA needs 3.26" in output
    no_cuda.setenv("MPI_GDR_BUILD_CUDA", "on")
    found, output = find_cuda(cmake="3.25.1")
    assert found is None and "MPI_GDR_BUILD_CUDA=on, but " in output and "pip install" in output


def test_the_places_of_nvcc_in_order(no_cuda, find_cuda, tmp_path):
    places = {name: nvcc_in(tmp_path / name / "bin") for name in ("cxx", "home", "path", "nvidia/cu13")}
    assert find_cuda(packages=tmp_path)[0][0] == places["nvidia/cu13"]
    no_cuda.setenv("PATH", str(tmp_path / "path" / "bin"))
    assert find_cuda(packages=tmp_path)[0][0] == places["path"]
    no_cuda.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert find_cuda()[0][0] == places["home"]
    no_cuda.setenv("CUDACXX", places["cxx"])
    assert find_cuda()[0][0] == places["cxx"]


def test_without_nvcc_there_is_no_cuda_and_it_is_an_error_only_if_asked_for(no_cuda, find_cuda):
    found, output = find_cuda()
    assert found[0] == "" and "without CUDA: no nvcc found" in output
    assert find_cuda.reason.startswith("no nvcc found in $CUDACXX")
    no_cuda.setenv("MPI_GDR_BUILD_CUDA", "on")
    found, output = find_cuda()
    assert found is None and "MPI_GDR_BUILD_CUDA=on, but no nvcc found" in output


def test_with_a_driver_and_a_torch_for_cuda_a_missing_nvcc_is_an_error(no_cuda, find_cuda, tmp_path):
    for torch, driver in (("", "/dev/null"), ("13.0", "/none")):
        found, output = find_cuda(torch=torch, driver=driver)
        assert found[0] == "" and "without CUDA: no nvcc found" in output
    found, output = find_cuda(torch="13.0", driver="/dev/null")
    assert found is None and "no nvcc found" in output and "=off builds without it" in output
    names = ("cuda-nvcc", "cuda-runtime", "cuda-crt", "nvvm", "cuda-cccl")
    assert f"`pip install {' '.join(f'nvidia-{name}==13.0.*' for name in names)}` brings nvcc" in output
    found, output = find_cuda(torch="12.8", driver="/dev/null")
    assert found is None and "Install the toolkit of CUDA 12.8" in output
    no_cuda.setenv("CUDACXX", nvcc_in(tmp_path / "bin", status=1))
    found, output = find_cuda(torch="13.0", driver="/dev/null")
    assert found is None and "does not build one kernel" in output and "nvidia-cuda-nvcc==13.0.*" in output


def test_nvcc_from_python_packages_links_libraries_in_lib(no_cuda, find_cuda, tmp_path):
    """nvcc itself looks in lib64."""
    nvcc = Path(nvcc_in(tmp_path / "nvidia" / "cu13" / "bin"))
    nvcc.write_text(nvcc.read_text().replace("exit 0", f'exit 0\necho "$*" > {tmp_path}/options'))
    assert find_cuda(packages=tmp_path)[0][0] == str(nvcc)
    assert f" -L{tmp_path}/nvidia/cu13/lib " in (tmp_path / "options").read_text()


@pytest.mark.parametrize(
    ("version", "status", "expected"),
    [("11.8", 0, "is of CUDA 11.8, which is older than 12.0"), ("12.4", 1, "unsupported GNU version")],
)
def test_an_nvcc_that_is_of_no_use(no_cuda, find_cuda, tmp_path, version, status, expected):
    no_cuda.setenv("CUDACXX", nvcc_in(tmp_path / "bin", version, status))
    assert find_cuda()[0][0] == ""
    no_cuda.setenv("MPI_GDR_BUILD_CUDA", "on")
    found, output = find_cuda()
    assert found is None and expected in output


def test_an_nvcc_that_is_newer_than_torchs_cuda(no_cuda, find_cuda, tmp_path):
    """Its programs need a newer driver than torch."""
    no_cuda.setenv("CUDACXX", nvcc_in(tmp_path / "bin"))
    found, output = find_cuda(torch="12.8")
    assert found[0] == ""
    assert "is of CUDA 13.0, and torch of CUDA 12.8" in output and "CUDA 12 is needed" in output
    for torchs in ("13.1", "14.0"):
        assert find_cuda(torch=torchs)[0][1] == "13.0"


def test_an_nvcc_that_works(no_cuda, find_cuda, tmp_path):
    nvcc = nvcc_in(tmp_path / "bin")
    no_cuda.setenv("CUDACXX", nvcc)
    assert find_cuda()[0] == (nvcc, "13.0", "80;90")
    no_cuda.setenv("MPI_GDR_CUDA_ARCHITECTURES", "100a 90;80")
    assert find_cuda()[0] == (nvcc, "13.0", "80;90;100a")


@pytest.mark.parametrize(
    ("known", "architectures"),
    [((75, 80, 90, 100, 103, 110, 120, 121), "80;90;100;120"), ((70, 80, 89, 90, 100, 101), "80;90;100")],
)
def test_the_architectures_are_those_of_nvcc(no_cuda, find_cuda, tmp_path, known, architectures):
    no_cuda.setenv("CUDACXX", nvcc_in(tmp_path / "bin", known=known))
    assert find_cuda()[0][2] == architectures


@cases("name, value", ("MPI_GDR_BUILD_CUDA", "maybe"), ("MPI_GDR_CUDA_ARCHITECTURES", "sm_80"))
def test_settings_of_cuda_that_are_none(no_cuda, find_cuda, name, value):
    no_cuda.setenv(name, value)
    found, output = find_cuda()
    assert found is None and f"{name}={value} is not valid" in output
