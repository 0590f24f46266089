"""Early ends of jobs: survivors name the loss, Slurm reports the job's end, nothing remains."""

from __future__ import annotations

import re
import sys
import time

import pytest
from slurm_cluster import KILLED_NODE
from slurm_user import PROGRAMS, User

LOOP = [sys.executable, "-u", PROGRAMS / "loop.py"]
SCRIPT = f"srun --mpi=pmi2 {' '.join(map(str, LOOP))} none"
KILLED = r"rank 1 \(host \S+, pid \d+\) is gone: its process has ended"
RAISED = r"rank 1 \(host \S+, pid \d+\) has left the job: .* ArithmeticError: loss is not finite"


def survivors(output: str, pattern: str) -> set[int]:
    return {int(rank) for rank in re.findall(rf"^rank (\d) on \S+: .*{pattern}", output, re.MULTILINE)}


@pytest.mark.parametrize(("fault", "mpi"), [("kill", "pmi2"), ("kill", "none"), ("raise", "pmi2")])
def test_a_rank_is_lost(user: User, fault, mpi):
    with user.srun("-N2", "-n3", "-m", "plane=2", f"--mpi={mpi}", *LOOP, fault) as job:
        output = job.finish(50).expect_failure()
    assert survivors(output, KILLED if fault == "kill" else RAISED) == {0, 2}, output
    user.wait_for_job("job", "FAILED")


def test_scancel(user: User):
    with user.sbatch(SCRIPT, "-N2", "--ntasks-per-node=1") as job:
        user.wait_for_ranks(2)
        assert user.run("scancel", "-n", user.name_of_job("job")).status == 0
        assert job.finish(50).status != 0
    user.wait_for_job("job", "CANCELLED")
    assert "has ended well" not in user.output()


def test_the_time_limit(user: User):
    """Slurm's shortest limit is a minute, checked every half minute."""
    with user.sbatch(SCRIPT, "-N2", "--ntasks-per-node=1", "--time=1") as job:
        assert job.finish(60).status != 0
    user.wait_for_job("job", "TIMEOUT")
    assert "DUE TO TIME LIMIT" in user.output() and "has ended well" not in user.output()


def test_requeue(user: User):
    with user.sbatch(SCRIPT, "-N2", "--ntasks-per-node=1", "--requeue") as job:
        user.wait_for_ranks(2)
        assert user.run("scontrol", "requeue", user.job("job")["JobId"]).status == 0
        assert job.finish(50).status == 0, user.output()
    assert user.wait_for_job("job", "COMPLETED")["Restarts"] == "1"
    assert user.output().count("has ended well") == 2


def test_a_dead_node(user: User):
    """Rank 1's node disappears with all its processes, as without power."""
    options = ["-p", "rest", "-w", f"n3,{KILLED_NODE}", "-N2", "--ntasks-per-node=1", "--no-requeue"]
    with user.sbatch(SCRIPT, *options) as job:
        user.wait_for_ranks(2)
        user.cluster.kill_node(KILLED_NODE)
        assert job.finish(60).status != 0
    user.wait_for_job("job", "NODE_FAIL")
    pattern = rf"\[0/2\] mpi-gdr WARN ALIVE rank 1 \(host {KILLED_NODE}, pid \d+\) has been silent"
    assert re.search(pattern, user.output()), user.output()  # Slurm ends the job before the timeout


def test_nothing_is_left(quiet_cluster):
    deadline = time.monotonic() + 20
    while (left := quiet_cluster.processes() + quiet_cluster.shared_memory()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
