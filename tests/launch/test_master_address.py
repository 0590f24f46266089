"""The ranks' meeting point: each rank's computation, and the case of another program at that address."""

import os
import socket
import sys
from datetime import timedelta

import pytest
import torch.distributed as dist
from support.cases import cases
from support.processes import captured

from mpi_backend import launchers, master_address, rendezvous
from mpi_backend.master_address import compute_endpoint

OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-node-17@1",
    "PMIX_SERVER_URI2": "prterun-node-17@0.0;tcp4://127.0.0.1:36801",
}
PMI_PORT = {"PMI_PORT": "node:37115", "WORLD_SIZE": "2", "MPI_LOCALNRANKS": "2"}
PALS = {"PALS_APID": "c3a9-11", "PMI_SIZE": "2", "PMI_LOCAL_SIZE": "2"}
FLUX = {"FLUX_JOB_ID": "f3K", "FLUX_JOB_SIZE": "2", "FLUX_JOB_NNODES": "1"}
SLURM = {
    "SLURM_JOB_ID": "81", "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
    "SLURM_STEP_NODELIST": "node7", "SLURM_NODEID": "0",
}  # fmt: skip
SLURM_NODES = {
    **SLURM,
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "rack[1-2]n[03-07,9],login2",
}
pytestmark = pytest.mark.usefixtures("unset_master_address")
RANKS = {  # variables that differ between the ranks
    "OMPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "PMI_PORT": ("PMI_ID", "MPI_LOCALRANKID"),
    "PALS": ("PALS_RANKID", "PALS_LOCAL_RANKID"),
    "FLUX": ("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID"),
    "SLURM": ("SLURM_PROCID", "SLURM_LOCALID"),
    "PMI_FD": ("PMI_RANK", "MPI_LOCALRANKID"),
}


def rank_of(job, rank, **changes):
    """A rank's environment after `import torch` has set RANK and the like."""
    kind = next(name for name in RANKS if any(key.startswith(name) for key in job))
    env = {**dict.fromkeys(RANKS[kind], str(rank)), **job, **changes}
    launchers.fill_environment(env)
    return env


# ---- common to all ranks ----------------------------------------------------------------------------------


@cases(
    ("job", "other", "address"),
    (OPEN_MPI, {"PMIX_NAMESPACE": "prterun-node-18@1"}, "127.0.0.1"),
    (OPEN_MPI, {"PMIX_SERVER_URI2": "prterun-node-17@0.0;tcp4://127.0.0.1:36802"}, "127.0.0.1"),
    (PMI_PORT, {"PMI_PORT": "node:37116"}, "127.0.0.1"),
    (PALS, {"PALS_APID": "c3a9-12"}, "127.0.0.1"),
    (FLUX, {"FLUX_JOB_ID": "f3L"}, "127.0.0.1"),
    (SLURM, {"SLURM_JOB_ID": "82"}, "127.0.0.1"),
    (SLURM, {"SLURM_STEP_ID": "4"}, "127.0.0.1"),
    (SLURM_NODES, {"SLURM_STEP_ID": "4"}, "rack1n03"),
)
def test_all_ranks_of_a_job_agree_and_no_other_job_does(job, other, address):
    first, second = (compute_endpoint(rank_of(job, rank)) for rank in (0, 1))
    assert first == second and first.address == address
    assert master_address.FIRST_PORT <= first.port < master_address.FIRST_PORT + master_address.PORTS
    assert compute_endpoint(rank_of({**job, **other}, 0)).job != first.job


