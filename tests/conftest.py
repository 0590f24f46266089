"""Rules for all tests: what is not collected here, because it runs on several ranks, and the order."""

import os
from pathlib import Path

# tests/spmd is run by test_spmd.py, once per number of ranks and launcher, tests/frameworks by
# test_frameworks.py, tests/gpu by test_gpu.py; see support/spmd_main.py.
collect_ignore = [] if "SPMD_REPORTS" in os.environ else ["spmd", "frameworks", "gpu"]
# tests/mpi is run by `make test-mpi MPI=name`, once per MPI.
collect_ignore += [] if "TEST_MPI" in os.environ else ["mpi"]
# tests/clients by `make test-clients`, which installs what it needs.
collect_ignore += [] if "TEST_CLIENTS" in os.environ else ["clients"]

# Of several workers each takes the next file, so what takes long comes first. The first two run side by side:
# one waits for most of its time, in jobs that must be heard of every few seconds; the other computes in one
# process.
TESTS = Path(__file__).parent
FIRST = (
    "faults/test_faults.py",
    "test_schedules.py",
    "test_spmd.py",
    "test_frameworks.py",
    "test_selftest.py",
    "test_example_parallel.py",
    "test_bench.py",
    "test_gpu_sharing.py",
    "test_gpu.py",
    "launch/test_losses.py",
)


def pytest_addoption(parser):
    parser.addoption(
        "--full", action="store_true", help="also the tests marked full: an hour instead of minutes"
    )


def pytest_collection_modifyitems(config, items):
    """Leaves out what is marked full, unless --full is given. In the workers: the long files first."""
    if hasattr(config, "workerinput"):
        place = {str(TESTS / name): position for position, name in enumerate(FIRST)}
        items.sort(key=lambda item: place.get(str(item.path), len(place)))
    if config.getoption("--full"):
        return
    full = [item for item in items if item.get_closest_marker("full")]
    if full:
        config.hook.pytest_deselected(items=full)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_configure(config):
    config.addinivalue_line("markers", "smoke: runs under every launcher, not only under mpi-gdr run")
    config.addinivalue_line("markers", "algorithms: runs once more with every algorithm forced")
    config.addinivalue_line("markers", "full: too long for every change; `make test-full` runs it")
    config.addinivalue_line("markers", "cuda: needs CUDA tensors; skipped where tests/gpu runs on others")
    config.addinivalue_line("markers", "streams: needs a device with streams; skipped on CPU tensors")
    config.addinivalue_line(
        "markers", "simulated: needs the simulated accelerator; skipped on any other device"
    )
    config.addinivalue_line("markers", "mesh: needs the four ranks of a 2 x 2 mesh")
    config.addinivalue_line("markers", "detail: runs once more under TORCH_DISTRIBUTED_DEBUG=DETAIL")
