"""`mpi-gdr doctor`: start of a job, with facts of working and broken sites; the command itself."""

import json
import re
import time

import pytest
from support import processes
from support.cases import cases
from support.command import mpi_gdr
from support.sites import (
    ALONE,
    COMPUTED,
    ETHERNET,
    HYDRA,
    HYDRA_RANK,
    MPICH,
    OPEN_MPI,
    REFUSED,
    SLURM_STEP,
    SRUN,
    WORKS,
    extension,
    found,
    levels,
    only,
    raise_timeout,
    site,
)

from mpi_backend import doctor
from mpi_backend.doctor import facts, start
from mpi_backend.doctor.findings import Endpoint, Job, call_all_with_timeout, call_with_timeout

# ---- what starts a job ------------------------------------------------------------------------------------


@cases(
    ("problem", "level", "page"),
    ("", "good", ""),
    ("mpi-gdr was built for torch 2.12.1 and this is torch 2.13.0", "bad", "#which-torch"),
    ("mpi-gdr cannot load the MPI library libmpi.so.12", "bad", "#which-mpi-at-run-time"),
    ("which hides the installed package in /x", "bad", "#when-it-does-not-start"),
    ("mpi-gdr has no compiled extension here", "bad", "#beside-your-own-torch-and-mpi"),
)
def test_the_build(tmp_path, problem, level, page):
    finding = only(start.check_build, tmp_path, import_problem=problem)
    assert finding.level == level and finding.page.endswith(page) and problem in finding.what


def test_variables(tmp_path):
    assert only(start.check_variables, tmp_path, env={"MPI_GDR_LANES": "2"}).what.startswith("1 MPI_GDR_*")
    bad, remark = found(start.check_variables, tmp_path, bad_values=("LANES=x",), unknown_names=("LANS",))
    assert (bad.level, bad.what, remark.level, remark.what) == ("bad", "LANES=x", "remark", "LANS")


@cases(
    ("mpi", "env", "level", "advice"),
    ({}, {}, "good", ""),
    ({"library": "MVAPICH2 Version      :\t2.3.7", "device": ""}, {}, "bad", "MV2_ENABLE_AFFINITY=0"),
    ({"library": "MVAPICH2 Version : 2.3.7"}, {"MV2_ENABLE_AFFINITY": "0"}, "good", ""),
    ({"library": "MVAPICH Version: 3.0", "device": "ch3:mrail"}, {}, "bad", "MVP_ENABLE_AFFINITY=0"),
    ({"library": "MVAPICH Version: 4.0", "device": "ch4:ofi"}, {}, "good", ""),
)
def test_the_library(tmp_path, mpi, env, level, advice):
    finding = only(start.check_mpi, tmp_path, env=env, mpi=MPICH | mpi)
    assert (finding.level, finding.advice) == (level, advice)


@cases(("case", "level", "text"),
    ({"env": HYDRA_RANK, "job": HYDRA}, "good", "Hydra mpiexec starts the ranks"),
    ({"env": SLURM_STEP, "job": SRUN}, "good", "Slurm srun starts the ranks"),
    ({"env": SLURM_STEP, "job": SRUN, "extension": extension(REFUSED), "endpoint": COMPUTED}, "remark",
     "store at n1:23456"),
    ({"env": SLURM_STEP, "job": SRUN, "extension": extension(REFUSED)}, "bad", REFUSED),
    ({"env": SLURM_STEP, "job": SRUN, "extension": extension(REFUSED), "endpoint": COMPUTED,
      "mpi": OPEN_MPI}, "bad", REFUSED),
    ({"env": SLURM_STEP | {"MPI_GDR_BOOTSTRAP": "store"}, "job": SRUN, "extension": extension(REFUSED),
      "endpoint": COMPUTED}, "good", "MPI_GDR_BOOTSTRAP=store"),
    ({"env": HYDRA_RANK | {"WORLD_SIZE": "2"}, "job": HYDRA}, "bad", "`unset RANK WORLD_SIZE`"),
    ({"env": {"TORCHELASTIC_RUN_ID": "x"}, "job": ALONE._replace(launcher="torchrun")}, "good",
     "over torch's store"),
    ({"env": {"TORCHELASTIC_RUN_ID": "x"}, "job": ALONE._replace(launcher="torchrun"), "mpi": OPEN_MPI},
     "bad", "Open MPI starts only under its own launcher"),
    ({"env": {"RANK": "0", "WORLD_SIZE": "2"}}, "good", "RANK and WORLD_SIZE without a launcher"),
    ({"env": HYDRA_RANK | {"PMIX_NAMESPACE": "x"}, "job": HYDRA}, "bad", "are both set"),
)  # fmt: skip
def test_launchers(tmp_path, case, level, text):
    finding = only(start.check_launcher, tmp_path, **case)
    assert finding.level == level and text in finding.what + finding.advice
    assert level == "good" or finding.page.startswith("docs/")


