"""A table as plain text, as wide on a pipe as on a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> list[str]:
    """The lines: heads, a rule, the rows. Columns whose index is in `numbers` stand to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if i in numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return [line(heads), line(["-" * width for width in widths]), *map(line, rows)]
