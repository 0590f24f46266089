"""Fake facts for `mpi-gdr doctor`: those of a working site, with a test's changes."""

from __future__ import annotations

from types import SimpleNamespace

from mpi_backend.doctor.findings import Endpoint, Job, Site

MPICH = {
    "library": "MPICH Version:      5.0.2",
    "library_path": "/opt/libmpi.so.12",
    "abi": "MPICH ABI",
    "device": "ch4:ucx ofi",
}
OPEN_MPI = MPICH | {"library": "Open MPI v5.0.11", "abi": "Open MPI", "device": ""}
ALONE = Job(None, 0, 4, None, 4, 1)
SRUN = Job("Slurm srun", 0, 4, 0, 2, 2)
HYDRA = Job("Hydra mpiexec", 0, 4, 0, 4, 1)
SLURM_STEP = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4", "RANK": "0",
    "WORLD_SIZE": "4",
}  # fmt: skip
HYDRA_RANK = {"PMI_RANK": "0", "PMI_SIZE": "4", "RANK": "0", "WORLD_SIZE": "4"}
COMPUTED = Endpoint("n1", "23456", True)
ETHERNET = {"sys/class/net/lo/operstate": "unknown", "sys/class/net/eth0/operstate": "up"}
INFINIBAND = ETHERNET | {"sys/class/infiniband/mlx5_0/x": ""}
REFUSED = "these 4 ranks were started by srun, which cannot start the MPI that mpi-gdr uses"
WORKS = {"process_vm_readv": "", "memfd_create": "", "dumpable": ""}


def extension(launcher="", shared=("", ""), bound=""):
    return SimpleNamespace(
        explain_launcher_mismatch=lambda size: launcher, node_problems=lambda ranks: (*shared, bound)
    )


def site(tmp_path, env=None, job=ALONE, files=None, links=None, **known):
    """A working site with changes. `files`: {path of /proc or /sys: text}."""
    for path, text in (files or {}).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for path, target in (links or {}).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).symlink_to(target)
    usual = {
        "host": "n1", "torch": "2.13.0", "cpus": frozenset(range(8)), "cpus_of_host": 8, "threads": 1,
        "mpi": MPICH, "extension": extension(), "network": "ucx", "shared_memory": "1 GiB free of 2 GiB",
        "resolve": lambda name: ("10.0.0.1",),
        "outward_addresses": lambda: ("10.0.0.1",),
        "mpiexec": lambda: ("/opt/bin/mpiexec", False),
        "refused_calls": lambda: WORKS,
    }  # fmt: skip
    return Site(env={} if env is None else env, job=job, root=tmp_path, **usual | known)


def found(check, *arguments, **known):
    return [finding for finding in check(site(*arguments, **known))]


def only(check, *arguments, **known):
    (finding,) = found(check, *arguments, **known)
    return finding


def levels(check, *arguments, **known):
    return [finding.level for finding in found(check, *arguments, **known)]


def raise_timeout(name):
    raise TimeoutError
