"""Output of `mpi-gdr diagnose`: a line per rank, then the findings."""

from __future__ import annotations

from ..columns import columns
from .compare import Finding, Job, call_text, median_lateness, ranks_text

SHOWN_RANKS = 64


def _rows(job: Job) -> list[list[str]]:
    late = median_lateness(job)
    rows = []
    for rank, dump in list(job.dumps.items())[:SHOWN_RANKS]:
        entries = dump["entries"] + dump["p2p_entries"]
        failed = [entry for entry in entries if "error" in entry]
        last = max(entries, key=lambda entry: entry["op_id"], default=None)
        shown = failed[0] if failed else last
        state = "" if shown is None else "failed" if failed else shown["state"]
        reason = dump["reason"].split(";")[0]
        rows.append(
            [
                str(rank),
                f"{dump['host']}:{dump['pid']}",
                reason if len(reason) <= 48 else reason[:45] + "...",
                "none" if shown is None else call_text(shown),
                state,
                f"{late[rank] * 1e3:.1f}" if rank in late else "",
            ]
        )
    return rows


HEADERS = ["rank", "process", "log written because", "first failed or last operation", "state", "late/ms"]


def print_report(job: Job, found: list[Finding]) -> None:
    """Prints the table, then the findings, the likely cause first."""
    print("\n".join(columns(HEADERS, _rows(job), numbers=(0, 5))))
    if len(job.dumps) > SHOWN_RANKS:
        print(f"{len(job.dumps) - SHOWN_RANKS} more ranks are not shown.")
    if job.missing:
        print(f"No log from {ranks_text(job.missing)} of {job.size}.")
    if not found:
        print("No divergence found.")
        return
    first, *others = found
    print(f"First divergence, {ranks_text(first.divergent)}: {first.text}")
    for other in others:
        print(f"Then, {ranks_text(other.divergent)}: {other.text}")
