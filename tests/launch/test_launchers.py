"""Unedited programs under every launcher: results, variables, exit status, no remains."""

import os
import re
from pathlib import Path

import pytest
from support import processes

pytestmark = pytest.mark.usefixtures("no_shared_memory_left")
PROGRAMS = Path(__file__).parent / "programs"
PLAIN = PROGRAMS / "plain.py"
ADDRESSES = (PLAIN, "--addresses")
LIKE_OPEN_MPI = [processes.sys.executable, PROGRAMS / "like_open_mpi.py"]
# The shell stays between launcher and rank.
IN_A_SHELL = ["sh", "-c", '"$0" "$@"; exit $?']


def launched(launcher, size):
    outer = [processes.mpiexec(), "-n", 1] if launcher == "mpiexec -n 1 torchrun" else []
    return [*outer, *processes.launched("torchrun" if outer else launcher, size)]


LAUNCHERS = ["mpiexec", "mpi-gdr run", "torchrun", "mpiexec -n 1 torchrun"]


def addresses(output):
    """(rank, address and port before, and after init_process_group) of each rank."""
    return sorted(re.findall(r"rank (\d+) of \d+: before (\S+), after (\S+)", output))


def finished_ranks(output):
    return sorted(re.findall(r"rank (\d+) of \d+ is done", output))


@pytest.mark.parametrize("launcher", [*LAUNCHERS, "a fake mpirun_rsh"])
def test_unedited_program(launcher, tmp_path):
    """The fake (programs/like_mpirun_rsh.py) is called by mpi-gdr run without a host file; MVP_* give the
    ranks before init."""
    if launcher in LAUNCHERS:
        words = launched(launcher, 2)
    else:
        fake = [processes.sys.executable, PROGRAMS / "like_mpirun_rsh.py", processes.mpiexec()]
        script = processes.write_script(tmp_path / "mpirun_rsh", f'exec {" ".join(map(str, fake))} "$@"')
        words = [*launched("mpi-gdr run", 2), "--mpiexec", script]
    output = processes.run([*words, PLAIN, "--variables"]).expect(0)
    assert finished_ranks(output) == ["0", "1"]
    found = sorted(re.findall(r"variables (RANK=.*?LOCAL_WORLD_SIZE=\d+)", output))
    assert found == [f"RANK={r} WORLD_SIZE=2 LOCAL_RANK={r} LOCAL_WORLD_SIZE=2" for r in range(2)]


def test_uneven_nodes_without_a_store():
    """The last rank is alone on its node by its launcher's variables, and the others share one core: no
    setting of the library may depend on that, or its collectives would not match."""
    alone = '[ "$PMI_RANK" != 2 ] || export MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0; exec "$0" "$@"'
    words = ["taskset", "-c", min(os.sched_getaffinity(0)), processes.mpiexec(), "-n", 3, "sh", "-c", alone]
    output = processes.run([*words, processes.sys.executable, PLAIN], 60).expect(0)
    assert finished_ranks(output) == ["0", "1", "2"]


@pytest.mark.warm
@pytest.mark.parametrize("launcher", ["mpiexec", "torchrun"])
@pytest.mark.parametrize("refusal", ["filter", "rank 1"])
def test_the_kernel_refuses_copies_between_ranks(launcher, refusal):
    """MPI carries long messages."""
    command = [*launched(launcher, 2), PROGRAMS / "refused_copies.py", refusal]
    output = processes.run(command, 40, MPI_GDR_SHM="off", MPI_GDR_P2P="mpi").expect(0)
    assert finished_ranks(output) == ["0", "1"]


@pytest.mark.full
def test_more_than_two_to_the_31_elements():
    """Takes minutes and 6 GiB of memory."""
    program = PROGRAMS.parents[1] / "support" / "large_program.py"
    output = processes.run([*launched("mpi-gdr run", 2), program], 900).expect()
    passed = [line.split()[-2] for line in output.splitlines() if line.endswith(" passed")]
    assert sorted(passed) == ["all_reduce"] * 2 + ["broadcast"] * 2 + ["recv"], output


def test_spawn(tmp_path):
    command = [processes.sys.executable, PROGRAMS / "spawned.py", "2", f"file://{tmp_path}/meeting", "-1"]
    assert finished_ranks(processes.run(command).expect(0)) == ["0", "1"]


@pytest.mark.warm
@pytest.mark.parametrize("launcher", ["mpiexec", "mpiexec, a shell", "mpi-gdr run", "like Open MPI's mpirun"])
def test_address_and_port_are_set_before_init(launcher):
    """Without communication, so that a shell between launcher and rank changes nothing. The last launcher
    cannot start this MPI, which then starts over the store at that address."""
    command = {
        "mpiexec": [*launched("mpiexec", 2), *ADDRESSES],
        "mpiexec, a shell": [*launched("mpiexec", 2)[:3], *IN_A_SHELL, processes.python(), *ADDRESSES],
        "mpi-gdr run": [*launched("mpi-gdr run", 2), *ADDRESSES],
        "like Open MPI's mpirun": [*LIKE_OPEN_MPI, 2, 1, *ADDRESSES],
    }[launcher]
    found = addresses(processes.run(command).expect(0))
    assert [rank for rank, *_ in found] == ["0", "1"]
    assert len({pair for _, *pairs in found for pair in pairs}) == 1, found
    assert re.fullmatch(r"127\.0\.0\.1:2\d{4}", found[0][1]), found


