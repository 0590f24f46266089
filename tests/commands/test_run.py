"""`mpi-gdr run`: command lines, placement, exit status and signals; shell scripts act as launchers."""

import re
import signal
import subprocess
import sys

import pytest
from support.cases import cases
from support.processes import captured, clean_environment, write_script

from mpi_backend import mpi_library, run

MPI_GDR = [sys.executable, "-m", "mpi_backend"]


@pytest.fixture
def shell():
    """A login shell's environment on a machine without a batch system."""
    unwanted = (*run.ALLOCATIONS, "OMP_NUM_THREADS", "MPIR_CVAR")
    return {k: v for k, v in clean_environment().items() if not k.startswith(unwanted)}


@pytest.fixture
def launcher(tmp_path):
    """Creates a launcher that answers --version with a text and otherwise runs a shell line."""

    def make(version, body='printf "%s\\n" "$@"'):
        answer = f'if [ "$1" = --version ]; then echo "{version}"; exit 0; fi'
        return write_script(tmp_path / "mpiexec", f"{answer}\n{body}")

    return make


def mpi_gdr(*arguments, env=None, cwd=None):
    return captured([*MPI_GDR, *arguments], check=False, env=env, cwd=cwd)


# ---- command line ---------------------------------------------------------------------------------------


@cases(("argv", "n", "launcher_options", "program"),
    (["-n", "2", "x.py"], 2, [], ["x.py"]),
    (["-n2", "x.py"], 2, [], ["x.py"]),
    (["-np", "3", "x.py", "-n", "9", "--hostfile"], 3, [], ["x.py", "-n", "9", "--hostfile"]),
    (["-n", "2", "--", "x.py", "--", "a"], 2, [], ["x.py", "--", "a"]),
    (["-n", "2", "-m", "pkg.mod", "-n", "1"], 2, [], ["-m", "pkg.mod", "-n", "1"]),
    (["-n", "2", "-genv", "A", "1", "--", "x.py", "--", "b"], 2, ["-genv", "A", "1"],
     ["x.py", "--", "b"]),
)  # fmt: skip
def test_options_after_the_script_belong_to_it(argv, n, launcher_options, program):
    options, for_launcher, rest = run.parse(argv)
    assert (options.n, for_launcher, rest) == (n, launcher_options, program)


@pytest.mark.parametrize("name", ["--np", "-np", "-n"])
@pytest.mark.parametrize("per_node", ["--ppn", "-ppn", "--nproc-per-node", "--nproc_per_node", "-npernode"])
def test_names_that_other_launchers_have(name, per_node):
    options, for_launcher, rest = run.parse([name, "4", per_node, "2", "x.py", "--np", "7"])
    assert (options.n, options.ranks_per_node) == (4, 2)
    assert (for_launcher, rest) == ([], ["x.py", "--np", "7"])
    assert run.parse([f"{per_node}=2", "x.py"])[0].ranks_per_node == 2