@cases(
    ("case", "levels", "text"),
    ({}, ["good"], "`mpi-gdr run -n N train.py` starts ranks, by /opt/bin/mpiexec"),
    ({"mpiexec": lambda: None}, ["remark"], "there is no mpiexec"),
    ({"mpiexec": lambda: ("/o/mpiexec", None)}, ["not known"], "did not report its MPI"),
    ({"mpiexec": lambda: ("/o/mpiexec", True)}, ["remark"], "another MPI than the loaded one"),
    ({"mpi": OPEN_MPI}, ["bad"], "another MPI than the loaded one"),
    ({"env": {"PMI_RANK": "0"}}, ["bad", "good"], "a launcher left PMI_RANK in the environment"),
    ({"env": {"SLURM_JOB_ID": "7"}}, ["good"], "starts ranks"),
    ({"srun_plugins": lambda: ("none", "pmi2")}, ["good", "good"], "`srun --mpi=pmi2 mpi-gdr doctor`"),
    ({"srun_plugins": lambda: ("none", "pmix_v4")}, ["good", "remark"], "no --mpi=pmi2 here"),
    ({"srun_plugins": lambda: ()}, ["good", "not known"], "did not answer"),
)
def test_outside_a_job_what_would_start_one(tmp_path, case, levels, text):
    findings = found(start.check_launcher, tmp_path, **case)
    assert [finding.level for finding in findings] == levels
    assert text in " ".join(finding.what for finding in findings)


def test_the_stores_address(tmp_path):
    def query(**known):
        usual = {"env": {"MPI_GDR_SECRET": "ab"}, "job": SRUN._replace(rank=1), "endpoint": COMPUTED}
        return only(start.check_rendezvous, tmp_path, **usual | known)

    given = Endpoint("n9", "29500", False)
    assert query().level == "good" and "computed" in query().what
    assert query(resolve=lambda name: ()).level == "remark"  # rank 0 announces other addresses
    assert query(resolve=lambda name: (), extension=extension(REFUSED)).level == "bad"
    assert query(resolve=lambda name: (), endpoint=given).level == "bad"
    assert query(resolve=lambda name: ("127.0.0.1",), endpoint=given).level == "bad"
    assert query(resolve=raise_timeout).level == "not known"
    assert query(endpoint=None).level == "remark"
    assert query(endpoint=Endpoint("n1", "x", False)).level == "good"  # rank 0 reports it


def test_the_stores_port(tmp_path):
    def query(**known):
        usual = {"job": HYDRA, "endpoint": Endpoint("n1", "29500", False)}
        return found(start.check_rendezvous, tmp_path, **usual | known)[1:]

    assert query() == []
    (refused,) = query(explain_listen_error=lambda port: "in use" if port == 29500 else "")
    assert refused.level == "bad"
    (taken,) = query(explain_listen_error=lambda port: "in use", endpoint=COMPUTED)
    assert taken.level == "remark" and "takes another one" in taken.cost
    assert query(endpoint=Endpoint("n1", "no", False))[0].what == "MASTER_PORT=no is not a port"
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert query(env=agent, explain_listen_error=lambda port: "in use") == []


def test_a_job_on_several_nodes_has_a_secret(tmp_path):
    assert "SECRET" in found(start.check_rendezvous, tmp_path, job=SRUN, endpoint=COMPUTED)[-1].what
    assert levels(start.check_rendezvous, tmp_path, job=HYDRA, endpoint=COMPUTED) == ["good"]


def test_without_the_extension_its_facts_are_not_good(tmp_path):
    missing = site(tmp_path, mpi=None, extension=None, import_problem="mpi-gdr cannot load its extension")
    rows = {row.topic: row.check for row in doctor.CHECKS}
    for topic in ("variables", "MPI", "launcher", "/dev/shm"):
        assert [f.level for f in rows[topic](missing)] == ["not known"]


# ---- facts ------------------------------------------------------------------------------------------------


@cases(("env", "n", "expected"),
    ({}, None, Job(None, 0, 2, None, 2, 1)),
    ({}, 8, Job(None, 0, 8, None, 8, 1)),
    (
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_JOB_NUM_NODES": "2"},
        None,
        Job(None, 0, 8, None, 4, 2),
    ),
    ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}, None,
     Job("Hydra mpiexec", 1, 4, 1, 4, 1)),
    ({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, None,
     Job("Hydra mpiexec", 3, 4, 1, 2, 2)),
    (
        SLURM_STEP | {"SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
                      "SLURM_STEP_TASKS_PER_NODE": "3,1", "PMI_RANK": "0", "PMI_SIZE": "4"},
        None,
        Job("Slurm srun", 0, 4, 0, 3, 2),
    ),
    (
        SLURM_STEP | {"SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
                      "SLURM_STEP_TASKS_PER_NODE": "3,1"},
        None,
        Job("Slurm srun", 0, 4, 0, 3, 2),
    ),
    (
        {"TORCHELASTIC_RUN_ID": "x", "RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0",
         "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2"},
        None,
        Job("torchrun", 2, 4, 0, 2, 2),
    ),
)  # fmt: skip
def test_jobs(env, n, expected):
    assert facts.job_of(env, 2, n) == expected


