"""Makes a selection table from medians. Needs neither torch nor MPI."""

from __future__ import annotations

import datetime
import itertools
import math
import os
import platform
from collections.abc import Iterable
from typing import NamedTuple, TypedDict

from .. import host
from ..reports import JobSummary

# `adaptive` replaces `staged` unless it takes this many times as long.
ADAPTIVE_PAYS = 1.25
# To replace the previous size's algorithm, another must be more than this many times as fast: less is noise.
HYSTERESIS = 1.05
INTEGERS = ("int32",)
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
# Condition in a measured dtype's rows. float32 has none: its rows come last and match all other dtypes.
CONDITIONS = {"any": "", "float32": "", "bfloat16": "dtype=half", "int32": "dtype=integer"}
MAX_BYTES = 2**64 - 1
# Rows start at 0 if the least measured bytes are at most SMALL, and are open-ended if the largest whole
# buffer is at least LARGE.
SMALL, LARGE = 1 << 10, 16 << 20


class Point(TypedDict):
    """One call at one size: the times of each algorithm that supports it."""

    collective: str
    dtype: str
    bytes: int  # the table's unit: whole buffer, or one rank's block
    whole: int  # bytes of the whole buffer
    built_in: str  # choice of the table in force
    median_us: dict[str, float]
    quartile_us: dict[str, float]
    calls: dict[str, int]


class JobResult(TypedDict):
    """One job's measurements."""

    ranks: int
    reach: str
    about: JobSummary
    points: list[Point]


class Curve(NamedTuple):
    """Choices for a collective, number of ranks and dtype, by growing bytes."""

    ranks: int
    reach: str
    collective: str
    dtype: str
    points: list[Point]
    algorithms: list[str]  # by point

    def segments(self) -> list[tuple[int, int, str]]:
        """(from, to, algorithm) in bytes, [from, to)."""
        first, last = self.points[0], self.points[-1]
        barrier = last["whole"] == 0
        start = 0 if first["bytes"] <= SMALL else first["bytes"]
        final = MAX_BYTES if barrier or last["whole"] >= LARGE else 2 * last["bytes"]
        limits = [limit_between(a["bytes"], b["bytes"]) for a, b in itertools.pairwise(self.points)]
        found: list[tuple[int, int, str]] = []
        for end, algorithm in zip([*limits, final], self.algorithms, strict=True):
            if found and found[-1][2] == algorithm:
                start = found.pop()[0]
            found.append((start, end, algorithm))
            start = end
        return found


def choose(results: Iterable[JobResult], library_order: bool) -> list[Curve]:
    """One curve per job, collective and dtype. `library_order`: native may reduce floats."""
    curves = []
    for result in results:
        keys = dict.fromkeys((p["collective"], p["dtype"]) for p in result["points"])
        for collective, dtype in keys:
            points = [p for p in result["points"] if (p["collective"], p["dtype"]) == (collective, dtype)]
            points.sort(key=lambda point: point["bytes"])
            algorithms = with_hysteresis(points, allows_native(collective, dtype, library_order))
            curves.append(Curve(result["ranks"], result["reach"], collective, dtype, points, algorithms))
    return curves


def allows_native(collective: str, dtype: str, library_order: bool) -> bool:
    """Whether the library's own algorithm is allowed."""
    return library_order or collective not in REDUCTIONS or dtype in INTEGERS


def with_hysteresis(points: list[Point], native: bool) -> list[str]:
    """The fastest algorithm of each point, unless the previous point's (at first, the built-in one) is about
    as fast. Lower quartiles must agree, because other load hardly affects them."""
    chosen: list[str] = []
    for point in points:
        medians, quartiles = (
            {name: t for name, t in times.items() if native or name != "native"}
            for times in (point["median_us"], point["quartile_us"])
        )
        before = chosen[-1] if chosen else point["built_in"]
        better = [
            name
            for name in medians
            if before not in medians
            or (medians[name] * HYSTERESIS < medians[before] and quartiles[name] < quartiles[before])
        ]
        chosen.append(min(better, key=lambda name: medians[name]) if better else before)
        # Only tensors in ordinary memory are timed; in group memory adaptive is several times as fast.
        if chosen[-1] == "staged" and medians.get("adaptive", math.inf) < ADAPTIVE_PAYS * medians["staged"]:
            chosen[-1] = "adaptive"
    return chosen


