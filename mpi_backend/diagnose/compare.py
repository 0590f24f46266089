"""Aligns the operations of all ranks by group and sequence number and finds where they diverge.

Pure functions over the dictionaries of dumps.py; docs/errors-and-faults.md describes the fields.
"""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from dataclasses import dataclass, field

from .dumps import Dump, Entry

# {((uid of the group, source, destination, tag, number), whether this side sends): logged entry}
Messages = dict[tuple[tuple[str, int, int, int, int], bool], Entry]


@dataclass
class Group:
    """A group of the job and the calls of its ranks. A rank is its number in the default group."""

    uid: str
    name: str
    ranks: list[int]
    calls: dict[int, dict[int, Entry]] = field(default_factory=dict)  # {rank: {sequence: entry}}


@dataclass
class Finding:
    """One problem. `time`: ns since the epoch, when the first rank called."""

    time: int
    divergent: list[int]
    text: str


class Job:
    """All dumps of a job."""

    def __init__(self, dumps: dict[int, Dump], patience: float = 10.0) -> None:
        self.dumps = dumps
        self.patience_ns = int(patience * 1e9)
        self.size = max([max(dumps) + 1, *(int(dump.get("world_size", 1)) for dump in dumps.values())])
        self.missing = [rank for rank in range(self.size) if rank not in dumps]
        self.groups = self._groups()

    def _groups(self) -> list[Group]:
        groups: dict[str, Group] = {}
        for rank, dump in self.dumps.items():
            uids = {}
            for name, config in dump["pg_config"].items():
                uid = uids[name] = config.get("uid") or name
                title = config.get("description") or config["desc"]
                shown = name if title == "undefined" else f"{name} ({title})"
                group = groups.setdefault(uid, Group(uid, shown, ast.literal_eval(config["ranks"])))
                if "(" in shown:  # ranks that never used the group lack the user's name for it
                    group.name = shown
                group.calls[rank] = {}
            for entry in dump["entries"]:
                uid = uids[entry["process_group"][0]]
                groups[uid].calls[rank][entry["collective_seq_id"]] = entry
        return list(groups.values())

    def complete_from(self, group: Group, rank: int) -> int:
        """The first sequence number from which this rank's log of the group is complete; -1: unknown."""
        calls = group.calls[rank]
        entries = self.dumps[rank]["entries"]
        if not entries or entries[0]["record_id"] == 0:
            return 0
        return min(calls) if calls else -1

    def is_stuck(self, rank: int, entry: Entry) -> bool:
        """Whether it failed, or had waited longer than the patience when the log was written."""
        if "error" in entry:
            return True
        waited = self.dumps[rank]["time_ns"] - entry["time_created_ns"]
        return entry["state"] != "completed" and waited > self.patience_ns


def _elements(sizes: list[list[int]]) -> int:
    return sum(math.prod(size) for size in sizes)


def _signature(entry: Entry) -> tuple[object, ...]:
    """The part of a call that must be equal on all ranks of the group."""
    kind = entry["profiling_name"].split(":", 1)[1]
    words = dict(re.findall(r"\b(op|root)=(\w+)", entry["detail"]))
    if kind == "coalesced":
        return (entry["name"], entry["sequences"], words.get("op"))
    dtypes = tuple(sorted(set(entry["input_dtypes"]) | set(entry["output_dtypes"])))
    counts: tuple[int, ...] = ()
    if kind not in ("all_to_all", "scatter"):
        counts += (_elements(entry["input_sizes"]),)
    if kind not in ("all_to_all", "gather"):
        counts += (_elements(entry["output_sizes"]),)
    return (kind, dtypes, counts, words.get("op"), words.get("root"), entry["sequences"])


def ranks_text(ranks: list[int]) -> str:
    """ "rank 3", "ranks 0, 2"."""
    shown = ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def call_text(entry: Entry) -> str:
    """Name and details of an operation."""
    return f"{entry['name']} {entry['detail']}".strip()


def _phase(entry: Entry) -> str:
    if entry["state"] == "scheduled":
        return "had not started: earlier operations of the group were pending"
    text = "was waiting"
    if pending := entry.get("pending_ranks"):
        text += " for " + ("any rank" if pending == [-1] else ranks_text(pending))
    return text


def _partition(callers: dict[int, Entry]) -> list[tuple[list[int], Entry]]:
    """Ranks with equal calls, the largest set first."""
    sets: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for rank, entry in callers.items():
        sets[_signature(entry)].append(rank)
    return [(r, callers[r[0]]) for r in sorted(sets.values(), key=lambda r: (-len(r), r))]


