"""Writes the extension's tables into docs/, between the comments that name this program: python
tools/tables.py

tests/docs/test_pages.py fails if a page is outdated.
"""

from __future__ import annotations

from pathlib import Path

from mpi_backend._tools import schedule
from mpi_backend.extension import _C

DOCS = Path(__file__).parents[1] / "docs"


def ranks_of(algorithm: dict) -> str:
    if algorithm["shared"]:
        return "of a node"
    return "on several nodes" if algorithm["two_level"] else "any"


def algorithms() -> str:
    rows = ["| Collective | Name | Ranks | Cost |", "|---|---|---|---|"]
    for a in schedule.algorithms():
        cost = f"`{a['summary']}`" if a["native"] else a["summary"]
        rows.append(f"| {a['collective']} | `{a['name']}` | {ranks_of(a)} | {cost} |")
    return "\n".join(rows)


def variables(expert: bool) -> str:
    rows = ["| Variable | Default | Allowed | Equal | Meaning |", "|---|---|---|---|---|"]
    for v in _C.env_table():
        if v["expert"] == expert:
            default, equal = f"`{v['default']}`" if v["default"] else "", "yes" if v["equal"] else ""
            rows.append(f"| `{v['name']}` | {default} | {v['allowed']} | {equal} | {v['description']} |")
    return "\n".join(rows)


TABLES = {
    ("algorithms.md", "Algorithms"): algorithms,
    ("environment.md", "Variables"): lambda: variables(expert=False),
    ("environment.md", "Variables for experts"): lambda: variables(expert=True),
}


def updated(page: str, title: str, table: str) -> str:
    begin = f"<!-- {title}: from here to the next comment, the output of tools/tables.py. -->\n"
    end = f"\n<!-- End of the {title.lower()}. -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"expected a line {begin.strip()!r}, and {end.strip()!r} behind it")
    return before + begin + table + end + after


if __name__ == "__main__":
    for (name, title), table in TABLES.items():
        path = DOCS / name
        path.write_text(updated(path.read_text(), title, table()))
