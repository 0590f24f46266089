"""Jobs struck by a fault: starts their ranks, waits for them, and reports broken promises."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import processes
from support.warm import Child, Server

FOLDER = Path(__file__).parent
PROGRAM = FOLDER / "program.py"
GRACE = 5  # seconds after the deadline in which every survivor ends, as mpi-gdr promises
BUSY = 20  # extra seconds with more processes than cores
HANG_SECONDS = 100  # a job that runs longer is hung: it prints its stacks and is killed


@dataclass(frozen=True)
class Case:
    phase: str
    fault: str
    operation: str = "all_reduce"
    size: str = "small"
    error: str = ""  # pattern of every survivor's error; "": survivors must have none
    own: str = ""  # pattern of the victim's own error
    victim: int = 1
    ranks: int = 3
    deadline: float = 8
    options: tuple[str, ...] = ()  # of program.py
    variables: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        parts = [self.fault, self.phase, self.operation, self.size]
        parts += [f"victim{self.victim}"] if self.victim != 1 else []
        parts += [f"{name.removeprefix('MPI_GDR_')}={value}" for name, value in self.variables]
        return "-".join(parts)

    def arguments(self, events: Path) -> list[str]:
        return [
            *("--events", str(events), "--phase", self.phase, "--fault", self.fault, "--size", self.size),
            *("--operation", self.operation, "--victim", str(self.victim)),
            *("--deadline", str(self.deadline), *self.options),
        ]

    def environment(self) -> dict[str, str]:
        return processes.clean_environment(
            **{"MPI_GDR_HEARTBEAT": "4", "MPI_GDR_FLIGHT_LOG": "0", **dict(self.variables)}
        )


@dataclass
class Ended:
    rank: int
    status: int | None = None  # negative: a signal; None: still running after HANG_SECONDS
    time: float = 0.0  # time.monotonic()
    events: list[dict[str, Any]] = field(default_factory=list)
    output: str = ""

    def times(self, *events: str) -> list[float]:
        return [e["time"] for e in self.events if e["event"] in events]

    @property
    def errors(self) -> list[str]:
        """Its exceptions, and the last messages of a process stuck in MPI."""
        found = [f"{e['kind']}: {e['text']}" for e in self.events if e["event"] == "error"]
        return found + re.findall(r"^\[mpi-gdr\] rank .*$|^.* mpi-gdr FATAL .*$", self.output, re.MULTILINE)

    def story(self) -> str:
        events = "\n".join(json.dumps(e)[:600] for e in self.events[-8:])
        return (
            f"--- rank {self.rank}: status {self.status} at {self.time:.1f}\n{events}\n{self.output[-3000:]}"
        )


def read_events(folder: Path, rank: int, attempt: int = 0) -> list[dict[str, Any]]:
    path = folder / f"rank{rank}.{attempt}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def all_ready(events: Path, ranks: int) -> bool:
    def ready(rank: int) -> bool:
        return any(event["event"] == "ready" for event in read_events(events, rank))

    found = processes.wait_until(lambda: all(map(ready, range(ranks))), HANG_SECONDS)
    time.sleep(0.5)  # into the middle of the work
    return found


def finish(running: Sequence[Child], events: Path, until: float) -> list[Ended]:
    """The ranks' ends. Those still running at `until` are hung: they print their stacks and are killed."""
    ends = [child.wait(until) or (None, 0.0) for child in running]
    hung = [child for child, (status, _) in zip(running, ends, strict=True) if status is None]
    for child in hung:
        child.kill(signal.SIGABRT)  # faulthandler prints all threads' stacks
    for child in hung:
        child.wait(time.monotonic() + 5)
        child.kill(signal.SIGKILL)
    logs = [(events / f"log{rank}").read_text(errors="replace") for rank in range(len(running))]
    return [Ended(rank, *end, read_events(events, rank), logs[rank]) for rank, end in enumerate(ends)]


def run_apart(
    case: Case,
    servers: Sequence[Server],
    address: str = "127.0.0.1",
    strike: Callable[[], None] | None = None,
) -> list[Ended]:
    """Runs ranks without a launcher, rank r by server r modulo their number. Calls `strike` when ready."""
    port = str(processes.free_port())
    with tempfile.TemporaryDirectory(prefix="faults") as folder:
        events = Path(folder)
        running = []
        for rank in range(case.ranks):
            env = case.environment() | {
                "RANK": str(rank), "WORLD_SIZE": str(case.ranks), "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(case.ranks), "MASTER_ADDR": address, "MASTER_PORT": port,
            }  # fmt: skip
            argv = [str(PROGRAM), *case.arguments(events)]
            running.append(servers[rank % len(servers)].start(argv, env, events / f"log{rank}"))
        struck = []
        if strike and all_ready(events, case.ranks):
            struck = [{"event": "strike", "time": time.monotonic()}]
            strike()
        until = time.monotonic() + HANG_SECONDS
        if case.fault == "sigstop":  # the victim cannot end by itself
            for rank in set(range(case.ranks)) - {case.victim}:
                running[rank].wait(until)
            running[case.victim].kill(signal.SIGKILL)
            until = max(until, time.monotonic() + 10)
        ranks = finish(running, events, until)
        for rank in ranks:
            rank.events = struck + rank.events
        return ranks


def problems(case: Case, ranks: Sequence[Ended]) -> list[str]:
    found = []
    struck = [t for rank in ranks for t in rank.times("strike")]
    if case.fault != "none" and not struck:
        found.append("the fault did not strike")
    left = [n for rank in ranks for e in rank.events for n in e.get("names", ()) if os.path.exists(n)]
    if left:
        found.append(f"left in shared memory: {sorted(set(left))}")
    exposed = [what for rank in ranks for e in rank.events for what in e.get("exposed", ())]
    if exposed:
        found.append(f"accessible to other users: {sorted(set(exposed))}")
    victim_fails = case.fault not in ("none", "slow", "busy", "return")
    for rank in ranks:
        what = f"rank {rank.rank}"
        if rank.times("wrong"):
            found.append(f"{what}: a collective brought a wrong result")
        if rank.status is None:
            found.append(f"{what} was still there after {HANG_SECONDS} s")
            continue
        if "Fatal Python error" in rank.output and case.fault != "abort-mpi":
            found.append(f"{what} crashed")
        if rank.rank == case.victim and case.fault != "none":
            if victim_fails and rank.status == 0:
                found.append(f"{what} failed and ended with status 0")
            if case.own and not any(re.search(case.own, text, re.DOTALL) for text in rank.errors):
                found.append(f"{what}: no error that has {case.own!r}, but {rank.errors}")
            continue
        if rank.status < 0:
            found.append(f"{what} was ended by signal {-rank.status}")
        began = max([*struck, *rank.times("start", "call")])
        limit = case.deadline + GRACE + BUSY
        if case.error and rank.time > began + limit:
            found.append(f"{what} ended {rank.time - began:.1f} s after the fault, limit {limit} s")
        if not case.error and (rank.status != 0 or rank.times("error")):
            found.append(f"{what} should not have been disturbed")
        if case.error and rank.status == 0:
            found.append(f"{what} ended with status 0")
        if case.error and not any(re.search(case.error, text, re.DOTALL) for text in rank.errors):
            found.append(f"{what}: no error that has {case.error!r}, but {rank.errors}")
    return found


def report(case: Case, ranks: Sequence[Ended], found: Sequence[str]) -> str:
    return "\n".join([str(case), *found, *(rank.story() for rank in ranks)])
