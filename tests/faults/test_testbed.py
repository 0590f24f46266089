"""The emulated network."""

import contextlib
import sys

import pytest
from support import processes
from support.namespaces import why_unavailable
from testbed import Testbed, address


def reachable(bed: Testbed, link: int) -> bool:
    """Whether node 1 refuses a connection from node 0 on this link."""
    ask = f"import socket; socket.create_connection(('{address(1, link)}', 9), timeout=2)"
    asked = processes.run([*bed.nodes[0].enter("-n"), sys.executable, "-IS", "-c", ask])
    return "ConnectionRefused" in asked.output


def test_a_link_is_cut_by_itself():
    if reason := why_unavailable():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        bed = Testbed(stack, links=2)
        bed.cut("black hole", 1)
        assert [reachable(bed, link) for link in (0, 1)] == [True, False]
        bed.mend(1)
        bed.cut("link cut", 0)
        assert [reachable(bed, link) for link in (0, 1)] == [False, True]
