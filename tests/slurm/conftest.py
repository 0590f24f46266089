"""One cluster for all tests of this folder, which mostly wait: all start at once, each in a thread.

Slurm queues their jobs. A test that takes `quiet_cluster` runs after them.
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from slurm_cluster import Cluster, why_unavailable
from slurm_user import User


@pytest.fixture(scope="session")
def cluster():
    if reason := why_unavailable():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    # Not below pytest's folder: a socket's name is limited to 108 characters.
    with tempfile.TemporaryDirectory(prefix="slurm") as folder, Cluster(Path(folder)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def outcomes(cluster, request):
    """{test: its future}."""
    tests = [item for item in request.session.items if "user" in item.fixturenames]
    homes = cluster.folder / "home"
    homes.mkdir()
    pool = ThreadPoolExecutor(len(tests) + 1)
    begun = {}
    for number, item in enumerate(tests):
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        user = User(cluster, homes / f"u{number}")
        begun[item.nodeid] = pool.submit(item.function, user, **parameters)
    yield begun
    pool.shutdown(wait=False, cancel_futures=True)  # waiting tests fail once the cluster has ended


@pytest.fixture
def user(outcomes, request):
    return outcomes[request.node.nodeid]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if "user" not in pyfuncitem.fixturenames:
        return None
    pyfuncitem.funcargs["user"].result()
    return True


@pytest.fixture
def quiet_cluster(cluster, outcomes):
    wait(outcomes.values())
    return cluster