@cases(
    ("job", "changes"),
    (OPEN_MPI, {"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}),  # several hosts
    (OPEN_MPI, {"PMIX_NAMESPACE": ""}),
    (OPEN_MPI, {"RANK": "1"}),  # the user's own ranks
    (SLURM_NODES, {"SLURM_DISTRIBUTION": "arbitrary"}),  # rank 0 may be on any of them
    (SLURM_NODES, {"SLURM_STEP_NODELIST": ""}),
    (SLURM_NODES, {"MPI_LOCALNRANKS": "1"}),  # the step of Hydra's daemons
)
def test_no_endpoint_if_the_ranks_cannot_all_compute_it(job, changes):
    assert compute_endpoint(rank_of(job, 0, **changes)) is None


HOSTS = {"PMI_SIZE": "2", "MPI_LOCALNRANKS": "1", "MPI_LOCALRANKID": "0", "PMI_FD": "987654"}  # on two hosts


def test_where_mpi_gdr_run_gives_the_first_host():
    """The secret identifies the launch; address and secret are both required."""
    run = {"MPI_GDR_MASTER_ADDR": "node3", "MPI_GDR_SECRET": "a" * 64}
    first, second = (compute_endpoint(rank_of(HOSTS, rank, **run)) for rank in (0, 1))
    assert first == second and first.address == "node3"
    assert compute_endpoint(rank_of(HOSTS, 0, **{**run, "MPI_GDR_SECRET": "b" * 64})).job != first.job
    for name in run:
        assert compute_endpoint(rank_of(HOSTS, 0, **{name: run[name]})) is None


def test_a_single_rank_has_no_endpoint():
    alone = {**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    assert compute_endpoint(rank_of(alone, 0)) is None


def test_hydras_proxy_is_found_by_the_socket_that_it_made():
    """Also behind a shell. Another process with the same variables has another socket."""
    code = "import os, mpi_backend.master_address as m; print(m.peer_process(os.environ['PMI_FD']))"
    commands = [[sys.executable, "-c", code], ["sh", "-c", '"$0" "$@"; exit $?', sys.executable, "-c", code]]
    ends = socket.socketpair()
    fd = ends[1].fileno()
    passed = {"env": {**os.environ, "PMI_FD": str(fd)}, "pass_fds": [fd]}
    found = {captured(command, **passed).stdout.strip() for command in commands}
    with open("/proc/self/stat") as file:
        started = file.read().rpartition(")")[2].split()[19]
    assert found == {f"{os.getpid()} {started}"}
    job = {"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2", "PMI_FD": str(fd)}
    assert compute_endpoint(rank_of(job, 0)) == compute_endpoint(rank_of(job, 1)) is not None
    assert [master_address.peer_process(text) for text in ("", "x", "987654")] == [""] * 3
    with socket.create_server(("127.0.0.1", 0)) as listener:  # another kind of socket
        assert master_address.peer_process(str(listener.fileno())) == ""


# ---- what is set ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [{}, {"MASTER_ADDR": "node7"}, {"MASTER_PORT": "4711"}, {"MASTER_ADDR": "node7", "MASTER_PORT": "4711"}],
)
def test_what_the_user_gave_is_kept(given):
    env = rank_of(OPEN_MPI, 0, **given)
    computed = compute_endpoint(env)
    master_address.set_endpoint(env)
    assert env["MASTER_ADDR"] == given.get("MASTER_ADDR", computed.address)
    assert env["MASTER_PORT"] == given.get("MASTER_PORT", str(computed.port))
    assert master_address.address_is_missing(env) == (len(given) < 2)
    assert {name: master_address.user_value(env, name) for name in given} == given
    ours = None if len(given) == 2 else (env["MASTER_ADDR"], int(env["MASTER_PORT"]), computed.job)
    assert master_address.current_endpoint(env) == ours
    env["MASTER_PORT"] = "4712"  # the script chooses itself
    assert master_address.current_endpoint(env) is None and not master_address.address_is_missing(env)


def test_a_port_that_is_no_number_is_left_to_torch():
    env = rank_of(OPEN_MPI, 0, MASTER_PORT="x")
    master_address.set_endpoint(env)
    assert env["MASTER_PORT"] == "x" and "MASTER_ADDR" not in env


# ---- the store --------------------------------------------------------------------------------------------

SECONDS = timedelta(seconds=30)


@pytest.fixture
def endpoint(unset_master_address, monkeypatch):
    """Makes this process a rank of a job; returns its meeting point."""
    env = rank_of(OPEN_MPI, 0, PMIX_NAMESPACE=f"test-{os.getpid()}@1")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    for name in master_address.NAMES:
        monkeypatch.setenv(name, "")  # restored after the test
        monkeypatch.delenv(name)
    master_address.set_endpoint(os.environ)
    return master_address.current_endpoint(os.environ)


def test_the_store_uses_the_computed_endpoint(endpoint, capfd):
    _, lines = rendezvous.open_store(True, 2, SECONDS)
    assert lines == [str(endpoint.port), "127.0.0.1"]
    assert capfd.readouterr().err == ""


def test_another_address_if_rank_0_is_unreachable(endpoint, capfd):
    with socket.create_server(("127.0.0.2", endpoint.port)):
        assert rendezvous.first_reachable(["127.0.0.1", "127.0.0.2"], endpoint.port) == "127.0.0.2"
    errors = capfd.readouterr().err
    assert "does not reach rank 0 at 127.0.0.1, the MASTER_ADDR" in errors and "is now 127.0.0.2" in errors


def test_another_port_if_the_port_is_taken(endpoint, capfd):
    with socket.create_server(("127.0.0.1", endpoint.port)):
        _, (port, address) = rendezvous.open_store(True, 2, SECONDS)
    assert port != str(endpoint.port) and address == "127.0.0.1"
    assert f"port {endpoint.port}, the MASTER_PORT of this job so far, is taken" in capfd.readouterr().err


def test_a_job_is_identified_by_its_key(endpoint):
    store = rendezvous.serve_store(endpoint, 2, SECONDS)
    store.set("key", "value")
    assert rendezvous.join_store(endpoint, 2, SECONDS).get("key") == b"value"
    with pytest.raises(RuntimeError, match=f"port {endpoint.port}, is another job's: set MASTER_ADDR"):
        rendezvous.join_store(endpoint._replace(job="another"), 2, SECONDS)


def test_a_store_without_the_key_is_not_joined(endpoint, monkeypatch):
    monkeypatch.setattr(rendezvous, "KEY_SECONDS", 0.1)
    foreign = dist.TCPStore("127.0.0.1", endpoint.port, None, True, SECONDS, wait_for_workers=False)
    with pytest.raises(RuntimeError, match="is another job's"):
        rendezvous.join_store(endpoint, 2, SECONDS)
    assert foreign.num_keys() <= 1  # TCPStore's count of clients
    with pytest.raises(RuntimeError, match=f"rank 0 cannot listen on port {endpoint.port}"):
        rendezvous.serve_store(endpoint, 2, SECONDS)
