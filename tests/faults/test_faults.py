"""A fault strikes one rank of a job without a launcher: the others end by themselves, in time, with the
reason.

Many jobs run concurrently, because they mostly wait. `make test-full` runs all combinations.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import jobs
import pytest
from jobs import Case
from support.cases import cases
from support.warm import Server

pytestmark = pytest.mark.long

AT_ONCE = 6
COLLECTIVES = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
OPERATIONS = (*COLLECTIVES, "barrier", "send_recv", "new_group")

RANK_PATTERN = r"rank {} \(host \S+, pid \d+\) "
GONE = RANK_PATTERN + r"is gone: its process has ended"
IS_STOPPED = RANK_PATTERN + r"is stopped \(by SIGSTOP or job control\)"
STOPPED = RANK_PATTERN + r"has been silent for \d+\.\d s: its process is stopped"
LEFT = RANK_PATTERN + r"has left the job: "
OPEN = LEFT + r"its program ended with open process groups"
RAISED = LEFT + r"its program ended with an uncaught exception, "
# The group fails on the victim before its program ends, which may be reported first.
FAILED = RANK_PATTERN + r"(has left group \S+: |has left the job: .* DistBackendError: )"
ERRORS = {
    "sigkill": GONE, "os-exit": GONE, "abort-mpi": GONE, "sigstop": STOPPED,
    "raise": RAISED + r"ArithmeticError: loss is not finite",
    "memory": RAISED + r"RuntimeError: .*can't allocate memory",
    # A rank that reaches the operation later may see the program's end first.
    "abort": RANK_PATTERN + r"(has left group \S+: the group was aborted|has left the job: )",
    "return": OPEN,
    "exit3": OPEN,
    "no-scratch": FAILED + r".*bytes of scratch",
    "no-copy": FAILED + r".*bytes of a contiguous copy",
    "no-second-stage": FAILED + r".*bytes of indices",
}  # fmt: skip
PRODUCT = ("sigkill", "os-exit", "abort-mpi", "sigstop", "raise", "memory", "abort", "return", "exit3")
# A rank that waits for a third one may see the process's end before an operation that the victim missed.
EITHER = r"(has left the job: |is gone: its process has ended)"
FAILED_OR_EITHER = EITHER.replace("(", r"(has left group \S+: |", 1)


def case(fault: str, phase: str = "mid", operation: str = "all_reduce", size: str = "small", **more) -> Case:
    """Adds the survivors' expected error: their operation, and the victim with its end."""
    who = ERRORS[fault].format(more.get("victim", 1)) if fault in ERRORS else ""
    if operation in ("send_recv", "new_group") and ERRORS.get(fault, "").startswith(LEFT):
        # In a ring of messages, a neighbour that ended in consequence may be missed first.
        who = (RANK_PATTERN + EITHER).format(r"\d" if operation == "send_recv" else more.get("victim", 1))
    elif more.get("victim") == 0 and ERRORS.get(fault, "").startswith(LEFT):
        # Rank 0 serves the store that holds its goodbye; ranks that read too late see its process's end.
        who = (RANK_PATTERN + EITHER).format(0)
    if who and operation not in ("send_recv", "new_group"):
        who = rf"{operation}\w*(:| seq=).*{who}"
    return Case(phase, fault, operation, size, **{"error": who, **more})


