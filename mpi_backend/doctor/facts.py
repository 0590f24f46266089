"""Facts about this machine and process, for the checks."""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import re
import resource
import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping, MutableMapping
from typing import Any

from .. import _autoload, gpu_share, host, info, launchers, master_address, rendezvous, run
from ..build_info import build_info
from .findings import TORCHRUN, Endpoint, GpuFacts, Job, Site

COMMAND_SECONDS = 5.0
PR_GET_DUMPABLE = 3


def collect_facts(env: MutableMapping[str, str], ranks_here: int | None) -> Site:
    """Collects the facts of a Site. Imports torch and registers the backend, which sets the variables that a
    program would see. Does not start MPI. Removes invalid values of MPI_GDR_* from `env`."""
    import torch

    _autoload.register()  # skipped at import with TORCH_DEVICE_BACKEND_AUTOLOAD=0
    cpus = frozenset(os.sched_getaffinity(0))
    extension, mpi, problem = None, None, ""
    bad: list[str] = []
    unknown: list[str] = []
    try:
        from ..extension import _C

        extension, mpi = _C, _C.mpi_info()
        bad, unknown = info.remove_invalid_variables(_C.env_problems(), env)
    except Exception as error:  # the other checks must still run
        problem = f"{type(error).__name__}: {error}"
    shared = host.shared_memory()
    return Site(
        env=env,
        job=job_of(env, len(cpus), ranks_here),
        host=socket.gethostname(),
        torch=str(torch.__version__),
        cpus=cpus,
        cpus_of_host=os.cpu_count() or len(cpus),
        threads=torch.get_num_threads(),
        mpi=mpi,
        extension=extension,
        import_problem=problem,
        bad_values=tuple(bad),
        unknown_names=tuple(unknown),
        network=info.network_module(mpi, env) or None if mpi else None,
        endpoint=endpoint_of(env),
        resolve=resolve,
        outward_addresses=outward_addresses,
        explain_listen_error=explain_listen_error,
        mpiexec=mpiexec,
        srun_plugins=lambda: srun_plugins(env),
        supports_pmix=lambda: mpi is not None and supports_pmix(mpi["library_path"]),
        launcher_in_other_namespace=lambda: launcher_in_other_namespace(env),
        refused_calls=refused_calls,
        locked_memory=host.limit(resource.RLIMIT_MEMLOCK),
        shared_memory=f"{host.size_text(shared['free'])} free of {host.size_text(shared['size'])}"
        if isinstance(shared["free"], int)
        else None,
        gpus=lambda: gpus(extension),
    )


