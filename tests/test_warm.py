"""What tests take for Python (support/warm.py) does as Python does."""

import os
import signal
import subprocess
import textwrap

import pytest
from support import processes, warm

TORCH_IS_HERE = "import sys; print('torch' in sys.modules)"


def python(program, *arguments, **options):
    environment = processes.clean_environment() | options.pop("env", {})
    command = [warm.python(), "-u", "-c", textwrap.dedent(program), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize(
    ("environment", "taken"), [({}, True), ({"OMP_NUM_THREADS": "2"}, False), ({"TORCH_LOGS": "dist"}, False)]
)
def test_imports_nothing_anew_unless_the_environment_matters_there(environment, taken):
    with python(TORCH_IS_HERE, env=environment) as program:
        assert program.stdout.read() == f"{taken}\n"


def test_limits_of_its_own_are_not_those_of_a_server():
    command = ["prlimit", "--nofile=512", warm.python(), "-c", TORCH_IS_HERE]
    assert subprocess.check_output(command, env=processes.clean_environment(), text=True) == "False\n"


def test_gets_what_a_program_inherits(tmp_path):
    reader, writer = os.pipe()
    inherited = {"cwd": tmp_path, "env": {"OF_THE_TEST": "yes"}, "pass_fds": [writer]}
    with python(
        """
        import os, sys
        print(sys.argv[1:], os.getcwd(), os.environ["OF_THE_TEST"], sys.stdin.read(), os.sched_getaffinity(0))
        os.write(int(sys.argv[2]), b"by the pipe")
        """,
        "a b", str(writer), stdin=subprocess.PIPE, **inherited,
    ) as program:  # fmt: skip
        os.close(writer)
        said, _ = program.communicate("from here")
        assert (
            said.split("\n")[0]
            == f"{['a b', str(writer)]} {tmp_path} yes from here {os.sched_getaffinity(0)}"
        )
        assert os.read(reader, 100) + os.read(reader, 1) == b"by the pipe"  # and nobody else can write there
    os.close(reader)


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("import atexit, os; atexit.register(os._exit, 3)", 3),
    ],
)
def test_ends_as_the_program_ends(program, status):
    with python(program) as process:
        assert process.wait() == status


def test_passes_signals_on():
    with python(
        """
        import signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        print("ready")
        signal.pause()
        """
    ) as program:
        assert program.stdout.readline() == "ready\n"
        program.terminate()
        assert program.wait() == 5


def test_when_killed_nothing_of_the_program_is_left():
    with python(
        """
        import subprocess
        with subprocess.Popen(["sleep", "1000"]):
            print("ready")
        """
    ) as program:
        assert program.stdout.readline() == "ready\n"
        program.kill()
        assert program.stdout.read() == ""  # its end comes when all who could write there have ended


def test_children_of_the_program_need_not_import_either():
    with python(
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {TORCH_IS_HERE!r}])"
    ) as program:
        assert program.stdout.read() == "True\n"