def limit_between(low: int, high: int) -> int:
    """The smallest power of two not below the geometric mean of two sizes."""
    return 1 << math.ceil((math.log2(low) + math.log2(high)) / 2)


def table_text(
    results: list[JobResult], curves: list[Curve], command: str, extend: bool, load: float = 0.0
) -> str:
    """The file, with its measurements as comments."""
    lines = header(results, command, extend, load)
    sizes = sorted({result["ranks"] for result in results})
    for ranks in sizes:
        for collective in dict.fromkeys(curve.collective for curve in curves if curve.ranks == ranks):
            mine = [c for c in curves if (c.ranks, c.collective) == (ranks, collective)]
            # The first matching row wins: general ones come last.
            mine.sort(key=lambda curve: CONDITIONS[curve.dtype] == "")
            general = mine[-1] if CONDITIONS[mine[-1].dtype] == "" else None
            for curve in mine:
                lines += ["", *medians_as_comment(curve)]
                if general and curve is not general and curve.segments() == general.segments():
                    lines.append(f"# {curve.dtype}: as {general.dtype} below")
                    continue
                lines += rows_of(curve, condition_on_ranks(ranks, sizes, extend))
    return "\n".join(lines) + "\n"


def condition_on_ranks(ranks: int, sizes: list[int], extend: bool) -> str:
    """A row's condition on the number of ranks."""
    above = [size for size in sizes if size > ranks]
    if not extend or (above and above[0] == ranks + 1):
        return f"ranks={ranks}"
    return f"ranks={ranks}-{above[0] - 1 if above else 'inf'}"


def rows_of(curve: Curve, ranks: str) -> list[str]:
    """A curve's rows."""
    rows = []
    for start, end, algorithm in curve.segments():
        floats = curve.collective in REDUCTIONS and curve.dtype not in INTEGERS
        conditions = [
            "reach=messages" if curve.reach == "none" else "reach=node",
            ranks,
            CONDITIONS[curve.dtype],
            "order=library" if algorithm == "native" and floats else "",
        ]
        everything = (start, end) == (0, MAX_BYTES)
        bytes_text = "" if everything else f"{size_text(start)}-{size_text(end)}"
        text = f"{curve.collective:<15} {' '.join(filter(None, conditions)):<39} {bytes_text:<11} {algorithm}"
        rows.append(text)
    return rows


def medians_as_comment(curve: Curve) -> list[str]:
    """The measurements behind a curve."""
    kind = "" if curve.dtype == "any" else f", {curve.dtype}"
    lines = [f"# {curve.collective}, {curve.ranks} ranks{kind}: medians in us (* taken, = built-in)"]
    for point, taken in zip(curve.points, curve.algorithms, strict=True):
        times = sorted(point["median_us"].items(), key=lambda item: item[1])
        shown = [
            f"{name} {t:.4g}{'*' if name == taken else ''}{'=' if name == point['built_in'] else ''}"
            for name, t in times
        ]
        lines.append(f"#   {size_text(point['bytes']):>5}  {'  '.join(shown)}")
    return lines


def header(results: list[JobResult], command: str, extend: bool, load: float) -> list[str]:
    """The file's first comment."""
    about = results[0]["about"]
    today = datetime.date.today().isoformat()
    return [
        "# A selection table for MPI_GDR_TUNING; docs/tuning.md of mpi-gdr explains the format.",
        f"# Made by: {command}",
        f"# Date:    {today}; mpi-gdr {about['mpi_gdr']}, torch {about['torch']}",
        f"# Library: {about['library']}",
        f"# Machine: {machine()}; load average {load:.2g} when it began",
        f"# Ranks:   {', '.join(str(result['ranks']) for result in results)}"
        + (", extended to the sizes between and above" if extend else "; others use the built-in table"),
    ]


def machine() -> str:
    """Describes this machine."""
    cores, system = len(os.sched_getaffinity(0)), f"{platform.system()} {platform.release()}"
    return f"{host.cpu_model()}, {cores} cores, {system}"


def size_text(size: int) -> str:
    """A size in the table's spelling."""
    if size == MAX_BYTES:
        return "inf"
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)
