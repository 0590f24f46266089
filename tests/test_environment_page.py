"""docs/environment.md lists exactly the variables that the extension knows, with their defaults."""

from __future__ import annotations

import re
from pathlib import Path

from mpi_backend.extension import _C

PAGE = Path(__file__).parent.parent / "docs" / "environment.md"


def test_page_lists_all_variables() -> None:
    rows = dict(re.findall(r"^\| `(MPI_GDR_\w+)` \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE))
    table = {row["name"]: row["default"] for row in _C.env_table()}
    assert set(rows) == set(table)
    for name, default in table.items():
        if default:
            assert rows[name].strip() == f"`{default}`", name
