"""Faults under mpiexec and torchrun: the job fails without remains, or torchrun's restart succeeds."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jobs
import pytest
from support import processes
from support.cases import cases
from support.processes import wait_until

RANKS, VICTIM = 2, 1
SECONDS = 150  # torchrun kills a stopped process after 30 s


@dataclass(frozen=True)
class Launch:
    launcher: str
    fault: str
    phase: str = "mid"
    size: str = "small"
    restart: bool = False  # struck in the first attempt only; the second must succeed

    def __str__(self) -> str:
        words = [self.launcher, self.fault, self.phase, self.size]
        return "-".join(words + ["restart"] * self.restart)

    def command(self, events: Path) -> list[str]:
        case = jobs.Case(self.phase, self.fault, "all_reduce", self.size)
        program = [str(jobs.PROGRAM), *case.arguments(events), *["--once"] * self.restart]
        if self.launcher == "mpiexec":
            return [processes.mpiexec(), "-n", str(RANKS), sys.executable, *program]
        options = ["--standalone", f"--nproc-per-node={RANKS}", "--monitor-interval=0.2"]
        return [*processes.TORCHRUN, *options, *["--max-restarts=1"] * self.restart, *program]


COVERING = [Launch("mpiexec", "sigkill"), Launch("mpiexec", "raise", size="large")]
COVERING += [Launch("torchrun", "exit3", "idle"), Launch("torchrun", "raise", restart=True)]
COVERING += [Launch("torchrun", "sigkill", size="large", restart=True)]
FAULTS = ("sigkill", "sigstop", "raise", "exit3", "os-exit", "memory", "abort", "abort-mpi")
STARTS = (("sigkill", "before-init"), ("sigkill", "mpi-init"), ("raise", "before-init"), ("exit3", "end"))
ALL = [
    Launch(launcher, fault, phase, restart=restart)
    for launcher, restart in (("mpiexec", False), ("torchrun", False), ("torchrun", True))
    for fault, phase in [*((f, "mid") for f in FAULTS), *STARTS]
]
FULL = [one for one in ALL if one not in COVERING and not (one.restart and one.fault == "sigstop")]


@dataclass
class Outcome:
    result: processes.Result
    events: dict[tuple[int, int], list[dict]]  # by (rank, attempt)
    left: list[str]  # processes of the job that still run


def run(launch: Launch) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="faults") as folder:
        events = Path(folder)
        result = processes.run(launch.command(events), SECONDS, MPI_GDR_HEARTBEAT="4", MPI_GDR_FLIGHT_LOG="0")
        wait_until(lambda: not processes_with(folder), 15)  # a killed process may need a moment to vanish
        seen = {(r, a): jobs.read_events(events, r, a) for r in range(RANKS) for a in range(2)}
        return Outcome(result, seen, processes_with(folder))


def processes_with(word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line:
            found.append(f"{path.parent.name}: {line}")
    return found


@pytest.fixture(scope="module")
def outcomes(request) -> Iterator[dict[Launch, Future]]:
    """Starts the jobs of all selected tests."""
    selected = [i.callspec.params["launch"] for i in request.session.items if i.fspath == request.fspath]
    with ThreadPoolExecutor(3) as pool:
        futures = {launch: pool.submit(run, launch) for launch in selected}
        yield futures
        for future in futures.values():
            future.cancel()


@cases("launch", *COVERING, *(pytest.param(launch, marks=pytest.mark.full) for launch in FULL), ids=str)
def test_a_fault_under_a_launcher(outcomes, launch):
    outcome = outcomes[launch].result()
    story = f"{outcome.events}\n{outcome.result.tail()}"
    assert outcome.result.status is not None, f"the job did not end\n{story}"
    struck = any(e["event"] == "strike" for e in outcome.events[VICTIM, 0])
    assert struck, f"the fault did not strike\n{story}"
    flat = [e for events in outcome.events.values() for e in events]
    assert not [e for e in flat if e["event"] == "wrong"], story
    left = [Path(n) for e in flat for n in e.get("names", ()) if Path(n).exists()]
    if launch.phase == "mpi-init":
        # The launcher kills the other ranks at once, inside MPI_Init. Without one they remove MPICH's file
        # (test_faults); here, as with MPICH itself, no rank is left to do it.
        for path in left:
            path.unlink()
    else:
        assert not left, f"left in /dev/shm\n{story}"
    assert not outcome.left, outcome.left
    if launch.restart:
        assert outcome.result.status == 0, story
        for rank in range(RANKS):
            assert outcome.events[rank, 1][-1]["event"] == "end", story
    else:
        assert outcome.result.status != 0, story
    # If the launcher leaves a survivor time for a message, it names the rank.
    for text in (e["text"] for e in outcome.events[0, 0] if e["event"] == "error"):
        assert re.search(r"rank(\(s\))? 1\b|clients joined", text), text
