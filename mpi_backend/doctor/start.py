"""Checks of a job's start: build, MPI library, launcher, and the ranks' meeting point."""

from __future__ import annotations

from collections.abc import Iterator

from .. import launchers
from ..reports import MpiInfo
from .findings import DNS_SECONDS, TORCHRUN, Finding, Level, Site, call_with_timeout

WHEN_NOT = "docs/launch.md#when-it-does-not-start"
WHICH_WAY = "docs/bootstrap.md#which-way"
MASTER = "docs/launch.md#master_addr-and-master_port"


def is_open_mpi(mpi: MpiInfo) -> bool:
    """Whether the MPI is Open MPI, which only starts under PMIx."""
    return mpi["abi"] == "Open MPI"


def check_build(site: Site) -> Iterator[Finding]:
    """torch, and the extension built for it."""
    if not site.import_problem:
        yield Finding("good", f"torch {site.torch}, the extension was built for it")
        return
    if "was built for torch" in site.import_problem:
        page = "docs/install.md#which-torch"
    elif "MPI library" in site.import_problem:
        page = "docs/install.md#which-mpi-at-run-time"
    elif "hides the installed package" in site.import_problem:
        page = WHEN_NOT
    else:
        page = "docs/install.md#beside-your-own-torch-and-mpi"
    yield Finding("bad", site.import_problem, page=page)


def check_variables(site: Site) -> Iterator[Finding]:
    """MPI_GDR_* variables of this process; other ranks' values are not visible here."""
    if site.extension is None:
        yield Finding(
            "not known", "MPI_GDR_* variables are read by the extension", page="docs/environment.md"
        )
        return
    for text in site.bad_values:
        yield Finding("bad", text, page="docs/environment.md")
    for text in site.unknown_names:
        yield Finding("remark", text, page="docs/environment.md")
    if not site.bad_values and not site.unknown_names:
        count = sum(name.startswith("MPI_GDR_") for name in site.env)
        yield Finding("good", f"{count} MPI_GDR_* set, each with a value that is allowed")


def check_mpi(site: Site) -> Iterator[Finding]:
    """The loaded MPI library, without starting it."""
    if site.mpi is None:
        yield Finding(
            "not known",
            "the MPI library is loaded with the extension",
            page="docs/install.md#which-mpi-at-run-time",
        )
        return
    name = " ".join(site.mpi["library"].split())
    affinity = "MV2_ENABLE_AFFINITY" if name.startswith("MVAPICH2") else "MVP_ENABLE_AFFINITY"
    binds = name.startswith("MVAPICH2") or (
        name.startswith("MVAPICH") and site.mpi["device"].startswith("ch3")
    )
    if binds and site.env.get(affinity) != "0":
        yield Finding(
            "bad",
            f"{name} binds ranks to cores and then grants no MPI_THREAD_MULTIPLE, which mpi-gdr needs",
            advice=f"{affinity}=0",
            page="docs/mvapich.md#variables",
        )
        return
    yield Finding("good", f"{name} ({site.mpi['library_path']})")


# ---- launcher ---------------------------------------------------------------------------------------------


def check_launcher(site: Site) -> Iterator[Finding]:
    """How MPI starts on this job's ranks, or what can start ranks here."""
    if site.mpi is None:
        yield Finding("not known", "which launchers fit depends on the MPI library", page="docs/launch.md")
        return
    env, launcher = site.env, site.job.launcher
    open_mpi = is_open_mpi(site.mpi)
    if launcher == TORCHRUN or (launcher is None and {"RANK", "WORLD_SIZE"} <= set(env)):
        starter = launcher or "RANK and WORLD_SIZE without a launcher"
        if open_mpi and site.job.size > 1:
            yield Finding(
                "bad",
                f"{starter}: Open MPI starts only under its own launcher",
                advice=f"start with `mpi-gdr run -n {site.job.size} train.py`",
                page=WHICH_WAY,
            )
        else:
            yield Finding("good", f"{starter}: MPI starts over torch's store")
        return
    sentence = launchers.explain_mismatch(env, env.get("RANK"), env.get("WORLD_SIZE"), "train.py")
    if launcher is None:
        if sentence and not launchers.all_from_batch_system(launchers.launcher_variables(env)):
            yield Finding("bad", sentence, page=WHEN_NOT)
        yield from check_available_launchers(site, open_mpi)
        return
    if sentence:
        yield Finding("bad", sentence, page=WHEN_NOT)
    elif not launcher_problem(site) and (pmix := pmix_problem(site)):
        yield pmix
    else:
        yield check_mpi_start(site, open_mpi)


