"""Each function of CUDA that the device library calls fails once, on one of two ranks of software GPUs."""

import re
from pathlib import Path

import pytest
from support import processes, shared_memory, simgpu_build

MISSING = simgpu_build.missing()
pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(MISSING), reason=str(MISSING))]

PROGRAM = Path(__file__).parent / "programs" / "failing_call.py"
ROOT = Path(__file__).parents[2]
ENDS = {0, 7, 1, 123}  # success; an error, also at exit; MPI_GDR_ASYNC_ERROR=exit


def functions():
    """CUDA's functions that the sources call. They name the runtime's without the prefix (gpu_api.hpp)."""
    words = {
        word
        for path in (ROOT / "csrc/device/cuda").iterdir()
        for word in re.findall(r"\w+", path.read_text())
    }
    software = "".join(path.read_text() for path in (ROOT / "tests/fakecuda/cudart").glob("*.cpp"))
    names = re.findall(r"FAKECUDA_API .*?\b(cu\w+)\(", software)
    called = [name for name in names if name.removesuffix("_v2").removeprefix("cuda") in words]
    return [name for name in called if "Error" not in name]  # those describe errors


@pytest.mark.full
@pytest.mark.parametrize("at", [1, 4])
@pytest.mark.parametrize("function", functions())
def test_a_call_that_fails_once_ends_in_results_or_errors(function, at):
    simgpu_build.compiled()
    with shared_memory.assert_no_new_files():
        results = processes.run_apart(
            2,
            PROGRAM,
            function,
            timeout=100,
            SPMD_DEVICE="simgpu",
            FAKECUDA_FAILS_AT=str(at),
            FAKECUDA_DEVICES="2",
        )
    outputs = "\n".join(result.output for result in results)
    assert all(result.status in ENDS for result in results), outputs
    if any(result.status for result in results):
        assert function in outputs or "unknown error" in outputs, outputs
