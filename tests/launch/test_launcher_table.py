"""The launcher table: torch's variables under each launcher, and without one."""

import re

import pytest
from support.cases import cases

from mpi_backend import launchers

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_RANK": "3", "PMIX_NAMESPACE": "prterun-node-1@1",
}  # fmt: skip
HYDRA = {
    "PMI_RANK": "3", "PMI_SIZE": "4", "PMI_FD": "7", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2",
}  # fmt: skip
SLURM = {
    "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}  # fmt: skip
MV2 = {
    "MV2_COMM_WORLD_RANK": "3",
    "MV2_COMM_WORLD_SIZE": "4",
    "MV2_COMM_WORLD_LOCAL_RANK": "1",
    "MV2_COMM_WORLD_LOCAL_SIZE": "2",
}
PALS = {
    "PALS_RANKID": "3", "PALS_LOCAL_RANKID": "1", "PALS_NODEID": "1", "PMI_RANK": "3", "PMI_SIZE": "4",
    "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2",
}  # fmt: skip
FULL = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


def without(variables, *names):
    return {key: value for key, value in variables.items() if key not in names}


@cases(("name", "env", "expected"),
    ("Open MPI mpirun", OPEN_MPI, FULL),
    ("Hydra mpiexec", HYDRA, FULL),
    ("Intel mpirun", {**HYDRA, "HYDRA_BSTRAP_XTERM": "0"}, FULL),
    ("MVAPICH2 mpirun_rsh", MV2, FULL),
    ("MVAPICH mpirun_rsh",
     {"PMI_ID": "3", "PMI_PORT": "node:4711", "MVP_COMM_WORLD_SIZE": "4",
      "MVP_COMM_WORLD_LOCAL_RANK": "1", "MVP_COMM_WORLD_LOCAL_SIZE": "2"}, FULL),
    ("MVAPICH mpirun_rsh",
     {"MVP_COMM_WORLD_RANK": "3", "MVP_COMM_WORLD_SIZE": "4", "MVP_COMM_WORLD_LOCAL_RANK": "1"},
     without(FULL, "LOCAL_WORLD_SIZE")),
    ("PALS mpiexec", PALS, FULL),
    ("Flux", {"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4", "FLUX_TASK_LOCAL_ID": "1", "PMI_RANK": "3"},
     without(FULL, "LOCAL_WORLD_SIZE")),
    ("Slurm srun", SLURM, FULL),
    ("Slurm srun",
     {**without(SLURM, "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"), "SLURM_NTASKS_PER_NODE": "2"}, FULL),
    ("Hydra mpiexec -pmi-port",
     {"PMI_ID": "3", "PMI_PORT": "node:4711", "WORLD_SIZE": "4", "MPI_LOCALRANKID": "1",
      "MPI_LOCALNRANKS": "2"}, without(FULL, "WORLD_SIZE")),
)  # fmt: skip
def test_each_row(name, env, expected):
    assert launchers.detect(env).launcher == name
    assert launchers.rank_variables(env) == expected


def test_every_row_of_the_table_is_tested():
    tested = {case[0] for mark in test_each_row.pytestmark for case in mark.args[1]}
    assert tested == {row.name for row in launchers.LAUNCHERS}


def test_the_size_that_only_pmi_has_is_not_guessed():
    assert launchers.detect({"PMI_ID": "1", "PMI_PORT": "node:4711", "MPI_LOCALNRANKS": "2"}) is None


def test_no_launcher():
    assert launchers.detect({"HOME": "/home/u", "PATH": "/bin"}) is None


@pytest.mark.parametrize("inner", [HYDRA, OPEN_MPI])
def test_a_launcher_inside_a_slurm_job_wins_over_slurm(inner):
    daemon = {**SLURM, "SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    assert launchers.rank_variables({**daemon, **inner}) == FULL


def test_srun_with_pmi2_takes_the_local_rank_from_slurm():
    env = {**SLURM, "PMI_RANK": "3", "PMI_SIZE": "4", "PMI_FD": "9"}
    assert launchers.rank_variables(env) == FULL


def test_a_row_that_disagrees_gives_no_local_rank():
    env = {**SLURM, "PMI_RANK": "1", "PMI_SIZE": "4"}
    assert launchers.rank_variables(env) == {"RANK": "1", "WORLD_SIZE": "4"}


@cases("step", None, "", "batch", "4294967290", "4294967291", "4294967292", "4294967294", "-1")
def test_slurm_outside_a_job_step_is_no_launcher(step):
    env = without(SLURM, "SLURM_STEP_ID")
    if step is not None:
        env["SLURM_STEP_ID"] = step
    assert launchers.detect(env) is None


@pytest.mark.parametrize(
    ("counts", "node", "expected"),
    [("2(x3),1", 0, 2), ("2(x3),1", 2, 2), ("2(x3),1", 3, 1), ("4,2,1", 1, 2), ("3", 0, 3), ("2", 5, None)],
)
def test_slurm_tasks_per_node(counts, node, expected):
    env = {"SLURM_TASKS_PER_NODE": counts, "SLURM_NODEID": str(node)}
    assert launchers._slurm_local_size(env) == expected


@cases("change",
    {"PMI_RANK": "4"}, {"PMI_SIZE": "0"}, {"PMI_RANK": "x"}, {"PMI_RANK": "-1"}, {"MPI_LOCALRANKID": "2"},
    {"MPI_LOCALNRANKS": "5"},
)  # fmt: skip
def test_variables_that_make_no_sense_are_ignored(change):
    assert launchers.detect({**HYDRA, **change}) is None


@pytest.mark.parametrize("given", [{"RANK": "0"}, {"TORCHELASTIC_RUN_ID": "job"}, {"WORLD_SIZE": "8"}])
def test_ranks_that_were_set_before_stay(given):
    env = {**HYDRA, **given}
    before = dict(env)
    launchers.fill_environment(env)
    assert env == before


def test_variables_that_are_set_are_kept():
    env = {**HYDRA, "LOCAL_RANK": "0", "WORLD_SIZE": "4"}
    launchers.fill_environment(env)
    assert env["LOCAL_RANK"] == "0"
    assert (env["RANK"], env["LOCAL_WORLD_SIZE"]) == ("3", "2")


def test_filling_twice_changes_nothing():
    env = dict(HYDRA)
    launchers.fill_environment(env)
    once = dict(env)
    launchers.fill_environment(env)
    assert env == once == {**HYDRA, **FULL}


def test_one_rank_is_filled_only_on_request():
    lone = {"PMI_RANK": "0", "PMI_SIZE": "1", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
    env = dict(lone)
    launchers.fill_environment(env)
    assert env == lone
    launchers.fill_environment(env, lone_rank=True)
    expected = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    assert {key: env[key] for key in FULL} == expected


# ---- what keeps a process from being a rank ---------------------------------------------------------------

BATCH_SCRIPT = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}


@cases(("env", "rank", "size", "expected"),
    (HYDRA, "3", "4", None), ({}, None, None, None), ({}, "1", "2", None),
    ({"TORCHELASTIC_RUN_ID": "job", **HYDRA}, "1", "2", None),
    (HYDRA, None, "8",
     "WORLD_SIZE=8 is set, but Hydra mpiexec started 4 ranks .* rank 3: `unset WORLD_S"),
    (HYDRA, "0", None, "RANK=0 is set, but Hydra mpiexec .* this is rank 3: `unset RANK` before"),
    (HYDRA, "0", "4", "RANK=0 and WORLD_SIZE=4 are set, but .*`unset RANK WORLD_SIZE`.*set MASTER_ADDR"),
    ({}, None, "4",
     "WORLD_SIZE=4 is set without RANK.* for one rank alone, or .*`mpi-gdr run -n 4 x.py`"),
    ({}, "0", None, "RANK=0 is set without WORLD_SIZE.*`unset RANK` for one .*`mpi-gdr run -n N x.py`"),
    (BATCH_SCRIPT, None, None, "^SLURM_JOB_ID says .* allocation.*`mpi-gdr run -n 1 x.py` for one rank"),
    ({"PBS_JOBID": "7"}, None, None, "^PBS_JOBID says .* allocation"),
    ({"PMI_ID": "1", "PMI_PORT": "a:1"}, None, None, "a launcher left PMI_ID, PMI_PORT in the environ"),
    ({"JSM_NAMESPACE_RANK": "1"}, None, None,
     "a launcher left JSM_NAMESPACE_RANK .*mpi-gdr run -n N x.py"),
    ({**BATCH_SCRIPT, "PMIX_RANK": "1"}, None, None, "a launcher left PMIX_RANK, SLURM_JOB_ID"),
)  # fmt: skip
def test_the_error_names_the_remedy(env, rank, size, expected):
    found = launchers.explain_mismatch(env, rank, size, "x.py")
    if expected is None:
        assert found is None
    else:
        assert re.search(expected, found), found


@cases("name", "OMPI_MCA_btl", "OMPI_ALLOW_RUN_AS_ROOT", "PMIX_VERSION", "HYDRA_FULL_ERROR", "SLURM_CONF")
def test_exported_variables_do_not_identify_a_launcher(name):
    assert launchers.launcher_variables({name: "1"}) == []


def test_flux_gives_the_ranks_of_a_node_where_there_is_one():
    env = {"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4", "FLUX_TASK_LOCAL_ID": "3"}
    assert "LOCAL_WORLD_SIZE" not in launchers.rank_variables(env)
    assert launchers.rank_variables({**env, "FLUX_JOB_NNODES": "1"})["LOCAL_WORLD_SIZE"] == "4"
