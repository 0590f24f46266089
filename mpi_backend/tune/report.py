"""What `mpi-gdr tune` shows: how far it is, and what its table changes. With rich, if it is there."""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

from .table import MOST, Curve, JobResult, allows_native, size_text

PROGRESS = re.compile(r"@tune (\d+) (\d+) (.*)$")


class Progress:
    """A context. On standard error: a bar on a terminal that rich can use, otherwise a line per job."""

    def __init__(self, jobs: int) -> None:
        self._jobs, self._begun = jobs, 0
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        if sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import Progress as Bar
            except ImportError:
                return
            self._bar = Bar(console=Console(stderr=True))

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def end(self) -> None:
        if self._bar:
            self._bar.stop()

    def job(self, name: str) -> None:
        self._begun += 1
        if self._bar:
            self._task = self._bar.add_task(name, total=None)
        else:
            print(f"mpi-gdr tune: job {self._begun} of {self._jobs}, {name}", file=sys.stderr, flush=True)

    def line(self, text: str) -> bool:
        """Whether a job's line was about its progress, and is shown."""
        match = PROGRESS.search(text)
        if match and self._bar:
            name = f"{self._bar.tasks[self._task].description.split(':')[0]}: {match[3]}"
            self._bar.update(self._task, completed=int(match[1]), total=int(match[2]), description=name)
        return match is not None


def summary(results: list[JobResult], curves: list[Curve], library_order: bool) -> list[str]:
    """A line for each curve: what is taken, and how much faster than the built-in choice."""
    lines = [f"{'collective':<16}{'ranks':>5}  {'dtype':<9} {'against built-in':<28} choice"]
    for curve in curves:
        ratios = [
            p["median_us"][p["built_in"]] / p["median_us"][taken]
            for p, taken in zip(curve.points, curve.algorithms, strict=True)
            if p["built_in"] in p["median_us"]
        ]
        text = "as fast"
        if ratios and any(
            taken != p["built_in"] for p, taken in zip(curve.points, curve.algorithms, strict=True)
        ):
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            text = f"{mean:.2f}x, {min(ratios):.2f}..{max(ratios):.2f}"
        choice = ", ".join(
            algorithm if end == MOST else f"{algorithm} to {size_text(end)}"
            for _, end, algorithm in curve.segments()
        )
        lines.append(f"{curve.collective:<16}{curve.ranks:>5}  {curve.dtype:<9} {text:<28} {choice}")
    return [*lines, *left_out(curves, library_order)]


def left_out(curves: list[Curve], library_order: bool) -> list[str]:
    """Where the library's own reduction is faster and was not taken."""
    lines = []
    for curve in curves:
        if allows_native(curve.collective, curve.dtype, library_order):
            continue
        gains = [
            (p["median_us"][taken] / p["median_us"]["native"], p["bytes"])
            for p, taken in zip(curve.points, curve.algorithms, strict=True)
            if "native" in p["median_us"]
        ]
        faster = [(gain, size) for gain, size in gains if gain > 1.05]
        if faster:
            gain, size = max(faster)
            lines.append(
                f"native {curve.collective} of {curve.dtype}, {curve.ranks} ranks, is faster at "
                f"{len(faster)} of {len(gains)} sizes (most: {gain:.2f}x at {size_text(size)}); "
                "--library-order takes it, at the price of results that may differ from call to call"
            )
    return lines
