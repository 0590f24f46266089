"""`mpi-gdr bench -n N COLLECTIVE --compare gloo,mpi,group`: contenders side by side, as Markdown, JSON, plot.

A time is the median over calls (p50) of the maximum over ranks; a cell shows its median over rounds
(least..largest). Ratios are taken within a round, so that other load on the machine affects both sides.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

from ..columns import for_screen
from .jobs import NAMES, Conditions, conditions, interleave
from .options import CONTENDERS, COPIED
from .report import FORMS, Form, Protocol, Report


class Rounds(TypedDict):
    """A contender's numbers at one size in one form (in or out of place), by round."""

    time_us: list[float]
    p50_us: list[float]
    p99_us: list[float]
    limit_us: list[float | None]
    of_limit_percent: list[float | None]


class ComparedRow(TypedDict):
    """One size in one form; a None cell: the contender has no such form."""

    bytes: int
    count: int
    place: Form
    cells: dict[str, Rounds | None]


class Comparison(TypedDict):
    """One collective with all contenders, ours first."""

    collective: str
    ranks: int
    type: str
    redop: str
    rounds: int
    contenders: list[str]
    conditions: Conditions
    protocol: Protocol
    command: str
    wrong: int
    rows: list[ComparedRow]


def require_nccl(parser: argparse.ArgumentParser, options: argparse.Namespace, ranks: int) -> None:
    """Ends the program if NCCL is a contender and cannot run here."""
    if "nccl" not in options.compare:
        return
    import torch
    import torch.distributed as dist

    if not dist.is_nccl_available():
        parser.error(f"--compare nccl: torch {torch.__version__} has no NCCL; builds for CUDA have it")
    if options.device != "cuda":
        parser.error(f"--compare nccl: expected --device cuda, got {options.device}")
    if (devices := torch.cuda.device_count()) < ranks:
        parser.error(f"--compare nccl: it takes a GPU for each of {ranks} ranks, and there are {devices}")


def main(options: argparse.Namespace, ranks: int) -> int:
    """Exit status: 1 if an element was wrong."""
    comparisons = collect(options, ranks)
    written = json.dumps(comparisons[0] if len(comparisons) == 1 else {"comparisons": comparisons})
    if options.json == "-":
        print(written)
    else:
        for found in comparisons:
            print("\n".join([*for_screen(markdown(found, options.format == "percentiles")), ""]))
        if options.json:
            Path(options.json).write_text(written + "\n")
    if options.plot:
        from .plot import plot_comparison

        plot_comparison(comparisons[0], options.plot)
    return 1 if any(found["wrong"] for found in comparisons) else 0


def collect(options: argparse.Namespace, ranks: int) -> list[Comparison]:
    """Runs all jobs. Returns a comparison per collective, with a row per size and form."""
    common = ["--timeout", str(options.timeout)]
    for flag, name in COPIED.items():
        if (value := getattr(options, name)) is not None:
            common += [flag, str(value)]
    if not options.check:
        common += ["-c", "0"]
    if options.sizes:
        common += ["--sizes", ",".join(map(str, options.sizes))]
    ours = "group" if options.memory == "group" else "mpi-gdr"
    names = [ours, *(name for name in options.compare if name != ours)]
    jobs = {name: [",".join(options.collectives), *common, *CONTENDERS[name]] for name in names}
    rounds = options.rounds or 3
    results, copies = interleave(ranks, jobs, rounds, check_first=bool(options.check))
    comparisons: list[Comparison] = []
    for k, collective in enumerate(options.collectives):
        reports: dict[str, list[Report]] = {
            name: [found.get("reports", [found])[k] for found in results[name]] for name in names
        }
        first = reports[ours][0]
        comparisons.append(
            {
                "collective": collective,
                "ranks": ranks,
                "type": options.datatype,
                "redop": first["rows"][0]["redop"],
                "rounds": rounds,
                "contenders": names,
                "conditions": conditions(first["info"], copies),
                "protocol": first["protocol"],
                "command": " ".join(["mpi-gdr bench", "-n", str(ranks), collective, *common]),
                "wrong": sum(report["wrong"] or 0 for found in reports.values() for report in found),
                "rows": list(merged(reports)),
            }
        )
    return comparisons


