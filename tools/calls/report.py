"""Tabulates which files and rooms (folders) calls pass through, from the records of tools/calls/run.sh.

    python report.py FOLDER

Covers rank 0's calling thread: files and rooms of csrc whose functions run, pairs of a file and another one
that it calls, and climbs: pairs whose second file is in a room that includes the first one's, perhaps through
others (an interface, as a rule: an observer, a transport). A pair counts once, however often a wait polls.
Small functions of headers count, because nothing is inlined. The last column counts entries into
engine/calls.cpp.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

HOUSE = runpy.run_path(str(Path(__file__).parents[1] / "house.py"))


def files_of(entered: list[tuple[int, str, str]]) -> dict[tuple[str, str], str]:
    """{(library, address): file of csrc}, "" for other trees."""
    found = {}
    for library in {library for _, library, _ in entered}:
        addresses = sorted({address for _, of, address in entered if of == library})
        asked = subprocess.run(
            ["addr2line", "-e", library],
            input="\n".join(addresses),
            capture_output=True,
            text=True,
            check=True,
        )
        for address, line in zip(addresses, asked.stdout.splitlines(), strict=True):
            match = re.search(r"(?:^|/)csrc/([^:]+):", line)
            found[library, address] = match[1] if match and "/include/" not in line else ""
    return found


def entries_of(path: Path) -> Counter[tuple[str, str]]:
    """{(calling file, called file): number of calls} between files of csrc; the first caller is ""."""
    entered = []
    for line in path.read_text().splitlines():
        depth, library, address = line.split()
        entered.append((int(depth), library, address))
    files = files_of(entered)
    stack: list[tuple[int, str]] = [(-1, "")]
    entries: Counter[tuple[str, str]] = Counter()
    for depth, library, address in entered:
        while stack[-1][0] >= depth:
            stack.pop()
        if file := files[library, address]:
            if stack[-1][1] != file:
                entries[stack[-1][1], file] += 1
            stack.append((depth, file))
    return entries


def main() -> None:
    graph = HOUSE["rooms"]()
    below = {room: HOUSE["below"](graph, room) - {room} for room in graph}
    print("| Call | Files | Rooms | Pairs | Climbs | `calls.cpp` |\n|---|---|---|---|---|---|")
    climbs: dict[str, list[str]] = {}
    for path in sorted(Path(sys.argv[1]).glob("*.0")):
        entries = entries_of(path)
        files = {file for _, file in entries}
        rooms = {str(Path(file).parent) for file in files}
        climbs[path.stem] = sorted(
            f"{caller} -> {file}"
            for caller, file in entries
            if caller and str(Path(caller).parent) in below[str(Path(file).parent)]
        )
        asked = sum(times for (_, file), times in entries.items() if file == "engine/calls.cpp")
        row = (len(files), len(rooms), len(entries), len(climbs[path.stem]), asked)
        print(f"| `{path.stem}` | " + " | ".join(map(str, row)) + " |")
    for name, some in climbs.items():
        print(f"\nclimbs of {name}:", *some, sep="\n  ")


if __name__ == "__main__":
    main()