def check_mpi_start(site: Site, open_mpi: bool) -> Finding:
    """MPI's start under the launcher of this rank."""
    launcher = site.job.launcher
    if not (problem := launcher_problem(site)):
        return Finding("good", f"{launcher} starts the ranks, and MPI by its own interface")
    if site.endpoint is None or open_mpi:
        return Finding("bad", problem, page=WHEN_NOT)
    where = f"MPI starts over torch's store at {site.endpoint.address}:{site.endpoint.port}"
    if site.env.get("MPI_GDR_BOOTSTRAP") == "store":
        return Finding("good", f"{launcher} starts the ranks; MPI_GDR_BOOTSTRAP=store: {where}")
    return Finding(
        "remark",
        f"this MPI cannot use {launcher} as it was called: {where}",
        cost="that port must be free" + (", and all nodes must reach it" if several(site) else ""),
        advice="`srun --mpi=pmi2`, if the site has it" if launcher == "Slurm srun" else "",
        page=WHICH_WAY,
        of_job=True,
    )


def launcher_problem(site: Site) -> str:
    """Why MPI cannot start under the launcher, as in init_process_group's message; "" if it can."""
    if site.extension is None:
        return "the extension cannot be loaded"
    try:
        return " ".join(site.extension.explain_launcher_mismatch(site.job.size).split())
    except (RuntimeError, ValueError) as error:
        return str(error)


def pmix_problem(site: Site) -> Finding | None:
    """MPICH aborts in MPI_Init if the environment offers both PMI and PMIx."""
    env = site.env
    if site.mpi is None or "PMIX_NAMESPACE" not in env or "OMPI_COMM_WORLD_RANK" in env:
        return None
    if env.get("MPI_GDR_BOOTSTRAP") == "store" or site.job.size == 1:
        return None
    if not site.mpi["library"].startswith(("MPICH", "MVAPICH")):
        return None
    if "PMI_SIZE" in env and "MPIR_CVAR_PMI_VERSION" not in env:
        return Finding(
            "bad",
            "PMI_SIZE and PMIX_NAMESPACE are both set, and MPICH ends the process in MPI_Init",
            advice="`unset PMIX_NAMESPACE PMIX_RANK` before the launcher",
            page=WHEN_NOT,
        )
    return None


def check_available_launchers(site: Site, open_mpi: bool) -> Iterator[Finding]:
    """Outside a job: what would start one."""
    found = site.mpiexec()
    if found is None:
        yield Finding(
            "remark",
            "there is no mpiexec beside this MPI or on PATH: `mpi-gdr run` cannot start ranks",
            advice="`mpi-gdr run --mpiexec PATH`, or another launcher",
            page="docs/launch.md#mpi-gdr-run",
        )
    elif found[1] is None:
        yield Finding(
            "not known",
            f"{found[0]} did not report its MPI within the time limit",
            page="docs/launch.md#mpi-gdr-run",
        )
    elif found[1] != open_mpi:
        mpi = "Open MPI" if open_mpi else "an MPI of the MPICH ABI"
        yield Finding(
            "bad" if open_mpi or several(site) else "remark",
            f"`mpi-gdr run` uses {found[0]}, which belongs to another MPI than the loaded one, {mpi}",
            cost="" if open_mpi else "MPI starts over torch's store, on one host only",
            advice="`mpi-gdr run --mpiexec PATH` with the launcher of the loaded MPI",
            page="docs/install.md#which-mpi-at-run-time",
        )
    else:
        yield Finding("good", f"`mpi-gdr run -n N train.py` starts ranks, by {found[0]}")
    plugins = site.srun_plugins()
    if plugins is None:
        return
    fitting = ["pmix"] if open_mpi else ["pmi2", "cray_shasta", *(["pmix"] if site.supports_pmix() else [])]
    fits = [name for name in fitting if any(plugin.startswith(name) for plugin in plugins)]
    if not plugins:
        yield Finding("not known", "`srun --mpi=list` did not answer", page="docs/slurm.md#slurm")
    elif fits:
        yield Finding("good", f"`srun --mpi={fits[0]} mpi-gdr doctor` checks a rank's place in the job")
    else:
        yield Finding(
            "remark",
            f"srun has no --mpi={fitting[0]} here ({', '.join(plugins)})",
            cost="" if open_mpi else "with plain `srun` MPI starts over torch's store",
            advice="`mpi-gdr run`" if open_mpi else "",
            page="docs/slurm.md#slurm",
        )


