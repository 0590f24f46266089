"""The command `mpi-gdr`: its subcommands, and errors for unknown ones."""

import os
import re
import subprocess
import sys

import pytest
from support.cases import cases
from support.command import mpi_gdr

from mpi_backend import cli
from mpi_backend._version import __version__
from mpi_backend.bench import options


def test_help_names_every_command(capsys):
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in ("run", "info", "selftest", "tune", "bench"))


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(capsys, option):
    assert cli.main([option]) == 0
    line = r"mpi-gdr (\S+), commit ([0-9a-f]{40}(\+changes)?|unknown)\n"
    assert re.fullmatch(line, capsys.readouterr().out)[1] == __version__


@cases(("argv", "message"),
    (["rnu"], "unknown command 'rnu': did you mean run? expected one of run, info, "),
    (["xyzzy"], "unknown command 'xyzzy': expected one of run, info, "),
    (["--verison"], "unknown option '--verison': did you mean --version? "),
    (["selftest", "-n", "2", "--quik"], "selftest: unknown option --quik, did you mean --quick?;"),
    (["info", "--jsn"], "info: unknown option --jsn, did you mean --json?;"),
    (["run", "-n", "2", "--hostfle", "x", "x.py"],
     "--hostfle is none of its options, did you mean --host"),
    (["bench", "-n", "2", "all_reduce", "-d", "float23"],
     "'float23': did you mean float32? expected one"),
    (["bench", "all_redcue"], "'all_redcue': did you mean all_reduce? expected one of all_reduce, "),
    (["bench", "nope"], "barrier, latency, bw, bibw, multi_bw, ddp, device, overhead, overlap, suite;"),
    (["bench", "-n", "2", "ddp", "--compare", "glo"], "'glo': did you mean gloo?"),
)  # fmt: skip
def test_the_closest_name_is_suggested(argv, message, capsys):
    try:
        status = cli.main(argv)
    except SystemExit as stop:
        status = stop.code
    error = capsys.readouterr().err
    assert status == 2 and message in error and error.count("\n") == 1, error


@cases(("argv", "message"),
    (["selftest", "-n", "2", "--device", "foo"], "mpi-gdr selftest: --device foo: expected cpu, cuda or"),
    (["selftest", "-n", "2", "--device", "meta"], "--device meta: torch sees no such device here"),
    (["bench", "-n", "2", "all_reduce", "--device", "foo"], "mpi-gdr bench: --device foo: expected cpu"),
    (["bench", "-n", "2", "bw", "--device", "foo"], "mpi-gdr bench bw: --device foo: expected cpu"),
    (["bench", "-n", "2", "ddp", "--device", "foo"], "mpi-gdr bench ddp: --device foo: expected cpu"),
    (["bench", "-n", "2", "all_reduce", "--backend", "nope"], "--backend 'nope': expected one of mpi-gdr"),
    (["bench", "-n", "2", "bw", "--backend", "cpu:gloo,cuda:glo"], "'glo': did you mean gloo?"),
)  # fmt: skip
def test_what_torch_does_not_have_is_refused_before_ranks_start(argv, message):
    result = mpi_gdr(*argv)
    assert result.returncode == 2 and result.stdout == ""
    assert message in result.stderr and result.stderr.count("\n") == 1, result.stderr


def test_names_of_collectives_need_no_underscores():
    assert options.collective_list("allreduce,All-Gather,all_reduce") == ["all_reduce", "all_gather"]


def test_no_command_is_an_error(capsys):
    assert cli.main([]) == 2
    assert "usage: mpi-gdr" in capsys.readouterr().out


def test_a_reader_that_leaves_early_is_no_error():
    command = [sys.executable, "-m", "mpi_backend", "info", "--all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.wait(timeout=120) == 1
        assert process.stderr.read() == ""


def test_run_does_not_wait_for_torch():
    code = "import sys, mpi_backend.cli, mpi_backend.run; sys.exit('torch' in sys.modules)"
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    assert subprocess.run([sys.executable, "-c", code], env=env, timeout=120).returncode == 0
