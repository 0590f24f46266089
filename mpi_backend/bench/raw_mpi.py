"""The bare MPI library as a contender: its blocking collectives, timed in C++ by the same protocol as torch's
(csrc/transport/mpi/raw_calls.hpp). No process group of torch exists in these processes.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch

from .. import launch
from .._creator import load_extension
from .._version import __version__
from .collectives import KINDS, Case, Run
from .options import Calls


class Call(NamedTuple):
    """The arguments of _C.raw_mpi."""

    collective: str
    in_place: bool
    input: torch.Tensor
    output: torch.Tensor
    count: int
    op: str
    root: int

    def __call__(self) -> None:
        load_extension().raw_mpi.time(*self, warmup=0, iterations=1)


class MpiRanks:
    """See measure.Ranks. Raises RuntimeError if no MPI launcher started this process."""

    backend = "mpi"
    device = torch.device("cpu")

    def __init__(self, timeout_seconds: float) -> None:
        placement = launch.detect(os.environ)
        if placement is None:
            raise RuntimeError("--backend mpi: expected ranks that an MPI launcher started")
        self.rank, self.size = placement.rank, placement.size
        load_extension().init_mpi_from_launcher(self.rank, self.size, timeout_seconds)
        self._timeout = timeout_seconds
        self.mpi = load_extension().raw_mpi  # the bindings themselves

    def summary(self) -> dict[str, Any]:
        info = load_extension().mpi_info()
        report = {"mpi_gdr": __version__, "torch": torch.__version__, "backend": "mpi", "ranks": self.size}
        report |= {key: info[key] for key in ("bootstrap", "thread_level", "nodes", "ranks_on_node")}
        return report | {"library": " ".join(info["library"].split())}

    def runs(self, collective: str, case: Case) -> dict[str, Run]:
        """The same buffers as torch's, without out-of-place forms that only torch could give."""
        kind = KINDS[collective]
        found = kind.prepare(case)
        if collective in ("all_reduce", "reduce"):
            apart = case.empty(case.count)
            output = None if found["in"].output is None else apart
            found["out"] = found["in"]._replace(output=output)
        if collective == "all_to_all":
            found["in"] = found["out"]._replace(input=found["out"].output)
        runs = {}
        for place, run in found.items():
            call = self._call(collective, case, place == "in", run)
            if not self.mpi.objection(*call):
                runs[place] = run._replace(call=call, output=self._result(collective, case, call, run))
        return runs

    def _call(self, collective: str, case: Case, in_place: bool, run: Run) -> Call:
        source, output = run.input, run.output
        if output is None:  # nothing comes out on this rank, or nothing is looked at
            output = source
        if in_place and collective == "all_gather":
            source = output  # of the whole; this rank's block of it is what is filled
        if in_place and collective == "reduce_scatter":
            output = source
        return Call(collective, in_place, source, output, case.count, case.op, case.root)

    def _result(self, collective: str, case: Case, call: Call, run: Run) -> torch.Tensor | None:
        if call.in_place and collective == "reduce_scatter":
            return call.output.narrow(0, 0, case.count)  # MPI puts it at the begin
        return run.output

    def samples(self, run: Run, calls: Calls) -> list[float]:
        fresh = {"fresh": run.fresh, "to": run.input} if calls.rewrite else {}
        counts = {"warmup": calls.warmup, "iterations": calls.iterations}
        return self.mpi.time(*run.call, **counts, **fresh, timeout_seconds=self._timeout)

    def all_gather(self, numbers: list[float]) -> list[list[float]]:
        every = self.mpi.all_gather(numbers)
        return [every[i : i + len(numbers)] for i in range(0, len(every), len(numbers))]

    def barrier(self) -> None:
        self.mpi.barrier()

    def close(self) -> None:
        self.mpi.barrier()