def merged(reports: dict[str, list[Report]]) -> Iterator[ComparedRow]:
    """Rows whose cells are lists over rounds, or None if a contender has no such form."""
    first = next(iter(reports.values()))[0]
    for form in FORMS:
        for i, row in enumerate(first["rows"]):
            cells: dict[str, Rounds | None] = {}
            for name, jobs in reports.items():
                timings = [t for job in jobs if (t := job["rows"][i][form])]
                cells[name] = None
                if len(timings) == len(jobs):
                    cells[name] = {
                        "time_us": [t["time_us"] for t in timings],
                        "p50_us": [t["p50_us"] for t in timings],
                        "p99_us": [t["p99_us"] for t in timings],
                        "limit_us": [t["limit_us"] for t in timings],
                        "of_limit_percent": [t["of_limit_percent"] for t in timings],
                    }
            if any(cells.values()):
                yield {"bytes": row["bytes"], "count": row["count"], "place": form, "cells": cells}


# ---- Markdown ---------------------------------------------------------------------------------------------


def markdown(found: Comparison, percentiles: bool = False, machine: bool = True) -> list[str]:
    """A caption, then a table for each form that mpi-gdr has."""
    state = found["conditions"]
    reduction = f", {found['redop']}" if found["redop"] != "none" else ""
    caption = (
        f"{found['collective']}, {found['type']}{reduction}, {found['ranks']} ranks, {found['rounds']} rounds"
    )
    caption += f"; {state_of(state)}"
    lines = [f"{caption}; {machine_of(state)}" if machine else caption]
    ours = found["contenders"][0]
    for form in FORMS:
        rows = [row for row in found["rows"] if row["place"] == form and row["cells"][ours]]
        if rows:
            lines += ["", f"{form.replace('_', ' ').capitalize()}:", "", *table(found, rows, percentiles)]
    return lines


def machine_of(state: Conditions) -> str:
    """Describes the machine."""
    gpu = f"; {state['gpu']}" if state.get("gpu") else ""
    return f"{state['cpu']}, {state['cores']} cores{gpu}; {state['library']}, torch {state['torch']}"


def state_of(state: Conditions) -> str:
    """Describes load and copy speed during the measurement."""
    words = f"load average at the end {state['load_average']:.1f}"
    if (copies := state.get("copies")) is None:
        return words
    one, every = spread(copies["one_core"]), spread(copies["all_cores"])
    return f"{words}; memcpy {one} GB/s on one core, {every} on all {state['cores']} at once"


def table(found: Comparison, rows: Sequence[ComparedRow], percentiles: bool = False) -> list[str]:
    """One form, a line per size."""
    names = found["contenders"]
    ours = [name for name in names if name in ("mpi-gdr", "group")]
    others = [name for name in names if name not in ours]
    limited = [name for name in ours if any(percents(row, name) for row in rows)]
    ratios = [(other, own) for own in ours for other in others]
    heads = ["bytes", *(f"{NAMES[name]} us" + " p50 / p99" * percentiles for name in names)]
    heads += [f"{NAMES[other]} / {NAMES[own]}" for other, own in ratios]
    heads += [f"{NAMES[name]}, % of limit" for name in limited]
    lines = [f"| {' | '.join(heads)} |", "|--:" * len(heads) + "|"]
    for row in rows:
        cells = [str(row["bytes"])]
        for name in names:
            t = row["cells"][name]
            if t is None:
                cells.append("N/A")
            elif percentiles:
                cells.append(f"{number(_median(t['p50_us']))} / {number(_median(t['p99_us']))}")
            else:
                cells.append(spread(t["p50_us"]))
        cells += [spread(ratio(row, other, own)) for other, own in ratios]
        for name in limited:
            known = percents(row, name)
            cells.append(f"{_median(known):.0f}" if known else "")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def ratio(row: ComparedRow, other: str, own: str) -> list[float]:
    """Time of `other` divided by `own`'s, by round; empty if one has no such form."""
    a, b = row["cells"][other], row["cells"][own]
    return [x / y for x, y in zip(a["p50_us"], b["p50_us"], strict=True)] if a and b else []


def spread(values: Sequence[float]) -> str:
    """Median (least..largest)."""
    if not values:
        return "N/A"
    if len(values) == 1:
        return number(values[0])
    return f"{number(_median(values))} ({number(min(values))}..{number(max(values))})"


def number(value: float) -> str:
    """Three significant digits, without exponent."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percents(row: ComparedRow, name: str) -> list[float]:
    """Percent of the limit, by round; empty if one is missing."""
    cell = row["cells"][name]
    values = [] if cell is None else cell["of_limit_percent"]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []
