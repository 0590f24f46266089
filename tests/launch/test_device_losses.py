"""Ranks that fail others whose streams wait for them: each gets the error and ends, or continues, in time. On
software GPUs (tests/fakecuda), or with MPI_GDR_TEST_DEVICE=cuda on a GPU that the ranks share."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import processes, shared_memory, simgpu_build

DEVICE = os.environ.get("MPI_GDR_TEST_DEVICE", "simgpu")
MISSING = simgpu_build.missing() if DEVICE == "simgpu" else ""
pytestmark = [pytest.mark.warm, pytest.mark.skipif(bool(MISSING), reason=str(MISSING))]

PROGRAM = Path(__file__).parent / "programs" / "device_losses.py"
EXIT = 123  # as documented for MPI_GDR_ASYNC_ERROR=exit
RAISE = {"MPI_GDR_ASYNC_ERROR": "raise"}


# (statuses of the other ranks, pattern of their output, environment)
CASES = {
    "absent": ({EXIT}, "timed out after [4-9].* all_reduce seq", {}),
    "absent, collectives behind it": ({EXIT}, "timed out after [4-9].* all_reduce seq", {}),
    "absent, message": ({EXIT}, "timed out after [4-9].* recv", {}),
    "absent, then another call": ({7}, "error: .*the group failed earlier: .*timed out", RAISE),
    "absent, the host waits": ({7}, "error: .*timed out after [4-9]", {"MPI_GDR_BLOCKING_WAIT": "on"}),
    "absent, a timeout": ({7}, "error: .*timed out after [2-9]", {}),
    "absent, then destroyed": ({EXIT}, "timed out after [4-9]", {}),
    # By the watch of the pending operation or by the next call, whichever is first.
    "killed": ({EXIT, 1}, "is gone: its process has ended", {"MPI_GDR_HEARTBEAT": "2"}),
    "killed, behind a slow kernel": ({EXIT, 1}, "is gone: its process has ended", {"MPI_GDR_HEARTBEAT": "2"}),
    "killed, replaying": (
        {EXIT},
        "is gone: its process has ended.*graphs hold collectives",
        {"MPI_GDR_HEARTBEAT": "2"},
    ),
    "killed, replaying, then another call": (
        {7},
        "error: .*is gone: its process has ended",
        {"MPI_GDR_HEARTBEAT": "2", **RAISE},
    ),
    "aborted": ({7}, "error: .*aborted by the user", {}),
    "again": ({0}, "", {}),
}

# The same with NCCL inside the node.
CASES |= {
    f"{case}, NCCL": (statuses, pattern, environment | {"LD_PRELOAD": str(simgpu_build.NCCL)})
    for case, (statuses, pattern, environment) in CASES.items()
    if "message" not in case and DEVICE == "simgpu"
}
# NCCL's graphs end the process in any case.
CASES["killed, replaying, then another call, NCCL"] = CASES["killed, replaying, NCCL"]


@pytest.fixture(scope="module")
def jobs():
    """Starts all jobs, several at a time, because they mostly wait."""
    if DEVICE == "simgpu":
        simgpu_build.compiled()  # not within the first ranks' time
    with shared_memory.assert_no_new_files(), ThreadPoolExecutor(4) as pool:
        yield {
            case: pool.submit(
                processes.run_apart,
                2,
                PROGRAM,
                case.removesuffix(", NCCL"),
                timeout=60,
                SPMD_DEVICE=DEVICE,
                **environment,
            )
            for case, (_, _, environment) in CASES.items()
        }


@pytest.mark.parametrize("case", CASES)
def test_streams_that_wait_for_a_rank(jobs, case):
    statuses, pattern, _ = CASES[case]
    results = jobs[case].result()
    for result in results[:-1]:
        assert result.status in statuses, (result.status, result.tail(2000))
        assert re.search(pattern, result.output), result.tail(2000)
    expected = -9 if case.startswith("killed") else 7 if case.startswith("aborted") else 0
    assert results[-1].status == expected, (results[-1].status, results[-1].tail(2000))