NO_HEARTBEAT = (("MPI_GDR_HEARTBEAT", "0"),)
FINITE = ("--rounds", "20")
# On rank 0 torch's store waits for all ranks to connect; the others wait for rank 0 in our first rendezvous.
# When rank 0 times out, its store is gone.
JOINED = (
    r"Timed out after .* 2/3 clients joined|rank\(s\) (0, )?1 of 3 did not arrive within"
    r"|rendezvous 'mpi-gdr///0/start' on rank 2: the store failed"
)
START = [
    case("sigkill", "before-init", error=JOINED),
    case("exit3", "before-init", error=JOINED),
    case("sigkill", "rendezvous", error=r"rank\(s\) 1 of 3 did not arrive within"),
    case("sigstop", "rendezvous", error=r"rank\(s\) 1 of 3 did not arrive within"),
    case("sigkill", "mpi-init", error=GONE.format(1)),
    case("sigstop", "mpi-init", error=RANK_PATTERN.format(1) + "is stopped"),
]
MIDDLE = [
    *(case("sigkill", "mid", *one) for one in zip(OPERATIONS, itertools.cycle(["large", "small"]))),
    case("sigkill", "mid", "all_reduce", victim=0),  # it holds the store, too
    case("sigstop", "mid", "all_gather", "large"),
    case("sigstop", "mid", "all_reduce",
         error=rf"timed out after .*still waiting for rank.*; {IS_STOPPED.format(1)}",
         variables=NO_HEARTBEAT),
    case("slow", options=FINITE),
    case("busy", size="large", operation="all_to_all", options=FINITE),
    case("raise", size="large"), case("raise", operation="broadcast"), case("return"),
    case("exit3", operation="all_to_all"), case("exit3", operation="new_group"), case("os-exit"),
    case("memory"), case("abort"), case("abort-mpi"),
    case("no-scratch", own=r"all_reduce float32\[8388608\] .*no memory for \d+ bytes of scratch", victim=2,
         variables=(("MPI_GDR_ALLREDUCE_ALGO", "rabenseifner"),)),
    case("no-copy", own=r"all_reduce: no memory for 16777216 bytes of a contiguous copy"),
    case(
        "no-second-stage",
        operation="sparse_all_reduce",
        size="large",
        error=(RANK_PATTERN + FAILED_OR_EITHER).format(1),
        # Which allocation fails depends on when the previous round frees its memory.
        own=r"all_reduce.*no memory for (\d+ bytes of .*indices and values|the sum of the sparse tensors)",
    ),
]  # fmt: skip
QUIET = [
    case("sigkill", "idle"), case("sigstop", "idle"), case("exit3", "idle"), case("slow", "idle"),
]  # fmt: skip
END = [
    case("sigkill", "end", error=""), case("return", "end", error=""), case("raise", "end", error=""),
    case("slow", "end", error=""), case("sigkill", "destroyed", error=""),
    case("sigstop", "destroyed", error=""), case("exit3", "destroyed", error=""),
]  # fmt: skip
COVERING = [*START, *MIDDLE, *QUIET, *END]


def product() -> Iterator[Case]:
    """Every fault on each rank in every operation, small and large, and on idle ranks."""
    sizes = ("small", "large")
    for fault, operation, size, victim in itertools.product(PRODUCT, OPERATIONS, sizes, (0, 1, 2)):
        yield case(fault, "mid", operation, size, victim=victim)
    for fault, victim in itertools.product(PRODUCT, (0, 2)):
        yield case(fault, "idle", victim=victim)


FULL = [c for c in product() if c not in COVERING]


@pytest.fixture(scope="module")
def outcomes(request) -> Iterator[dict[Case, Future]]:
    """Starts the jobs of all selected tests."""
    selected = [
        item.callspec.params["struck"]
        for item in request.session.items
        if item.fspath == request.fspath and "struck" in getattr(item, "callspec", item).params
    ]
    workers = int(os.environ.get("FAULTS_AT_ONCE", AT_ONCE))
    with Server() as server, ThreadPoolExecutor(workers) as pool:
        futures = {c: pool.submit(jobs.run_apart, c, [server]) for c in selected}
        yield futures
        for future in futures.values():
            future.cancel()


@cases("struck", *COVERING, *(pytest.param(c, marks=pytest.mark.full) for c in FULL), ids=str)
def test_survivors_end_with_a_named_error(outcomes, struck):
    ranks = outcomes[struck].result()
    found = jobs.problems(struck, ranks)
    assert not found, jobs.report(struck, ranks, found)
