"""A rank dies or stops inside a call of MPI, where no exception can be raised: no rank may hang."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jobs
import mpi_calls
import pytest
from jobs import Case
from support.warm import Server

# Collectives must use MPI, not shared memory.
MESSAGES = (("MPI_GDR_SHM", "off"),)
RANK_PATTERN = r"rank 1 \(host \S+, pid \d+\) "
GONE = RANK_PATTERN + "is gone: its process has ended"
CASES = [
    Case("mpi-up", "sigkill", error=f"after MPI_Init: {GONE}"),
    Case("mpi-up", "sigstop", error=f"after MPI_Init: {RANK_PATTERN}is stopped"),
    # The victim hosts the store, whose clients notice its end, but not its suspension.
    Case("mpi-up", "sigkill", victim=0, error=rf"after MPI_Init: {GONE.replace('rank 1', 'rank 0')}"),
    Case("mpi-up", "sigstop", victim=0, error=RANK_PATTERN.replace("rank 1", "rank 0") + "is stopped"),
    # The others wait for it inside MPI_Comm_create_group; their error names the flight log.
    Case("create-group", "sigkill",
         error=rf"the set-up of group \S+ does not return: {GONE}.*; flight log: \S+.*Ending this process",
         variables=(("MPI_GDR_FLIGHT_LOG", "2000"),)),
    Case("mid", "stuck-exit", error=RANK_PATTERN + r"(has left the job: its program ended|is gone)",
         variables=MESSAGES),
    Case("mid", "stuck",
         error=RANK_PATTERN + "is gone: its process has ended|timed out after .*still waiting for rank",
         own=r"stuck inside the MPI library.*, working on all_reduce seq=\d+", deadline=5,
         variables=MESSAGES),
]  # fmt: skip
STATUS = {"sigkill": -9, "sigstop": -9, "stuck-exit": 3, "stuck": 124}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if reason := mpi_calls.why_unavailable():
        pytest.skip(reason)
    return mpi_calls.build(tmp_path_factory.mktemp("mpi_calls"))


def test_inside_mpi(library, tmp_path):
    def run(case: Case) -> list[jobs.Ended]:
        log = (("MPI_GDR_FLIGHT_DIR", str(tmp_path / case.fault)),) if case.fault == "sigkill" else ()
        return jobs.run_apart(
            replace(case, options=("--intercept", str(library)), variables=(*case.variables, *log)), [server]
        )

    with Server() as server, ThreadPoolExecutor(len(CASES)) as pool:
        outcomes = list(pool.map(run, CASES))
    wrong = []
    for case, ranks in zip(CASES, outcomes, strict=True):
        found = jobs.problems(case, ranks)
        if ranks[case.victim].status != STATUS[case.fault]:
            found.append(f"rank {case.victim}: status {ranks[case.victim].status}")
        if case.fault == "stuck-exit" and (took := ranks[1].time - ranks[1].times("strike")[0]) > 20:
            found.append(f"it took {took:.1f} s to end")
        if found:
            wrong.append(jobs.report(case, ranks, found))
    assert not wrong, "\n\n".join(wrong)
    logs = {path.name for path in (tmp_path / "sigkill").iterdir()}
    assert logs == {"mpi_gdr_trace_rank_0", "mpi_gdr_trace_rank_2"}
