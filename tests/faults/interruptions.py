"""Interrupts a healthy job, which must continue: kinds of interruption, durations, observations."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import jobs
from support.warm import Child
from testbed import OFI, UCX, Testbed

SECONDS = (5, 15, 60, 240)
REPORT = 10  # seconds until ranks report a silent rank
# After a cut of T seconds, TCP retries within min(T, 120) seconds.
RESUME_SECONDS = 180


@dataclass(frozen=True)
class Interruption:
    what: str
    hosts: str  # by rank
    stopped: tuple[int, ...] = ()  # ranks; (): the network is cut
    network: Sequence[tuple[str, str]] = UCX
    computes: bool = False  # no rank is in a collective meanwhile
    apart: float = 0  # seconds between SIGCONTs, which the ranks get in reverse order
    heartbeat: int | None = None  # MPI_GDR_HEARTBEAT; None: its default


INTERRUPTIONS = (
    Interruption("one rank of three is suspended", "000", (1,)),
    Interruption("a job on one host is suspended", "000", (0, 1, 2)),
    Interruption("a job on two hosts is suspended", "0101", (0, 1, 2, 3)),
    Interruption("the network between two hosts is cut (UCX)", "01"),
    Interruption("the network between two hosts is cut (OFI)", "01", network=OFI),
    Interruption("the network is cut while all compute (UCX)", "01", computes=True),
    Interruption("the network is cut while all compute (OFI)", "01", network=OFI, computes=True),
)


@dataclass(frozen=True)
class Cell:
    interruption: Interruption
    seconds: int

    def __str__(self) -> str:
        return f"{self.interruption.what} for {self.seconds} s"


@dataclass
class Seen:
    cell: Cell
    ranks: list[jobs.Ended]
    lasted: float = 0  # the interruption in seconds: longer on a busy machine
    after: float | None = (
        None  # seconds from the interruption's end until all ranks continued; None: they did not
    )
    left: list[str] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        return [line for rank in self.ranks for line in rank.output.splitlines() if "mpi-gdr WARN" in line]

    def problems(self) -> list[str]:
        found = [f"left in shared memory: {self.left}"] if self.left else []
        if self.after is None:
            found.append("the job did not continue")
        for rank in self.ranks:
            if rank.status is None:
                found.append(f"rank {rank.rank} hung")
            elif rank.status != 0 or not rank.times("end"):
                found.append(f"rank {rank.rank} was lost: status {rank.status}")
            if rank.times("wrong"):
                found.append(f"rank {rank.rank}: a wrong result")
        silent = [line for line in self.warnings if "has been silent" in line or "no answer for" in line]
        if self.cell.seconds < REPORT and silent:
            found.append(f"the interruption was reported before {REPORT} s")
        stopped = self.cell.interruption.stopped
        if self.cell.seconds > REPORT and len(stopped) == 1:
            again = [line for line in self.warnings if "runs again" in line]
            if len(silent) != 1 or f"rank {stopped[0]} " not in silent[0] or len(again) != 1:
                found.append(f"expected a report of rank {stopped[0]} and of its return: {self.warnings}")
        if self.cell.seconds > REPORT and not stopped and not silent:
            found.append("the interruption was not reported")
        return found

    def story(self) -> str:
        head = f"{self.cell}; it took {self.lasted:.1f} s"
        return "\n".join([head, *self.problems(), *(rank.story() for rank in self.ranks)])


def run(bed: Testbed, link: int, cell: Cell) -> Seen:
    """Runs a job over the link, and interrupts it."""
    plan = cell.interruption
    with tempfile.TemporaryDirectory(prefix="faults") as folder:
        events = Path(folder)
        variables = {} if plan.heartbeat is None else {"MPI_GDR_HEARTBEAT": str(plan.heartbeat)}
        running = bed.start("steady.py", [folder], plan.hosts, events, plan.network, link, **variables)
        seen = Seen(cell, [jobs.Ended(rank) for rank in range(len(plan.hosts))])
        if jobs.all_ready(events, len(plan.hosts)):
            if plan.computes:
                (events / "compute").touch()
                time.sleep(1)
            seen.lasted = interrupt(bed, link, plan, running, cell.seconds)
            (events / "compute").unlink(missing_ok=True)
            seen.after = wait_for_all(events, len(plan.hosts), time.monotonic())
            time.sleep(1.5)  # ranks check each other a few times a second
        (events / "stop").touch()
        seen.ranks = jobs.finish(running, events, time.monotonic() + 30)
        seen.left = bed.left(plan.hosts, seen.ranks)
        return seen


def interrupt(bed: Testbed, link: int, plan: Interruption, running: Sequence[Child], seconds: float) -> float:
    """Returns an upper bound of the interruption's duration in seconds."""

    def signal_all(number: int, ranks: Sequence[int], apart: float = 0) -> None:
        for rank in ranks:
            running[rank].kill(number)
            time.sleep(apart)

    began = time.monotonic()
    signal_all(signal.SIGSTOP, plan.stopped) if plan.stopped else bed.cut("black hole", link)
    time.sleep(seconds)
    signal_all(signal.SIGCONT, plan.stopped[::-1], plan.apart) if plan.stopped else bed.mend(link)
    return time.monotonic() - began


def wait_for_all(events: Path, ranks: int, since: float) -> float | None:
    """Seconds until every rank has completed a round begun after `since`; None: it did not."""
    before = [last_round(events, rank, since)[0] for rank in range(ranks)]
    while time.monotonic() < since + RESUME_SECONDS:
        now = [last_round(events, rank) for rank in range(ranks)]
        if all(number > old + 1 for (number, _), old in zip(now, before, strict=True)):
            return max(at for _, at in now) - since
        time.sleep(0.1)
    return None


def last_round(events: Path, rank: int, until: float = float("inf")) -> tuple[int, float]:
    rounds = [(-1, 0.0)]
    for event in jobs.read_events(events, rank):
        if event["event"] == "round" and event["time"] <= until:
            rounds.append((event["number"], event["time"]))
    return rounds[-1]


def run_all(bed: Testbed, cells: Sequence[Cell]) -> list[Seen]:
    """In parallel, because they mostly wait. The bed has a link for each."""
    with ThreadPoolExecutor(len(cells)) as pool:
        return list(pool.map(lambda cell: run(bed, cells.index(cell), cell), cells))
