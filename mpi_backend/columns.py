"""Tables as plain text."""

from __future__ import annotations

import itertools
import re
import shutil
import sys
from collections.abc import Iterable, Sequence


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> list[str]:
    """The heads, a rule, the rows. Columns with an index in `numbers` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    rule = ["-" * width for width in widths]
    return [row_line(cells, widths, numbers) for cells in (heads, rule, *rows)]


def row_line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[int] = ()) -> str:
    """One line; cells may exceed their columns."""
    padded = [
        cell.rjust(width) if i in numbers else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def for_screen(lines: Iterable[str]) -> list[str]:
    """Lines of Markdown, with tables in columns on a terminal."""
    if not sys.stdout.isatty():
        return list(lines)
    return from_markdown(lines, shutil.get_terminal_size().columns)


def from_markdown(lines: Iterable[str], width: int) -> list[str]:
    """Turns tables into columns; those wider than the terminal lose "(least..largest)"."""
    shown: list[str] = []
    for is_table, part in itertools.groupby(lines, lambda line: line.startswith("|")):
        if not is_table:
            shown += part
            continue
        heads, alignment, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in part)
        numbers = [i for i, mark in enumerate(alignment) if mark.endswith(":")]
        table = columns(heads, rows, numbers)
        if len(table[1]) > width:
            table = columns(
                heads, [[re.sub(r" \(\S+\.\.\S+\)$", "", cell) for cell in row] for row in rows], numbers
            )
            table.append("Medians; --json FILE has the least and the largest too.")
        shown += table
    return shown
