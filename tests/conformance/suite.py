"""torch's suite for process-group backends, `torch.testing._internal.distributed.distributed_test`, for
mpi-gdr.

The suite has literal backend names and evaluates most conditions at import. It is imported twice, as for Gloo
and as for torch's MPI backend: mpi-gdr must pass each case that either must pass. Comparisons with the
group's own backend use mpi-gdr's name.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path

MODULE = "torch.testing._internal.distributed.distributed_test"
VARIANTS = ("gloo", "mpi")
# Chooses a CPU model ("mpi", "gloo") or a GPU model ("nccl") by the literal name.
CPU_BRANCH_BY_NAME = "test_accumulate_gradients_no_sync"


def load(backend: str, temporary: Path) -> dict[str, types.ModuleType]:
    """{variant: the suite's module}. Call it once per process, with RANK and WORLD_SIZE set. All ranks share
    the folder `temporary`."""
    for folder in ("barrier", "test_dir"):
        (temporary / folder).mkdir(exist_ok=True)
    os.environ.update(
        TEMP_DIR=str(temporary),
        # Cases that recreate the default group need a file, see test_barrier_timeout_global.
        INIT_METHOD=f"file://{temporary}/shared_init_file",
        TORCH_SHOW_CPP_STACKTRACES="1",  # as the suite's runner; cases read the C++ part of messages
        PYTORCH_PRINT_REPRO_ON_FAILURE="0",  # the printed command would be wrong here
    )
    modules = {}
    for variant in VARIANTS:
        os.environ["BACKEND"] = variant
        file = importlib.util.find_spec(MODULE).origin
        spec = importlib.util.spec_from_file_location(f"{MODULE}_as_{variant}", file)
        modules[variant] = suite = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = suite  # cases pickle objects of the suite's classes
        spec.loader.exec_module(suite)
        for kind in ("", "CUDA_", "SEND_RECV_"):
            getattr(suite, f"{kind}PROFILING_SUPPORTED_BACKENDS").append(backend)
    return modules


@contextlib.contextmanager
def names_as(backend: str, variant: str, suite: types.ModuleType, case: str) -> Iterator[None]:
    """Sets the names that the suite reads while a case runs."""
    environment = dict(os.environ)
    # Compared with "nccl", and by skip_if_small_worldsize, which requires 8 ranks except for "mpi", in cases
    # whose groups are ranks 1 and 2.
    os.environ["BACKEND"] = "mpi"
    suite.BACKEND = variant if case.startswith(CPU_BRANCH_BY_NAME) else backend
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)


def case_names(suite: types.ModuleType) -> list[str]:
    cases = inspect.getmembers(suite.DistributedTest._DistTestBase, inspect.isfunction)
    lines = {name: inspect.unwrap(f).__code__.co_firstlineno for name, f in cases if name.startswith("test")}
    return sorted(lines, key=lines.__getitem__)


def case_class(suite: types.ModuleType) -> type[unittest.TestCase]:
    """The suite's cases, each created with a barrier that replaces the suite's polling of a folder."""
    from torch.testing._internal.common_utils import TestCase

    class Case(TestCase, suite.DistributedTest._DistTestBase):
        def __init__(self, name: str, barrier: Callable[[], None]) -> None:
            super().__init__(name)
            self.rank = int(os.environ["RANK"])
            self._meet = barrier
            # Attributes of the suite's TestDistBackend that cases may set.
            self.skip_return_code_checks: list = []
            self.special_return_code_checks: dict = {}

        @property
        def world_size(self) -> str:  # a string there, too
            return os.environ["WORLD_SIZE"]

        def _barrier(self, wait_for: int | None = None, timeout: float = 0) -> None:
            self._meet()

    return Case
