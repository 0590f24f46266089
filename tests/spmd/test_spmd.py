"""Runs tests/spmd/ranks on several ranks, under each launcher."""

import itertools
import re

import pytest
from support.cases import cases
from support.spmd import run_spmd

from mpi_backend._tools import schedule

pytestmark = pytest.mark.long

# ---- the harness itself: what must not pass unnoticed -----------------------------------------------------

FAULTS = """
import time
from support.spmd_plugin import RANK
import pytest

def test_fails_on_rank_1():
    assert RANK != 1, "only here"

def test_hangs_on_rank_0():
    while RANK == 0:
        time.sleep(1)

@pytest.mark.skip(reason="none is good enough")
def test_skipped():
    pass

@pytest.mark.parametrize("i", range(1 + RANK))
def test_count_differs(i):
    pass
"""


@cases(
    "selection, messages",
    ("fails",
     ["rank 1: .*test_fails_on_rank_1 failed in call", "only here", "mpi-gdr run with 2 ranks: status"]),
    ("hangs", ["rank 0 did not come back from .*hangs_on_rank_0", "in test_hangs_on_rank_0"]),
    ("skipped", ["rank 0: .*test_skipped failed in setup", "none is good enough"]),
    ("differs", ["the ranks did not run the same tests"]),
    ("nothing", ["no test was run"]),
)  # fmt: skip
def test_harness_reports(tmp_path, tmp_path_factory, selection, messages):
    # Not in tmp_path: its name contains the selection, and -k also matches folders.
    faults = tmp_path_factory.mktemp("suite") / "test_faults.py"
    faults.write_text(FAULTS)
    with pytest.raises(AssertionError) as caught:
        run_spmd(
            tmp_path / "reports", "mpi-gdr run", 2, str(faults), "-k", selection,
            timeout=60, SPMD_HANG_SECONDS="3",
        )  # fmt: skip
    for message in messages:
        assert re.search(message, str(caught.value)), str(caught.value)


# ---- the backend ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_mpi_launcher(tmp_path, size, pytestconfig):
    selection = [] if size == 3 else ["-k", "not test_pairs"]  # one number of ranks suffices for it
    if size == 4 and not pytestconfig.getoption("--full"):
        selection = ["-m", "smoke"]
    assert run_spmd(tmp_path, "mpi-gdr run", size, "spmd/ranks", *selection) > 0


@pytest.mark.parametrize("launcher", ["torchrun", "spawn"])
def test_store_launchers(tmp_path, launcher):
    assert run_spmd(tmp_path, launcher, 2, "spmd/ranks", "-m", "smoke") > 0


def forced():
    """Sets of variables that together name every algorithm once. Set k has each collective's k-th algorithm
    for any ranks; the other algorithms have a set per name."""
    sets = {}
    for algorithm in schedule.algorithms():
        variable, name = algorithm["variable"], algorithm["name"]
        if not (algorithm["shared"] or algorithm["two_level"] or algorithm["native"]):
            name = next(
                k for k in map("any-{}".format, itertools.count(1)) if variable not in sets.get(k, {})
            )
        sets.setdefault(name, {})[variable] = algorithm["name"]
    return sets


FORCED = forced()
for choice in FORCED.keys() - {"any-1"}:
    if choice.startswith("any-"):
        FORCED[choice]["MPI_GDR_CHUNK_BYTES"] = "1K"
FORCED["any-3"]["MPI_GDR_P2P"] = "shm"
FORCED["native"]["MPI_GDR_P2P"] = "mpi"
# Two nodes for the backend: of 3 ranks {0, 1} and {2}.
FORCED["two_level"] |= {"MPI_GDR_RANKS_PER_NODE": "2", "MPI_GDR_CHUNK_BYTES": "1K"}
FORCED["messages"] = {"MPI_GDR_SHM": "off"}

# The others run with --full only; commands/test_selftest.py forces some of them.
IN_CI = ("native", "two_level")


@pytest.mark.parametrize(
    "choice",
    [name if name in IN_CI else pytest.param(name, marks=pytest.mark.full) for name in FORCED],
)
def test_forced_algorithms(tmp_path, choice):
    assert run_spmd(tmp_path, "mpi-gdr run", 3, "spmd/ranks", "-m", "algorithms", **FORCED[choice]) > 0


def test_fewer_leaders_than_ranks(tmp_path):
    """Two nodes of two ranks, of which only one crosses the network, except at sizes between two limits."""
    rows = "all_reduce:4K-1M:two_level#all_reduce:leaders=1:two_level"
    variables = {"MPI_GDR_SELECT": rows, "MPI_GDR_RANKS_PER_NODE": "2", "MPI_GDR_CHUNK_BYTES": "16K"}
    few = "test_all_operations and all_reduce and int64 or test_reductions and test_large and bfloat16"
    assert run_spmd(tmp_path, "mpi-gdr run", 4, "spmd/ranks", "-k", few, **variables) > 0


def test_measured_choices(tmp_path):
    """The choice may change at any call. test_mpi_launcher has fewer ranks."""
    few = "test_choices or test_all_operations and all_reduce or test_the_result_is_the_left_fold"
    assert run_spmd(tmp_path, "mpi-gdr run", 4, "spmd/ranks", "-k", few) > 0


def full_grid(tmp_path, size, **env):
    """Long deadlines, because such runs get little of a shared machine."""
    env |= {"SPMD_GROUP_SECONDS": "600", "SPMD_HANG_SECONDS": "1800"}
    # Memory is kept, not returned to the kernel and faulted in again for every tensor.
    env |= {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
    selection = ["spmd/ranks/test_grid.py", "--full", "-k", "test_product"]
    assert run_spmd(tmp_path, "mpi-gdr run", size, *selection, timeout=7200, **env) > 0


@pytest.mark.full
@pytest.mark.parametrize("size", range(1, 9))
def test_full_grid(tmp_path, size):
    """The whole product of tests/spmd/ranks/test_grid.py; test_mpi_launcher runs covering pairs."""
    full_grid(tmp_path, size)


@pytest.mark.full
@pytest.mark.parametrize("size", [5, 8])
@pytest.mark.parametrize("choice", [name for name in FORCED if name not in ("flag", "adaptive", "messages")])
def test_full_grid_of_forced_algorithms(tmp_path, choice, size):
    full_grid(tmp_path, size, **FORCED[choice])
