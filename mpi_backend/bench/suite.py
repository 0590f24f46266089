"""`mpi-gdr bench suite`: all measurements of docs/performance.md as Markdown, JSON and plots.

Takes 10 to 15 minutes on two cores. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

from .. import rank_command
from ..command_line import Parser
from ..run import positive
from . import compare, ddp, overhead, overlap
from .compare import ComparedRow, Comparison, number, percents, ratio
from .jobs import NAMES, progress, ranks_of_jobs
from .options import check_options, parser_of_command
from .side_by_side import JobResults, report_lines

SIZES = {2: "8,64,1K,8K,64K,256K,1M,4M,16M,64M,128M", 4: "8,8K,64K,1M,16M,128M"}
MIDDLE = "64K,1M,16M"
COLLECTIVES = {
    2: "all_gather,reduce_scatter,broadcast,all_to_all,reduce,gather,scatter,sendrecv",
    4: "all_gather,reduce_scatter,broadcast,all_to_all",
}
PARTS = ("all_reduce", "collectives", "dtypes", "ddp", "overhead", "overlap")
MIN_RATIO_CAPTION = "Time of the others / time of mpi-gdr, the smallest over the sizes of each row:"
# Rows of all_reduce's first table: label, contender, from and to bytes.
RANGES = (
    ("8 B - 8 KiB", "mpi-gdr", 8, 8 << 10),
    ("64 KiB", "mpi-gdr", 64 << 10, 64 << 10),
    ("1 MiB", "mpi-gdr", 1 << 20, 1 << 20),
    ("16 - 128 MiB", "mpi-gdr", 16 << 20, 128 << 20),
    ("16 - 128 MiB, group memory", "group", 16 << 20, 128 << 20),
)


class Results(TypedDict):
    """The contents of results.json."""

    comparisons: list[Comparison]
    others: dict[str, JobResults]  # by benchmark


def main(argv: list[str], ranks: int | None) -> int:
    """Exit status: 1 if an element was wrong."""
    parser = Parser(prog="mpi-gdr bench suite", description="All benchmarks of docs/performance.md.")
    add = parser.add_argument
    add("--out", type=Path, default=Path("out/bench"), metavar="FOLDER", help="(default: %(default)s)")
    add("--only", default=",".join(PARTS), metavar="LIST", help="some of %(default)s")
    add("--rounds", type=positive, default=3, metavar="K", help="jobs of each contender (default: 3)")
    add(
        "--quick",
        action="store_true",
        help="two ranks, few sizes, calls and contenders: shows that it works, measures nothing",
    )
    options = parser.parse_args(argv)
    parts = options.only.split(",")
    for part in parts:
        if part not in PARTS:
            parser.error(f"--only {part}: expected some of {', '.join(PARTS)}")
    if ranks is not None:
        parser.error(f"-n {ranks}: the suite runs on 2 and on 4 ranks, leave -n out")
    ranks_of_jobs(parser, 2)
    if "all_reduce" in parts:
        rank_command.require_matplotlib(parser, "--only all_reduce")
    options.out.mkdir(parents=True, exist_ok=True)
    results: Results = {"comparisons": [], "others": {}}
    page: list[str] = []
    begin = time.monotonic()
    for lines in sections(options, parts, results):
        page += [*([] if page else head(results)), *lines, ""]
        (options.out / "performance.md").write_text("\n".join(page))  # a later part may fail
        (options.out / "results.json").write_text(json.dumps(results) + "\n")
    print("\n".join(page))
    minutes = (time.monotonic() - begin) / 60
    progress(f"{minutes:.1f} minutes; performance.md, results.json and plots are in {options.out}")
    return 1 if any(found["wrong"] for found in results["comparisons"]) else 0


def head(results: Results) -> list[str]:
    """Describes the machine as the first job found it."""
    measured = [*results["comparisons"], *results["others"].values()]
    return [f"{compare.machine_of(measured[0]['conditions'])}.", ""]


def sections(options: argparse.Namespace, parts: Sequence[str], results: Results) -> Iterator[list[str]]:
    """Yields the page's sections; appends the measurements to `results`."""

    def compared(ranks: int, arguments: list[str]) -> list[Comparison]:
        found = run_comparison(ranks, arguments, options.rounds, options.quick)
        results["comparisons"] += found
        return found

    if "all_reduce" in parts:
        by_ranks = {}
        tables: list[str] = []
        for ranks, sizes in list(SIZES.items())[: 1 if options.quick else None]:
            (found,) = compared(ranks, ["all_reduce", "--sizes", sizes, "--compare", "group,gloo,mpi"])
            by_ranks[ranks] = found
            from .plot import plot_comparison

            picture = f"all_reduce-{ranks}.png"
            plot_comparison(found, str(options.out / picture))
            tables += ["", f"![all_reduce on {ranks} ranks]({picture})", "", *section_of(found)]
        yield ["## all_reduce", "", MIN_RATIO_CAPTION, "", *min_ratios_by_size(by_ranks), *tables]
    if "collectives" in parts:
        every = []
        for ranks, names in COLLECTIVES.items():
            every += compared(ranks, [names, "--sizes", MIDDLE, "--compare", "gloo,mpi"])
        tables = [line for found in every for line in ("", *section_of(found))]
        yield ["## Other collectives", "", MIN_RATIO_CAPTION, "", *min_ratios(every), *tables]
    if "dtypes" in parts:
        lines = ["## 16-bit floats"]
        for dtype in ("bfloat16", "float16"):
            arguments = ["all_reduce", "--sizes", MIDDLE, "-d", dtype, "--compare", "group,gloo,mpi"]
            (found,) = compared(2, arguments)
            lines += ["", *section_of(found), *time_per_byte(found, results["comparisons"])]
        yield lines
    titles = {
        "ddp": (ddp, "## A DDP step", ["--steps", "2", "--compare", ""]),
        "overhead": (overhead, "## Host time of small calls", ["--iters", "2"]),
        "overlap": (overlap, "## Computation beside communication", ["--iters", "1", "--sizes", "64K"]),
    }
    for name, (module, title, quick) in titles.items():
        if name in parts:
            command = module.command()
            argv = [
                *(quick if options.quick else []),
                "--rounds",
                str(1 if options.quick else options.rounds),
            ]
            found = command.collect(argv, command.parser.parse_args(argv), 2)
            results["others"][name] = found
            yield [title, "", *report_lines(found, module.markdown)]


