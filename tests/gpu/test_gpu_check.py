"""Rehearsals of tools/gpu_check.sh and tools/gpu_probe.sh without a GPU: steps, limits, output."""

import ast
import json
import os
import pkgutil
import re
import sys
from pathlib import Path

import pytest
from support import processes, simgpu_build

SCRIPT = Path(__file__).parents[2] / "tools" / "gpu_check.sh"
MISSING = simgpu_build.missing()
on_software = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))


def path(*folders):
    """PATH with this Python's environment active."""
    return os.pathsep.join([str(Path(sys.executable).parent), *map(str, folders), os.environ["PATH"]])


@pytest.fixture
def check(tmp_path):
    """Runs the matching steps: (exit status, {step: outcome}, the page)."""

    def run(only, **env):
        env = {"GPU_CHECK_DEVICE": "cpu", "GPU_CHECK_ONLY": only, **env}
        result = processes.run([SCRIPT, tmp_path / "out"], timeout=1800, PATH=path(), **env)
        report = json.loads((tmp_path / "out" / "gpu_check.json").read_text())
        assert report["about"]["commit"] and "torch" in report["about"]["software"], result.output
        outcomes = {step["step"]: step["outcome"] for step in report["steps"]}
        return result.status, outcomes, (tmp_path / "out" / "gpu_check.md").read_text()

    return run


@pytest.mark.full
def test_it_builds_and_runs_what_is_asked_for(check):
    names = ["build", "messages by a GPU-aware MPI, 2 ranks", "bench, device, 2 ranks"]
    status, outcomes, page = check("^build|GPU-aware|device, 2 ranks$")
    assert status == 0 and list(outcomes) == names and set(outcomes.values()) == {"passed"}
    assert "## bench, device, 2 ranks" in page and "67108864" in page


def test_steps_that_fail_or_find_no_time(check):
    status, outcomes, _ = check("selftest, 2 ranks", GPU_CHECK_DEVICE="xla")  # torch has no module for it
    assert status == 1 and outcomes["selftest, 2 ranks"].startswith("failed with status")
    status, outcomes, _ = check("selftest, 2 ranks", GPU_CHECK_SECONDS="9")
    assert status == 1 and outcomes == {"selftest, 2 ranks": "not begun, no time left"}


@on_software
@pytest.mark.full
def test_the_suite_and_the_selftest_run_on_software(check):
    only = "^build|selftest|suite, 1 rank$|suite, 2 ranks, one hardware queue"
    status, outcomes, page = check(only, GPU_CHECK_DEVICE="simgpu", GPU_CHECK_TIMES="15")
    assert status == 0 and set(outcomes.values()) == {"passed"} and len(outcomes) == 4
    assert "software GPU" in page


@on_software
@pytest.mark.full
@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_all_parts_run_on_software_gpus(tmp_path, gpus):
    simgpu_build.program("test_cuda_kernels")  # also builds the runtime with the probe's kernels
    only = "^probe|collectives,|GPT|suite, 4 ranks$"
    env = {"GPU_CHECK_DEVICE": "simgpu", "GPU_CHECK_ONLY": only, "GPU_CHECK_TIMES": "15"}
    env |= {"GPU_PROBE_CUDA": str(simgpu_build.FOLDER), "FAKECUDA_DEVICES": str(gpus)}
    processes.run([SCRIPT, tmp_path], timeout=3000, PATH=path(simgpu_build.nvcc().parent), **env).expect(0)
    report = json.loads((tmp_path / "gpu_check.json").read_text())
    assert not [step for step in report["steps"] if step["outcome"].startswith(("failed", "ran", "not"))]
    assert len(report["gpus"]) == gpus and len(report["pairs"]) == gpus**2
    assert all(pair["right"] for pair in report["pairs"])
    assert dict(report["notes"])["distinct GPUs, 4 ranks"] == str(gpus)  # as few ranks on each as possible
    rows = report["collectives"]
    assert len({row["collective"] for row in rows}) == 10 and all("mpi us" in row for row in rows)
    assert all(row["predicted us"] > 0 for row in rows if row["collective"] != "sendrecv")
    assert [row["training"] for row in report["training"]] == ["ddp-own", "fsdp-own"]
    assert list(tmp_path.glob("gpu_check-*.tar.gz"))
    answers = report["probe"]
    assert answers["machine"].startswith("software GPU")
    assert answers["CUDA IPC between two processes"].startswith(
        "what the second process read and wrote is right"
    )
    waits = {name: answer for name, answer in answers.items() if name.startswith("stream wait: ")}
    assert len(waits) == 17 and not [
        answer for answer in waits.values() if answer.startswith(("fails", "hangs"))
    ]


def test_python_inside_the_scripts_uses_what_exists():
    programs = [
        ast.parse(program)
        for script in SCRIPT.parent.glob("*.sh")
        for program in re.findall(r"python3 -c '([^']*)'", script.read_text())
    ]
    nodes = [node for program in programs for node in ast.walk(program)]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    # Raises if a name is missing.
    found = {
        name.name: pkgutil.resolve_name(f"{node.module}.{name.name}")
        for node in imports
        for name in node.names
    }
    assert {"mps", "visible_gpus"} <= set(found)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in found:
            assert hasattr(found[node.value.id], node.attr), f"{node.value.id}.{node.attr}"
