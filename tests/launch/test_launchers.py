"""Unedited programs under every launcher: results, variables, exit status, nothing left behind."""

import re
from pathlib import Path

import pytest
from support import processes, shared_memory

PROGRAMS = Path(__file__).parent / "programs"
PLAIN = PROGRAMS / "plain.py"


def launched(launcher, size):
    return {
        "mpiexec": [processes.mpiexec(), "-n", size, processes.sys.executable],
        "mpi-gdr run": [*processes.MPI_GDR_RUN, "-n", size],
        "torchrun": [*processes.TORCHRUN, "--standalone", f"--nproc-per-node={size}"],
        "mpiexec -n 1 torchrun": [
            processes.mpiexec(), "-n", 1, *processes.TORCHRUN, "--standalone", f"--nproc-per-node={size}"
        ],
    }[launcher]  # fmt: skip


LAUNCHERS = ["mpiexec", "mpi-gdr run", "torchrun", "mpiexec -n 1 torchrun"]


@pytest.fixture(autouse=True)
def no_shared_memory_left():
    with shared_memory.nothing_left():
        yield


def finished_ranks(output):
    return sorted(re.findall(r"rank (\d+) of \d+ is done", output))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_unedited_program(launcher):
    output = processes.run([*launched(launcher, 2), PLAIN, "--variables"]).expect(0)
    assert finished_ranks(output) == ["0", "1"]
    found = sorted(re.findall(r"variables (RANK=.*?LOCAL_WORLD_SIZE=\d+)", output))
    assert found == [f"RANK={r} WORLD_SIZE=2 LOCAL_RANK={r} LOCAL_WORLD_SIZE=2" for r in range(2)]


def test_spawn(tmp_path):
    command = [processes.sys.executable, PROGRAMS / "spawned.py", "2", f"file://{tmp_path}/meeting", "-1"]
    assert finished_ranks(processes.run(command).expect(0)) == ["0", "1"]


def test_rank_that_never_starts_is_named(tmp_path):
    """The other one waits for it before MPI_Init, and gives up at the deadline of init_process_group."""
    command = [processes.sys.executable, PROGRAMS / "spawned.py", "2", f"file://{tmp_path}/meeting", "1"]
    output = processes.run(command).expect(1)
    assert re.search(r"DistBackendError: mpi-gdr: .*rank\(s\) 1 of 2 did not arrive within", output), output


@pytest.mark.parametrize("launcher", ["mpiexec", "torchrun"])
def test_exit_without_destroy_is_clean(launcher):
    output = processes.run([*launched(launcher, 2), PLAIN, "--no-destroy"]).expect(0)
    assert finished_ranks(output) == ["0", "1"]


@pytest.mark.parametrize("launcher", ["mpi-gdr run", "torchrun"])
def test_exception_in_one_rank_ends_the_job(launcher):
    result = processes.run([*launched(launcher, 2), PLAIN, "--fail"], timeout=60)
    assert result.status not in (None, 0), result.tail()
    assert "ArithmeticError: this rank fails" in result.output
    assert finished_ranks(result.output) == []


def test_exit_status_is_passed_on():
    processes.run([*launched("mpi-gdr run", 2), PLAIN, "--exit", "7"]).expect(7)
