"""Every way to start a job under Slurm: all ranks exist and have their meeting point before they meet."""

from __future__ import annotations

import re
import sys

import pytest
from slurm_user import REPORT, User, reports
from support import processes
from support.cases import cases

PYTHON = [sys.executable, REPORT]
TWO_NODES = ["n1", "n2"]


def check(output: str, hosts: list[str]) -> None:
    """`hosts`: by rank."""
    found = reports(output)
    assert [rank["host"] for rank in found] == hosts
    assert [rank["RANK"] for rank in found] == [str(rank) for rank in range(len(hosts))]
    for place, rank in enumerate(found):
        assert rank["WORLD_SIZE"] == str(len(hosts))
        assert rank["LOCAL_RANK"] == str(hosts[:place].count(hosts[place]))
        assert rank["LOCAL_WORLD_SIZE"] == str(hosts.count(hosts[place]))
    meetings = {f"{rank['MASTER_ADDR']}:{rank['MASTER_PORT']}" for rank in found}
    assert meetings == {rank["after"] for rank in found} and len(meetings) == 1
    assert found[0]["MASTER_ADDR"] == ("127.0.0.1" if len(set(hosts)) == 1 else hosts[0])


@cases(
    ("options", "hosts"),
    ("-N1 -n2 -w n1 --mpi=pmi2", ["n1", "n1"]),
    ("-N1 -n2 -w n1", ["n1", "n1"]),
    # The MPICH wheel lacks PMIx: either way MPI starts over torch's store.
    ("-N2 --ntasks-per-node=1 --mpi=none", TWO_NODES),
    ("-N2 --ntasks-per-node=1 --mpi=pmix", TWO_NODES),
    ("-N2 --ntasks-per-node=2 --distribution=cyclic --mpi=pmi2", ["n1", "n2", "n1", "n2"]),
)
def test_srun(user: User, options, hosts):
    with user.srun(*options.split(), *PYTHON) as job:
        check(job.finish(50).expect(0), hosts)


def test_uneven_nodes(user: User):
    """Three ranks and one. Both nodes of the allocation have room for three."""
    srun = ["srun", "-N2", "-n4", "-m", "plane=3", "--mpi=pmi2", *PYTHON]
    output = user.run("salloc", "-N2", "--ntasks-per-node=3", *srun).expect(0)
    check(output, ["n1", "n1", "n1", "n2"])


@pytest.mark.parametrize("launcher", ["srun --mpi=pmi2", "mpiexec", "mpi-gdr run --ranks-per-node 1"])
def test_in_an_allocation(user: User, launcher):
    words = [processes.mpiexec()] if launcher == "mpiexec" else launcher.split()
    program = [REPORT] if launcher.startswith("mpi-gdr") else PYTHON
    check(user.run("salloc", "-N2", "--ntasks-per-node=1", *words, *program).expect(0), TWO_NODES)


def test_torchrun_on_two_nodes(user: User):
    torchrun = [
        "torchrun", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-endpoint=n1:29400",
    ]  # fmt: skip
    with user.srun("-N2", "--ntasks-per-node=1", *torchrun, REPORT) as job:
        found = reports(job.finish(50).expect(0))
    assert sorted(rank["host"] for rank in found) == TWO_NODES


def test_two_jobs_on_the_same_nodes(user: User):
    both = user.home / "begun"
    both.mkdir()
    where = ["-N2", "--ntasks-per-node=1", "--mpi=pmi2"]
    with (
        user.srun(*where, *PYTHON, both, 2, name="a") as one,
        user.srun(*where, *PYTHON, both, 2, name="b") as two,
    ):
        first, second = (reports(job.finish(50).expect(0)) for job in (one, two))
    assert first[0]["MASTER_PORT"] != second[0]["MASTER_PORT"]


# An interactive shell in an allocation has a rank's variables, but is none.
SHELL = """
test "$SLURM_NTASKS $SLURM_PROCID" = "2 0" || exit 3
python {report} && exit 4
torchrun --standalone --nproc-per-node=2 {report} || exit 5
echo; mpi-gdr run -n 2 {report} || exit 6
python -c 'import torch, os; print(sorted(set(os.environ) & {{"RANK", "MASTER_ADDR"}}))'
"""


def test_the_shell_of_an_allocation_is_no_rank(user: User):
    with user.sbatch(SHELL.format(report=REPORT), "-N1", "-n2", "-w", "n2") as job:
        assert job.finish(60).status == 0, user.output()
    output = user.output()
    assert "SLURM_JOB_ID says that this is a batch system's allocation" in output
    assert output.endswith("\n[]\n")
    first, second = (f"REPORT{part}" for part in output.split("REPORT")[1:])
    check(second, ["n2", "n2"])
    assert [rank["host"] for rank in reports(first)] == ["n2", "n2"]


def test_variables_of_a_job_that_has_ended(user: User):
    """A shell on the login node has kept the variables of an allocation, or of a step with one task."""
    allocation = slurm_variables(user.run("salloc", "-N1", "-n2", "env").expect(0))
    with user.srun("-N1", "-n1", "env") as job:
        step = slurm_variables(job.finish(50).expect(0))
    refused = user.run(*PYTHON, **allocation)
    assert refused.status == 1 and "SLURM_JOB_ID says" in refused.output, refused.tail()
    assert [rank["host"] for rank in reports(user.run(*PYTHON, **step).expect(0))] == ["ctl"]
    torchrun = ["torchrun", "--standalone", "--nproc-per-node=2", REPORT]
    assert [rank["host"] for rank in reports(user.run(*torchrun, **step).expect(0))] == ["ctl", "ctl"]
    for stale in (allocation, step):
        started = user.run("mpi-gdr", "run", "-n", 2, REPORT, **stale)
        assert "is left from a job that has ended" in started.expect(2)


def slurm_variables(output: str) -> dict[str, str]:
    return dict(re.findall(r"^(SLURM_\w+)=(.*)$", output, re.MULTILINE))