@pytest.mark.warm
def test_a_port_that_is_taken_is_replaced():
    output = processes.run([*launched("mpiexec", 2), *ADDRESSES, "--taken"]).expect(0)
    before, after = ({found[i] for found in addresses(output)} for i in (1, 2))
    assert len(before) == len(after) == 1 and before != after
    port = before.pop().rpartition(":")[2]
    assert output.count(f"port {port}, the MASTER_PORT of this job so far, is taken by another program") == 1


@pytest.mark.warm
def test_a_port_that_is_taken_where_mpi_cannot_publish_another():
    output = processes.run([*LIKE_OPEN_MPI, 2, 1, *ADDRESSES, "--taken"]).expect(1)
    assert re.search(r"rank 0 cannot listen on port 2\d{4}.*set MASTER_ADDR and MASTER_PORT", output)


def test_the_wrong_launcher_on_several_hosts_is_named():
    output = processes.run([*LIKE_OPEN_MPI, 2, 2, PLAIN]).expect(1)
    sentence = r"these 2 ranks were started by the mpirun of Open MPI, which cannot start the MPI that "
    sentence += r"mpi-gdr uses \(MPICH Version.*Start with `mpi-gdr run -n 2 script\.py`.*set MASTER_ADDR"
    assert re.search(sentence, output), output


@pytest.mark.warm
@pytest.mark.parametrize("stale", [{"WORLD_SIZE": "4"}, {"RANK": "0"}, {"RANK": "0", "WORLD_SIZE": "1"}])
def test_stale_variables_are_named(stale):
    output = processes.run([*launched("mpiexec", 2), PLAIN], **stale).expect_failure()
    variables = " and ".join(f"{name}={value}" for name, value in stale.items())
    verb = "are" if len(stale) > 1 else "is"
    assert f"{variables} {verb} set, but Hydra mpiexec started 2 ranks and this is rank" in output, output
    assert f"`unset {' '.join(stale)}` before the launcher" in output


def test_one_rank_alone_prints_a_line():
    output = processes.run([processes.sys.executable, PLAIN]).expect(0)
    assert output == (
        "mpi-gdr: no launcher: a world of one rank; start N ranks with `mpi-gdr run -n N plain.py`\n"
        "rank 0 of 1 is done\n"
    )


def test_one_rank_in_an_allocation_gets_the_command():
    output = processes.run([processes.sys.executable, PLAIN], SLURM_JOB_ID="7").expect(1)
    assert "SLURM_JOB_ID says that this is a batch system's allocation" in output
    assert "`mpi-gdr run -n 1 plain.py` for one rank" in output


def test_other_spellings_of_the_name():
    """Also: a single rank of another backend is left alone."""
    port = str(processes.free_port())
    command = [processes.sys.executable, PROGRAMS / "spellings.py"]
    output = processes.run(command, RANK_0_PORT=port).expect(0)
    assert output.splitlines() == [
        "gloo: environment variable RANK expected, but not set",
        *(f"{name}: mpi-gdr" for name in ("mpi_gdr", "MPI_GDR", "mpigdr")),
        "cpu:mpi_gdr: cpu:mpi_gdr",
        "mpi-gdr: no launcher: a world of one rank; start N ranks with `mpi-gdr run -n N spellings.py`",
        "address given: 1",
    ]


def test_the_secret_of_a_launch():
    output = processes.run([*launched("mpi-gdr run", 2), PROGRAMS / "secret.py"]).expect(0)
    assert output.count("64 digits, 1 secret(s), on a command line: False") == 2, output


def test_rank_that_never_starts_is_named(tmp_path):
    """The other rank waits for it before MPI_Init until init_process_group's deadline."""
    command = [processes.sys.executable, PROGRAMS / "spawned.py", "2", f"file://{tmp_path}/meeting", "1"]
    output = processes.run(command).expect(1)
    assert re.search(r"DistBackendError: mpi-gdr: .*rank\(s\) 1 of 2 did not arrive within", output), output


@pytest.mark.parametrize("launcher", ["mpiexec", "torchrun"])
def test_exit_without_destroy_is_clean(launcher):
    output = processes.run([*launched(launcher, 2), PLAIN, "--no-destroy"]).expect(0)
    assert finished_ranks(output) == ["0", "1"]


@pytest.mark.parametrize("launcher", ["mpi-gdr run", "torchrun"])
def test_exception_in_one_rank_ends_the_job(launcher):
    output = processes.run([*launched(launcher, 2), PLAIN, "--fail"], timeout=60).expect_failure()
    assert "ArithmeticError: this rank fails" in output
    assert finished_ranks(output) == []


def test_exit_status_is_passed_on():
    processes.run([*launched("mpi-gdr run", 2), PLAIN, "--exit", "7"]).expect(7)
