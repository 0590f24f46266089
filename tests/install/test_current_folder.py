"""Commands and their ranks import nothing from the current folder, where a checkout hides the package."""

import shutil
import sys
from pathlib import Path

import pytest
from support.processes import BIN, captured, clean_environment

ROOT = Path(__file__).parents[2]
COMMANDS = {"script": [sys.executable, str(BIN / "mpi-gdr")], "module": [sys.executable, "-m", "mpi_backend"]}
# Each way of starting ranks: as the launcher itself, and in a child process.
SMALL = ("-b", "8", "-e", "8", "-n", "1", "-w", "0")
JOBS = {
    "bench": (COMMANDS["script"], ("bench", "-n", "2", "all_reduce", *SMALL)),
    "bench-module": (COMMANDS["module"], ("bench", "-n", "2", "all_reduce", *SMALL)),
    "bench-compare": (COMMANDS["script"],
                      ("bench", "-n", "1", "all_reduce", "--compare", "gloo", "--rounds", "1", *SMALL)),
    "tune": (COMMANDS["script"],
             ("tune", "-n", "2", "--time", "1", "-e", "64", "--collectives", "broadcast", "--out", "-")),
}  # fmt: skip


@pytest.fixture
def sources(tmp_path):
    """The package's sources without the extension, beside a torch that cannot be imported."""
    ignored = shutil.ignore_patterns("*.so", "_build_info.json", "__pycache__")
    shutil.copytree(ROOT / "mpi_backend", tmp_path / "mpi_backend", ignore=ignored)
    (tmp_path / "torch.py").write_text("raise ImportError('torch of the current folder')\n")
    return tmp_path


def run(command, folder, **variables):
    """(stdout + stderr, status)."""
    done = captured(command, check=False, timeout=240, cwd=folder, env=clean_environment(**variables))
    return done.stdout + done.stderr, done.returncode


@pytest.mark.parametrize(("command", "job"), JOBS.values(), ids=JOBS)
def test_ranks_import_the_installed_package(sources, command, job):
    output, status = run([*command, *job], sources)
    assert status == 0, output


@pytest.mark.parametrize("autoload", ["0", "1"])
def test_a_module_of_the_current_folder_is_replaced(sources, autoload):
    (sources / "torch.py").unlink()  # AUTOLOAD=0: the package imports torch first
    command = [*COMMANDS["module"], "info", "--json"]
    output, status = run(command, sources, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
    assert status == 0 and str(sources) not in output, output


def test_without_an_installed_package_the_folder_of_the_sources_is_used(sources):
    output, status = run([sys.executable, "-S", "-m", "mpi_backend", "--version"], sources)
    assert status == 0 and "commit unknown" in output, output


def test_runpy_leaves_the_callers_path_alone(sources, tmp_path_factory):
    (sources / "torch.py").unlink()
    folder = tmp_path_factory.mktemp("caller")
    program = folder / "caller.py"
    (folder / "neighbour.py").touch()
    program.write_text(
        "import runpy, sys\nsys.argv[1:] = ['--version']\n"
        "try: runpy.run_module('mpi_backend', run_name='__main__')\n"
        "except SystemExit: import neighbour\n"
    )
    output, status = run([sys.executable, program], sources)
    assert status == 0 and output.startswith("mpi-gdr "), output


def test_a_folder_without_init_is_no_package(sources, tmp_path_factory):
    folder = tmp_path_factory.mktemp("namespace")
    (folder / "mpi_backend").mkdir()
    command = [sys.executable, "-S", "-m", "mpi_backend", "--version"]
    output, status = run(command, sources, PYTHONPATH=str(folder))
    assert status == 0 and "commit unknown" in output, output


def test_a_source_folder_that_hides_the_package_is_an_error(sources):
    (sources / "torch.py").unlink()
    output, status = run([sys.executable, "-c", "import mpi_backend; mpi_backend.Options"], sources)
    message = output.splitlines()[-1]
    assert status == 1 and f"imported from {sources / 'mpi_backend'}, a source folder" in message
    assert f"the installed package in {ROOT / 'mpi_backend'}: start in another folder" in message


def test_the_folder_of_a_users_script_stays_first(tmp_path):
    for folder in ("script", "current"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "neighbour.py").write_text(f"print('from {folder}')\n")
    (tmp_path / "script" / "train.py").write_text("import neighbour\n")
    output, status = run([*COMMANDS["script"], "run", "-n", "1", "../script/train.py"], tmp_path / "current")
    assert status == 0 and "from script" in output and "from current" not in output
