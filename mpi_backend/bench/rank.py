"""One rank of a job that times collectives; rank 0 prints the report."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from . import report as text
from .collectives import KINDS, Case
from .limit import DeviceLimit, Limit
from .measure import Ranks, Timing, TorchRanks, measure
from .options import REWRITE_BYTES, calls, sizes

FORM_OF_KEY: dict[str, text.Form] = {"out": "out_of_place", "in": "in_place"}


def run_rank(options: argparse.Namespace) -> int:
    """The exit status: see main()."""
    ranks = ranks_of(options)
    if not 0 <= options.root < ranks.size:
        print(f"mpi-gdr bench: -r {options.root}: expected a rank of 0..{ranks.size - 1}", file=sys.stderr)
        return 2
    limit = limit_of(options, ranks)
    show: Callable[[str], None] = lambda line: None  # noqa: E731
    if ranks.rank == 0 and options.json != "-":
        show = lambda line: print(line, flush=True)  # noqa: E731
    reports = [run_collective(name, options, ranks, limit, show) for name in options.collectives]
    wrong = sum(report["wrong"] or 0 for report in reports)
    if ranks.rank == 0:
        if options.json:
            write_json(reports, options.json)
        if options.plot:
            from .plot import plot_job

            plot_job(reports[0], options.plot)
    ranks.close()
    return 1 if wrong else 0


def run_collective(
    name: str,
    options: argparse.Namespace,
    ranks: Ranks,
    limit: Limit | DeviceLimit | None,
    show: Callable[[str], None],
) -> text.Report:
    """Calls `show` with each line once it is measured; returns the report."""
    report: text.Report = {
        "info": ranks.summary(),
        "collective": name,
        "title": KINDS[name].title,
        "device": str(ranks.device),
        "memory": options.memory,
        "protocol": {
            "iterations": options.iters or "200, 40 or 10",
            "warmup": "500, 100 or 30" if options.warmup_iters is None else options.warmup_iters,
            "touch_bytes": REWRITE_BYTES,
            "time": "max over ranks of the mean per call",
            "processes_of_limit": limit.active if limit else None,
        },
        "in_place_only": options.backend != "mpi" and name in ("all_reduce", "broadcast", "reduce"),
        "rows": [],
        "wrong": None,
    }
    lines = text.FORMATS[options.format]
    for line in (*text.head(report), *lines.head(report)):
        show(line)
    for row in measure_sizes(name, options, ranks, limit):
        report["rows"].append(row)
        show(lines.row(row))
    for line in lines.foot(report):
        show(line)
    if options.check:
        found = [t for row in report["rows"] for form in text.FORMS if (t := row[form])]
        report["wrong"] = sum(t["wrong"] or 0 for t in found)
    return report


def write_json(reports: list[text.Report], path: str) -> None:
    """Writes one report or {"reports": [...]} to a file; `-`: to standard output."""
    written = json.dumps(reports[0] if len(reports) == 1 else {"reports": reports})
    print(written, flush=True) if path == "-" else Path(path).write_text(written + "\n")


def limit_of(options: argparse.Namespace, ranks: Ranks) -> Limit | DeviceLimit | None:
    """The memory limit if all ranks share one memory."""
    if options.backend != "mpi-gdr":
        return None
    if ranks.device.type == "cpu":
        return Limit(ranks.rank, ranks.size) if ranks.summary()["nodes"] == 1 else None
    if DeviceLimit.applies(ranks.device):
        return DeviceLimit(ranks.rank, ranks.size, ranks.device)
    return None


def ranks_of(options: argparse.Namespace) -> Ranks:
    """Creates the Ranks of --backend."""
    if options.backend == "mpi":
        from .raw_mpi import MpiRanks

        return MpiRanks(float(options.timeout))
    return TorchRanks(options.backend, options.device, options.timeout)


def measure_sizes(
    name: str, options: argparse.Namespace, ranks: Ranks, limit: Limit | DeviceLimit | None
) -> Iterator[text.Row]:
    """Yields one row per size."""
    kind = KINDS[name]
    dtype = getattr(torch, options.datatype)
    block_item = dtype.itemsize * (ranks.size if kind.blocks else 1)
    wanted = sizes(options, block_item)
    for total in [0] if name == "barrier" else wanted:
        count = total // block_item
        case = Case(
            ranks.rank,
            ranks.size,
            count,
            dtype,
            options.op,
            options.root,
            ranks.device,
            options.memory == "group",
        )
        protocol = calls(options, total)
        timings = measure(ranks, name, case, protocol)
        row: text.Row = {
            "bytes": total,
            "count": count,
            "type": options.datatype,
            "redop": options.op if kind.reduces else "none",
            "root": options.root if kind.rooted else -1,
            "out_of_place": None,
            "in_place": None,
        }
        for key, form in FORM_OF_KEY.items():
            if key in timings:
                least = None
                if limit:
                    least = limit.time(name, total, key == "in", min(protocol.iterations, 10))
                row[form] = cells(timings[key], total, kind.bus_factor(ranks.size), least)
        yield row


def cells(t: Timing, total: int, bus_factor: float, limit_us: float | None) -> text.Cell:
    """The report's entry for a timing, with its bandwidths and limit."""
    algbw = total / t.time * 1e-3  # B/us = MB/s
    return {
        "time_us": t.time,
        "mean_us": t.mean,
        "min_us": t.least,
        "p50_us": t.p50,
        "p99_us": t.p99,
        "iterations": t.iterations,
        "algbw": algbw,
        "busbw": algbw * bus_factor,
        "limit_us": limit_us,
        "of_limit_percent": None if limit_us is None else 100 * limit_us / t.p50,
        "wrong": t.wrong,
    }
