"""Folders of csrc (rooms) include each other in one direction only; files stay short."""

import graphlib
import itertools
import re
import runpy
from pathlib import Path

HOUSE = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "house.py"))
LONGEST = 420
LONGER = {"csrc/job/liveness.cpp"}  # needs a redesign


def test_rooms_include_each_other_in_no_circle():
    rooms = HOUSE["rooms"]()
    assert len(rooms) > 15 and rooms["common"] == set()
    assert HOUSE["circle"](rooms) == [] == HOUSE["climbs"](rooms)


def test_a_circle_and_its_climbs_are_found():
    rooms = {"job": {"engine"}, "engine": {"common", "job"}, "common": set(), "top": {"job"}}
    assert set(HOUSE["circle"](rooms)) == {"job", "engine"}
    assert HOUSE["climbs"](rooms) == [("engine", "job"), ("job", "engine")]


def test_no_file_is_too_long():
    root = HOUSE["ROOT"]
    files = {
        path.relative_to(root).as_posix(): n
        for tree in HOUSE["TREES"]
        for path, n in HOUSE["files_of"](tree).items()
    }
    assert {name for name, lines in files.items() if lines > LONGEST} <= LONGER


def test_includes_go_the_way_of_the_arrows_on_the_page():
    """The page uses the rooms' names."""
    page = (
        (HOUSE["ROOT"] / "docs" / "architecture.md")
        .read_text()
        .partition("```mermaid")[2]
        .partition("```")[0]
    )
    below: dict[str, set[str]] = {}
    for chain in re.findall(r"^  \w+(?: --> \w+)+$", page, re.MULTILINE):
        for room, other in itertools.pairwise(chain.split(" --> ")):
            below.setdefault(room.strip(), set()).add(other)
    for room in graphlib.TopologicalSorter(below).static_order():
        below[room] = {room}.union(*(below[other] for other in below.get(room, ())))
    top = {
        (room.split("/")[0], other.split("/")[0])
        for room, others in HOUSE["rooms"]().items()
        for other in others
    }
    assert {(room, other) for room, other in top if other not in below[room]} == set()
