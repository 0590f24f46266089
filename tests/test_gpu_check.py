"""tools/gpu_check.sh in rehearsal, without a GPU: steps, their limits, and what it writes."""

import json
import os
import sys
from pathlib import Path

import pytest
from support import processes

SCRIPT = Path(__file__).parents[1] / "tools" / "gpu_check.sh"


@pytest.fixture
def check(tmp_path):
    """Runs the steps that match: (exit status, {step: outcome}, the page)."""

    def run(only, **env):
        env = {"GPU_CHECK_DEVICE": "cpu", "GPU_CHECK_ONLY": only, **env}
        # As whoever has this Python's environment active.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        result = processes.run([SCRIPT, tmp_path / "out"], timeout=400, PATH=path, **env)
        report = json.loads((tmp_path / "out" / "gpu_check.json").read_text())
        assert report["gpu"] and report["commit"] and "torch" in report["software"], result.output
        outcomes = {step["step"]: step["outcome"] for step in report["steps"]}
        return result.status, outcomes, (tmp_path / "out" / "gpu_check.md").read_text()

    return run


def test_it_builds_and_runs_what_is_asked_for(check):
    status, outcomes, page = check("^build|MPI point|CuPy")
    names = ["build", "collectives against CuPy, 2 ranks", "bench, MPI point to point on the host"]
    assert status == 0 and list(outcomes) == names
    assert outcomes["build"] == outcomes[names[2]] == "passed"
    assert "## bench, MPI point to point on the host" in page and "16777216" in page


def test_steps_that_fail_or_find_no_time(check):
    status, outcomes, _ = check("selftest, 2 ranks", GPU_CHECK_DEVICE="xla")  # torch has no module for it
    assert status == 1 and outcomes["selftest, 2 ranks"].startswith("failed with status")
    status, outcomes, _ = check("selftest, 2 ranks", GPU_CHECK_SECONDS="9")
    assert status == 1 and outcomes == {"selftest, 2 ranks": "not begun, no time left"}
