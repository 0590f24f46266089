"""Through which files and rooms calls go: a table of what tools/calls/run.sh has recorded.

    python report.py FOLDER

Of what rank 0 runs on the calling thread: files and rooms of csrc whose functions run, pairs of a file and
another one that it calls, and climbs: pairs of which the second lies in a room that includes the first one's,
perhaps through others (an interface, as a rule: an observer, a transport). However often a wait polls, a pair
counts once. Small functions of headers count: nothing is left out as inlined. The last column: how often
engine/calls.cpp is entered, which says what can be said of a call by itself.
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
    """The file of csrc by library and address; "" for one of another tree."""
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
    """How often a file of csrc is entered from another one, by both; "" calls the first."""
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