def section_of(found: Comparison) -> list[str]:
    """A comparison without the machine, which the page describes once."""
    return compare.markdown(found, machine=False)


def run_comparison(ranks: int, arguments: list[str], rounds: int, quick: bool) -> list[Comparison]:
    """The comparison that `mpi-gdr bench` makes with these arguments."""
    if quick:
        arguments = [*arguments, "--sizes", "8,64K", "-n", "2", "-w", "1", "--compare", "mpi"]
        rounds = 1
    parser = parser_of_command()
    options = parser.parse_args([*arguments, "--rounds", str(rounds)])
    check_options(parser, options)
    progress(f"{' '.join(arguments)} on {ranks} ranks")
    return compare.collect(options, ranks)


def min_ratios_by_size(by_ranks: dict[int, Comparison]) -> list[str]:
    """Least speedup over the others within each range of sizes."""
    heads = [f"{NAMES[name]} / ours, {p} ranks" for name in ("gloo", "mpi") for p in by_ranks]
    heads = ["all_reduce, float32", *heads, *(f"% of limit, {p} ranks" for p in by_ranks)]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    for label, contender, low, high in RANGES:
        if not all(contender in found["contenders"] for found in by_ranks.values()):
            continue
        cells = [label]
        for other in ("gloo", "mpi"):
            for found in by_ranks.values():
                rows = rows_between(found, low, high) if other in found["contenders"] else []
                least = [statistics.median(ratio(row, other, contender)) for row in rows]
                cells.append(number(min(least)) if least else "")
        for found in by_ranks.values():
            known = [percents(row, contender) for row in rows_between(found, low, high)]
            least = [statistics.median(values) for values in known if values]
            cells.append(number(min(least)) if least else "")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def min_ratios(comparisons: Sequence[Comparison]) -> list[str]:
    """A row per collective and number of ranks: the least ratio over all sizes and forms."""
    names = [name for name in ("gloo", "mpi") if name in comparisons[0]["contenders"]]
    heads = ["collective, float32", "ranks", *(f"{NAMES[name]} / mpi-gdr" for name in names), "% of limit"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    for found in comparisons:
        cells = [found["collective"], str(found["ranks"])]
        for name in names:
            least = [statistics.median(r) for row in found["rows"] if (r := ratio(row, name, "mpi-gdr"))]
            cells.append(number(min(least)) if least else "")
        known = [percents(row, "mpi-gdr") for row in found["rows"]]
        least = [statistics.median(values) for values in known if values]
        cells.append(number(min(least)) if least else "")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def rows_between(found: Comparison, low: int, high: int) -> list[ComparedRow]:
    """The in-place rows of low to high bytes."""
    return [row for row in found["rows"] if row["place"] == "in_place" and low <= row["bytes"] <= high]


def time_per_byte(found: Comparison, comparisons: Sequence[Comparison]) -> list[str]:
    """A sentence that compares this dtype's time with float32's at equal bytes, if both were measured."""
    for other in comparisons:
        same = other["collective"] == found["collective"] and other["ranks"] == found["ranks"]
        if same and other["type"] == "float32":
            times = {row["bytes"]: row for row in rows_between(other, 0, 1 << 62)}
            texts = []
            for row in rows_between(found, 0, 1 << 62):
                if row["bytes"] in times:
                    ratios = [
                        statistics.median(cell["p50_us"])
                        for r in (row, times[row["bytes"]])
                        if (cell := r["cells"]["mpi-gdr"])
                    ]
                    texts.append(f"{number(ratios[0] / ratios[1])} at {row['bytes']} bytes")
            return [
                "",
                f"Time per byte, {found['type']} / float32 (mpi-gdr): {', '.join(texts)}.",
            ]
    return []
