"""Plots time and bus bandwidth against size, a line per contender. Needs matplotlib."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .. import host
from .collectives import KINDS
from .compare import Comparison, machine_of
from .jobs import NAMES, Conditions, conditions
from .report import FORMS, Form, Report

Lines = dict[str, dict[int, list[float]]]  # contender -> bytes -> microseconds by round


def plot_job(report: Report, path: str) -> None:
    """Plots a single job: a line for each form."""
    lines: Lines = {}
    for form in FORMS:
        times = {row["bytes"]: [t["p50_us"]] for row in report["rows"] if (t := row[form])}
        if times:
            lines[form.replace("_", " ")] = times
    info = report["info"]
    title = f"{report['collective']}, {report['rows'][0]['type']}, {info['ranks']} ranks, {info['backend']}"
    state = conditions(info)
    draw(lines, KINDS[report["collective"]].bus_factor(info["ranks"]), [title, where_and_when(state)], path)


def plot_comparison(found: Comparison, path: str) -> None:
    """Plots the in-place times if mpi-gdr has them, else the out-of-place ones."""
    ours = found["contenders"][0]
    rows = [row for row in found["rows"] if row["cells"][ours]]
    form: Form = "in_place" if any(row["place"] == "in_place" for row in rows) else "out_of_place"
    lines: Lines = {}
    for name in found["contenders"]:
        times = {
            row["bytes"]: cell["p50_us"]
            for row in found["rows"]
            if row["place"] == form and (cell := row["cells"][name])
        }
        if times:
            lines[NAMES[name]] = times
    title = f"{found['collective']}, {found['type']}, {found['ranks']} ranks"
    titles = [title, where_and_when(found["conditions"])]
    draw(lines, KINDS[found["collective"]].bus_factor(found["ranks"]), titles, path)


def where_and_when(state: Conditions) -> str:
    """The machine and the date, which make pictures comparable."""
    return f"{machine_of(state)}; {state['date']}"


def ticks_of(totals: Sequence[int], most: int = 8) -> list[int]:
    """At most `most` of the sizes, with the first and the last."""
    step = max(1, -(-(len(totals) - 1) // (most - 1)))
    return [*totals[:-1:step], totals[-1]]


def draw(lines: Lines, bus_factor: float, titles: Sequence[str], path: str) -> None:
    """Draws medians as lines, and bands from the least to the largest."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, times in lines.items():
        totals = list(times)
        medians = [statistics.median(samples) for samples in times.values()]
        (line,) = left.plot(totals, medians, marker=".", label=name)
        low, high = [min(samples) for samples in times.values()], [max(samples) for samples in times.values()]
        left.fill_between(totals, low, high, alpha=0.15, color=line.get_color())
        bandwidths = [bus_factor * t / median * 1e-3 for t, median in zip(totals, medians, strict=True)]
        right.plot(totals, bandwidths, marker=".", label=name)
    left.set(ylabel="time, us", yscale="log")
    right.set(ylabel="bus bandwidth, GB/s")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        ticks = ticks_of(sorted({total for times in lines.values() for total in times}))
        axes.set_xticks(ticks, [host.size_text(total) for total in ticks], rotation=45)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle("\n".join(titles), fontsize="medium")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
