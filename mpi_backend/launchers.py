"""Detects the launcher of this process and derives torch's rank variables; starts nothing.

All functions take an environment mapping, so that each row of the table is tested without its launcher.
docs/launch.md shows the table to users.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping
from typing import NamedTuple

Environment = Mapping[str, str]


class Placement(NamedTuple):
    """A process's place in its job. `local_rank`, `local_size`: None if the launcher does not set them."""

    launcher: str
    rank: int
    size: int
    local_rank: int | None = None
    local_size: int | None = None

    def is_consistent(self) -> bool:
        local_size = self.size if self.local_size is None else self.local_size
        local_rank = 0 if self.local_rank is None else self.local_rank
        return 0 <= self.rank < self.size and 0 <= local_rank < local_size <= self.size


def _always(env: Environment) -> bool:
    return True


class Launcher(NamedTuple):
    """One row of the table: variables to read (the first present one counts), and whether it applies."""

    name: str
    rank: tuple[str, ...]
    size: tuple[str, ...]
    local_rank: tuple[str, ...] = ()
    local_size: tuple[str, ...] | Callable[[Environment], int | None] = ()
    applies: Callable[[Environment], bool] = _always
    job: tuple[str, ...] = ()  # variables common to the job's ranks on a node; see master_address.py

    def read(self, env: Environment) -> Placement | None:
        """The placement by this launcher's variables; None if they are absent or inconsistent."""
        rank = _first_number(env, self.rank)
        # Some launchers pass the size over PMI only; an exported WORLD_SIZE replaces it.
        size = _first_number(env, (*self.size, "WORLD_SIZE"))
        if rank is None or size is None or not self.applies(env):
            return None
        local_size = (
            self.local_size(env) if callable(self.local_size) else _first_number(env, self.local_size)
        )
        placement = Placement(self.name, rank, size, _first_number(env, self.local_rank), local_size)
        return placement if placement.is_consistent() else None


def _first_number(env: Environment, names: tuple[str, ...]) -> int | None:
    for name in names:
        if (value := env.get(name, "").strip()).isdecimal():
            return int(value)
    return None


def _has_any(*prefixes: str) -> Callable[[Environment], bool]:
    return lambda env: any(name.startswith(prefixes) for name in env)


def in_slurm_step(env: Environment) -> bool:
    """True only in a task of `srun`. Batch scripts and interactive shells also have SLURM_PROCID=0 and
    SLURM_NTASKS=N, but run one process, which would wait for the others for ever."""
    step = env.get("SLURM_STEP_ID", env.get("SLURM_STEPID", ""))
    # From 0xfffffff0 on: batch script, interactive shell and extern step.
    return step.isdecimal() and int(step) < 0xFFFFFFF0


def _slurm_local_size(env: Environment) -> int | None:
    """Tasks on this node, from a list such as "4(x2),1" indexed by SLURM_NODEID."""
    node = _first_number(env, ("SLURM_NODEID",))
    counts = env.get("SLURM_STEP_TASKS_PER_NODE", env.get("SLURM_TASKS_PER_NODE", ""))
    if node is not None:
        for count, repeat in re.findall(r"(\d+)(?:\(x(\d+)\))?", counts):
            node -= int(repeat or 1)
            if node < 0:
                return int(count)
    return _first_number(env, ("SLURM_NTASKS_PER_NODE",))


def _flux_local_size(env: Environment) -> int | None:
    """Flux gives it for jobs of one node only."""
    return _first_number(env, ("FLUX_JOB_SIZE",)) if env.get("FLUX_JOB_NNODES") == "1" else None


_HYDRA = Launcher(
    "Hydra mpiexec",
    rank=("PMI_RANK",),
    size=("PMI_SIZE",),
    local_rank=("MPI_LOCALRANKID",),
    local_size=("MPI_LOCALNRANKS",),
    job=("PMI_FD",),
)

