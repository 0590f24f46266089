"""The bare MPI library as a contender: its blocking collectives, timed in C++ as measure.TorchRanks times
torch's (csrc/transport/mpi/raw/raw_mpi.hpp). These processes have no process group of torch."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from .. import launchers, rank_command
from .._version import __version__
from ..extension import _C
from ..reports import JobSummary
from ..tools import raw_mpi
from .collectives import KINDS, Case, Run
from .options import Calls


def address(tensor: torch.Tensor) -> int:
    """Address of the elements. Raises ValueError unless they are contiguous and on the CPU."""
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError(f"expected contiguous tensors on the CPU, got one on {tensor.device}")
    return tensor.data_ptr()


def dtype_name(tensor: torch.Tensor) -> str:
    """The dtype's name in _tools."""
    return str(tensor.dtype).removeprefix("torch.")


def start_all_reduce(tensor: torch.Tensor) -> None:
    """Starts MPI_Iallreduce, sum, in place. At most one may be pending."""
    raw_mpi.start_all_reduce(address(tensor), dtype_name(tensor), tensor.numel())


@dataclass(frozen=True)
class Call:
    """Arguments of _tools.raw_mpi for one call."""

    collective: str
    in_place: bool
    input: torch.Tensor
    output: torch.Tensor
    count: int
    op: str
    root: int

    @property
    def arguments(self) -> tuple[str, bool, int, int, str, int, str, int]:
        buffers = address(self.input), address(self.output), dtype_name(self.input)
        return self.collective, self.in_place, *buffers, self.count, self.op, self.root

    def __call__(self) -> None:
        raw_mpi.time(self.arguments, warmup=0, iterations=1)


class MpiRanks:
    """See measure.Ranks. Raises RuntimeError if no MPI launcher started this process."""

    backend = "mpi"
    device = torch.device("cpu")

    def __init__(self, timeout_seconds: float) -> None:
        placement = launchers.detect(os.environ)
        if placement is None:
            raise RuntimeError("--backend mpi: expected ranks that an MPI launcher started")
        self.rank, self.size = placement.rank, placement.size
        _C.init_mpi_from_launcher(self.rank, self.size, timeout_seconds)
        self._timeout = timeout_seconds

    def summary(self) -> JobSummary:
        report: JobSummary = {
            "mpi_gdr": __version__,
            "torch": str(torch.__version__),
            "backend": "mpi",
            "ranks": self.size,
        }
        rank_command.add_library(report, _C.mpi_info())
        return report

    def runs(self, collective: str, case: Case) -> dict[str, Run]:
        """torch's buffers, in the forms that MPI supports."""
        kind = KINDS[collective]
        found = kind.prepare(case)
        if collective in ("all_reduce", "reduce"):
            apart = case.empty(case.count)
            output = None if found["in"].output is None else apart
            found["out"] = found["in"]._replace(output=output)
        if collective == "all_to_all":
            found["in"] = found["out"]._replace(input=found["out"].output)
        runs = {}
        for key, run in found.items():
            call = self._call(collective, case, key == "in", run)
            if not raw_mpi.explain_unsupported(call.arguments):
                runs[key] = run._replace(call=call, output=self._result(collective, case, call, run))
        return runs

    def _call(self, collective: str, case: Case, in_place: bool, run: Run) -> Call:
        source, output = run.input, run.output
        if output is None:  # no result on this rank, or it is not compared
            output = source
        if in_place and collective == "all_gather":
            source = output  # the whole buffer, whose block of this rank is filled
        if in_place and collective == "reduce_scatter":
            output = source
        return Call(collective, in_place, source, output, case.count, case.op, case.root)

    def _result(self, collective: str, case: Case, call: Call, run: Run) -> torch.Tensor | None:
        if call.in_place and collective == "reduce_scatter":
            return call.output.narrow(0, 0, case.count)  # MPI puts it at the beginning
        return run.output

    def samples(self, run: Run, calls: Calls) -> list[float]:
        assert isinstance(run.call, Call)
        assert run.input.nbytes == run.initial.nbytes
        return raw_mpi.time(
            run.call.arguments,
            warmup=calls.warmup,
            iterations=calls.iterations,
            rewrite=(address(run.input), address(run.initial), run.input.nbytes) if calls.rewrite else None,
            timeout_seconds=self._timeout,
        )

    def all_gather(self, numbers: list[float]) -> list[list[float]]:
        every = raw_mpi.all_gather(numbers)
        return [every[i : i + len(numbers)] for i in range(0, len(every), len(numbers))]

    def barrier(self) -> None:
        raw_mpi.barrier()

    def close(self) -> None:
        raw_mpi.barrier()