def test_what_this_process_may_do():
    assert facts.refused_calls() == WORKS
    assert facts.launcher_in_other_namespace({"PMI_FD": "99999"}) is False
    assert facts.supports_pmix("/nowhere/libmpi.so.12") is False
    assert facts.resolve("localhost") and facts.resolve("x" * 300) == ()


def test_a_query_without_an_answer_times_out(tmp_path):
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        call_with_timeout(0.05, lambda: time.sleep(30))
    results = call_all_with_timeout(0.2, lambda name: time.sleep(30) if name == "b" else name, ["a", "b"])
    assert results == {"a": "a", "b": None}
    rows = [doctor.Row("slow", lambda site: time.sleep(30)), doctor.Row("fails", lambda site: [1 / 0])]
    slow, fails = doctor.findings(site(tmp_path), rows, seconds=0.05)
    assert slow[1].level == fails[1].level == "not known" and "division" in fails[1].what
    assert time.monotonic() - began < 10


# ---- the command ------------------------------------------------------------------------------------------


def test_other_ranks_of_a_node_run_only_the_checks_of_a_rank(tmp_path):
    def topics(job):
        return {topic for topic, _ in doctor.findings(site(tmp_path, env=HYDRA_RANK, job=job), doctor.CHECKS)}

    everything = topics(HYDRA)
    assert {"torch", "/dev/shm", "threads"} <= everything
    assert topics(HYDRA._replace(rank=1, local_rank=1)) == {"variables", "launcher", "threads"}
    assert topics(SRUN._replace(rank=2, local_rank=0)) == everything  # first rank of its node


def test_what_is_alike_on_all_ranks_is_reported_once(tmp_path):
    known = {"files": ETHERNET, "extension": extension(REFUSED), "endpoint": COMPUTED}
    rank_2 = site(tmp_path, env=SLURM_STEP, job=SRUN._replace(rank=2), **known)
    shared = doctor.findings(rank_2, doctor.CHECKS)
    of_job = [(topic, f.level) for topic, f in shared if f.of_job]
    assert of_job == [("launcher", "remark"), ("rendezvous", "remark")]
    assert doctor.lines_of_other_rank(rank_2, shared) == []


def test_in_a_plain_shell():
    result = mpi_gdr("doctor", "-n", "2")
    lines = result.stdout.splitlines()
    assert result.returncode == 0, result.stdout + result.stderr
    assert "no launcher; checked for 2 ranks on this host" in lines[0]
    assert len(lines) <= 30 and max(map(len, lines)) <= 100
    assert lines[-1].startswith("no problem found")
    assert any(line.startswith("good      launcher    `mpi-gdr run -n N train.py`") for line in lines)


def test_what_is_bad_is_the_status():
    result = mpi_gdr("doctor", "--json", "-n", "2", MPI_GDR_LANES="x", PMI_RANK="0")
    report = json.loads(result.stdout)
    assert result.returncode == 1 and set(report) == {"mpi_gdr", "host", "job", "findings"}
    bad = {f["topic"]: f for f in report["findings"] if f["level"] == "bad"}
    assert set(bad) == {"variables", "launcher"} and bad["variables"]["what"].startswith("MPI_GDR_LANES=x")
    assert bad["launcher"]["page"] == "docs/launch.md#when-it-does-not-start"
    assert mpi_gdr("doctor", "-n", "0").returncode == 2


def test_under_a_launcher():
    """MPI must not start: one rank alone would wait for the other. Each reports its own problems."""
    command = [processes.mpiexec(), "-n", "2", processes.sys.executable, "-m", "mpi_backend", "doctor"]
    output = processes.run(command, 40, MPI_GDR_LANES="x").expect(1)
    assert output.count("rank 0 of 2 by Hydra mpiexec, 1 node, 2 ranks here") == 1
    assert "Hydra mpiexec starts the ranks, and MPI uses its process manager interface" in output
    assert len(re.findall(r"^BAD +variables +MPI_GDR_LANES=x", output, re.MULTILINE)) == 1
    assert len(re.findall(r"^rank 1 \(\S+\): BAD +variables +MPI_GDR_LANES=x", output, re.MULTILINE)) == 1
