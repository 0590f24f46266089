"""torch's own suite for process-group backends, `torch.testing._internal.distributed.distributed_test`, told
about mpi-gdr.

The suite knows its backends by literal names, and evaluates most of its conditions while it is imported.
So it is imported twice, as if for Gloo and as if for torch's own MPI backend: a case that either must pass is
one that mpi-gdr must pass. What a case compares with the group's own backend is mpi-gdr's name.
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
# Chooses between models on CPU ("mpi", "gloo") and on GPU ("nccl") by the literal name.
CPU_BRANCH_BY_NAME = "test_accumulate_gradients_no_sync"


def load(backend: str, temporary: Path) -> dict[str, types.ModuleType]:
    """The suite's module as it is for Gloo and as it is for MPI, by variant.

    To be called once in a process, with RANK and WORLD_SIZE set. All ranks share the folder `temporary`.
    """
    for folder in ("barrier", "test_dir"):
        (temporary / folder).mkdir(exist_ok=True)
    os.environ.update(
        TEMP_DIR=str(temporary),
        # Cases that make the default group anew want a file, see test_barrier_timeout_global.
        INIT_METHOD=f"file://{temporary}/shared_init_file",
        TORCH_SHOW_CPP_STACKTRACES="1",  # as the suite's own runner: some cases read the C++ part of messages
        PYTORCH_PRINT_REPRO_ON_FAILURE="0",  # the command that it prints is not how the case was run
    )
    modules = {}
    for variant in VARIANTS:
        os.environ["BACKEND"] = variant
        file = importlib.util.find_spec(MODULE).origin
        spec = importlib.util.spec_from_file_location(f"{MODULE}_as_{variant}", file)
        modules[variant] = suite = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = suite  # cases pickle objects of the suite's classes
        spec.loader.exec_module(suite)
        for supported in (
            suite.PROFILING_SUPPORTED_BACKENDS,
            suite.CUDA_PROFILING_SUPPORTED_BACKENDS,
            suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS,
        ):
            supported.append(backend)
    return modules


@contextlib.contextmanager
def names_as(backend: str, variant: str, suite: types.ModuleType, case: str) -> Iterator[None]:
    """The names that the suite looks at while a case runs."""
    environment = dict(os.environ)
    # Compared with "nccl", and by skip_if_small_worldsize, which wants 8 ranks of all but "mpi", for cases
    # whose groups are ranks 1 and 2.
    os.environ["BACKEND"] = "mpi"
    suite.BACKEND = variant if case.startswith(CPU_BRANCH_BY_NAME) else backend
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)


def case_names(suite: types.ModuleType) -> list[str]:
    """All cases, in the order of the file."""
    cases = inspect.getmembers(suite.DistributedTest._DistTestBase, inspect.isfunction)
    names = [
        (inspect.unwrap(f).__code__.co_firstlineno, name) for name, f in cases if name.startswith("test")
    ]
    return [name for _, name in sorted(names)]


def case_class(suite: types.ModuleType) -> type[unittest.TestCase]:
    """The suite's cases; to be made from a name and a barrier over all ranks, which takes the place of the
    suite's one that polls a folder."""
    from torch.testing._internal.common_utils import TestCase

    class Case(TestCase, suite.DistributedTest._DistTestBase):
        def __init__(self, name: str, barrier: Callable[[], None]) -> None:
            super().__init__(name)
            self.rank = int(os.environ["RANK"])
            self._meet = barrier
            # What the suite's TestDistBackend has for its outer process, and cases may set.
            self.skip_return_code_checks: list = []
            self.special_return_code_checks: dict = {}

        @property
        def world_size(self) -> str:  # a string there, too
            return os.environ["WORLD_SIZE"]

        def _barrier(self, wait_for: int | None = None, timeout: float = 0) -> None:
            self._meet()

    return Case
