"""The tests' replacement of Python (support/warm.py) acts like Python."""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from textwrap import dedent

import pytest
from support import processes, warm

TORCH_IS_HERE = "import sys; print('torch' in sys.modules)"


def python(*arguments, **env):
    return processes.run([warm.python(), *arguments], **env)


def script(program, *arguments):
    return [warm.python(), "-c", dedent(program), *arguments]


@contextlib.contextmanager
def running(command, env=None, **options):
    environment = processes.clean_environment() | (env or {})
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **options) as process:
        watchdog = threading.Timer(processes.TIMEOUT_FACTOR * 60, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


@pytest.mark.parametrize(
    ("environment", "taken"), [({}, True), ({"OMP_NUM_THREADS": "2"}, False), ({"TORCH_LOGS": "dist"}, False)]
)
def test_imports_nothing_anew_unless_the_environment_matters_there(environment, taken):
    assert python("-c", TORCH_IS_HERE, **environment).expect() == f"{taken}\n"


def test_limits_of_its_own_are_not_those_of_a_server():
    command = ["prlimit", "--nofile=512", warm.python(), "-c", TORCH_IS_HERE]
    assert processes.run(command).expect() == "False\n"


def test_gets_what_a_program_inherits(tmp_path):
    reader, writer = os.pipe()
    program = """
        import os, sys
        print(sys.argv[1:], os.getcwd(), os.environ["OF_THE_TEST"], sys.stdin.read(), os.sched_getaffinity(0))
        os.write(int(sys.argv[2]), b"by the pipe")
    """
    inherited = {"cwd": tmp_path, "env": {"OF_THE_TEST": "yes"}, "pass_fds": [writer]}
    with running(script(program, "a b", str(writer)), stdin=subprocess.PIPE, **inherited) as process:
        os.close(writer)
        output, _ = process.communicate("from here")
        assert output == f"{['a b', str(writer)]} {tmp_path} yes from here {os.sched_getaffinity(0)}\n"
        assert os.read(reader, 100) + os.read(reader, 1) == b"by the pipe"  # no other process can write there
    os.close(reader)


def test_what_it_inherits_is_open_until_it_ends():
    reader, writer = os.pipe()
    closes = script(
        "import os, sys; os.close(int(sys.argv[1])); print('closed'); sys.stdin.read()", str(writer)
    )
    with running(closes, pass_fds=[writer], stdin=subprocess.PIPE) as process:
        os.close(writer)
        assert process.stdout.readline() == "closed\n"
        assert select.select([reader], [], [], 0.5)[0] == []
        process.communicate("")
        assert os.read(reader, 1) == b""
    os.close(reader)


def test_its_own_options_are_not_the_programs():
    output = python("-u", "-B", "-c", "import sys; print(sys.argv)", "-u", "-B").expect()
    assert output == "['-c', '-u', '-B']\n"


def test_compiles_as_python_does():
    assert "NameError" in python("-c", "def f(x: Undefined): pass").expect(1)


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("import atexit, os; atexit.register(os._exit, 3)", 3),
    ],
)
def test_the_exit_status_is_the_programs(program, status):
    python("-c", program).expect(status)


def test_passes_signals_on_and_runs_once():
    program = """
        import os, signal
        signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
        print("ready")
        signal.pause()
    """
    with running(script(program)) as process:
        assert process.stdout.readline() == "ready\n"
        while process.poll() is None:  # some arrive after the program's end, while its status is in transit
            process.terminate()
            time.sleep(0.001)
        assert process.returncode == 5
        assert process.stdout.read() == ""


WITH_A_CHILD = """
    import subprocess
    child = subprocess.Popen(["sleep", "1000"])
    print("ready")
"""


def test_when_killed_nothing_of_the_program_is_left():
    with running(script(WITH_A_CHILD + "    child.wait()")) as process:
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.stdout.read() == ""  # ends only after all possible writers have ended


def test_what_the_program_has_started_ends_with_it():
    with running(script(WITH_A_CHILD)) as process:
        assert process.stdout.read() == "ready\n"
        assert process.wait() == 0


def test_the_program_ends_with_the_process_that_started_it():
    waits = script("import time; print('ready'); time.sleep(1000)")
    with running(["sh", "-c", '"$@" & wait', "sh", *waits]) as shell:
        assert shell.stdout.readline() == "ready\n"
        shell.kill()
        assert shell.stdout.read() == ""


def test_children_of_the_program_need_not_import_either():
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {TORCH_IS_HERE!r}])"
    assert python("-c", program).expect() == "True\n"
