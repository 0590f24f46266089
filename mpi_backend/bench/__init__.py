"""`mpi-gdr bench`: times the collectives of torch.distributed, on this backend or on another.

docs/bench.md says what is timed and how to read the columns.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from .. import job

COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "sendrecv",
    "barrier",
)
DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)


def main(argv: list[str]) -> int:
    """0; 1 if a result was wrong, on all ranks; 2 for a wrong command line."""
    parser = parser_of_command()
    # nccl-tests and the launchers both call it -n. What stands before the collective is the launcher's.
    ranks = None
    if argv[:1] == ["-n"] and len(argv) > 1:
        try:
            ranks = job.positive(argv[1])
        except argparse.ArgumentTypeError as error:
            parser.error(f"-n {error}")
        argv = argv[2:]
    options = parser.parse_args(argv)
    check_options(parser, options)
    if not job.require_ranks(parser, ranks):
        from .. import run

        if options.backend != "mpi-gdr":
            job.settle_local_address(os.environ)
        return run.main(job.command_of_job(ranks, "bench", argv))
    return run_rank(options)


def parser_of_command() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mpi-gdr bench",
        usage="mpi-gdr bench [-n RANKS] COLLECTIVE [options]",
        epilog="-n before the collective starts so many ranks first; leave it out under a launcher.",
        description="Time a collective of torch.distributed, in the columns of nccl-tests.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("collective", choices=COLLECTIVES, metavar="COLLECTIVE", help=", ".join(COLLECTIVES))
    add("-b", "--minbytes", type=size, default=8, metavar="SIZE", help="first size (default: 8)")
    add("-e", "--maxbytes", type=size, default=64 << 20, metavar="SIZE", help="last size (default: 64M)")
    add(
        "-f",
        "--stepfactor",
        type=int,
        default=2,
        metavar="K",
        help="next size = K times this one (default: 2)",
    )
    add("-d", "--datatype", choices=DTYPES, default="float32", metavar="DTYPE", help=", ".join(DTYPES))
    add(
        "-o",
        "--op",
        choices=("sum", "prod", "min", "max", "avg"),
        default="sum",
        help="reduction (default: sum)",
    )
    add("-r", "--root", type=int, default=0, metavar="RANK", help="root of broadcast and reduce (default: 0)")
    add(
        "-n", "--iters", type=job.positive, default=20, metavar="N", help="timed calls per size (default: 20)"
    )
    add("-w", "--warmup_iters", type=int, default=5, metavar="N", help="calls before them (default: 5)")
    add("-c", "--check", type=int, choices=(0, 1), default=1, help="check the result (default: 1)")
    add("--backend", default="mpi-gdr", help="mpi-gdr, gloo or another that torch knows (default: mpi-gdr)")
    add("--device", default="cpu", help="device type of the tensors (default: cpu)")
    add("--memory", choices=("ordinary", "group"), default="ordinary", help="where CPU buffers are: see docs")
    add("--format", choices=("nccl", "osu"), default="nccl", help="columns of nccl-tests or of OSU")
    add("--json", metavar="FILE", help="also write JSON to FILE; -: to standard output, instead of text")
    add("--timeout", type=job.positive, default=300, metavar="S", help="deadline of each call (default: 300)")
    return parser


def size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size: expected a number, with K, M or G if you like"
        )
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.stepfactor < 2:
        parser.error(f"-f {options.stepfactor} is less than 2")
    if options.minbytes < 1 or options.minbytes > options.maxbytes:
        parser.error(f"-b {options.minbytes}: expected 1 to -e {options.maxbytes}")
    if options.warmup_iters < 0:
        parser.error(f"-w {options.warmup_iters} is less than 0")
    if options.memory == "group" and (options.backend != "mpi-gdr" or options.device != "cpu"):
        parser.error("--memory group: expected --backend mpi-gdr and --device cpu")
    if options.datatype == "bool" and options.op == "avg":
        parser.error("-o avg is not defined on -d bool")


def sizes(first: int, last: int, factor: int, item: int) -> list[int]:
    """Whole items, each size once."""
    out: list[int] = []
    current = first
    while current <= last:
        if (rounded := max(current // item, 1) * item) not in out:
            out.append(rounded)
        current *= factor
    return out


def run_rank(options: argparse.Namespace) -> int:
    import torch
    import torch.distributed as dist

    from . import report as text
    from .collectives import KINDS
    from .measure import TOUCH_BYTES, Protocol

    job.quiet_renamed_calls()
    dist.init_process_group(options.backend, timeout=timedelta(seconds=options.timeout))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if not 0 <= options.root < ranks:
        print(f"mpi-gdr bench: -r {options.root}: expected a rank of 0..{ranks - 1}", file=sys.stderr)
        return 2
    kind = KINDS[options.collective]
    device = torch.device(options.device)
    if device.type != "cpu":
        device = torch.device(device.type, torch.get_device_module(device).current_device())
    protocol = Protocol(options.iters, options.warmup_iters, bool(options.check))
    report: dict[str, Any] = {
        "info": job.summary(options.backend),
        "collective": options.collective,
        "title": kind.title,
        "device": str(device),
        "memory": options.memory,
        "protocol": {
            "iterations": options.iters,
            "warmup": options.warmup_iters,
            "touch_bytes": TOUCH_BYTES,
            "time": "max over ranks of the mean per call",
        },
        "in_place_only": options.collective in ("all_reduce", "broadcast", "reduce"),
        "rows": [],
    }
    show: Callable[[str], None] = lambda line: None  # noqa: E731
    if rank == 0 and options.json != "-":
        show = lambda line: print(line, flush=True)  # noqa: E731
    osu = options.format == "osu"
    for line in (*text.head(report), *(text.osu_head(report) if osu else text.nccl_head())):
        show(line)
    for row in measure_sizes(options, rank, ranks, device, protocol):
        report["rows"].append(row)
        show(text.osu_row(row) if osu else text.nccl_row(row))
    if not osu:
        for line in text.nccl_foot(report):
            show(line)
    wrong = sum(
        row[p]["wrong"] or 0 for row in report["rows"] for p in ("out_of_place", "in_place") if row[p]
    )
    report["wrong"] = wrong if options.check else None
    if rank == 0 and options.json:
        written = json.dumps(report)
        print(written, flush=True) if options.json == "-" else Path(options.json).write_text(written + "\n")
    dist.barrier()
    dist.destroy_process_group()
    return 1 if wrong else 0


def measure_sizes(options, rank: int, ranks: int, device, protocol):
    """One row per size."""
    import torch

    from .collectives import KINDS, Case
    from .measure import measure

    kind = KINDS[options.collective]
    dtype = getattr(torch, options.datatype)
    block_item = dtype.itemsize * (ranks if kind.blocks else 1)
    wanted = sizes(options.minbytes, options.maxbytes, options.stepfactor, block_item)
    for total in [0] if options.collective == "barrier" else wanted:
        count = total // block_item
        group_memory = options.memory == "group"
        case = Case(rank, ranks, count, dtype, options.op, options.root, device, group_memory)
        timings = measure(options.collective, case, total, protocol)
        row: dict[str, Any] = {
            "bytes": total,
            "count": count,
            "type": options.datatype,
            "redop": options.op if kind.reduces else "none",
            "root": options.root if kind.rooted else -1,
        }
        for place, key in (("out", "out_of_place"), ("in", "in_place")):
            t = timings.get(place)
            row[key] = None
            if t is not None:
                algbw = total / t.time * 1e-3  # B/us = MB/s
                row[key] = {
                    "time_us": t.time,
                    "mean_us": t.mean,
                    "min_us": t.least,
                    "p50_us": t.p50,
                    "p99_us": t.p99,
                    "iterations": t.iterations,
                    "algbw": algbw,
                    "busbw": algbw * kind.bus_factor(ranks),
                    "wrong": t.wrong,
                }
        yield row
