"""`mpi-gdr bench -n 2 device --device cuda`: all_reduce on an accelerator's tensors, and its bounds.

Per size: host time until the call and its wait() return, device time between events, percent of the device
memory's limit; for mpi-gdr also in group memory. Then the time of matrix products during an all_reduce.
--device cpu only tests the benchmark.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import rank_command
from ..run import positive
from .compare import spread
from .jobs import NAMES
from .options import size_list
from .side_by_side import Command, JobResults, device_of, initialize, synchronizer

if TYPE_CHECKING:
    import torch

MATRIX_SIZE = 4096  # of the matrices beside the communication; 256 on the CPU


def command() -> Command:
    """Returns this benchmark's command."""
    benchmark = Command(
        "device",
        "all_reduce on an accelerator: host time, device time, percent of the memory's limit, overlap.",
        {"mpi-gdr": "mpi-gdr", "gloo": "gloo"},
    )
    add = benchmark.parser.add_argument
    add("--device", default="cuda", help="device type of the tensors (default: cuda)")
    add("--sizes", type=size_list, default=[8, 64 << 10, 1 << 20, 16 << 20, 64 << 20], help="bytes")
    add("--iters", type=positive, default=20, metavar="N", help="calls of each kind (default: 20)")
    return benchmark


def main(argv: list[str], ranks: int | None) -> int:
    """Returns 0; exits on a wrong command line."""
    return command().main(argv, ranks, run_rank, markdown)


