"""Sizes of the folders, and which rooms (folders) of csrc include which: python tools/house.py (make house)

An include climbs if the included room includes the including one, perhaps through others.
"""

from __future__ import annotations

import graphlib
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
CSRC = ROOT / "csrc"
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)
TREES = ("csrc", "mpi_backend", "tests")
SOURCES = {".cpp", ".hpp", ".cu", ".cuh", ".inc", ".in", ".txt", ".map", ".py", ".pyi", ".sh"}


def files_of(tree: str) -> dict[Path, int]:
    """{source file: lines}."""
    paths = [path for path in (ROOT / tree).rglob("*") if path.suffix in SOURCES]
    return {path: path.read_bytes().count(b"\n") for path in paths}


def folders(tree: str) -> dict[str, dict[Path, int]]:
    """Files by folder: every folder of csrc, top-level folders of other trees."""
    found: dict[str, dict[Path, int]] = defaultdict(dict)
    for path, lines in files_of(tree).items():
        parts = path.parent.relative_to(ROOT / tree).parts
        found["/".join(parts if tree == "csrc" else parts[:1]) or "."][path] = lines
    return dict(sorted(found.items()))


def rooms() -> dict[str, set[str]]:
    """{room: other rooms that it includes}."""
    found: dict[str, set[str]] = {}
    for path in CSRC.rglob("*.[chi]*"):
        room = path.parent.relative_to(CSRC).as_posix()
        named = (CSRC / name for name in INCLUDE.findall(path.read_text()))
        others = {file.parent.relative_to(CSRC).as_posix() for file in named if file.exists()}
        found.setdefault(room, set()).update(others - {room})
    return found


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Rooms that include each other in a circle, the first one also last; empty if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1][::-1]
    return []


def below(graph: dict[str, set[str]], room: str) -> set[str]:
    """The rooms that it includes, directly or through others."""
    seen: set[str] = set()
    ahead = [room]
    while ahead:
        new = graph.get(ahead.pop(), set()) - seen
        seen |= new
        ahead += new
    return seen


def climbs(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    return sorted((room, other) for room in graph for other in graph[room] if room in below(graph, other))


def row(name: str, files: dict[Path, int]) -> tuple[str, int, int, str]:
    largest = max(files, key=lambda path: files[path])
    return name, len(files), sum(files.values()), f"{largest.relative_to(ROOT)} ({files[largest]})"


def table() -> str:
    """For docs/architecture.md (see tests/docs/test_pages.py), rounded so that it changes rarely."""
    lines = ["| Tree | Lines |", "|---|---|"]
    lines += [f"| `{tree}/` | {round(sum(files_of(tree).values()), -3):,} |" for tree in TREES]
    return "\n".join(lines)


def main() -> None:
    print(table() + "\n")
    for tree in TREES:
        print("{:<28}{:>6} files {:>7} lines   {}".format(*row(tree, files_of(tree))))
        for name, files in folders(tree).items():
            print("  {:<26}{:>6} files {:>7} lines   {}".format(*row(name, files)))
    graph = rooms()
    print("\nrooms of csrc, and what they include")
    for room in sorted(graph):
        print(f"  {room:<26}{', '.join(sorted(graph[room])) or '-'}")
    print("climbs:", ", ".join(f"{room} -> {other}" for room, other in climbs(graph)) or "none")
    print("circle:", " -> ".join(circle(graph)) or "none")


if __name__ == "__main__":
    main()
