"""Commands need no package but torch. Those that draw or save with another one check for it before they
begin."""

import re
import sys
from pathlib import Path

import pytest
from setuptools.config.pyprojecttoml import load_file
from support.cases import cases
from support.command import mpi_gdr, mpi_gdr_output
from support.processes import captured, clean_environment

ROOT = Path(__file__).parents[2]
EXTRAS = load_file(ROOT / "pyproject.toml")["project"]["optional-dependencies"]


def names(requirements):
    return {re.split(r"[\s<>=!~;\[]", line)[0] for line in requirements if line and not line.startswith("#")}


@pytest.fixture
def bare(tmp_path):
    """Environment whose Python can import torch, but no other package that `make` installs."""
    others = names(line for extra in EXTRAS.values() for line in extra) | {"mpi4py"}
    blocked = sorted(name.replace("-", "_") for name in others)
    text = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in blocked)
    (tmp_path / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": str(tmp_path)}


def test_make_installs_what_the_extras_name():
    installed = names((ROOT / "requirements.txt").read_text().splitlines())
    assert set(EXTRAS) == {"bench", "examples", "test"}
    for extra in EXTRAS.values():
        assert names(extra) <= installed


@cases(
    ("arguments", "shown"),
    ("selftest -n 2 --quick", "mpi-gdr selftest: passed"),
    ("bench -n 2 all_reduce --sizes 8,64K -n 2 -w 1", "Out of bounds values : 0 OK"),
    ("run -n 2 -m mpi_backend demo --steps 2", "hold the same bits"),
)
def test_a_job_needs_torch_alone(arguments, shown, bare):
    assert shown in mpi_gdr_output(*arguments.split(), **bare)


@cases("arguments", ("info",), ("--version",), ("tune", "--help"), ("diagnose", "--help"), ("demo", "--help"))
def test_the_other_commands_need_torch_alone(arguments, bare):
    result = mpi_gdr(*arguments, **bare)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""


@cases(
    "arguments",
    ("bench", "-n", "2", "all_reduce", "--plot", "x.png"),
    ("bench", "-n", "2", "all_reduce", "--compare", "mpi", "--plot", "x.png"),
    ("bench", "suite"),
)
def test_plots_check_their_requirements_before_measuring(arguments, bare):
    result = mpi_gdr(*arguments, **bare)
    assert result.returncode == 2
    assert result.stderr.count("pip install matplotlib") == 1
    assert result.stdout == ""


def example(name, *arguments, **variables):
    """Runs an example in one process without a launcher."""
    command = [sys.executable, ROOT / "examples" / name, *arguments]
    return captured(command, check=False, env=clean_environment(**variables))


def test_training_first_warns_that_there_will_be_no_picture(bare, tmp_path):
    arguments = ("--preset=tiny", "--device=cpu", "--iterations=2", f"--out={tmp_path / 'out'}")
    result = example("gpt/train.py", *arguments, **bare)
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    assert "pip install matplotlib" in lines[0]
    assert lines[-1].startswith("wrote log.jsonl and checkpoint.pt in ")


@cases(
    ("name", "arguments", "message"),
    ("fsdp.py", (), "pip install numpy"),
    ("gpt/compare.py", ("a", "b", "--plot", "x.png"), "pip install matplotlib"),
)
def test_examples_report_at_their_start_what_they_lack(name, arguments, message, bare):
    result = example(name, *arguments, **bare)
    assert result.returncode != 0
    assert message in result.stderr.splitlines()[-1]
