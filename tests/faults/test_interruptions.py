"""A healthy job that is suspended or cut off for a while continues with right results, at mpi-gdr's defaults.

5 and 15 s here, longer in `make faults`, which also updates the documentation. One more case has a short
heartbeat.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import interruptions
import losses
import page
import pytest
from interruptions import INTERRUPTIONS, Cell, Interruption
from support.namespaces import why_unavailable
from testbed import Testbed

# Suspended for longer than a store may be silent. Host 1 continues before rank 0, the store's host: if the
# store answered at once, the test would not detect a suspension that counts as silence.
LONGER_THAN_THE_SILENCE = Interruption(
    "a job on two hosts is suspended, heartbeat 4 s", "0101", (0, 1, 2, 3), apart=0.5, heartbeat=4
)
CELLS = [Cell(one, seconds) for one in INTERRUPTIONS for seconds in (5, 15)]
CELLS.append(Cell(LONGER_THAN_THE_SILENCE, 15))


@pytest.fixture(scope="module")
def outcomes():
    """Starts all jobs, which mostly wait."""
    if reason := why_unavailable():
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
    assert "**" not in inside, "a result is not as expected, or a test did not run"


def test_the_unit_tests_of_the_page_are_there():
    """The page reports them as passed, because `make faults` has run them."""
    assert "test_peer_watch" in page.unit_tests()
    tests = [test for fault in page.FAULTS for test in fault.tests if page.unit_test(test)]
    assert {page.outcome(test) for test in tests} == {page.PROMISED}


@pytest.mark.parametrize(("body", "ran"), [("pass", True), ("pytest.skip('no root')", False)])
def test_the_page_shows_a_skipped_test(tmp_path, body, ran):
    (tmp_path / "test_it.py").write_text(f"import pytest\n\ndef test_it():\n    {body}\n")
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "."]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    assert page.all_ran(report.read_text()) == ran
    assert page.outcome_of_all([page.PROMISED, page.NOT_RUN]) == page.NOT_RUN
    assert "**" in page.NOT_RUN, "this is what makes `make faults` fail"
