"""`mpi-gdr selftest` as text: a table, the failures, a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import rank_command
from ..columns import row_line
from .checker import Failure, Result
from .operations import OPERATIONS

if TYPE_CHECKING:
    from . import Report

MAX_SHOWN = 20
HEADS = ("operation", "cases", "largest error / bound", "result")
WIDTHS = (max(map(len, OPERATIONS)), 8, len(HEADS[2]), len(HEADS[3]))  # rows are printed as they come
NUMBERS = (1, 2)  # right-aligned columns


def as_text(report: Report) -> str:
    """The whole report."""
    return "\n".join([*head(report), *map(row_line_of, report["operations"]), *tail(report)])


def head(report: Report) -> list[str]:
    """The lines before the rows."""
    lines = [*rank_command.summary_lines(report["info"]), f"tensors on {report['device']}"]
    lines += [f"forced by {name}: {value}" for name, value in report["forced"].items()]
    rule = ["-" * width for width in WIDTHS]
    return [*lines, row_line(HEADS, WIDTHS, NUMBERS), row_line(rule, WIDTHS, NUMBERS)]


def row_line_of(row: Result) -> str:
    """One operation's line."""
    if row.get("not_run"):
        return row_line((row["operation"], "0", "", "not run"), WIDTHS, NUMBERS)
    worst = f"{row['worst']:.2f}" if row.get("worst") else "exact"
    result = "ok" if row["ok"] else describe_failure(row)
    return row_line((row["operation"], str(row["cases"]), worst, result), WIDTHS, NUMBERS)


def tail(report: Report) -> list[str]:
    """The failures and the verdict."""
    failures = [failure for row in report["operations"] for failure in row["failures"]]
    lines = [f"FAILED {failure_line(failure)}" for failure in failures[:MAX_SHOWN]]
    if len(failures) > MAX_SHOWN:
        lines.append(f"... and {len(failures) - MAX_SHOWN} more; --json has them")
    return [*lines, verdict(report)]


def describe_failure(row: Result) -> str:
    """The result cell of an operation that failed."""
    parts = []
    if row.get("wrong"):
        parts.append(f"{row['wrong']} wrong")
    if row.get("differ"):
        parts.append(f"{row['differ']} differ between ranks")
    return "FAILED: " + (", ".join(parts) or "a rank sent no report")


def failure_line(failure: Failure) -> str:
    """One failure with its case's parameters."""
    rest = {
        key: value for key, value in failure.items() if key not in ("operation", "rank", "got", "expected")
    }
    words = " ".join(f"{key}={value}" for key, value in rest.items())
    where = f"{failure['operation']} on rank {failure['rank']}"
    return f"{where}: {words} got={failure['got']} expected={failure['expected']}"


def verdict(report: Report) -> str:
    """The last line."""
    cases = sum(row["cases"] for row in report["operations"])
    bad = [row["operation"] for row in report["operations"] if not row["ok"] and not row.get("not_run")]
    if report["ok"]:
        return f"mpi-gdr selftest: passed, {cases} cases on {report['info']['ranks']} ranks"
    return f"mpi-gdr selftest: FAILED in {', '.join(bad)} ({cases} cases on {report['info']['ranks']} ranks)"
