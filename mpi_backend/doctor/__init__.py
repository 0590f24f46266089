"""`mpi-gdr doctor`: checks from one process, without starting MPI, whether this site's launcher, MPI,
network, limits and host names work together; reports costs and remedies.

A check is a function that yields findings. A fact that cannot be found is "not known", never "good".
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .._version import __version__
from ..command_line import Parser
from . import network, node, start
from .facts import collect_facts
from .findings import Finding, Site, call_with_timeout

Check = Callable[[Site], Iterator[Finding]]
SECONDS = 15.0  # deadline of a check; its queries have shorter ones
WIDTH = 100


class Row(NamedTuple):
    """`of_rank`: ranks of a node may get different answers; otherwise only the node's first rank runs it."""

    topic: str
    check: Check
    of_rank: bool = False


CHECKS = (
    Row("torch", start.check_build),
    Row("variables", start.check_variables, of_rank=True),
    Row("MPI", start.check_mpi),
    Row("launcher", start.check_launcher, of_rank=True),
    Row("rendezvous", start.check_rendezvous),
    Row("network", network.check_network),
    Row("host names", network.check_names),
    Row("processors", node.check_processors),
    Row("threads", node.check_threads, of_rank=True),
    Row("/dev/shm", node.check_shared_memory),
    Row("locked", node.check_locked_memory),
    Row("open files", node.check_files),
    Row("copies", node.check_copies),
    Row("containers", node.check_namespaces),
    Row("GPUs", node.check_gpus, of_rank=True),
)
Found = list[tuple[str, Finding]]  # (topic, finding)


def main(argv: list[str]) -> int:
    """Exit status: 1 if something will not work on this rank or its node."""
    parser = Parser(
        prog="mpi-gdr doctor",
        description="Check whether launcher, MPI, network, limits and names of this site work together. "
        "One process is enough; under a launcher each node is checked. MPI is not started.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument(
        "-n", type=int, metavar="N", help="ranks on this host, without a launcher (default: the cores)"
    )
    options = parser.parse_args(argv)
    if options.n is not None and options.n < 1:
        parser.error(f"-n {options.n} is less than 1")
    site = collect_facts(os.environ, options.n)
    found = findings(site, CHECKS)
    status = int(any(finding.level == "bad" for _, finding in found))
    if site.job.rank == 0:
        print(
            json.dumps(as_report(site, found), indent=2) if options.json else as_text(site, found), flush=True
        )
    else:
        # With --json, standard output holds rank 0's object only.
        print("".join(lines_of_other_rank(site, found)), end="", file=sys.stderr if options.json else None)
    return status


def findings(site: Site, checks: Sequence[Row], seconds: float = SECONDS) -> Found:
    """Findings of this rank's checks. A check that fails or exceeds its deadline yields "not known"."""
    found: Found = []
    for row in checks:
        if site.job.local_rank and not row.of_rank:
            continue
        try:
            results = call_with_timeout(seconds, lambda row=row: list(row.check(site)))  # type: ignore[misc]
        except Exception as error:
            results = [
                Finding("not known", f"{error or type(error).__name__}", page="docs/launch.md#mpi-gdr-doctor")
            ]
        found += [(row.topic, answer) for answer in results]
    return found


def title(site: Site) -> str:
    """Describes what was checked."""
    job = site.job
    if job.launcher is None:
        ranks = f"{job.ranks_here} {node.plural(job.ranks_here)} on this host"
        text = f"no launcher; checked for {ranks} (-n N: for N)"
    else:
        nodes = (
            "an unknown number of nodes" if job.nodes is None else f"{job.nodes} node{'s' * (job.nodes > 1)}"
        )
        here = f"{job.ranks_here} {node.plural(job.ranks_here)} here"
        text = f"rank {job.rank} of {job.size} by {job.launcher}, {nodes}, {here}"
    return f"mpi-gdr {__version__} on {site.host}: {text}"


def as_text(site: Site, found: Found) -> str:
    """The whole report as text."""
    lines = textwrap.wrap(title(site), WIDTH, subsequent_indent="  ")
    for topic, finding in found:
        lines += lines_of(topic, finding)
    counts = {level: sum(f.level == level for _, f in found) for level in ("bad", "remark", "not known")}
    verdict = "problems found" if counts["bad"] else "no problem found"
    others = [f"{counts['remark']} remark{'s' * (counts['remark'] != 1)}"] if counts["remark"] else []
    others += [f"{counts['not known']} not known"] if counts["not known"] else []
    head = [f"{counts['bad']} bad"] if counts["bad"] else []
    return "\n".join([*lines, f"{verdict}" + (f" ({', '.join([*head, *others])})" if head + others else "")])


def lines_of(topic: str, finding: Finding) -> list[str]:
    """The finding with its cost, remedy and page."""
    level = "BAD" if finding.level == "bad" else finding.level
    parts = [finding.what]
    parts += [f"Cost: {finding.cost}"] if finding.cost else []
    label = "Try" if finding.level == "not known" else "Remedy"
    parts += [f"{label}: {finding.advice}"] if finding.advice else []
    parts += [f"See {finding.page}"] if finding.page else []
    return textwrap.wrap(
        ". ".join(parts),
        WIDTH,
        initial_indent=f"{level:<9} {topic:<11} ",
        subsequent_indent=" " * 22,
        break_long_words=False,
        break_on_hyphens=False,
    )


def lines_of_other_rank(site: Site, found: Found) -> list[str]:
    """Remarks and errors of a rank other than 0, with its host."""
    prefix = f"rank {site.job.rank} ({site.host}): "
    # Rank 0 reports what is alike on all ranks.
    return [
        prefix + " ".join(line.strip() for line in lines_of(topic, finding)) + "\n"
        for topic, finding in found
        if finding.level in ("remark", "bad") and not finding.of_job
    ]


def as_report(site: Site, found: Found) -> dict[str, object]:
    """The object of --json."""
    return {
        "mpi_gdr": __version__,
        "host": site.host,
        "job": site.job._asdict(),
        "findings": [{"topic": topic, **finding._asdict()} for topic, finding in found],
    }
