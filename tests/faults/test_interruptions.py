"""A healthy job that is suspended, or cut off, for a while goes on with right results, at mpi-gdr's defaults.

Here for 5 and 15 s; `make faults` has longer ones, too, and writes what was seen into the documentation.
"""

from __future__ import annotations

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor

import interruptions
import losses
import page
import pytest
from interruptions import INTERRUPTIONS, Cell
from namespaces import hindrance
from testbed import Testbed

CELLS = [Cell(one, seconds) for one in INTERRUPTIONS for seconds in (5, 15)]


@pytest.fixture(scope="module")
def outcomes():
    """All jobs, under way: they wait for most of their time."""
    if reason := hindrance():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(CELLS)) as pool:
        bed = Testbed(stack, len(CELLS))
        yield {cell: pool.submit(interruptions.run, bed, link, cell) for link, cell in enumerate(CELLS)}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_an_interrupted_job_goes_on(outcomes, cell: Cell):
    seen = outcomes[cell].result()
    assert not seen.problems(), seen.story()


def test_the_page_has_the_rows():
    _, inside, _ = page.parts(page.PAGE.read_text())
    rows = re.findall(r"^\| (.*?) \|(?: (.*) \|)?$", inside, re.MULTILINE)
    faults = [fault.what for fault in page.FAULTS]
    expected = [*page.matrix(), *map(str, losses.LOSSES), *faults]
    heads = ("a healthy job", "a rank is lost", "fault")
    assert [what for what, _ in rows if not what.startswith(("---", *heads))] == expected
    for fault in page.FAULTS:
        assert all(page.reference(test) in inside for test in fault.tests), fault.what
    assert "**" not in inside, "something was not as promised"
