"""A /dev/shm too small for MPI: all ranks report it before MPI starts, or MPI works with less.

MPICH 5 writes to its segment unchecked and ends with SIGBUS; UCX works with the space available.
"""

from __future__ import annotations

import os

import jobs
import pytest
from jobs import Case
from support.cases import cases
from support.namespaces import Namespaces, why_unavailable
from support.warm import Server

RANKS = 3


@cases(
    ("size", "error"),
    ("1m", r"mpi-gdr: MPI cannot start: /dev/shm has 1024 KiB free on the host of ranks 0, 1, 2"),
    pytest.param("8m", "", marks=pytest.mark.full),
)  # fmt: skip
def test_little_shared_memory(size, error):
    if reason := why_unavailable():
        pytest.skip(reason)
    case = Case("end", "none", "all_reduce", "large", error, ranks=RANKS)
    space = Namespaces("full", f"mount -t tmpfs -o size={size} tmpfs /dev/shm && ip link set lo up")
    with space, Server(space.enter()) as server:
        ranks = jobs.run_apart(case, [server])
        left = os.listdir(space.inside("/dev/shm"))
    found = jobs.problems(case, ranks)
    for rank in ranks:
        if not error and "/dev/shm has 8192 KiB free for 3 rank(s) of this host" not in rank.output:
            found.append(f"rank {rank.rank} was not warned")
    assert not found, jobs.report(case, ranks, found)
    assert not left, left
