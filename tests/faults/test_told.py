"""Who needs a rank that has ended, or that has given a group up, is told at once and by name, on one host and
between two. Who does not need it is not disturbed, also by the end of the store's host."""

from __future__ import annotations

import re

import losses
import pytest
from losses import LIMIT, LOSSES, Loss


@pytest.fixture(scope="module")
def testbed():
    yield from losses.testbed_or_skip()


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_survivors_are_told_at_once(testbed, loss: Loss):
    told = losses.run(testbed, loss)
    assert not told.problems(), told.story()
    # Not a measurement: the operations' own deadline is a minute.
    assert told.seconds < LIMIT + 10, told.story()


def test_a_group_outlives_the_rank_that_hosts_the_store(testbed):
    """Rank 0 has destroyed its groups and ended; the group of ranks 1 and 2 is on two hosts."""
    ranks = losses.run_after_store(testbed, "group", "001")
    story = "\n".join(rank.story() for rank in ranks)
    assert [rank.status for rank in ranks] == [0, 0, 0], story
    assert not any(rank.times("wrong", "error") for rank in ranks), story
    assert re.search(r"since rank 0 has left: .* nothing more is heard", ranks[2].output), story


@pytest.mark.parametrize("hosts", ["00", "01"], ids=["one host", "two hosts"])
def test_the_end_of_a_job_is_not_an_error(testbed, hosts):
    """A rank that ends some seconds after the store's host says nothing."""
    ranks = losses.run_after_store(testbed, "end", hosts)
    story = "\n".join(rank.story() for rank in ranks)
    assert [rank.status for rank in ranks] == [0, 0], story
    assert ranks[1].output == "", story
