"""The same faults under mpiexec and torchrun, which end the job themselves: it ends, with a failure, and leaves nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jobs
import pytest
from jobs import Case
from support import processes

RANKS = 2
TORCHRUN = [*processes.TORCHRUN, "--standalone", f"--nproc-per-node={RANKS}"]


@dataclass(frozen=True)
class Launched:
    launcher: str
    case: Case
    restart: bool = False

    def __str__(self) -> str:
        return f"{self.launcher}{'-restart' * self.restart}-{self.case}"

    def command(self) -> list[str]:
        if self.launcher == "mpiexec":
            return [processes.mpiexec(), "-n", str(RANKS), processes.sys.executable]
        return [*TORCHRUN, "--max-restarts=1"] if self.restart else TORCHRUN


FINITE = ("--rounds", "300")
ONCE = (*FINITE, "--once")
FAULTS = [("sigkill", "mid"), ("raise", "mid"), ("exit3", "idle"), ("sigkill", "mpi-init"), ("return", "mid")]
CASES = [
    *(
        Launched("mpiexec", Case(phase, fault, "all_reduce", "large", ranks=RANKS))
        for fault, phase in FAULTS[:3]
    ),
    *(Launched("torchrun", Case(phase, fault, "all_to_all", ranks=RANKS)) for fault, phase in FAULTS[:1]),
    Launched(
        "torchrun", Case("mid", "sigkill", "all_reduce", "large", ranks=RANKS, options=ONCE), restart=True
    ),
    Launched("torchrun", Case("idle", "raise", "all_reduce", ranks=RANKS, options=ONCE), restart=True),
]
FULL = [
    *(
        Launched("mpiexec", Case(p, f, ranks=RANKS))
        for f, p in [*FAULTS[3:], ("sigstop", "mid"), ("abort", "mid")]
    ),
    *(
        Launched("torchrun", Case(p, f, ranks=RANKS))
        for f, p in [*FAULTS[1:], ("sigstop", "mid"), ("abort", "mid")]
    ),
    *(
        Launched("torchrun", Case(p, f, ranks=RANKS, options=ONCE), restart=True)
        for f, p in [
            *FAULTS[2:4],
            ("sigkill", "rendezvous"),
            ("memory", "mid"),
            ("os-exit", "mid"),
            ("exit3", "mid"),
        ]
    ),
]
