"""Checks of what this node offers a rank: processors, memory, limits, permissions, GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from .. import descriptors, host
from .findings import TORCHRUN, Finding, Site

COPIES = "docs/bootstrap.md#copies-by-the-kernel"
SHARED = "docs/errors-and-faults.md#memory"
# Inode numbers of the kernel's initial namespaces (include/linux/proc_ns.h).
FIRST_NAMESPACES = {"pid": "pid:[4026531836]", "ipc": "ipc:[4026531839]"}
CAP_SYS_PTRACE = 19
ENOUGH_LOCKED = 1 << 30


def check_processors(site: Site) -> Iterator[Finding]:
    """Cores for this node's ranks."""
    ranks, cores, total = site.job.ranks_here, len(site.cpus), cpus_of_job(site)
    crowded = ranks > total or (ranks > cores and not has_cores_for_all_ranks(site))
    if crowded:
        yield Finding(
            "remark",
            f"{ranks} ranks here share {min(cores, total)} cores",
            cost="waiting ranks yield their core, and each small operation takes longer",
            advice="at most one rank per core",
            page="docs/launch.md#mpi-gdr-run",
        )
    quota = cores_of_quota(site)
    if quota is not None and quota < min(ranks, cores):
        yield Finding(
            "remark",
            f"the container's processor quota is {quota:g} cores, for {ranks} {plural(ranks)}",
            cost="the kernel stops all ranks for part of every 0.1 s",
            advice="a quota of one core per rank (docker --cpus)",
            page="docs/launch.md#mpi-gdr-run",
        )
    elif not crowded:
        yield Finding("good", f"{cores} of {site.cpus_of_host} cores, {ranks} {plural(ranks)} here")