@cases(
    ("hosts", "allocation", "ranks"),
    ("", {}, "3"),
    ("a\nb\n", {}, "6"),
    ("", {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4"}, "12"),
    ("", {"PBS_JOBID": "7"}, None),
)
def test_ranks_per_node_alone_are_those_of_all_nodes(launcher, shell, tmp_path, hosts, allocation, ranks):
    (tmp_path / "hosts").write_text(hosts)
    arguments = ["--hostfile", str(tmp_path / "hosts")] if hosts else []
    arguments += ["--nproc-per-node", "3", "--mpiexec", launcher("HYDRA"), "/bin/true"]
    result = mpi_gdr("run", *arguments, env={**shell, **allocation})
    if ranks is None:
        assert result.returncode == 2 and "-n is missing, and the number of nodes" in result.stderr
    else:
        assert result.stdout.split()[:2] == ["-n", ranks]


@cases(
    ("argv", "message"),
    (["x.py"], "-n is missing"),
    (["-n", "2"], "PROGRAM is missing"),
    (["-n", "2", "-m"], "PROGRAM is missing"),
    (["-n", "0", "x.py"], "'0' is not a number from 1 to 1000000000"),
    (["-n", "two", "x.py"], "'two' is not a number"),
    (["-n", "2", "-genv", "A", "1", "x.py"], "-genv is none of its options"),
    (["-N", "2", "x.py"], "-N means nodes to srun and ranks per node to Open MPI: use --ranks-per-node"),
    (["-n", "4", "-N2", "x.py"], "-N2 means nodes to srun"),
    (["--nnodes=2", "x.py"], "--nnodes=2 is given by --hostfile"),
    (["-n", "2", "--mpiexec", "/nowhere/mpiexec", "x.py"], "'/nowhere/mpiexec' is not an executable"),
)
def test_wrong_command_lines(argv, message, capsys):
    with pytest.raises(SystemExit) as stop:
        run.parse(argv)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_run_help(capsys):
    with pytest.raises(SystemExit) as stop:
        run.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(option in text for option in ("-n N", "--hostfile", "--ranks-per-node", "--mpiexec"))


def test_scripts_modules_and_executables(tmp_path):
    plain = tmp_path / "script_without_suffix"
    plain.write_text("print(1)\n")
    python = [sys.executable, "-u"]
    assert run.program_command(["x.py", "a"]) == [*python, "x.py", "a"]
    assert run.program_command([str(plain)]) == [*python, str(plain)]
    assert run.program_command(["-m", "mod", "a"]) == [*python, "-m", "mod", "a"]
    assert run.program_command(["/bin/echo", "a"]) == ["/bin/echo", "a"]
    assert run.program_command(["python", "x.py"]) == ["python", "x.py"]


# ---- launcher -------------------------------------------------------------------------------------------


def test_hydra_spelling(launcher, shell, tmp_path):
    (tmp_path / "hosts").write_text("a:2\nb:2\n")
    mpiexec = launcher("HYDRA build details:\n    Version: 5.0.2")
    arguments = ("-n", "4", "--hostfile", "hosts", "--ranks-per-node", "2", "--mpiexec", mpiexec)
    result = mpi_gdr("run", *arguments, "-genv", "A", "1", "--", "/bin/true", "-x", env=shell, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    expected = ["-n", "4", "-f", "hosts", "-ppn", "2", "-genv", "A", "1", "/bin/true", "-x"]
    assert result.stdout.split("\n")[:-1] == expected
    assert result.stderr == "mpi-gdr run: a: 2 of 4 ranks\nmpi-gdr run: b: 2 of 4 ranks\n"


@cases(
    ("hosts", "options", "env", "expected"),
    ("192.0.2.1\n192.0.2.2\n", (), {}, "192.0.2.1"),
    ("192.0.2.1:2\n", (), {}, ""),  # a single host
    ("localhost\n192.0.2.2\n", (), {}, ""),
    ("no-such-host.invalid\n192.0.2.2\n", (), {}, ""),  # an alias of ssh's
    ("192.0.2.1\n192.0.2.2\n", ("-hosts", "192.0.2.2,192.0.2.1", "--"), {}, ""),
    ("192.0.2.1\n192.0.2.2\n", (), {"MASTER_ADDR": "x"}, ""),
    ("192.0.2.1\n192.0.2.2\n", (), {"MPI_GDR_MASTER_ADDR": "x"}, "x"),
)
def test_the_first_host_is_the_rendezvous(launcher, shell, tmp_path, hosts, options, env, expected):
    (tmp_path / "hosts").write_text(hosts)
    mpiexec = launcher("HYDRA build details:", 'echo "${MPI_GDR_MASTER_ADDR-}"')
    arguments = ("-n", "2", "--hostfile", "hosts", "--mpiexec", mpiexec, *options, "/bin/true")
    result = mpi_gdr("run", *arguments, env={**shell, **env}, cwd=tmp_path)
    assert result.stdout == f"{expected}\n", result.stderr


@cases(
    ("squeue", "started"),
    ("echo RUNNING", True),
    ("true", False),
    ("echo slurm_load_jobs error: Invalid job id specified >&2; exit 1", False),
    ("echo squeue: error: no connection to the controller >&2; exit 1", True),
)
def test_a_job_that_has_ended_starts_nothing(launcher, shell, tmp_path, squeue, started):
    write_script(tmp_path / "squeue", squeue)
    env = {**shell, "PATH": f"{tmp_path}:{shell['PATH']}", "SLURM_JOB_ID": "7"}
    mpiexec = launcher("HYDRA build details:", "echo started")
    result = mpi_gdr("run", "-n", "2", "--mpiexec", mpiexec, "/bin/true", env=env)
    assert (result.returncode == 0) == started == ("started" in result.stdout), result.stderr
    assert started or "SLURM_JOB_ID=7 is left from a job that has ended" in result.stderr


@pytest.mark.parametrize("version", ["mpirun (Open MPI) 5.0.11", "mpiexec (OpenRTE) 4.1.4"])
def test_open_mpi_spelling(launcher, shell, tmp_path, version):
    (tmp_path / "hosts").write_text("a slots=2\nb slots=2\n")
    arguments = ("-n", "4", "--hostfile", "hosts", "--ranks-per-node", "2", "--mpiexec", launcher(version))
    env = {**shell, "MPI_GDR_DEBUG": "INFO"}
    words = mpi_gdr("run", *arguments, "/bin/true", env=env, cwd=tmp_path).stdout.split()
    assert words[:7] == ["-n", "4", "--hostfile", "hosts", "--map-by", "ppr:2:node", "--oversubscribe"]
    assert words[-1] == "/bin/true"
    assert sorted(words[7:-1]) == ["-x", "-x", "-x", "MPI_GDR_DEBUG", "MPI_GDR_SECRET", "OMP_NUM_THREADS"]


@cases(("arguments", "env", "expected"),
    ((), {}, ["localhost", "localhost", "PYTHONUNBUFFERED=1"]),
    (("--ranks-per-node", "2"), {}, ["localhost", "localhost", "PYTHONUNBUFFERED=1"]),
    (("--hostfile", "hosts", "--ranks-per-node", "1"), {},
     ["-hostfile", "hosts", "-ppn", "1", "PYTHONUNBUFFERED=1"]),
    (("-launcher", "srun", "--"), {"SLURM_JOB_ID": "7"}, ["-launcher", "srun", "PYTHONUNBUFFERED=1"]),
)  # fmt: skip
def test_spelling_of_mpirun_rsh(tmp_path, shell, arguments, env, expected):
    """mpirun_rsh takes words that it does not consume for host names."""
    (tmp_path / "hosts").write_text("a\nb\n")
    path = write_script(tmp_path / "mpirun_rsh", 'printf "%s\\n" "$@"')
    command = ("-n", "2", "--mpiexec", path, *arguments, "/bin/true", "x")
    result = mpi_gdr("run", *command, env={**shell, **env}, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["-export-all", "-np", "2", *expected, "/bin/true", "x"]


def test_a_secret_of_the_launch_in_the_environment_alone(launcher, shell):
    """The launcher prints its environment and its command line."""
    mpiexec = launcher("mpirun (Open MPI) 5.0.11", 'printf "%s\n" "$MPI_GDR_SECRET" "$*"')
    found = []
    for env in (shell, shell, {**shell, "MPI_GDR_SECRET": "the user's"}):
        result = mpi_gdr("run", "-n", "2", "--mpiexec", mpiexec, "/bin/true", env=env)
        secret, words = result.stdout.splitlines()
        assert "-x MPI_GDR_SECRET" in words and secret not in words + result.stderr
        found.append(secret)
    assert all(re.fullmatch("[0-9a-f]{64}", secret) for secret in found[:2])
    assert found[0] != found[1] and found[2] == "the user's"


@cases("env, size, added", ({}, 2, {"OMP_NUM_THREADS": "1"}), ({}, 1, {}), ({"OMP_NUM_THREADS": "8"}, 2, {}))
def test_what_is_set_for_the_ranks(env, size, added):
    assert run.added_variables(env, size) == added


def test_the_launcher_of_the_mpi_that_ranks_find_comes_first(tmp_path, monkeypatch):
    for folder in ("site/bin", "site/lib64", "path"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("site/lib64/libmpi.so.12", "site/bin/mpiexec", "path/mpiexec"):
        (tmp_path / file).touch(mode=0o755)
    monkeypatch.setattr(mpi_library, "loaded_libraries", list)  # other tests in this process load some
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:{tmp_path}/site/lib64")
    assert run.find_mpiexec() == str(tmp_path / "site" / "bin" / "mpiexec")
    (tmp_path / "site" / "bin" / "mpiexec").unlink()
    assert run.find_mpiexec() == str(tmp_path / "path" / "mpiexec")


@cases(
    ("size", "hosts", "per_node", "expected"),
    (4, [("a", 2), ("b", 2)], None, {"a": 2, "b": 2}),
    (3, [("a", 2), ("b", 2)], None, {"a": 2, "b": 1}),
    (2, [("a", 2), ("b", 2)], None, {"a": 2}),
    (5, [("a", 1), ("b", 1)], None, {"a": 3, "b": 2}),
    (4, [("a", 8), ("b", 8)], 2, {"a": 2, "b": 2}),
)
def test_placement(size, hosts, per_node, expected):
    assert run.place(size, [run.Host(*host) for host in hosts], per_node) == expected


def test_hostfile_in_both_spellings():
    text = "# nodes\na:4\n\nb slots=2 max_slots=4  # comment\nc\n"
    assert run.read_hostfile(text) == [("a", 4), ("b", 2), ("c", 1)]


def test_missing_hostfile(launcher):
    result = mpi_gdr("run", "-n", "2", "--hostfile", "/nowhere", "--mpiexec", launcher("HYDRA"), "x.py")
    assert result.returncode == 2
    assert result.stderr == "mpi-gdr run: --hostfile /nowhere: No such file or directory\n"


def test_inside_an_allocation_the_launcher_places(launcher, shell):
    env = {**shell, "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}
    result = mpi_gdr("run", "-n", "4", "--mpiexec", launcher("HYDRA"), "/bin/true", env=env)
    assert result.stderr == "mpi-gdr run: 4 ranks, placed by the launcher in this allocation\n"
    assert run.average_per_node(5, env) == 3
    assert run.average_per_node(5, {}) == 1


# ---- exit status and signals ----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 7, 255])
def test_the_exit_status_of_the_launcher(launcher, status):
    mpiexec = launcher("HYDRA", f"exit {status}")
    assert mpi_gdr("run", "-n", "2", "--mpiexec", mpiexec, "/bin/true").returncode == status


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_launcher(launcher, signum):
    mpiexec = launcher("HYDRA", "echo ready; exec sleep 60")
    command = [*MPI_GDR, "run", "-n", "2", "--mpiexec", mpiexec, "/bin/true"]
    # Shells start background programs, such as these tests, with SIGINT ignored.
    default_sigint = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **default_sigint
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signum)
        assert process.wait(timeout=60) == -signum
