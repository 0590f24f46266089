"""A /dev/shm that is too small for what MPI wants of it: the ranks say so instead of dying of a bus error."""

from __future__ import annotations

import os

import jobs
import pytest
from jobs import Case
from namespaces import Namespaces, hindrance


@pytest.mark.parametrize("size", ["64k", "1m", "6m", "24m"])
def test_full_shared_memory(size):
    if reason := hindrance():
        pytest.skip(reason)
    case = Case("end", "none", "all_reduce", "large", r"/dev/shm")
    with (
        Namespaces("full", f"mount -t tmpfs -o size={size} tmpfs /dev/shm") as space,
        jobs.Nursery() as nursery,
    ):
        ranks = jobs.run_apart(case, [nursery], [f"/proc/{space.pid}/ns/mnt"])
        left = os.listdir(f"/proc/{space.pid}/root/dev/shm")
    found = jobs.problems(case, ranks)
    assert not found, jobs.report(case, ranks, found)
    assert not left, left