class Timestamp:
    """A point in the current stream; on the CPU, host time."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device = device
        self._event = None
        if device.type != "cpu":
            self._event = torch.get_device_module(device).Event(enable_timing=True)
            self._event.record()
        self._time = time.perf_counter()

    def milliseconds_until(self, end: Timestamp) -> float:
        """Milliseconds to `end`; synchronise first."""
        if self._event is not None:
            return self._event.elapsed_time(end._event)
        return 1e3 * (end._time - self._time)


def run_rank(options: argparse.Namespace) -> dict[str, Any] | None:
    """Returns the report on rank 0, None on others."""
    import torch
    import torch.distributed as dist

    from .. import empty as group_memory
    from .limit import copy_bandwidth

    rank, size = initialize(options.backend, options.timeout)
    device, host = device_of(options.device), torch.device("cpu")
    synchronize = synchronizer(device)
    torch.zeros(1, device=device)
    info = rank_command.summary(options.backend)
    bandwidths = {}
    for name, to, source in (
        ("device to device, read and written", device, device),
        ("pinned host to device", device, host),
        ("device to pinned host", host, device),
    ):
        if device.type == "cpu" and to is not source:
            continue
        dist.barrier()
        # On rank 0 alone, because ranks may share the GPU.
        mine = (
            copy_bandwidth(to, source, 256 << 20 if device.type != "cpu" else 16 << 20) if rank == 0 else 0.0
        )
        bandwidths[name] = max_over_ranks([mine])[0]
    copy = bandwidths["device to device, read and written"]

    def samples_of(tensor: torch.Tensor) -> dict[str, list[float]]:
        samples: dict[str, list[float]] = {"host_ms": [], "device_ms": []}
        for i in range(-3, options.iters):
            tensor.zero_()
            synchronize()
            dist.barrier()
            begin = Timestamp(device)
            host_begin = time.perf_counter()
            dist.all_reduce(tensor, async_op=True).wait()
            host_end = time.perf_counter()
            end = Timestamp(device)
            synchronize()
            if i >= 0:
                samples["host_ms"].append(1e3 * (host_end - host_begin))
                samples["device_ms"].append(begin.milliseconds_until(end))
        return samples

    def measure(tensor: torch.Tensor, total: int) -> dict[str, float]:
        medians = max_over_ranks([statistics.median(values) for values in samples_of(tensor).values()])
        row = dict(zip(("host_ms", "device_ms"), medians, strict=True))
        # p ranks read and write their S bytes once: 2 p S bytes.
        return row | {"of_limit_percent": 100 * (2e3 * size * total / copy) / row["device_ms"]}

    rows = []
    for total in options.sizes:
        count = max(1, total // 4)
        row: dict[str, Any] = {"bytes": total, **measure(torch.zeros(count, device=device), total)}
        if options.backend == "mpi-gdr":
            row["group"] = measure(group_memory(count, dtype=torch.float32, device=device), total)
        rows.append(row)
    report = {"info": info, "device": str(device), "bandwidths": bandwidths, "rows": rows}
    report["overlap"] = measure_overlap(options, device, synchronize)
    dist.barrier()
    dist.destroy_process_group()
    return report if rank == 0 else None


def max_over_ranks(numbers: list[float]) -> list[float]:
    """The maximum over ranks of each number."""
    import torch
    import torch.distributed as dist

    tensor = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.tolist()


def measure_overlap(
    options: argparse.Namespace, device: torch.device, synchronize: Callable[[], None]
) -> dict[str, float]:
    """Milliseconds until the device is idle: products alone, all_reduce alone, both issued together."""
    import torch
    import torch.distributed as dist

    total = max(options.sizes)
    tensor = torch.zeros(max(1, total // 4), device=device)
    size = MATRIX_SIZE if device.type != "cpu" else 256
    a = torch.rand(size, size, device=device)
    result = torch.empty_like(a)

    def timed(reduce: bool, products: int) -> float:
        tensor.zero_()
        synchronize()
        dist.barrier()
        begin = time.perf_counter()
        work = dist.all_reduce(tensor, async_op=True) if reduce else None
        for _ in range(products):
            torch.mm(a, a, out=result)
        if work is not None:
            work.wait()
        synchronize()
        return 1e3 * (time.perf_counter() - begin)

    def median(reduce: bool, products: int) -> float:
        timed(reduce, products)
        return max_over_ranks([statistics.median(timed(reduce, products) for _ in range(options.iters))])[0]

    alone = median(True, 0)
    # The products take about as long as the all_reduce, so that each could hide the other.
    products = max(1, min(1000, round(alone / max(median(False, 4) / 4, 1e-3))))
    found = {"bytes": float(total), "products": float(products), "all_reduce_ms": alone}
    return found | {"products_ms": median(False, products), "both_ms": median(True, products)}


def hidden_percent(overlap: dict[str, float]) -> float:
    """Percent of the shorter part that overlaps the longer one."""
    parts = (overlap["all_reduce_ms"], overlap["products_ms"])
    return 100 * (sum(parts) - overlap["both_ms"]) / min(parts)


def markdown(found: JobResults) -> list[str]:
    """Returns a line per size, then the overlap."""
    reports = found["contenders"]
    first = reports["mpi-gdr"][0]
    speeds = ", ".join(f"{name} {value * 1e-9:.1f} GB/s" for name, value in first["bandwidths"].items())
    kinds = [(name, False) for name in reports]
    kinds.insert(1, ("mpi-gdr", True))  # with group memory
    heads = ["bytes"]
    for name, group in kinds:
        shown = NAMES["group" if group else name]
        heads += [f"{shown}, {what}" for what in ("host ms", "device ms", "% of limit")]
    lines = [
        f"all_reduce on {first['device']}, float32, {found['ranks']} ranks, {found['rounds']} rounds; limit: "
        f"2 p S bytes at the speed of a copy within the device. Copies: {speeds}.",
        "",
        f"| {' | '.join(heads)} |",
        "|--:" * len(heads) + "|",
    ]
    for i, row in enumerate(first["rows"]):
        cells = [str(row["bytes"])]
        for name, group in kinds:
            found_rows = [report["rows"][i] for report in reports[name]]
            for key in ("host_ms", "device_ms", "of_limit_percent"):
                cells.append(
                    spread([(found_row["group"] if group else found_row)[key] for found_row in found_rows])
                )
        lines.append(f"| {' | '.join(cells)} |")
    heads = ["beside matrix products", "all_reduce ms", "products ms", "both ms", "hidden %"]
    lines += ["", f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    for name, rounds in reports.items():
        overlaps = [report["overlap"] for report in rounds]
        cells = [
            spread([overlap[key] for overlap in overlaps])
            for key in ("all_reduce_ms", "products_ms", "both_ms")
        ]
        cells.append(spread([hidden_percent(overlap) for overlap in overlaps]))
        lines.append(f"| {' | '.join([NAMES[name], *cells])} |")
    return lines
