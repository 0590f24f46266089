"""Time and bus bandwidth against size, a line per contender. Needs matplotlib."""

from __future__ import annotations

import statistics

from .collectives import KINDS
from .compare import Comparison
from .jobs import NAMES
from .report import PLACES, Place, Report

Lines = dict[str, dict[int, list[float]]]  # contender -> bytes -> microseconds, one a round


def plot_job(report: Report, path: str) -> None:
    """A single job: a line for each form."""
    lines: Lines = {}
    for place in PLACES:
        times = {row["bytes"]: [t["p50_us"]] for row in report["rows"] if (t := row[place])}
        if times:
            lines[place.replace("_", " ")] = times
    info = report["info"]
    title = f"{report['collective']}, {report['rows'][0]['type']}, {info['ranks']} ranks, {info['backend']}"
    draw(lines, KINDS[report["collective"]].bus_factor(info["ranks"]), title, path)


def plot_comparison(found: Comparison, path: str) -> None:
    """In place where mpi-gdr has that, else out of place."""
    ours = found["contenders"][0]
    rows = [row for row in found["rows"] if row["cells"][ours]]
    place: Place = "in_place" if any(row["place"] == "in_place" for row in rows) else "out_of_place"
    lines: Lines = {}
    for name in found["contenders"]:
        times = {
            row["bytes"]: cell["p50_us"]
            for row in found["rows"]
            if row["place"] == place and (cell := row["cells"][name])
        }
        if times:
            lines[NAMES[name]] = times
    title = f"{found['collective']}, {found['type']}, {found['ranks']} ranks"
    draw(lines, KINDS[found["collective"]].bus_factor(found["ranks"]), title, path)


def draw(lines: Lines, bus_factor: float, title: str, path: str) -> None:
    """Medians as lines, from the least to the largest as bands."""
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
        axes.set_xlabel("bytes")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
