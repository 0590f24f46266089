"""Checks of network devices and host names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from .findings import DNS_SECONDS, Finding, Site, call_all_with_timeout, call_with_timeout
from .start import MASTER, is_loopback, several

# Batch systems' files with a node's name on each line.
NODE_FILES = ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE", "COBALT_NODEFILE")
MAX_NAMES = 64
BENCH = "docs/bench.md#messages-latency-bw-bibw-multi_bw"
SITE = "docs/slurm.md#what-goes-wrong-first"
# Variables that confine a network library to some devices.
DEVICES = ("UCX_NET_DEVICES", "FI_TCP_IFACE", "FI_SOCKETS_IFACE", "FI_VERBS_IFACE")


def check_network(site: Site) -> Iterator[Finding]:
    """MPI's network module against this host's devices. Sends nothing."""
    up = [
        name
        for name in site.names("sys/class/net")
        if site.read(f"sys/class/net/{name}/operstate") not in (None, "down")
    ]
    interfaces = [name for name in up if name != "lo"]
    fast = [*site.names("sys/class/infiniband"), *site.names("sys/class/cxi")]
    here = f"here: {', '.join([*fast, *interfaces])[:60] or 'lo alone'}"
    yield from check_device_names(site, {*interfaces, "lo", *fast})
    if several(site) and not interfaces and not fast:
        yield Finding(
            "bad",
            "this process sees no network device but lo, and the job has several nodes",
            advice="containers with the host's network (docker --network=host)",
            page=SITE,
        )
    elif site.network is None:
        yield Finding(
            "not known",
            f"this MPI does not report its network module; {here}",
            advice="measure it with `mpi-gdr bench latency` between two nodes",
            page=BENCH,
        )
    elif uses_sockets(site, fast):
        yield Finding(
            "remark",
            f"{site.network}: libfabric uses its slowest provider, sockets; {here}",
            cost="messages between nodes are slow, and progress only while the receiver is inside MPI",
            advice="FI_PROVIDER=" + ("verbs or what your site names" if fast else "tcp"),
            page="docs/mvapich.md#the-network",
        )
    elif site.network.startswith("ofi") and several(site) and not provider(site):
        yield Finding(
            "not known",
            f"{site.network}: libfabric chooses its provider when MPI starts; {here}",
            advice="set FI_PROVIDER; measure with `mpi-gdr bench latency` between two nodes",
            page=BENCH,
        )
    else:
        yield Finding("good", f"{site.network}; {here}")
    if several(site):
        yield Finding(
            "not known",
            "whether the nodes reach each other: one process cannot check it",
            advice="`mpi-gdr selftest` under the launcher, with a rank on each node",
            page="docs/selftest.md",
        )


def provider(site: Site) -> str:
    """libfabric's provider as chosen by a variable, or ""."""
    return site.env.get("FI_PROVIDER") or site.env.get("MPIR_CVAR_OFI_USE_PROVIDER", "")


def uses_sockets(site: Site, fast: list[str]) -> bool:
    """Whether libfabric uses `sockets`. By experiment, MVAPICH 4.0 and MPICH 5.0.2 do on hosts without a fast
    network if no variable names a provider."""
    if not (site.network or "").startswith("ofi") or site.mpi is None:
        return False
    chosen = provider(site) or ("" if fast else "sockets")
    return chosen == "sockets" and site.mpi["library"].startswith(("MPICH", "MVAPICH"))


def check_device_names(site: Site, present: set[str]) -> Iterator[Finding]:
    """Devices that a variable names and this host lacks."""
    for variable in DEVICES:
        value = site.env.get(variable, "")
        wanted = [re.sub(r":\d+$", "", name.strip()) for name in value.split(",") if name.strip()]
        if not wanted or value.startswith("^") or any(re.search(r"[*?]|^all$", name) for name in wanted):
            continue
        if variable == "FI_VERBS_IFACE":  # a prefix
            wanted = [name for name in present if name.startswith(tuple(wanted))]
        if not any(name in present for name in wanted) and present:
            yield Finding(
                "bad",
                f"{variable}={value} names no device of this host (it has {', '.join(sorted(present))})",
                advice=f"unset {variable}, or a device of each node",
                page=SITE,
            )


