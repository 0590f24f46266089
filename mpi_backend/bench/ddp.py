"""`mpi-gdr bench -n 2 ddp`: a data-parallel step of the demo's GPT, and its exposed communication.

A rank has few sequences, so that there is little computation to hide communication behind.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import rank_command
from ..run import positive
from .compare import number, spread
from .jobs import NAMES
from .side_by_side import Command, JobResults, device_of, initialize, synchronizer

if TYPE_CHECKING:
    import torch
    from torch.nn.parallel import DistributedDataParallel


def command() -> Command:
    """Returns this benchmark's command."""
    benchmark = Command(
        "ddp",
        "A DDP step of the GPT example: computation, exposed communication, overlap.",
        {"mpi-gdr": "mpi-gdr", "gloo": "gloo"},
    )
    add = benchmark.parser.add_argument
    add("--batch", type=positive, default=2, metavar="N", help="sequences a rank (default: 2)")
    add("--layers", type=positive, default=4, help="(default: %(default)s)")
    add("--channels", type=positive, default=128, help="(default: %(default)s)")
    add("--device", default="cpu", help="device type of the model (default: cpu)")
    add("--steps", type=positive, default=30, metavar="N", help="steps of each kind (default: 30)")
    return benchmark


def main(argv: list[str], ranks: int | None) -> int:
    """Returns 0; exits on a wrong command line."""
    return command().main(argv, ranks, run_rank, markdown)


def run_rank(options: argparse.Namespace) -> dict[str, Any] | None:
    """Returns, on rank 0, the medians over the steps of each step's slowest rank, in milliseconds."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from ..demo.data import VOCAB_SIZE
    from ..demo.model import GPT, GPTConfig

    rank, _ = initialize(options.backend, options.timeout)
    torch.manual_seed(1337)
    config = GPTConfig(VOCAB_SIZE, layers=options.layers, channels=options.channels)
    device = device_of(options.device)
    synchronize = synchronizer(device)
    model = GPT(config).to(device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    tokens = torch.randint(VOCAB_SIZE, (options.batch, config.block_size + 1), device=device)

    def step(sync: bool) -> float:
        synchronize()
        dist.barrier()
        begin = time.perf_counter()
        if sync:
            ddp(tokens[:, :-1], tokens[:, 1:]).backward()
        else:
            with ddp.no_sync():
                ddp(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
        synchronize()
        return 1e3 * (time.perf_counter() - begin)

    for _ in range(3):  # DDP rebuilds its buckets in the second
        step(True)
    step(False)
    buckets = bucket_bytes(ddp)
    alone = all_reduces_of(buckets, device)
    alone()
    samples: dict[str, list[float]] = {"compute_ms": [], "step_ms": [], "communication_ms": []}
    for _ in range(options.steps):
        samples["compute_ms"].append(step(False))
        samples["step_ms"].append(step(True))
        samples["communication_ms"].append(alone())
    every = torch.tensor(list(samples.values()), dtype=torch.float64)
    dist.all_reduce(every, dist.ReduceOp.MAX)
    medians = {name: statistics.median(row) for name, row in zip(samples, every.tolist(), strict=True)}
    report = {
        "info": rank_command.summary(options.backend),
        "parameters": sum(p.numel() for p in model.parameters()),
        "buckets": buckets,
        "batch": options.batch,
        **medians,
        "exposed_ms": medians["step_ms"] - medians["compute_ms"],
    }
    dist.barrier()
    dist.destroy_process_group()
    return report if rank == 0 else None


def bucket_bytes(ddp: DistributedDataParallel) -> list[int]:
    """Bytes of each bucket as DDP has laid them out."""
    data = ddp._get_ddp_logging_data()
    text = data.get("rebuilt_bucket_sizes") or data["bucket_sizes"]
    return [int(word) for word in text.split(",")]


def all_reduces_of(buckets: list[int], device: torch.device) -> Callable[[], float]:
    """Returns a function that runs the same all_reduces without computation and returns milliseconds."""
    import torch
    import torch.distributed as dist

    tensors = [torch.empty(count // 4, dtype=torch.float32, device=device) for count in buckets]
    synchronize = synchronizer(device)

    def run() -> float:
        for tensor in tensors:
            tensor.fill_(1.0)
        synchronize()
        dist.barrier()
        begin = time.perf_counter()
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()
        synchronize()
        return 1e3 * (time.perf_counter() - begin)

    return run


def markdown(found: JobResults) -> list[str]:
    """Returns a line per contender."""
    reports = found["contenders"]
    first = reports["mpi-gdr"][0]
    heads = ["", "compute ms", "step ms", "exposed ms", "communication alone ms", "hidden %"]
    buckets = ", ".join(f"{count / 2**20:.3g}" for count in first["buckets"])
    lines = [
        f"DDP step of the GPT example, {found['ranks']} ranks, {first['parameters']:,} parameters, "
        f"{first['batch']} sequences a rank, buckets of {buckets} MiB, {found['rounds']} rounds:",
        "",
        f"| {' | '.join(heads)} |",
        "|---|" + "--:|" * (len(heads) - 1),
    ]
    keys = ("compute_ms", "step_ms", "exposed_ms", "communication_ms")
    for name, rounds in reports.items():
        cells = [NAMES[name]]
        cells += [spread([report[key] for report in rounds]) for key in keys]
        hidden_percent = [100 * (1 - report["exposed_ms"] / report["communication_ms"]) for report in rounds]
        cells.append(spread(hidden_percent))
        lines.append(f"| {' | '.join(cells)} |")
    if "gloo" in reports:
        ours, theirs = (
            statistics.median(report["exposed_ms"] for report in reports[name])
            for name in ("mpi-gdr", "gloo")
        )
        lines += ["", f"Exposed communication, mpi-gdr / Gloo: {number(ours / theirs)}"]
    return lines