def job_of(env: Mapping[str, str], cores: int, ranks_here: int | None) -> Job:
    """This process's job, from the launcher or RANK and WORLD_SIZE; else an assumed one on the allocation's
    nodes, with `ranks_here`, the allocation's tasks or a rank per core."""

    def number(name: str) -> int | None:
        return int(env[name]) if env.get(name, "").isdecimal() else None

    placement = launchers.detect(env)
    rank, size = number("RANK"), number("WORLD_SIZE")
    if placement is not None:
        here = placement.local_size
        nodes = 1 if here == placement.size else run.number_of_nodes(None, env)
        if nodes == 1 and here is not None and here < placement.size:
            nodes = None  # several nodes, but no batch system gives their number
        # `srun --mpi=pmi2` sets PMI_RANK and PMI_SIZE as Hydra does, but not MPI_LOCAL*.
        by_srun = launchers.in_slurm_step(env) and not any(
            name.startswith(("MPI_LOCAL", "OMPI_")) for name in env
        )
        launcher = "Slurm srun" if by_srun else placement.launcher
        nodes = number("SLURM_STEP_NUM_NODES") or nodes if by_srun else nodes
        if nodes is None and here:
            nodes = max(2, -(-placement.size // here))
        guess = -(-placement.size // (nodes or 1))
        return Job(launcher, placement.rank, placement.size, placement.local_rank, here or guess, nodes)
    if rank is not None and size:
        here = number("LOCAL_WORLD_SIZE") or size
        nodes = number("GROUP_WORLD_SIZE") or -(-size // here)
        agent = TORCHRUN if "TORCHELASTIC_RUN_ID" in env else None
        return Job(agent, rank, size, number("LOCAL_RANK"), here, nodes)
    nodes = run.number_of_nodes(None, env)
    tasks = number("SLURM_NTASKS")
    here = ranks_here or (run.average_per_node(tasks, env) if tasks else cores)
    return Job(None, 0, here * (nodes or 1), None, here, nodes)


def endpoint_of(env: Mapping[str, str]) -> Endpoint | None:
    """MASTER_ADDR and MASTER_PORT if both are set."""
    address, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    return (
        Endpoint(address, port, master_address.current_endpoint(env) is not None)
        if address and port
        else None
    )


def resolve(name: str) -> tuple[str, ...]:
    """All addresses of a name. Raises TimeoutError if the name service does not answer."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise TimeoutError from None
        return ()
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def outward_addresses() -> tuple[str, ...]:
    """Numeric addresses of this host, without loopback."""
    found = []
    for address in rendezvous.node_addresses():
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(address)
            found.append(address)
    return tuple(found)


def explain_listen_error(port: int) -> str:
    """Why no process can listen on the port; "" if one can."""
    try:
        rendezvous.open_listener(False, port).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def mpiexec() -> tuple[str, bool | None] | None:
    """The launcher that `mpi-gdr run` uses, and whether it is Open MPI's (None: unknown)."""
    path = run.find_mpiexec()
    if path is None:
        return None
    version_text = run.version_of(path, COMMAND_SECONDS)
    return path, None if version_text is None else run.is_open_mpi(path, version_text)


def srun_plugins(env: Mapping[str, str]) -> tuple[str, ...] | None:
    """Values of `srun --mpi=`. None: no srun or no job; (): no answer."""
    srun = shutil.which("srun")
    if srun is None or "SLURM_JOB_ID" not in env:
        return None
    try:
        result = subprocess.run(
            [srun, "--mpi=list"], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    # srun prints them among other text, to stdout or stderr depending on its release.
    return tuple(re.findall(r"\b(?:pmi2|pmix\w*|none|cray_shasta|openmpi)\b", result.stdout + result.stderr))


def supports_pmix(library: str) -> bool:
    """Whether the MPI library or one of its dependencies has PMIx_Init. The library is loaded already."""
    try:
        return hasattr(ctypes.CDLL(library), "PMIx_Init")
    except OSError:
        return False


def launcher_in_other_namespace(env: Mapping[str, str]) -> bool:
    """Whether the launcher at PMI_FD's other end is in another PID namespace: the kernel reports pid 0."""
    descriptor = env.get("PMI_FD", "")
    if not descriptor.isdecimal():
        return False
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(descriptor))) as end:
        if end.family == socket.AF_UNIX:
            pid, _, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            return bool(pid == 0)
    return False


def refused_calls() -> dict[str, str]:
    """{check: error, or ""}. Calls are tried on this process, because a seccomp filter refuses a call for any
    target."""
    libc = ctypes.CDLL(None, use_errno=True)
    refused = {"dumpable": "" if libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1 else "no"}
    try:
        os.close(os.memfd_create("mpi-gdr"))
        refused["memfd_create"] = ""
    except OSError as error:
        refused["memfd_create"] = error.strerror or str(error.errno)
    there, here = ctypes.create_string_buffer(b"mpi-gdr"), ctypes.create_string_buffer(8)

    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t))

    local = Vector(ctypes.addressof(here), 8)
    remote = Vector(ctypes.addressof(there), 8)
    with contextlib.suppress(AttributeError):  # this libc lacks the call
        libc.process_vm_readv.restype = ctypes.c_ssize_t
        unsigned = ctypes.c_ulong
        moved = libc.process_vm_readv(
            os.getpid(), ctypes.byref(local), unsigned(1), ctypes.byref(remote), unsigned(1), unsigned(0)
        )
        refused["process_vm_readv"] = "" if moved == 8 else os.strerror(ctypes.get_errno())
    return refused


def gpus(extension: Any) -> GpuFacts:
    """GPUs as torch and our CUDA library see them, without starting a device."""
    record, problem, queues = build_info(), None, None
    found = info.accelerator(bool(record.get("cuda")))
    if extension is not None and found["type"] == "cuda":
        cuda = extension.cuda_info()
        problem, queues = record.get("no_cuda") or cuda["problem"], cuda["queues"]
    return GpuFacts(found, _autoload.problems.get(gpu_share.VARIABLE), problem, queues)
