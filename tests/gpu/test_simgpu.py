"""The simulated accelerator keeps its promises under each of its settings."""

import sys
from pathlib import Path

import pytest
from support import processes, simgpu_build
from support.cases import cases

MISSING = simgpu_build.missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))

PROGRAM = Path(__file__).parents[1] / "support" / "simgpu_program.py"
# Streams of one hardware queue are ordered by accident.
BY_ACCIDENT = (
    "other_streams_do_not_wait",
    "an_event_stands_for_its_latest_record",
    "late_readers_read_poison",
)


@cases(
    "environment, left_out",
    ({}, ()),
    ({"FAKECUDA_QUEUES": "1"}, BY_ACCIDENT),
    ({"FAKECUDA_DELAY_US": "2000", "FAKECUDA_DEVICES": "2"}, ()),
    (
        {"FAKECUDA_WAITS": "1", "FAKECUDA_DEFERRED": "0"},
        ("kernels_run_later_and_in_order", "an_event_stands_for_its_latest_record"),
    ),
    ids=["plain", "one hardware queue", "late and two devices", "waiting for the device"],
)
def test_simgpu(environment, left_out):
    # The first run compiles it, which takes a minute or two.
    output = processes.run([sys.executable, PROGRAM, *left_out], timeout=400, **environment).expect(0)
    assert output.count("passed: ") >= 20 - len(left_out)
    for name in left_out:
        assert f"check_{name}" not in output


def test_work_may_be_under_way_when_a_process_ends():
    program = """
import torch
from fakecuda import simgpu
tensor = torch.ones(5, device="simgpu")
simgpu.sleep(1500)
tensor.add_(1)
side = torch.Stream()
with side:
    simgpu.fill_later(torch.ones(5, device="simgpu"), 1, 1500)
print("the end")
"""
    python = [sys.executable, "-c", program]
    output = processes.run(python, cwd=str(PROGRAM.parents[1]), timeout=400).expect(0)
    assert output.endswith("the end\n")
