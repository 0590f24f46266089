"""Rules for all tests: what is not collected here, because it runs on several ranks."""

import os

# tests/spmd is run by test_spmd.py, once per number of ranks and launcher; see support/spmd_main.py.
collect_ignore = [] if "SPMD_REPORTS" in os.environ else ["spmd"]


def pytest_addoption(parser):
    parser.addoption(
        "--full", action="store_true", help="also the tests marked full: an hour instead of minutes"
    )


def pytest_collection_modifyitems(config, items):
    """Leaves out what is marked full, unless --full is given."""
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
