"""The rooms of csrc, which are its folders, include each other in one direction only."""

import graphlib
import pathlib
import re

CSRC = pathlib.Path(__file__).parent.parent / "csrc"
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)


def includes(path: pathlib.Path) -> list[pathlib.Path]:
    named = (CSRC / name for name in INCLUDE.findall(path.read_text()))
    return [file for file in named if file.exists()]


def test_rooms_include_each_other_in_no_circle():
    rooms: dict[str, set[str]] = {}
    for path in CSRC.rglob("*.[chi]*"):
        room = path.parent.relative_to(CSRC).as_posix()
        others = {file.parent.relative_to(CSRC).as_posix() for file in includes(path)}
        rooms.setdefault(room, set()).update(others - {room})
    assert len(rooms) > 15 and rooms["common"] == set()
    graphlib.TopologicalSorter(rooms).prepare()  # CycleError names the circle