# ---- meeting point ----------------------------------------------------------------------------------------


def several(site: Site) -> bool:
    """Whether the job is known to have several nodes."""
    return (site.job.nodes or 1) > 1


def check_rendezvous(site: Site) -> Iterator[Finding]:
    """MASTER_ADDR, MASTER_PORT and the secret."""
    job, endpoint = site.job, site.endpoint
    if endpoint is None:
        if job.launcher is not None and several(site):
            yield Finding(
                "remark",
                "MASTER_ADDR and MASTER_PORT exist only after init_process_group",
                cost="a script that reads them earlier fails",
                advice="set both for all ranks: rank 0's host, and a free port there",
                page="docs/launch.md#which-variables-exist-when",
                of_job=True,
            )
        elif job.launcher is not None or several(site):
            yield Finding("good", "init_process_group sets MASTER_ADDR and MASTER_PORT")
    else:
        yield from check_address(site, endpoint.address)
        yield from check_port(site)
    if several(site) and job.launcher is not None and not site.env.get("MPI_GDR_SECRET"):
        yield Finding(
            "remark",
            "MPI_GDR_SECRET is not set",
            cost="until MPI runs, ranks accept data that other users write to the store",
            advice="the same 64 hexadecimal digits for all ranks (`mpi-gdr run` sets it)",
            page="SECURITY.md#the-secret-of-a-launch",
            of_job=True,
        )


def needs_store(site: Site) -> bool:
    """Whether ranks need the store at MASTER_ADDR to start. If not, rank 0 announces other addresses."""
    return site.endpoint is None or not site.endpoint.computed or bool(launcher_problem(site))


def check_address(site: Site, address: str) -> Iterator[Finding]:
    """Whether MASTER_ADDR resolves to an address that other nodes can use."""
    level: Level = "bad" if needs_store(site) else "remark"
    try:
        addresses = call_with_timeout(DNS_SECONDS, lambda: site.resolve(address))
    except TimeoutError:
        yield Finding("not known", f"MASTER_ADDR={address}: the name service does not answer", page=MASTER)
        return
    if not addresses:
        yield Finding(
            level,
            f"MASTER_ADDR={address} does not resolve on this host",
            advice="MPI_GDR_MASTER_ADDR=, or MASTER_ADDR= a name or address of rank 0's node",
            page=MASTER,
        )
    elif several(site) and all(is_loopback(found) for found in addresses) and not is_own_name(site, address):
        yield Finding(
            level,
            f"MASTER_ADDR={address} is {addresses[0]}: each node looks for rank 0 on itself",
            advice="MPI_GDR_MASTER_ADDR=, or MASTER_ADDR= an address of rank 0's node that all nodes reach",
            page=MASTER,
        )
    else:
        how = "computed at `import torch`" if site.endpoint and site.endpoint.computed else "as set"
        port = site.endpoint.port if site.endpoint else ""
        yield Finding("good", f"MASTER_ADDR={address} MASTER_PORT={port}, {how}")


def is_loopback(address: str) -> bool:
    """Whether the address works on this host only."""
    return address.startswith("127.") or address == "::1"


def is_own_name(site: Site, name: str) -> bool:
    """Whether the name is this host's, which Debian maps to 127.0.1.1 on that host only."""
    return name.split(".")[0] == site.host.split(".")[0] and site.job.rank == 0


def check_port(site: Site) -> Iterator[Finding]:
    """Whether rank 0 can listen on MASTER_PORT. torchrun's agent listens there already."""
    if site.endpoint is None or site.job.rank != 0 or site.env.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return
    port = site.endpoint.port
    if not port.isdecimal() or not 0 < int(port) < 65536:
        yield Finding(
            "bad", f"MASTER_PORT={port} is not a port", advice="a number from 1 to 65535", page=WHEN_NOT
        )
    elif reason := site.explain_listen_error(int(port)):
        yield Finding(
            "bad" if needs_store(site) else "remark",
            f"your processes cannot listen on port {port} (MASTER_PORT) of this host: {reason}",
            cost="" if needs_store(site) else "init_process_group takes another one, on all ranks",
            advice="MASTER_ADDR and MASTER_PORT for all ranks, with a port that is free",
            page=WHEN_NOT,
        )
