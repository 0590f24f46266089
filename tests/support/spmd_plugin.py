"""The pytest plugin inside each rank: events for the outer test, synchronised ranks, and the hang watchdog.

After each test the ranks meet over a TCPStore independent of the tested backend: it passes failures to all
ranks, and no test starts while another rank is still in the previous one.
"""

import faulthandler
import json
import os
import signal
from pathlib import Path

import pytest
import torch.distributed as dist

from .barrier import StoreBarrier

RANK = int(os.environ.get("RANK", "0"))
SIZE = int(os.environ.get("WORLD_SIZE", "1"))
REPORTS = Path(os.environ["SPMD_REPORTS"])
# Exceeds the group's own deadline (support/spmd.py), so that the backend's message appears first.
HANG_SECONDS = int(os.environ.get("SPMD_HANG_SECONDS", "75"))
# Longer: others start late on a busy machine, and the hung rank must report first.
BARRIER_SECONDS = HANG_SECONDS + 60


class Events:
    """Lines of rank<r>.jsonl, written at once because the process may be killed at any time."""

    def __init__(self):
        self._file = (REPORTS / f"rank{RANK}.jsonl").open("a", buffering=1)

    def write(self, **event):
        self._file.write(json.dumps(event) + "\n")


class Plugin:
    def __init__(self):
        self.events = Events()
        self.stacks = (REPORTS / f"rank{RANK}.stacks").open("w")
        self.barrier = StoreBarrier(REPORTS, RANK, SIZE, BARRIER_SECONDS)
        self.passed = True
        self.failures = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.passed = True
        self.events.write(event="start", test=item.nodeid)
        # Two steps: faulthandler writes all stacks without the GIL and continues, so that every hung rank can
        # write; the alarm then ends the process wherever it hangs.
        faulthandler.dump_traceback_later(HANG_SECONDS, file=self.stacks)
        signal.alarm(HANG_SECONDS + 3)
        result = yield
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        self.events.write(event="end", test=item.nodeid, passed=self.passed)
        try:
            passed_everywhere = self.barrier.wait(passed=self.passed)
        except dist.DistError as error:
            self.events.write(event="alone", test=item.nodeid, text=str(error).splitlines()[0])
            item.session.shouldfail = f"another rank did not end {item.nodeid}"
            return result
        self.failures += not passed_everywhere
        if self.failures >= 5:
            item.session.shouldfail = "five tests failed"
        return result

    def pytest_runtest_logreport(self, report):
        # Only the device justifies a skip.
        allowed = ("CUDA only", "simulated only", "only on a device with streams")
        skipped = report.skipped and not any(reason in report.longreprtext for reason in allowed)
        if report.failed or skipped:
            self.passed = False
            self.events.write(event="failure", test=report.nodeid, when=report.when, text=report.longreprtext)

    def pytest_collectreport(self, report):
        if report.failed:
            self.events.write(event="failure", test=report.nodeid, when="collect", text=report.longreprtext)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self):
        self.events.write(event="finish", failures=self.failures)
        if self.failures:
            os._exit(1)  # no ordinary exit, because the backend may be in any state


def pytest_configure(config):
    config.pluginmanager.register(Plugin(), "spmd")


def pytest_collection_modifyitems(config, items):
    few = [item for item in items if any(mark.args[0] > SIZE for mark in item.iter_markers("ranks"))]
    if few:
        config.hook.pytest_deselected(items=few)
        items[:] = [item for item in items if item not in few]


@pytest.fixture
def rank():
    return dist.get_rank()


@pytest.fixture
def size():
    return dist.get_world_size()
