"""Rules for all tests: what is not collected here, because it runs on several ranks."""

import os

# tests/spmd is run by test_spmd.py, once per number of ranks and launcher; see support/spmd_main.py.
collect_ignore = [] if "SPMD_REPORTS" in os.environ else ["spmd"]


def pytest_configure(config):
    config.addinivalue_line("markers", "smoke: runs under every launcher, not only under mpi-gdr run")
    config.addinivalue_line("markers", "algorithms: runs once more with every algorithm forced")
