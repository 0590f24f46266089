"""A table of how many lines of the code for GPUs have run, and which have not: tools/coverage.py BUILD. Fails
below the goals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What, which files, how many lines of 100. Of kernels (*.cu, *.cuh) the host runs nothing.
PARTS = [
    ("csrc/device/cuda", r"csrc/device/cuda/.*\.[ch]pp$", 95),
    ("csrc/transport/ipc", r"csrc/transport/ipc/", 95),
    (
        "csrc/execution/device and csrc/engine, what serves devices",
        r"csrc/(execution/device/|engine/(device_release|group_device)\.)",
        90,
    ),
]


def lines_of(build: Path) -> dict[str, dict[int, bool]]:
    """By file and line: whether it has run."""
    gcovr = [sys.executable, "-m", "gcovr", "--root", str(ROOT), "--json", "-"]
    gcovr += [
        "--object-directory",
        str(build),
        "--gcov-ignore-parse-errors=all",
        str(build),
    ]
    for _, pattern, _ in PARTS:
        gcovr += ["--filter", pattern]
    said = subprocess.run(gcovr, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
    return {
        file["file"]: {line["line_number"]: line["count"] > 0 for line in file["lines"]}
        for file in json.loads(said)["files"]
    }


def ranges(numbers: list[int]) -> str:
    """3-5, 9"""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in found)


def main() -> bool:
    files = lines_of(Path(sys.argv[1]))
    print("| | lines | run | % | not run |\n|---|--:|--:|--:|---|")
    good = True
    for name, pattern, goal in PARTS:
        lines = run = 0
        for file, counts in sorted(files.items()):
            if not re.match(pattern, file):
                continue
            missed = sorted(line for line, has_run in counts.items() if not has_run)
            print(row(file, len(counts), len(counts) - len(missed), ranges(missed)))
            lines += len(counts)
            run += len(counts) - len(missed)
        reached = lines > 0 and 100 * run >= goal * lines
        print(row(f"**{name}**", lines, run, "" if reached else f"**the goal is {goal} %**"))
        good = good and reached
    return good


def row(name: str, lines: int, run: int, rest: str) -> str:
    return f"| {name} | {lines} | {run} | {100 * run / max(lines, 1):.1f} | {rest} |"


sys.exit(not main())