def check_threads(site: Site) -> Iterator[Finding]:
    """Cores for a rank's threads and its communication thread."""
    ranks = site.job.ranks_here
    bound = "" if site.extension is None else site.extension.node_problems(ranks)[2]
    if bound:
        yield Finding("remark", bound, page="docs/slurm.md#what-goes-wrong-first")
    if site.job.launcher is None and "OMP_NUM_THREADS" not in site.env:
        yield Finding("good", "`mpi-gdr run` sets OMP_NUM_THREADS=1, as torchrun does")
        return
    share = min(len(site.cpus), max(1, cpus_of_job(site) // ranks))
    if ranks > 1 and site.threads > share:
        yield Finding(
            "remark",
            f"a rank computes with {site.threads} threads, and has {share} of this host's cores",
            cost="threads wait for each other's cores",
            advice=f"OMP_NUM_THREADS={max(1, share - 1)}",
            page="docs/slurm.md#slurm",
        )
    elif not bound:
        yield Finding("good", f"{site.threads} for torch's operators in each rank")


def cpus_of_job(site: Site) -> int:
    """Cores of this host that the job may use: all, or Slurm's number."""
    return min(site.cpus_of_host, number(site.env.get("SLURM_CPUS_ON_NODE")) or site.cpus_of_host)


def has_cores_for_all_ranks(site: Site) -> bool:
    """Whether each rank can have its own cores, if every rank may use as many as this process."""
    return len(site.cpus) * site.job.ranks_here <= cpus_of_job(site)


def plural(ranks: int) -> str:
    """rank or ranks."""
    return "rank" if ranks == 1 else "ranks"


def number(text: str | None) -> int:
    """0 if the text is no number."""
    return int(text) if text and text.isdecimal() else 0


def cores_of_quota(site: Site) -> float | None:
    """The control group's processor quota in cores; None: no limit, or unknown."""
    quota, _, period = (site.read("sys/fs/cgroup/cpu.max") or "max").partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and number(period) else None


def check_shared_memory(site: Site) -> Iterator[Finding]:
    """Room in /dev/shm for MPI's file, by the rules of init_process_group."""
    ranks = site.job.ranks_here
    if site.extension is None or site.shared_memory is None:
        yield Finding("not known", "the size of /dev/shm, or how much of it this MPI needs", page=SHARED)
        return
    problem, warning, _ = site.extension.node_problems(ranks)
    if problem:
        yield Finding("bad", problem, page=SHARED)
    elif warning:
        yield Finding("remark", warning, advice="docker --shm-size, or a larger tmpfs", page=SHARED)
    else:
        yield Finding("good", f"{site.shared_memory}, for {ranks} {plural(ranks)} here")


def check_locked_memory(site: Site) -> Iterator[Finding]:
    """The limit of locked memory, which devices with direct memory access need."""
    devices = [*site.names("sys/class/infiniband"), *site.names("sys/class/cxi")]
    text = host.size_text(site.locked_memory)
    if not devices:
        yield Finding("good", f"{text}; no device here needs more (InfiniBand, Slingshot)")
    elif site.locked_memory is None or site.locked_memory >= ENOUGH_LOCKED:
        yield Finding("good", f"{text}, for {', '.join(devices)[:50]}")
    else:
        yield Finding(
            "remark",
            f"{text}, but {devices[0]} requires locked message buffers",
            cost="MPI_Init or a large message may fail, or go over a slower network",
            advice="`ulimit -l unlimited` on the nodes (LimitMEMLOCK=infinity of slurmd)",
            page="docs/slurm.md#what-goes-wrong-first",
        )


def check_files(site: Site) -> Iterator[Finding]:
    """Rank 0's process or torchrun's agent opens a file per rank."""
    env = site.env
    if site.job.launcher is None and "RANK" not in env:
        env = {**env, "RANK": "0", "WORLD_SIZE": str(site.job.size)}
    try:
        sentence = descriptors.shortage(env)
    except OSError as error:  # the agent belongs to another user
        yield Finding(
            "not known",
            f"the limit of the process that hosts the store: {error.strerror}",
            page="docs/errors-and-faults.md#memory",
        )
        return
    if sentence:
        yield Finding("bad", sentence, page="docs/launch.md#when-it-does-not-start")
    else:
        yield Finding("good", f"enough for a job of {site.job.size} {plural(site.job.size)}")


def check_copies(site: Site) -> Iterator[Finding]:
    """Whether ranks of a node may copy each other's memory (process_vm_readv) and share it (memfd_create)."""
    refused = site.refused_calls()
    if why := refused.get("memfd_create"):
        yield Finding(
            "remark",
            f"memfd_create fails here ({why}): ranks of a node share no memory",
            cost="all messages and collectives between them go through MPI",
            advice="a seccomp profile that allows it",
            page=COPIES,
        )
    twice = "MPI and long messages inside a node copy twice, through shared memory"
    if why := refused.get("process_vm_readv"):
        yield Finding(
            "remark",
            f"process_vm_readv fails here ({why}), by a seccomp filter",
            cost=twice,
            advice="docker --cap-add=SYS_PTRACE, or a profile that allows it",
            page=COPIES,
        )
    elif refused.get("dumpable"):
        yield Finding(
            "remark",
            "this Python is non-dumpable (set-user-id, or its file cannot be read): "
            "ranks of a node cannot open each other's memory",
            cost="all messages and collectives between them go through MPI",
            advice="another Python",
            page=COPIES,
        )
    elif (scope := site.read("proc/sys/kernel/yama/ptrace_scope")) not in (None, "0") and (
        scope == "3" or not has_ptrace_capability(site)
    ):
        yield Finding(
            "remark",
            f"kernel.yama.ptrace_scope is {scope}: the kernel refuses copies between ranks",
            cost=twice,
            advice="`sysctl kernel.yama.ptrace_scope=0` on the nodes"
            + (" (3 stays until a reboot)" if scope == "3" else ""),
            page=COPIES,
        )
    elif "process_vm_readv" not in refused:
        yield Finding("not known", "whether the kernel copies between processes here", page=COPIES)
    elif shares_namespaces(site) is None:
        yield Finding(
            "not known", "depends on whether the ranks of a node share a PID namespace", page=COPIES
        )
    elif not refused.get("memfd_create"):
        yield Finding("good", "processes of this user can copy each other's memory and share memory")


def has_ptrace_capability(site: Site) -> bool:
    """Whether the process has the capability that yama requires."""
    for line in (site.read("proc/self/status") or "").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_PTRACE & 1)
    return False


def own_namespaces(site: Site) -> list[str] | None:
    """This process's PID and IPC namespaces that are not the kernel's initial ones, and its network namespace
    if process 1 has another. None: unknown."""
    links = {name: site.link(f"proc/self/ns/{name}") for name in FIRST_NAMESPACES}
    if None in links.values():
        return None
    own = [name for name, first in FIRST_NAMESPACES.items() if links[name] != first]
    networks = [site.link(f"proc/{pid}/ns/net") for pid in ("self", "1")]
    return own + ["network"] * (None not in networks and networks[0] != networks[1])


def shares_namespaces(site: Site) -> bool | None:
    """Whether this node's ranks share their namespaces: true if this process has none of its own, or if the
    launcher is in the same namespaces. None: unknown."""
    if site.launcher_in_other_namespace() or (own := own_namespaces(site)) is None:
        return None
    inside = site.job.launcher in (None, TORCHRUN) or "PMI_FD" in site.env
    return True if inside or not own else None


def check_namespaces(site: Site) -> Iterator[Finding]:
    """Whether the ranks of a node share a container. Other ranks' namespaces are not visible."""
    own = own_namespaces(site)
    if own is None:
        what = "this process's namespaces: /proc does not show them"
    elif site.launcher_in_other_namespace():
        what = "the launcher is in another PID namespace; whether the ranks of a node share this container"
    elif not own:
        yield Finding("good", "PID and IPC are the host's, or those of a virtual machine")
        return
    else:
        what = f"a container ({', '.join(own)} of its own)"
        if shares_namespaces(site):
            yield Finding("good", what + (", with its launcher inside" if site.job.launcher else ""))
            return
        what += "; whether the ranks of a node share it"
    yield Finding(
        "not known",
        what,
        cost="in separate containers they share no memory; without a common /dev/shm MPI does not start",
        advice="docker --pid=host --ipc=host, apptainer without --contain",
        page="docs/bootstrap.md#failures",
    )


def check_gpus(site: Site) -> Iterator[Finding]:
    """The GPUs that torch sees, and how their tensors travel."""
    facts = site.gpus()
    if facts is None:
        return
    if facts.shortage:
        yield Finding("bad", facts.shortage, page="docs/launch.md#several-ranks-on-one-gpu")
        return
    accelerator = facts.accelerator
    if not accelerator["type"]:
        yield Finding("good", "none that torch can use: tensors are on the CPU")
        return
    if facts.queues and not facts.problem:
        yield Finding("remark", facts.queues, page="docs/gpu.md#what-waits-for-what")
    text = f"{accelerator['count']} x {accelerator['type']}, {accelerator['path']}"
    if facts.problem:
        yield Finding(
            "remark",
            f"{accelerator['count']} x {accelerator['type']}: {facts.problem}",
            cost="copies through host memory, blocking",
            page="docs/gpu.md#how-tensors-travel",
        )
    elif accelerator["path"] and "blocking" in accelerator["path"]:
        yield Finding("remark", text, page="docs/gpu.md#how-tensors-travel")
    elif site.job.launcher is not None and site.job.ranks_here > accelerator["count"] > 1:
        yield Finding(
            "remark",
            f"{text}, for {site.job.ranks_here} ranks here, which share them",
            cost="without MPS the kernels of ranks that share a GPU take turns",
            advice="`mpi-gdr run --ranks-per-gpu K --mps`",
            page="docs/launch.md#several-ranks-on-one-gpu",
        )
    else:
        yield Finding("good", text)