# ---- host names -------------------------------------------------------------------------------------------


def check_names(site: Site) -> Iterator[Finding]:
    """This host's name, and those of the allocation's nodes."""
    yield from check_own_name(site)
    names = [name for name in nodes_of_allocation(site) if name != site.host]
    if not names:
        return
    asked = names[:MAX_NAMES]
    found = call_all_with_timeout(DNS_SECONDS, site.resolve, asked)
    unanswered = [name for name in asked if found[name] is None]
    unknown = [name for name in asked if found[name] == ()]
    if unknown:
        yield Finding(
            "remark",
            f"{len(unknown)} of {len(asked)} names of nodes do not resolve here: {', '.join(unknown[:4])}",
            cost="launchers and torch connect to nodes by these names",
            advice="DNS or /etc/hosts of the nodes, else MPI_GDR_MASTER_ADDR= an address of rank 0's node",
            page=MASTER,
        )
    if unanswered:
        yield Finding(
            "not known",
            f"the name service does not answer for {len(unanswered)} of {len(asked)} names of nodes: "
            f"{', '.join(unanswered[:4])}",
            page=MASTER,
        )
    if not unknown and not unanswered:
        yield Finding("good", f"{len(asked)} of {len(names)} names of other nodes looked up: they resolve")


def check_own_name(site: Site) -> Iterator[Finding]:
    """This host's name, by which other programs find it, and which rank 0 announces."""
    try:
        addresses = call_with_timeout(DNS_SECONDS, lambda: site.resolve(site.host))
    except TimeoutError:
        yield Finding(
            "not known",
            f"{site.host}, this host's name: the name service does not answer",
            cost="every start waits for it",
            page=MASTER,
        )
        return
    if addresses and not (several(site) and all(is_loopback(address) for address in addresses)):
        yield Finding("good", f"{site.host}, this host's name, is {addresses[0]}")
        return
    try:
        outward = call_with_timeout(DNS_SECONDS, site.outward_addresses)
    except TimeoutError:
        outward = ()
    what = f"is {addresses[0]}, which other nodes cannot use" if addresses else "does not resolve"
    if several(site) and not outward:
        yield Finding(
            "bad",
            f"{site.host}, this host's name, {what}, and no interface leads to another host",
            advice="DNS or /etc/hosts of the nodes; containers with the host's network",
            page=MASTER,
        )
        return
    cost = (
        f"rank 0 announces {outward[0]} instead"
        if several(site)
        else "torchrun's ranks wait for it; starts are slow"
    )
    yield Finding(
        "remark",
        f"{site.host}, this host's name, {what}",
        cost=cost,
        advice="DNS or /etc/hosts"
        + ("; MPI_GDR_MASTER_ADDR= a name that all nodes reach" if several(site) else ""),
        page=MASTER,
    )


def nodes_of_allocation(site: Site) -> list[str]:
    """Names of this job's nodes, as far as the batch system lists them."""
    if nodes := site.env.get("SLURM_JOB_NODELIST", site.env.get("SLURM_NODELIST", "")):
        return expand_slurm(nodes)
    for variable in NODE_FILES:
        if path := site.env.get(variable):
            try:
                lines = Path(path).read_text().splitlines()
            except OSError:
                return []
            return list(dict.fromkeys(line.split()[0] for line in lines if line.split()))
    return []


def expand_slurm(nodes: str) -> list[str]:
    """ "rack[1-2]n[03-04,9],login" -> the seven names."""
    names = []
    for part in re.findall(r"(?:[^\[,]|\[[^\]]*\])+", nodes):
        pieces = re.split(r"\[([^\]]*)\]", part)  # text and ranges alternate
        choices = [numbers(piece) if i % 2 else [piece] for i, piece in enumerate(pieces)]
        names += ["".join(words) for words in itertools.product(*choices)]
    return names


def numbers(ranges: str) -> list[str]:
    """ "03-04,9" -> 03, 04 and 9."""
    result = []
    for item in ranges.split(","):
        first, _, last = item.partition("-")
        if first.isdecimal() and last.isdecimal():
            result += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
        else:
            result.append(item)
    return result
