"""Two nodes lose their network during a collective: both end by themselves, in time, with the reason. Or they
lose the store: groups on both nodes fail, groups inside one continue."""

from __future__ import annotations

import contextlib
import re
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jobs
import pytest
from jobs import Case
from support import processes
from support.namespaces import why_unavailable
from testbed import OFI, UCX, Testbed, address

DEADLINE_ONLY = (("MPI_GDR_HEARTBEAT", "0"),)
SILENT = (
    r"rank 1 \(host node1, pid \d+\) has been silent for"
    r"|the store of the job is gone .*failures of ranks on other hosts"
)
TIMED_OUT = r"timed out after .*still waiting for rank [01]"


def case(network: Sequence[tuple[str, str]], operation: str, size: str, *, heartbeat: bool = True) -> Case:
    more = () if heartbeat else DEADLINE_ONLY
    error = SILENT if heartbeat else rf"{TIMED_OUT}|stuck inside the MPI library"
    return Case("mid", "none", operation, size, error, ranks=2, variables=(*network, *more))


COVERING = [case(UCX, "all_reduce", "large"), case(OFI, "all_reduce", "small", heartbeat=False)]
FULL = [case(OFI, "all_reduce", "large"), case(UCX, "all_reduce", "small", heartbeat=False)]
FULL += [case(UCX, "send_recv", "small"), case(OFI, "all_to_all", "large", heartbeat=False)]


@pytest.fixture
def testbed() -> Iterator[Testbed]:
    if reason := why_unavailable():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        yield Testbed(stack)


@pytest.mark.parametrize("cases", [COVERING, pytest.param(FULL, marks=pytest.mark.full)], ids=["few", "more"])
@pytest.mark.parametrize("how", ["link cut", "black hole"])
def test_both_sides_of_a_lost_network_fail(testbed, how, cases):
    ready: list[float] = []

    def strike() -> None:  # once the last of the jobs is working
        ready.append(time.monotonic())
        until = time.monotonic() + jobs.HANG_SECONDS
        while len(ready) < len(cases) and time.monotonic() < until:
            time.sleep(0.02)
        testbed.cut(how)

    def run(one: Case) -> list[jobs.Ended]:
        return jobs.run_apart(one, testbed.servers, address=address(0), strike=strike)

    with ThreadPoolExecutor(len(cases)) as pool:
        outcomes = list(pool.map(run, cases))
    problems = []
    for one, ranks in zip(cases, outcomes, strict=True):
        if found := jobs.problems(one, ranks):
            problems.append(jobs.report(one, ranks, found))
    assert not problems, "\n\n".join(problems)
    assert not testbed.left_in_shared_memory()


def test_groups_inside_a_node_survive_the_store(testbed):
    hosts, port = "0101", str(processes.free_port())  # by rank, as in run_apart()
    program = str(jobs.FOLDER / "islands.py")
    environment = processes.clean_environment(
        MASTER_ADDR=address(0), MASTER_PORT=port, MPI_GDR_HEARTBEAT="4", MPI_GDR_FLIGHT_LOG="0", **dict(UCX)
    )
    with tempfile.TemporaryDirectory(prefix="faults") as folder:
        events = Path(folder)
        store = testbed.servers[0].start([program, "serve"], environment, events / "store")
        running = []
        for rank, host in enumerate(hosts):
            env = environment | {"RANK": str(rank), "WORLD_SIZE": str(len(hosts))}
            argv = [program, folder, hosts]
            running.append(testbed.servers[int(host)].start(argv, env, events / f"log{rank}"))
        ready = jobs.all_ready(events, len(hosts))
        struck = time.monotonic()
        store.kill(signal.SIGKILL)
        ranks = jobs.finish(running, events, struck + jobs.HANG_SECONDS)
    story = "\n".join(rank.story() for rank in ranks)
    assert ready, story
    for rank in ranks:
        assert rank.status == 0 and not rank.times("wrong"), story
        # Only the group on both nodes fails, with the reason, before the deadline.
        assert len(rank.errors) == 1, story
        assert re.search(r"the store of the job is gone .*failures of ranks on other hosts", rank.errors[0])
        assert "frame #" not in rank.errors[0], story  # errors of torch have a stack
        assert rank.times("error")[0] < struck + 25, story
        (island,) = [e["ranks"] for e in rank.events if e["event"] == "island"]
        assert island == [r for r in range(len(hosts)) if hosts[r] == hosts[rank.rank]], story
    assert not testbed.left_in_shared_memory()
