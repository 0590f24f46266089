"""Jobs on one and two hosts that lose a needed rank, and when the others are notified."""

from __future__ import annotations

import contextlib
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jobs
import pytest
from support.namespaces import why_unavailable
from support.processes import wait_until
from testbed import Testbed

LIMIT = 2  # seconds until every survivor is notified
VICTIM = 1


@dataclass(frozen=True)
class Loss:
    what: str
    hosts: str  # by rank
    mode: str  # of gave_up.py, or "killed": SIGKILL during a collective
    error: str  # pattern of each survivor's error

    def __str__(self) -> str:
        return f"{self.what}, {'two hosts' if '1' in self.hosts else 'one host'}"


ENDED = rf"rank {VICTIM} \(host \S+, pid \d+\) is gone: its process has ended"
GAVE_UP = rf"rank {VICTIM} \(host \S+, pid \d+\) has left group \S+: "
LOSSES = (
    Loss("a process is killed", "000", "killed", ENDED),
    Loss("a process is killed", "0101", "killed", ENDED),
    Loss("the only process on its host is killed", "01", "killed", ENDED),
    Loss("a group fails on a rank, whose process continues", "000", "waiting", GAVE_UP),
    Loss("a group fails on a rank, whose process continues", "0101", "waiting", GAVE_UP),
    Loss("rank 1 calls another collective than rank 0, and continues", "00", "mismatched", "rank 1 "),
)


@dataclass
class Outcome:
    loss: Loss
    ranks: list[jobs.Ended]
    left: list[str]

    @property
    def survivors(self) -> list[jobs.Ended]:
        return [rank for rank in self.ranks if rank.rank != VICTIM]

    @property
    def seconds(self) -> float:
        """From the loss to the last survivor's error."""
        struck = max(self.ranks[VICTIM].times("strike", "error"), default=float("nan"))
        return max(min(rank.times("error"), default=float("inf")) for rank in self.survivors) - struck

    def problems(self) -> list[str]:
        found = [f"left in shared memory: {self.left}"] if self.left else []
        for rank in self.ranks:
            if rank.status is None:
                found.append(f"rank {rank.rank} hung")
        for rank in self.survivors:
            if not any(re.search(self.loss.error, text) for text in rank.errors):
                found.append(f"rank {rank.rank} was not notified: {rank.errors}")
        return found

    def story(self) -> str:
        return "\n".join([str(self.loss), *self.problems(), *(rank.story() for rank in self.ranks)])


@contextlib.contextmanager
def testbed_or_skip() -> Iterator[Testbed]:
    if reason := why_unavailable():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        yield Testbed(stack)


def seen(events: Path, rank: int, what: str) -> bool:
    return any(event["event"] == what for event in jobs.read_events(events, rank))


def run(bed: Testbed, loss: Loss) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="faults") as folder:
        events = Path(folder)
        if loss.mode == "killed":
            case = jobs.Case("mid", "none", deadline=60)
            script, arguments = "program.py", case.arguments(events)
        else:
            script, arguments = "gave_up.py", [folder, loss.mode]
        running = bed.start(script, arguments, loss.hosts, events)
        struck = []
        if loss.mode == "killed" and jobs.all_ready(events, len(running)):
            time.sleep(2)  # until hosts are connected
            struck = [{"event": "strike", "time": time.monotonic()}]
            running[VICTIM].kill(signal.SIGKILL)
        survivors = [rank for rank in range(len(running)) if rank != VICTIM]
        wait_until(lambda: all(seen(events, rank, "error") for rank in survivors), jobs.HANG_SECONDS)
        (events / "stop").touch()
        ranks = jobs.finish(running, events, time.monotonic() + 30)
        ranks[VICTIM].events += struck
        return Outcome(loss, ranks, bed.left(loss.hosts, ranks))


def run_after_store(bed: Testbed, mode: str, hosts: str) -> list[jobs.Ended]:
    """Runs store_leaves.py: the other ranks continue for seconds after rank 0 has ended."""
    with tempfile.TemporaryDirectory(prefix="faults") as folder:
        events = Path(folder)
        running = bed.start("store_leaves.py", [folder, mode], hosts, events)
        running[0].wait(time.monotonic() + jobs.HANG_SECONDS)
        time.sleep(6)
        (events / "stop").touch()
        return jobs.finish(running, events, time.monotonic() + 30)
