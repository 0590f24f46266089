"""Rules for all tests: collection and order."""

import importlib.metadata
import os

import pytest
from support import processes, warm

# Tests in ranks/ run on a job's ranks, which the test beside it starts (support/spmd.py).
torch_version = tuple(map(int, importlib.metadata.version("torch").split(".")[:2]))
collect_ignore_glob = [] if "SPMD_REPORTS" in os.environ else ["*/ranks"]
# `make test-mpi MPI=name` runs tests/mpi once per MPI.
collect_ignore = [] if "TEST_MPI" in os.environ else ["mpi"]
# `make wheel-check ARGS=2.15.0` runs tests/newer_torch, too.
collect_ignore += [] if torch_version >= (2, 14) else ["newer_torch"]
# `make slurm`, a separate stage of CI.
collect_ignore += [] if "TEST_SLURM" in os.environ else ["slurm"]
# `make test-clients`, which installs the requirements.
collect_ignore += [] if "TEST_CLIENTS" in os.environ else ["clients"]

# Folders whose jobs may share an import of torch (support/warm.py), because they test neither launchers nor
# ends of processes nor installation; elsewhere the marker warm allows it. None with --full, which finds
# missing imports.
WARM = {"bench", "commands", "conformance", "docs", "examples", "frameworks", "gpu", "soak", "spmd"}
COLD = processes.python


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    fits = item.path.parent.name in WARM or item.get_closest_marker("warm")
    processes.python = warm.python if fits and not item.config.getoption("--full") else COLD


def pytest_addoption(parser):
    parser.addoption(
        "--full", action="store_true", help="also the tests marked full: an hour instead of minutes"
    )


def pytest_collection_modifyitems(config, items):
    """Leaves out tests marked full without --full. Workers take the next file, so those marked long come
    first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("long") is None)
    if config.getoption("--full"):
        return
    full = [item for item in items if item.get_closest_marker("full")]
    if full:
        config.hook.pytest_deselected(items=full)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_configure(config):
    config.addinivalue_line("markers", "long: of a file that takes a minute or more: begins first")
    config.addinivalue_line("markers", "warm: its jobs need not import torch in each process (WARM above)")
    config.addinivalue_line("markers", "smoke: runs under every launcher, not only under mpi-gdr run")
    config.addinivalue_line("markers", "algorithms: runs once more with every algorithm forced")
    config.addinivalue_line("markers", "full: too long for every change; `make test-full` runs it")
    config.addinivalue_line(
        "markers", "cuda: needs CUDA tensors; skipped where tests/gpu/ranks runs on others"
    )
    config.addinivalue_line("markers", "streams: needs a device with streams; skipped on CPU tensors")
    config.addinivalue_line(
        "markers", "simulated: needs the simulated accelerator; skipped on any other device"
    )
    config.addinivalue_line("markers", "ranks(n): not with fewer ranks")
    config.addinivalue_line("markers", "mesh: needs the four ranks of a 2 x 2 mesh")
    config.addinivalue_line("markers", "detail: runs once more under TORCH_DISTRIBUTED_DEBUG=DETAIL")
