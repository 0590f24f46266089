"""File descriptors of the store: the limit is raised, or reported before ranks wait for the store."""

import json
import sys

import pytest
from support import processes

LOOK = """
import json, os, resource, sys
from mpi_backend import descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
try:
    descriptors.prepare(os.environ)
except RuntimeError as error:
    print(json.dumps(str(error)))
else:
    print(json.dumps(resource.getrlimit(resource.RLIMIT_NOFILE)))
"""
AGENT = """
import os, resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
os.environ.update(TORCHELASTIC_RUN_ID="x", TORCHELASTIC_USE_AGENT_STORE="True", GROUP_RANK="0")
worker = "import os; from mpi_backend import descriptors as d; print(d.agent()); d.prepare(os.environ)"
# A wrapper stands between, as numactl would.
command = ["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, worker]
done = subprocess.run(command, capture_output=True, text=True)
print(os.getpid(), done.stdout.split(), resource.getrlimit(resource.RLIMIT_NOFILE)[0], done.stderr, sep="|")
"""


def run(program, *limits, **env):
    command = [sys.executable, "-c", program, *limits]
    return processes.captured(command, env=processes.clean_environment(**env)).stdout


def limits(rank, size, soft, hard):
    return json.loads(run(LOOK, soft, hard, RANK=str(rank), WORLD_SIZE=str(size)))


def test_the_host_of_the_store_may_open_a_file_for_each_rank():
    assert limits(0, 1000, 256, 4096) == [1200, 4096]
    assert limits(1, 1000, 256, 4096) == [256, 4096], "only rank 0 hosts it"
    assert limits(0, 8, 256, 4096) == [256, 4096], "enough"
    assert limits(0, 100, 60, 150) == [150, 150], "as far as it may be"


def test_too_few_descriptors_are_named():
    text = limits(0, 1000, 60, 60)
    assert "may open 60 files" in text and "1000 ranks" in text and "ulimit -n 1200" in text


@pytest.mark.parametrize(("size", "raised"), [(1000, 1200), (8, 256)])
def test_the_agent_of_torchrun_is_found_behind_wrappers(size, raised):
    pid, found, soft, _ = run(AGENT, 256, 4096, RANK="3", WORLD_SIZE=str(size)).split("|")
    assert found == f"['{pid}']" and int(soft) == raised


def test_an_agent_with_too_few_descriptors_is_named():
    *_, error = run(AGENT, 60, 60, RANK="3", WORLD_SIZE="1000").split("|")
    assert "torchrun's agent (pid " in error and "may open 60 files" in error
