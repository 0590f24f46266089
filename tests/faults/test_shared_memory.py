"""A /dev/shm that is too small for what MPI wants of it: the ranks end, and have said that it is full."""

from __future__ import annotations

import os

import jobs
import pytest
from jobs import Case
from namespaces import Namespaces, hindrance


def test_full_shared_memory():
    if reason := hindrance():
        pytest.skip(reason)
    case = Case("end", "none", "all_reduce", "large", r"/dev/shm has \d+ KiB free for 3 rank")
    space = Namespaces("full", "mount -t tmpfs -o size=1m tmpfs /dev/shm")
    with space, jobs.Nursery() as nursery:
        ranks = jobs.run_apart(case, [nursery], [f"/proc/{space.pid}/ns/mnt"])
        left = os.listdir(f"/proc/{space.pid}/root/dev/shm")
    found = jobs.problems(case, ranks)
    assert not found, jobs.report(case, ranks, found)
    assert not left, left
