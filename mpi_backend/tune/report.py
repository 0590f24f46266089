"""Summary of a table that `mpi-gdr tune` made."""

from __future__ import annotations

import math

from .table import MAX_BYTES, Curve, JobResult, allows_native, size_text


def summary(results: list[JobResult], curves: list[Curve], library_order: bool) -> list[str]:
    """A line per curve: the choice and its speedup over the built-in one."""
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
            algorithm if end == MAX_BYTES else f"{algorithm} to {size_text(end)}"
            for _, end, algorithm in curve.segments()
        )
        lines.append(f"{curve.collective:<16}{curve.ranks:>5}  {curve.dtype:<9} {text:<28} {choice}")
    return [*lines, *faster_but_not_allowed(curves, library_order)]


def faster_but_not_allowed(curves: list[Curve], library_order: bool) -> list[str]:
    """Curves where the library's own reduction is faster but not allowed."""
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
