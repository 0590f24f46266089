"""Ranks that need one that has ended or given up a group are notified at once, with its name, on one host and
between two. Others are not disturbed, even by the end of the store's host."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import losses
import pytest
from losses import LIMIT, LOSSES, Loss


@pytest.fixture(scope="module")
def outcomes():
    """Starts the jobs of all tests; returns a function that waits for one, by its arguments."""
    with losses.testbed_or_skip() as bed, ThreadPoolExecutor(8) as pool:
        running = {
            (mode, hosts): pool.submit(losses.run_after_store, bed, mode, hosts) for mode, hosts in LEAVES
        }
        running |= {loss: pool.submit(losses.run, bed, loss) for loss in LOSSES}
        yield lambda key: running[key].result()


LEAVES = (("group", "001"), ("end", "00"), ("end", "01"))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_survivors_are_notified_at_once(outcomes: Callable, loss: Loss):
    if os.environ.get("FI_PROVIDER") == "sockets" and "1" in loss.hosts and loss.mode == "killed":
        pytest.skip("MPICH ends a process in which a connection of libfabric's sockets provider breaks")
    outcome = outcomes(loss)
    assert not outcome.problems(), outcome.story()
    # Not a measurement: the operations' own deadline is a minute.
    assert outcome.seconds < LIMIT + 10, outcome.story()


def test_a_group_outlives_the_rank_that_hosts_the_store(outcomes: Callable):
    """Rank 0 has destroyed its groups and ended; the group of ranks 1 and 2 is on two hosts."""
    ranks = outcomes(("group", "001"))
    story = "\n".join(rank.story() for rank in ranks)
    assert [rank.status for rank in ranks] == [0, 0, 0], story
    assert not any(rank.times("wrong", "error") for rank in ranks), story
    # On one line, although errors of torch's store have a stack.
    pattern = r"ALIVE the store of the job is gone \(.+\) since rank 0 has left: failures of ranks on other"
    assert re.search(pattern, ranks[2].output), story


@pytest.mark.parametrize("hosts", ["00", "01"], ids=["one host", "two hosts"])
def test_the_end_of_a_job_is_not_an_error(outcomes: Callable, hosts: str):
    """A rank that ends seconds after the store's host prints nothing of ours."""
    ranks = outcomes(("end", hosts))
    story = "\n".join(rank.story() for rank in ranks)
    assert [rank.status for rank in ranks] == [0, 0], story
    assert re.findall(r"^.*mpi-gdr(?:\]| [A-Z]+ ).*$", ranks[1].output, re.MULTILINE) == [], story