# Set inside a batch system's allocation.
ALLOCATIONS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_URI", "COBALT_JOBID", "PE_HOSTFILE")
# Variables that launchers set for their processes, including launchers missing in the table. Excludes what
# users and containers export: OMPI_MCA_*, PMIX_MCA_*, PMIX_VERSION, PALS_FANOUT, HYDRA_FULL_ERROR (another
# package), ...
_LAUNCHER_VARIABLE = re.compile(
    r"PMI_|PMIX_(RANK|NAMESPACE|ID|SERVER_)|OMPI_(COMM_WORLD|WORLD|UNIVERSE)_|PRTE_LAUNCHED$|MPI_LOCAL|HYDI_"
    r"|HYDRA_BSTRAP_|(MV2|MVP)_COMM_WORLD_|MPISPAWN_|MPIRUN_|PALS_(APID|RANKID|NODEID)|ALPS_APP_"
    r"|FLUX_(JOB|TASK)_|SLURM_(PROCID$|STEP)|JSM_NAMESPACE_|PMGR_|MP_CHILD$|LAMRANK$"
)

# In order of priority. Slurm is last: mpiexec and mpirun start their daemons with srun, whose variables the
# ranks inherit. PALS and Flux also set PMI_RANK, so they precede Hydra.
LAUNCHERS = (
    Launcher(
        "Open MPI mpirun",
        rank=("OMPI_COMM_WORLD_RANK",),
        size=("OMPI_COMM_WORLD_SIZE",),
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
        local_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        job=("PMIX_NAMESPACE", "PMIX_SERVER_URI2"),
    ),
    Launcher(
        "MVAPICH2 mpirun_rsh",
        rank=("MV2_COMM_WORLD_RANK",),
        size=("MV2_COMM_WORLD_SIZE",),
        local_rank=("MV2_COMM_WORLD_LOCAL_RANK",),
        local_size=("MV2_COMM_WORLD_LOCAL_SIZE",),
        job=("PMI_PORT",),
    ),
    Launcher(
        "MVAPICH mpirun_rsh",
        rank=("MVP_COMM_WORLD_RANK", "PMI_ID"),
        size=("MVP_COMM_WORLD_SIZE", "PMI_SIZE"),
        local_rank=("MVP_COMM_WORLD_LOCAL_RANK",),
        local_size=("MVP_COMM_WORLD_LOCAL_SIZE",),
        applies=_has_any("MVP_COMM_WORLD_"),
        job=("PMI_PORT",),
    ),
    Launcher(
        "PALS mpiexec",
        rank=("PALS_RANKID",),
        size=("PMI_SIZE", "PALS_SIZE"),
        local_rank=("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
        local_size=("PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"),
        job=("PALS_APID",),
    ),
    Launcher(
        "Flux",
        rank=("FLUX_TASK_RANK",),
        size=("FLUX_JOB_SIZE",),
        local_rank=("FLUX_TASK_LOCAL_ID",),
        local_size=_flux_local_size,
        job=("FLUX_JOB_ID",),
    ),
    _HYDRA._replace(name="Intel mpirun", applies=_has_any("HYDRA_BSTRAP_", "I_MPI_HYDRA_")),
    _HYDRA,
    Launcher(
        "Hydra mpiexec -pmi-port",
        rank=("PMI_ID",),
        size=(),
        local_rank=("MPI_LOCALRANKID",),
        local_size=("MPI_LOCALNRANKS",),
        applies=lambda env: "PMI_PORT" in env,
        job=("PMI_PORT",),
    ),
    Launcher(
        "Slurm srun",
        rank=("SLURM_PROCID",),
        size=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
        local_rank=("SLURM_LOCALID",),
        local_size=_slurm_local_size,
        applies=in_slurm_step,
        job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
)


def detect(env: Environment) -> Placement | None:
    """The placement by the MPI launcher or resource manager; None without one, and under torchrun.

    The first matching row decides. A later row that agrees on rank and size fills in missing local values:
    `srun --mpi=pmi2` sets the rank as PMI_RANK and the local rank as SLURM_LOCALID.
    """
    if "TORCHELASTIC_RUN_ID" in env:
        return None  # the variables belong to torchrun's parent
    found = [placement for row in LAUNCHERS if (placement := row.read(env)) is not None]
    if not found:
        return None
    result = found[0]
    for other in found[1:]:
        if (other.rank, other.size) == (result.rank, result.size):
            merged = result._replace(
                local_rank=other.local_rank if result.local_rank is None else result.local_rank,
                local_size=other.local_size if result.local_size is None else result.local_size,
            )
            result = merged if merged.is_consistent() else result
    return result


def rank_variables(env: Environment) -> dict[str, str]:
    """torch's variables missing in `env`; {} if the ranks were set before (RANK or TORCHELASTIC_RUN_ID) or
    WORLD_SIZE contradicts the launcher."""
    placement = None if "RANK" in env else detect(env)
    if placement is None or env.get("WORLD_SIZE", str(placement.size)) != str(placement.size):
        return {}
    wanted = {
        "RANK": placement.rank,
        "WORLD_SIZE": placement.size,
        "LOCAL_RANK": placement.local_rank,
        "LOCAL_WORLD_SIZE": placement.local_size,
    }
    return {name: str(value) for name, value in wanted.items() if value is not None and name not in env}


def fill_environment(env: MutableMapping[str, str], *, lone_rank: bool = False) -> None:
    """Adds the rank variables to `env`.

    A job of one rank gets them on request only (`lone_rank`, at init_process_group): many scripts run
    distributed whenever RANK is set, and must not under `srun python x.py` with one task.
    """
    placement = detect(env)
    if placement is not None and (placement.size > 1 or lone_rank):
        env.update(rank_variables(env))


def launcher_variables(env: Environment) -> list[str]:
    """Names of variables that a launcher or a batch system has left in `env`, sorted."""
    return sorted(name for name in env if _LAUNCHER_VARIABLE.match(name) or name in ALLOCATIONS)


def all_from_batch_system(found: list[str]) -> bool:
    """Whether a batch system sets all of them; its script has SLURM_PROCID, too: see in_slurm_step()."""
    return all(name in ALLOCATIONS or name.startswith(("SLURM_", "FLUX_")) for name in found)


def explain_mismatch(env: Environment, rank: str | None, size: str | None, script: str) -> str | None:
    """Why this process cannot be the rank that torch was given, with the remedy; None if it can.

    `rank`, `size`: by argument or by RANK and WORLD_SIZE, None if missing. `script`: name for commands.
    """
    placement = detect(env)
    if placement is not None:
        if (rank, size) == (str(placement.rank), str(placement.size)):
            return None
        ranks = "1 rank" if placement.size == 1 else f"{placement.size} ranks"
        given, unset = describe_given(rank, size)
        own = "" if None in (rank, size) else ", or set MASTER_ADDR and MASTER_PORT for ranks of your own"
        return (
            f"{given} set, but {placement.launcher} started {ranks} and this is rank {placement.rank}: "
            f"{unset} before the launcher{own}"
        )
    if rank is not None and size is not None:
        return None
    run = f"`mpi-gdr run -n {{}} {script}`"
    if rank is not None or size is not None:
        given, unset = describe_given(rank, size)
        return (
            f"{given} set without {'RANK' if rank is None else 'WORLD_SIZE'}, and no launcher sets the rest: "
            f"{unset} for one rank alone, or start all ranks with {run.format(size or 'N')}"
        )
    found = launcher_variables(env)
    if not found:
        return None
    if all_from_batch_system(found):
        return (
            f"{found[0]} says that this is a batch system's allocation, and no launcher started this "
            f"process: {run.format(1)} for one rank, {run.format('N')} or its own launcher for more"
        )
    return (
        f"a launcher left {', '.join(found[:4])} in the environment, which do not contain this rank and "
        f"the number of ranks: start with {run.format('N')} ({run.format(1)} for one rank alone), or set "
        "RANK and WORLD_SIZE in each rank"
    )


def describe_given(rank: str | None, size: str | None) -> tuple[str, str]:
    """("RANK=0 and WORLD_SIZE=2 are", "`unset RANK WORLD_SIZE`"), without those that are None."""
    given = [(name, value) for name, value in (("RANK", rank), ("WORLD_SIZE", size)) if value is not None]
    text = " and ".join(f"{name}={value}" for name, value in given) + (" are" if len(given) > 1 else " is")
    return text, f"`unset {' '.join(name for name, _ in given)}`"