def _collectives(job: Job, group: Group) -> Finding | None:
    """The group's first divergence; later ones follow from it."""
    starts = {rank: job.complete_from(group, rank) for rank in group.calls}
    known = [rank for rank in starts if starts[rank] >= 0]
    start = max((starts[rank] for rank in known), default=0)
    sequences = sorted({s for rank in known for s in group.calls[rank] if s >= start})
    for sequence in sequences:
        callers = {rank: calls for rank in known if (calls := group.calls[rank].get(sequence))}
        where = f"group {group.name}, seq={sequence}: "
        time = min(entry["time_created_ns"] for entry in callers.values())
        sets = _partition(callers)
        if len(sets) > 1:
            texts = [f"{ranks_text(ranks)} called {call_text(entry)}" for ranks, entry in sets]
            smallest = len(sets[-1][0])
            tie = len(sets[0][0]) == smallest
            divergent = [r for ranks, _ in sets if tie or len(ranks) == smallest for r in ranks]
            return Finding(time, sorted(divergent), where + "different calls: " + "; ".join(texts))
        if kind_error := _splits_error(group, callers):
            return Finding(time, sorted(callers), where + kind_error)
        stuck = [rank for rank, entry in callers.items() if job.is_stuck(rank, entry)]
        if not stuck:
            continue
        call = call_text(callers[stuck[0]])
        absent = [rank for rank in known if rank not in callers]
        if absent:
            text = f"{ranks_text(absent)} never called {call}, in which {ranks_text(stuck)} waited"
            return Finding(time, absent, where + text + _last_calls(group, absent))
        without_log = [rank for rank in group.ranks if rank not in job.dumps]
        if without_log:
            text = f"{ranks_text(stuck)} stuck in {call}; {ranks_text(without_log)} wrote no log"
            return Finding(time, without_log, where + text)
        phases = defaultdict(list)
        for rank in stuck:
            phases[_phase(callers[rank])].append(rank)
        text = "; ".join(f"{ranks_text(ranks)} {phase}" for phase, ranks in phases.items())
        done = [rank for rank, entry in callers.items() if entry["state"] == "completed"]
        if done:
            text += f"; it completed on {ranks_text(done)}"
        return Finding(time, stuck, where + f"all ranks called {call}, and it did not complete: {text}")
    return None


def _splits_error(group: Group, callers: dict[int, Entry]) -> str:
    first = next(iter(callers.values()))
    if not first["profiling_name"].endswith(":all_to_all") or len(callers) < len(group.ranks):
        return ""
    sent = sum(_elements(entry["input_sizes"]) for entry in callers.values())
    expected = sum(_elements(entry["output_sizes"]) for entry in callers.values())
    if sent == expected:
        return ""
    return f"{call_text(first)}: all ranks together send {sent} elements and expect {expected}"


def _last_calls(group: Group, ranks: list[int]) -> str:
    parts = []
    for rank in ranks[:4]:
        calls = group.calls[rank]
        last = f"{call_text(calls[max(calls)])} seq={max(calls)}" if calls else "none"
        parts.append(f"last call of rank {rank} on the group: {last}")
    return "; " + "; ".join(parts)


def _messages(job: Job) -> list[Finding]:
    table: Messages = {}
    for rank, dump in job.dumps.items():
        uids = {name: config.get("uid") or name for name, config in dump["pg_config"].items()}
        for entry in dump["p2p_entries"]:
            sends = entry["source"] == rank
            uid = uids[entry["process_group"][0]]
            key = (uid, entry["source"], entry["destination"], entry["tag"], entry["message"])
            table[key, sends] = entry
    names = {group.uid: group.name for group in job.groups}
    found = []
    for (key, sends), entry in table.items():
        uid, source, destination, tag, number = key
        rank, peer = (source, destination) if sends else (destination, source)
        if not job.is_stuck(rank, entry):
            continue
        verb, other = ("sends", "receives") if sends else ("receives", "sends")
        toward = f"to rank {peer}" if sends else (f"from rank {peer}" if peer >= 0 else "from any rank")
        text = f"messages of group {names[uid]}: rank {rank} {verb} {entry['bytes']} bytes "
        text += f"{toward} with tag {tag} ({call_text(entry)}, number {number})"
        counterpart = table.get((key, not sends))
        divergent = [peer] if peer >= 0 else [rank]
        if peer >= 0 and peer not in job.dumps:
            text += f"; rank {peer} wrote no log"
        elif sends and counterpart is None and _receives_from_any(table, uid, destination, tag):
            text += f"; rank {peer} receives from any rank; which message it received is unknown"
        elif peer >= 0 and counterpart is None:
            text += f", which it never {other}"
        elif counterpart is not None and counterpart["bytes"] != entry["bytes"]:
            text += f", which {other} {counterpart['bytes']} bytes"
            divergent = sorted([rank, peer])
        elif counterpart is not None:
            text += f"; the two did not match: it is {counterpart['state']} on rank {peer}"
            divergent = sorted([rank, peer])
        found.append(Finding(entry["time_created_ns"], divergent, text))
    return found


def _receives_from_any(table: Messages, uid: str, destination: int, tag: int) -> bool:
    return any(key[:4] == (uid, -1, destination, tag) for key, _ in table)


def findings(job: Job) -> list[Finding]:
    """All problems, the earliest first: it likely caused the rest."""
    found = [f for group in job.groups if (f := _collectives(job, group))]
    return sorted(found + _messages(job), key=lambda f: f.time)


def median_lateness(job: Job) -> dict[int, float]:
    """{rank: median seconds by which it called its collectives later than the first rank}.

    Clocks of different nodes may differ by more than that.
    """
    late: dict[int, list[int]] = defaultdict(list)
    for group in job.groups:
        if len(group.ranks) < 2:
            continue
        for sequence in {s for calls in group.calls.values() for s in calls}:
            times = {
                rank: calls[sequence]["time_created_ns"]
                for rank, calls in group.calls.items()
                if sequence in calls
            }
            if len(times) == len(group.ranks):
                for rank, time in times.items():
                    late[rank].append(time - min(times.values()))
    return {rank: sorted(times)[len(times) // 2] / 1e9 for rank, times in late.items()}
